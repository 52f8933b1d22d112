package main

import (
	"fmt"
	"sync"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/dataflow/graph"
	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/workspace"
)

// A run of more tasks than maxWhole has no line for each. Its output is in proportion to what a person has to know:
// failures whole, milestones, a summary.
const (
	maxWhole    = 24 // tasks to do
	maxNotable  = 50 // lines about failures, retries and lost workers, then only their number
	milestones  = 10 // that a run passes
	firstBeat   = time.Minute
	beatDivisor = 5 // a beat follows after this part of the time that the run has taken
)

// brief is the progress of a run with many tasks. transcript.mu guards it.
type brief struct {
	verbose  bool  // all lines, however many
	round    bool  // of a watch, which prints a line for each run: there are only notable lines
	todo     int64 // tasks that were announced
	notable  int
	silenced int // notable lines that were left out
	failed   int64
	skipped  int64
	proven   []string // names of tasks that were cached as in an earlier run, until another event comes
	passed   int64    // milestones
	began    time.Time
	told     time.Time // of the latest line
	running  map[string]time.Time
	ahead    *ahead // nil: unknown
}

// short reports whether the run has too many tasks for a line each.
func (b *brief) short() bool { return !b.verbose && (b.todo > maxWhole || b.round) }

// tells reports whether an event has a line of its own.
func (b *brief) tells(e *events.Event, d *events.Data) bool {
	if !b.short() {
		return true
	}
	switch e.Type {
	case events.TaskStarted, events.TaskCompleted, events.TaskSkipped:
		return false
	case events.TaskCached:
		return !b.round && (e.Task == "" || d.As != "")
	case events.TaskFailed, events.TaskRetryScheduled, events.TaskReopened, events.TaskOrphaned, events.TaskAdopted:
		if b.notable++; b.notable > maxNotable {
			b.silenced++
			return false
		}
	}
	return true
}

// An ahead estimates how a run goes on while its events arrive. It is safe for concurrent use.
type ahead struct {
	graph    *graph.Graph // of the run
	expected func(task string) time.Duration

	mu   sync.Mutex
	fold *runview.Fold
	run  *remaining.Run // nil: nobody has asked yet
}

func (a *ahead) add(e *events.Event) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fold.Add(e)
	if t := a.fold.Find(e.Task); t != nil {
		t.Key = "" // which is long, and nothing asks for it
	}
}

// left is the time that is left in words; "" if nothing is known.
func (a *ahead) left(now time.Time) string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.run == nil {
		g := a.graph
		if g.Origin != g.Package { // it has gates for lists of items
			var err error
			if g, err = graph.New(g.Origin); err != nil {
				return "" // the run says why
			}
		}
		if a.fold.Started() == nil {
			return ""
		}
		a.run = remaining.Of(g, a.fold.Started().Facts(), a.expected)
	}
	return a.run.Look(a.run.Told(a.fold), now).Text()
}

// milestone prints how far the run is, if it has passed another tenth.
func (t *transcript) milestone(now time.Time) {
	b := &t.brief
	if !b.short() || b.round || t.live.Shows() {
		return
	}
	at := t.fresh() * milestones / b.todo
	if at <= b.passed || at >= milestones { // the summary follows the last one
		return
	}
	b.passed = at
	t.stand(now)
}

// fresh is how many of the announced tasks have ended.
func (t *transcript) fresh() int64 { return max(t.done-(t.total-t.brief.todo), 0) }

// beat prints how far the run is, if nothing was printed for long: a reader, or a CI, sees that it is alive.
func (t *transcript) beat(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := &t.brief
	if t.live.Shows() || b.todo == 0 || len(b.running) == 0 || now.Sub(b.told) < max(firstBeat, now.Sub(b.began)/beatDivisor) {
		return
	}
	t.stand(now)
}

// stand prints how far the run is.
func (t *transcript) stand(now time.Time) {
	b := &t.brief
	text := fmt.Sprintf("  [%3d%%]   %d of %d done", 100*t.done/max(t.total, 1), t.done, t.total)
	if b.failed > 0 {
		text += fmt.Sprintf(", %d failed", b.failed)
	}
	if b.skipped > 0 {
		text += fmt.Sprintf(", %d skipped", b.skipped)
	}
	if name, since := b.oldest(); name != "" {
		text += fmt.Sprintf("; runs %s %s", human.Line(name), human.Seconds(now.Sub(since)))
		if n := len(b.running) - 1; n > 0 {
			text += fmt.Sprintf(" and %d more", n)
		}
	}
	if left := b.ahead.left(now); left != "" {
		text += "; " + left + " left"
	}
	t.line("%s", text)
	b.told = now
}

// oldest is the task that has run for longest.
func (b *brief) oldest() (name string, since time.Time) {
	for n, at := range b.running {
		if name == "" || at.Before(since) || at.Equal(since) && n < name {
			name, since = n, at
		}
	}
	return name, since
}

// follow counts an event, and reports whether it has a line of its own.
func (b *brief) follow(e *events.Event, d *events.Data) bool {
	if b.began.IsZero() {
		b.began, b.told = e.Time, e.Time
	}
	switch e.Type {
	case events.TaskCreated:
		b.todo += int64(max(d.Tasks, 1))
	case events.TaskStarted:
		b.running[e.Task] = e.Time
	case events.TaskDeferred, events.TaskCompleted, events.TaskFailed, events.TaskCached, events.TaskSkipped:
		delete(b.running, e.Task)
	}
	switch e.Type {
	case events.TaskFailed:
		b.failed++
	case events.TaskSkipped:
		b.skipped++
	case events.TaskRetryScheduled:
		b.failed = max(b.failed-1, 0)
	}
	return b.tells(e, d)
}

// estimate begins the estimate of a run that is about to begin.
func (t *transcript) estimate(info *workspace.RunInfo, now func() time.Time) {
	if info.Graph == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := &ahead{graph: info.Graph, expected: info.Expected, fold: runview.NewFold()}
	t.brief.ahead = a
	t.live.Left = func() string { return a.left(now()) }
}

// beats prints how far the run is from time to time, until the returned function is called.
func (t *transcript) beats(now func() time.Time) (end func()) {
	if t.live.Shows() {
		return func() {}
	}
	return term.Every(firstBeat/12, func() { t.beat(now()) })
}
