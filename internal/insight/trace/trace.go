// Package trace writes the timeline of a run as JSON in the Trace Event Format, which ui.perfetto.dev and chrome://tracing show.
//
// The run is a process of its own with a slice from its start to its end, in which instants mark events without
// duration: cached tasks, retries, skips, the cancellation. Each worker is a process, whose threads are lanes: an
// attempt is a slice in the first lane that is free, so that slices of one lane never overlap. Waits for an approval, a
// worker, the next attempt or the store are slices too, in lanes of a process "waits". Arrows lead to a task's
// first attempt from the attempts that made its inputs. Counters show how many commands ran and how many tasks waited
// for their turn.
//
// The format needs microseconds; events have milliseconds. An attempt takes at least one microsecond, so that arrows
// can begin and end within it.
package trace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/packages"
)

// Stores holds the sources of a timeline. Nothing is written to them.
type Stores struct {
	Records    executions.Records
	Executions *executions.Store
	Packages   *packages.Registry
}

// maxFlows bounds the arrows between tasks: each takes some 250 bytes, and viewers draw no more in reasonable time.
const maxFlows = 50_000

// Write writes the timeline of a run of a workspace, and returns the number of attempts in it. A run without events
// is taken from its record and from those records of its executions that have times.
func Write(ctx context.Context, w io.Writer, s Stores, ws string, run *runview.Report) (attempts int, err error) {
	t := &timeline{report: run}
	for e, err := range events.Read(ctx, s.Records, ws, run.RunID) {
		var damaged *events.DamagedError
		if errors.As(err, &damaged) {
			break // the report mentions it; show the events before
		}
		if err != nil {
			return 0, err
		}
		t.add(&e.Event)
	}
	if !t.begun {
		t.fromReport()
	}
	t.end()
	if err := t.detail(ctx, s.Executions); err != nil {
		return 0, err
	}
	if err := t.dependencies(ctx, s.Packages); err != nil {
		return 0, err
	}
	return len(t.attempts), t.write(w)
}

// timeline is a run whose events are being gathered.
type timeline struct {
	report    *runview.Report
	begun     bool
	start     time.Time
	last      time.Time // the latest known time
	pkg       string    // hash of the package object
	process   *events.Process
	attempts  []attempt
	fold      runview.AttemptFold
	waiting   runview.WaitFold
	waits     []runview.Wait
	waitLanes []int
	instants  []instant
	flows     []flow
	uncut     int // number of arrows without the bound
	order     []int
}

// attempt is an attempt with its place in the picture.
type attempt struct {
	*runview.Attempt
	waited    time.Duration  // since it was ready; negative if unknown
	detail    *record.Detail // nil if unknown
	lane, pid int
}

// shownWait reports whether a wait is a slice: waits for a turn are only counted, since all items of a matrix wait at a time.
func shownWait(w *runview.Wait) bool { return w.For != runview.WaitsTurn && w.End.After(w.Start) }

// instant is an event without duration.
type instant struct {
	at   time.Time
	name string
	args map[string]any
}

// step is a change of a counter.
type step struct {
	at time.Time
	by int
}

// flow leads from one attempt to another.
type flow struct{ from, to int }

// add adds the next event.
func (t *timeline) add(e *events.Event) {
	d := e.Facts()
	if !t.begun {
		t.begun, t.start = true, e.Time
	}
	if e.Time.Before(t.start) {
		e.Time = t.start // a clock that was set back
	}
	if e.Time.After(t.last) {
		t.last = e.Time
	}
	t.attempted(e, t.waiting.Add(e))
	mark := func(name string, args map[string]any) { t.instants = append(t.instants, instant{e.Time, name, args}) }
	switch e.Type {
	case events.RunStarted:
		t.pkg, t.process = d.PackageHash, d.Process
	case events.GraphGrown:
		t.pkg = d.PackageHash
		mark(fmt.Sprintf("%d items of %s", d.Items, d.Source), about("source", d.Source))
	case events.RunCancelled:
		mark("cancelled", about("by", d.By))
	case events.RunFailed:
		mark("failed", about("task", e.Task, "message", d.Message))
	case events.TaskFailed:
		if d.Block != "" {
			mark("rejected: "+e.Task, about("task", e.Task, "block", d.Block, "by", d.By, "message", d.Message))
		}
	case events.TaskClaimed:
		mark("claimed: "+e.Task, about("task", e.Task, "worker", e.Worker, "execution", e.Execution, "attempt", d.Attempt))
	case events.TaskDeferred:
		mark("deferred: "+e.Task, about("task", e.Task, "block", d.Block, "type", d.BlockType))
	case events.TaskResumed:
		mark("resumed: "+e.Task, about("task", e.Task, "block", d.Block, "by", d.By, "note", d.Message))
	case events.TaskCached:
		if e.Task == "" {
			mark(fmt.Sprintf("cached: %d tasks", d.Tasks), about("tasks", d.Tasks, "as", d.As))
			return
		}
		mark("cached: "+e.Task, about("task", e.Task, "execution", e.Execution, "key", d.Key, "output", d.Output, "as", d.As))
	case events.TaskRetryScheduled:
		mark("retry: "+e.Task, about("task", e.Task, "attempt", d.Attempt, "delayMs", d.DelayMs))
	case events.TaskReopened:
		mark("reopened: "+e.Task, about("task", e.Task, "execution", e.Execution, "because", d.Because, "message", d.Message))
	case events.TaskSkipped:
		mark("skipped: "+e.Task, about("task", e.Task, "because", d.Because))
	case events.TaskAbandoned:
		mark(fmt.Sprintf("abandoned: %d tasks", d.Tasks), about("tasks", d.Tasks))
	}
}

// about makes a set of arguments and leaves out empty ones.
func about(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case string:
			if v == "" {
				continue
			}
		case int64:
			if v == 0 {
				continue
			}
		}
		m[pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// attempted adds the attempt that an event begins or ends, if any; since is when the wait for its turn began.
func (t *timeline) attempted(e *events.Event, since time.Time) {
	a, first := t.fold.Add(e)
	if !first {
		return
	}
	if a.StartedAt.Before(t.start) {
		a.StartedAt = t.start
	}
	waited := time.Duration(-1)
	if !since.IsZero() && a.State == "" {
		waited = max(0, e.Time.Sub(since))
	}
	t.attempts = append(t.attempts, attempt{Attempt: a, waited: waited})
}

// fromReport makes the attempts of a run without events from its record and its executions. Cached executions of an
// earlier run are instants.
func (t *timeline) fromReport() {
	r := t.report
	t.start, t.last = r.StartedAt, r.StartedAt
	if r.CompletedAt.After(t.last) {
		t.last = r.CompletedAt
	}
	for i := range r.Tasks {
		x := &r.Tasks[i]
		end := x.StartedAt.Add(x.Duration.Duration())
		switch {
		case x.State == runview.TaskSkipped:
			t.instants = append(t.instants, instant{t.start, "skipped: " + x.Task, about("task", x.Task, "because", x.Because)})
		case x.State == runview.TaskCached, x.StartedAt.IsZero(), x.StartedAt.Before(t.start):
			t.instants = append(t.instants, instant{t.start, "cached: " + x.Task, about("task", x.Task, "execution", x.ExecutionID, "key", x.Key)})
		default:
			a := &runview.Attempt{
				Task: x.Task, ExecutionID: x.ExecutionID, State: x.State, Number: x.Attempt, ExitCode: x.ExitCode,
				StartedAt: x.StartedAt.Time, EndedAt: end, Reason: x.Reason, Message: x.Message,
			}
			a.Key, _ = executions.ParseKey(x.Key)
			t.attempts = append(t.attempts, attempt{Attempt: a, waited: -1})
			if end.After(t.last) {
				t.last = end
			}
		}
	}
}

// end closes attempts that have not ended, at the latest known time.
func (t *timeline) end() {
	state := runview.TaskInterrupted
	if t.report.Live {
		state = runview.TaskRunning
	}
	for i := range t.attempts {
		if a := &t.attempts[i]; a.State == "" {
			a.EndedAt, a.State = t.last, state
		}
	}
	t.waits = t.waiting.All(t.last)
	for i := range t.waits { // a wait for the store began before it was noticed
		if w := &t.waits[i]; w.Start.Before(t.start) {
			w.Start = t.start
			w.End = later(w.End, t.start)
		}
	}
	if r := t.report; r.Crashed() && r.CompletedAt.After(t.start) {
		t.cut(r.CompletedAt) // the run may have been closed much later
	}
	for i := range t.attempts {
		if a := &t.attempts[i]; a.EndedAt.Before(a.StartedAt) {
			a.EndedAt = a.StartedAt
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// cut ends everything at a time.
func (t *timeline) cut(at time.Time) {
	early := func(x *time.Time) {
		if x.After(at) {
			*x = at
		}
	}
	early(&t.last)
	for i := range t.attempts {
		early(&t.attempts[i].StartedAt)
		early(&t.attempts[i].EndedAt)
	}
	for i := range t.instants {
		early(&t.instants[i].at)
	}
	for i := range t.waits {
		early(&t.waits[i].Start)
		early(&t.waits[i].End)
	}
}

// runArgs describe the end of the run.
func (t *timeline) runArgs() map[string]any {
	r := t.report
	args := about("run", r.RunID, "workspace", r.WorkspaceName, "package", r.PackageRef, "status", r.Status(), "failedTask", r.FailedTask,
		"error", r.Error, "cancelledBy", r.By, "cancelReason", r.Why, "filter", r.Filter, "commit", r.Git.String())
	if s := r.Summary; r.State != record.RunRunning {
		args["total"], args["completed"], args["cached"], args["failed"], args["skipped"] = s.Total, s.Completed, s.Cached, s.Failed, s.Skipped
	}
	return args
}

// write writes the document, one event per line.
func (t *timeline) write(w io.Writer) error {
	d := &document{w: bufio.NewWriterSize(w, 64<<10)}
	d.text(`{"displayTimeUnit":"ms","otherData":`)
	d.value(t.about())
	d.text(",\n\"traceEvents\":[")
	t.emit(d)
	d.text("\n]}\n")
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

// about describes the source of the document.
func (t *timeline) about() map[string]any {
	other := map[string]any{"run": t.report.RunID, "workspace": t.report.WorkspaceName, "clock": "UTC, microseconds since 1970"}
	if t.uncut > len(t.flows) {
		other["note"] = fmt.Sprintf("of %d dependencies between attempts the first %d are drawn", t.uncut, len(t.flows))
	}
	return other
}

// document writes JSON and keeps the first error.
type document struct {
	w   *bufio.Writer
	n   int // events so far
	err error
}

func (d *document) text(s string) {
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

func (d *document) value(v any) {
	if d.err != nil {
		return
	}
	data, err := json.Marshal(v)
	if err == nil {
		_, err = d.w.Write(data)
	}
	d.err = err
}

// event writes an event on a line of its own.
func (d *document) event(e *event) {
	if d.n++; d.n > 1 {
		d.text(",")
	}
	d.text("\n")
	d.value(e)
}
