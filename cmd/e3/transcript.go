package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
)

// A transcript prints the progress of a run, in the form of seed 003: a line for each step of a small run, and how far it
// is for a large one (progress.go). On a terminal, a live line below it counts all steps.
type transcript struct {
	live *term.Live

	mu       sync.Mutex
	brief    brief
	batches  batchFailures
	muted    bool // the present event has no line
	buf      *bufio.Writer
	total    int64 // steps, once they are known
	done     int64
	failures []runview.TaskReport // at most one for a task, in the order of their ends
	waits    map[string]bool      // tasks that wait for approval
	style    term.Style
	ask      func(task string) // prints advice about a task that waits for approval
}

func newTranscript(out io.Writer, live *term.Live, st term.Style) *transcript {
	return &transcript{
		buf: bufio.NewWriterSize(out, 32<<10), live: live, style: st, ask: func(string) {}, waits: map[string]bool{},
		brief: brief{running: map[string]time.Time{}},
	}
}

// line writes one line, above the live one if there is one.
func (t *transcript) line(format string, args ...any) {
	t.live.Above(func() {
		fmt.Fprintf(t.buf, format+"\n", args...)
		t.buf.Flush()
	})
}

// event prints an event.
func (t *transcript) event(e events.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := e.Facts()
	t.brief.ahead.add(&e)
	if e.Type != events.TaskCached {
		t.tellProven()
	}
	if t.batches.take(&e, d, t.alone) {
		t.spoilt(&e)
		return
	}
	failed := t.brief.failed
	t.muted = !t.brief.follow(&e, d)
	t.live.Fail(t.brief.failed - failed)
	defer t.milestone(e.Time)
	switch e.Type {
	case events.RunStarted:
		if t.brief.round && !t.brief.verbose {
			return
		}
		t.line("Run %s started", human.Short(e.Run))
	case events.GraphGrown:
		if d.Reason != "" { // the failure of what depends on it says why
			return
		}
		t.line("%s has made %s", human.Line(d.Source), human.Count(d.Items, "item"))
	case events.TaskCreated:
		t.total += int64(max(d.Tasks, 1))
		t.progress()
	case events.TaskCached:
		t.cached(e, d)
	case events.TaskClaimed:
		t.live.End(e.Task) // another worker had claimed it before; it starts again
		t.live.Start(e.Task, e.Time)
	case events.TaskReleased:
		t.live.End(e.Task)
	case events.TaskDeferred:
		t.live.End(e.Task)
		t.live.Wait(1)
		t.waits[e.Task] = true
		note := " (waits for approval)"
		if d.BlockType == string(approval.Suspend) {
			note = " (it suspended itself; waits for approval)"
		}
		t.task("wait", t.style.Yellow, e.Task, note)
		t.live.Above(func() { t.ask(e.Task) })
	case events.TaskResumed:
		t.waitsNoMore(e.Task)
		note := " (approved)"
		if d.By != "" {
			note = " (approved by " + human.Line(d.By) + ")"
		}
		t.task("resume", "", e.Task, note)
	case events.TaskOrphaned:
		t.task("lost", t.style.Yellow, e.Task, fmt.Sprintf(" (its worker %s has died; the next one takes over)", human.Line(human.Worker(e.Worker))))
	case events.TaskAdopted:
		t.task("adopt", "", e.Task, fmt.Sprintf(" (goes on with %s)", human.Line(human.Worker(e.Worker))))
	case events.TaskStarted:
		t.live.End(e.Task)
		t.live.Start(e.Task, e.Time)
		t.task("start", "", e.Task, t.batches.startNote(&e, d))
	case events.TaskCompleted:
		t.ended(e.Task)
		t.task("done", t.style.Green, e.Task, fmt.Sprintf(" (%s)", human.Duration(events.Milliseconds(d.Duration))))
	case events.TaskFailed:
		t.failed(e, d)
	case events.TaskRetryScheduled:
		t.forget(e.Task)
		t.done-- // it has not ended after all
		t.progress()
		more := ""
		if d.Memory > 0 {
			more = " with " + human.Bytes(d.Memory) + " of memory"
		}
		t.task("retry", t.style.Yellow, e.Task, " ("+followingAttempt(d)+more+")")
	case events.TaskReopened:
		t.reopened(e, d)
	case events.TaskMarkedReady:
		if d.Gathered != nil {
			t.task("gather", t.style.Yellow, e.Task, fmt.Sprintf(" (%s)", human.Line(d.Gathered.LeftOut())))
		}
	case events.TaskLeftOut:
		t.leftOut(e.Task, d.Because)
	case events.TaskSkipped:
		t.ended(e.Task)
		t.task("skip", t.style.Dim, e.Task, fmt.Sprintf(" (%s)", human.Line(events.WhySkipped(d.Because, d.Gathered))))
	}
}

// task prints "  [word]   name note", the names in one column.
func (t *transcript) task(word, color, name, note string) {
	if t.muted {
		return
	}
	pad := strings.Repeat(" ", max(1, 9-len(word)-2))
	t.line("  %s[%s]%s%s%s%s", color, word, t.style.EndOf(color), pad, human.Line(name), note)
}

func (t *transcript) cached(e events.Event, d *events.Data) {
	if e.Task == "" {
		t.total += int64(d.Tasks)
		t.done += int64(d.Tasks)
		t.progress()
		t.task("cached", t.style.Dim, human.Count(d.Tasks, "task"), "")
		return
	}
	if d.As != "" { // proven, so not among the steps that were announced
		t.total++
	}
	t.ended(e.Task)
	if d.As != "" {
		t.brief.proven = append(t.brief.proven, e.Task)
		return
	}
	t.task("cached", t.style.Dim, e.Task, "")
}

// tellProven prints the tasks that were cached as in an earlier run: each, or their number if they are many.
func (t *transcript) tellProven() {
	names := t.brief.proven
	t.brief.proven, t.muted = nil, false
	if t.brief.round && !t.brief.verbose {
		return
	}
	if len(names) > maxWhole && !t.brief.verbose {
		t.task("cached", t.style.Dim, human.Count(len(names), "task"), "")
		return
	}
	for _, name := range names {
		t.task("cached", t.style.Dim, name, "")
	}
}

// reopened undoes the end of a task. A task that had not ended waits again, which needs no line.
func (t *transcript) reopened(e events.Event, d *events.Data) {
	if e.Execution == "" {
		return
	}
	t.done--
	t.progress()
	t.task("again", t.style.Yellow, e.Task, fmt.Sprintf(" (%s)", human.Line(d.Message)))
}

// waitsNoMore removes a task from those that wait for approval.
func (t *transcript) waitsNoMore(task string) {
	if t.waits[task] {
		t.live.Wait(-1)
	}
	delete(t.waits, task)
}

func (t *transcript) failed(e events.Event, d *events.Data) {
	t.waitsNoMore(e.Task)
	t.ended(e.Task)
	t.forget(e.Task)
	word, note := "error", d.Message
	if d.Message == "" {
		word, note = "failed", fmt.Sprintf("exit code %d", d.ExitCode)
	}
	if state := runview.Outcome(&e); state != "" { // else a person has rejected it, and has said why
		t.failures = append(t.failures, runview.TaskReport{
			Task: e.Task, State: state, ExecutionID: e.Execution, Key: d.Key, ExitCode: d.ExitCode, Reason: d.Reason, Message: d.Message, MayFail: d.MayFail,
		})
	}
	if d.Duration > 0 {
		note += ", " + human.Duration(events.Milliseconds(d.Duration))
	}
	color := t.style.Red
	if d.MayFail || d.Tolerable {
		color = t.style.Yellow
	}
	t.task(word, color, e.Task, " ("+human.Line(note)+mayFail(d)+")")
}

// forget removes the recorded failure of a task.
func (t *transcript) forget(task string) {
	t.failures = slices.DeleteFunc(t.failures, func(f runview.TaskReport) bool { return f.Task == task })
}

// leftOut notes that a task does without one that has failed, whose failure the run then allows.
func (t *transcript) leftOut(task, by string) {
	if i := slices.IndexFunc(t.failures, func(f runview.TaskReport) bool { return f.Task == task }); i >= 0 {
		t.failures[i].LeftOut = by
	}
}

// ended counts a task that has ended.
func (t *transcript) ended(task string) {
	t.done++
	t.live.End(task)
	t.progress()
}

func (t *transcript) progress() { t.live.Progress(t.done, t.total) }

// alone tells of items whose batch has failed, and which are tried alone.
func (t *transcript) alone(items, note string) {
	if b := &t.brief; b.short() {
		if b.notable++; b.notable > maxNotable {
			b.silenced++
			return
		}
	}
	t.muted = false
	t.task("alone", t.style.Yellow, items, note)
}

// spoilt follows an item whose batch has failed: it has not ended.
func (t *transcript) spoilt(e *events.Event) {
	delete(t.brief.running, e.Task)
	t.live.End(e.Task)
}

// close ends the live line and returns the first error of writing.
func (t *transcript) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tellProven()
	t.batches.rest(t.alone)
	t.live.Close()
	if b := &t.brief; b.silenced > 0 {
		t.line("  … and %s more about failed attempts; -v prints all", human.Count(b.silenced, "line"))
	}
	return t.buf.Flush()
}
