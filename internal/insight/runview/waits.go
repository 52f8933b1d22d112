package runview

import (
	"cmp"
	"slices"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
)

// A Wait is a time in which a task of a run could not go on, for something other than its inputs.
type Wait struct {
	Task       string // "": the whole run
	For        string // turn, worker, approval, attempt, or store
	Start, End time.Time
}

// Took is how long the wait took.
func (w *Wait) Took() time.Duration { return w.End.Sub(w.Start) }

// Text is what is waited for, in words.
func (w *Wait) Text() string { return awaited(w.For, "") }

// State is the state of the task meanwhile.
func (w *Wait) State() TaskState {
	switch w.For {
	case WaitsApproval:
		return TaskDeferred
	case WaitsAttempt:
		return TaskRetrying
	}
	return TaskQueued
}

// LongestWaits are the waits that a drawing of the run has room for, the longest first: no waits for a turn, since all items of a
// matrix wait for theirs together.
func LongestWaits(all []Wait, most int) []Wait {
	list := slices.DeleteFunc(slices.Clone(all), func(w Wait) bool { return w.For == WaitsTurn || w.Took() < leastWait })
	slices.SortStableFunc(list, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.Took(), a.Took()), a.Start.Compare(b.Start), cmp.Compare(a.Task, b.Task))
	})
	return list[:min(len(list), most)]
}

// A WaitFold folds the events of a run into its waits.
type WaitFold struct {
	Ended   []Wait
	open    map[string]openWait // by task
	workers bool                // commands run at workers, which a turn waits for
}

// openWait is a wait that goes on. A wait for an attempt becomes one for its turn when it is due.
type openWait struct {
	why        string
	since, due time.Time
}

// Add adds the next event. It returns when the task's wait for the turn that the event gives it began; zero: the event gives none,
// or it is not known.
func (f *WaitFold) Add(e *events.Event) (since time.Time) {
	d := e.Facts()
	switch e.Type {
	case events.RunStarted:
		f.workers = d.Limits != nil && d.Limits.Cores == 0
	case events.RunStalled:
		f.begin("", WaitsStore, e.Time.Add(-events.Milliseconds(d.Duration)))
	case events.RunResumed:
		f.end("", e.Time)
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		for task := range f.open {
			f.end(task, e.Time)
		}
	case events.TaskMarkedReady, events.TaskResumed, events.TaskReleased:
		f.end(e.Task, e.Time)
		f.begin(e.Task, f.turn(), e.Time)
	case events.TaskDeferred:
		f.end(e.Task, e.Time)
		f.begin(e.Task, WaitsApproval, e.Time)
	case events.TaskRetryScheduled:
		f.end(e.Task, e.Time)
		f.begin(e.Task, WaitsAttempt, e.Time)
		w := f.open[e.Task]
		w.due = e.Time.Add(min(time.Duration(max(0, d.DelayMs)), maxDelay) * time.Millisecond)
		f.open[e.Task] = w
	case events.TaskOrphaned:
		f.begin(e.Task, WaitsWorker, e.Time)
	case events.TaskClaimed, events.TaskStarted, events.TaskAdopted, events.TaskCompleted, events.TaskFailed, events.TaskCached, events.TaskSkipped,
		events.TaskReopened:
		since = f.end(e.Task, e.Time)
	}
	return since
}

// maxDelay bounds the delay in an event, in milliseconds: some years.
const maxDelay = time.Duration(1 << 37)

// turn is what a task waits for whose inputs are known.
func (f *WaitFold) turn() string {
	if f.workers {
		return WaitsWorker
	}
	return WaitsTurn
}

func (f *WaitFold) begin(task, why string, at time.Time) {
	if f.open == nil {
		f.open = map[string]openWait{}
	}
	f.open[task] = openWait{why: why, since: at}
}

// end ends the wait of a task, and returns when the wait for its turn began.
func (f *WaitFold) end(task string, at time.Time) (turn time.Time) {
	w, ok := f.open[task]
	if !ok {
		return turn
	}
	delete(f.open, task)
	parts := f.parts(task, w, at)
	f.Ended = append(f.Ended, parts...)
	if last := parts[len(parts)-1]; last.For == f.turn() {
		turn = last.Start
	}
	return turn
}

// parts are a task's wait until a time: that of an attempt, and that for its turn when it was due.
func (f *WaitFold) parts(task string, w openWait, until time.Time) []Wait {
	if until.Before(w.since) {
		until = w.since // a clock that was set back
	}
	whole := Wait{task, w.why, w.since, until}
	if w.due.IsZero() || !until.After(w.due) {
		return []Wait{whole}
	}
	whole.End = w.due
	return []Wait{whole, {task, f.turn(), w.due, until}}
}

// All are the waits of the run, those that go on up to a time.
func (f *WaitFold) All(until time.Time) []Wait {
	list := slices.Clone(f.Ended)
	for task, w := range f.open {
		list = append(list, f.parts(task, w, until)...)
	}
	return list
}

// A WaitTime is how long tasks of a run waited for one thing.
type WaitTime struct {
	For     string        `json:"for"`   // turn (cores, memory, a resource), worker, approval, attempt, or store
	Tasks   int           `json:"tasks"` // that waited; of a wait for the store, how often the run did
	Took    moment.Millis `json:"ms"`    // together
	Longest moment.Millis `json:"longestMs"`
	Task    string        `json:"longest,omitempty"` // the task that waited longest
	Idle    moment.Millis `json:"idleMs,omitempty"`  // while no command ran, by the clock
}

// Text is what was waited for, in words.
func (w *WaitTime) Text() string { return awaited(w.For, "") }

// leastWait is the shortest wait that is told: each task waits for its turn a little.
const leastWait = 100 * time.Millisecond

// waitTimes adds up waits by what they are for, those first in which no command ran for longest.
func waitTimes(waits []Wait, spans []Span) []WaitTime {
	of := map[string][]Wait{}
	for _, w := range waits {
		if w.Took() >= leastWait {
			of[w.For] = append(of[w.For], w)
		}
	}
	if len(of) == 0 {
		return nil
	}
	busy := make([]Wait, len(spans))
	for i := range spans {
		busy[i] = Wait{Start: spans[i].Start, End: spans[i].End}
	}
	busy = union(busy)
	var list []WaitTime
	for why, waits := range of {
		x := WaitTime{For: why}
		tasks := map[string]bool{}
		for i := range waits {
			took := moment.Millis(waits[i].Took())
			if x.Took += took; took > x.Longest {
				x.Longest, x.Task = took, waits[i].Task
			}
			tasks[waits[i].Task] = true
		}
		if x.Tasks = len(tasks); why == WaitsStore {
			x.Tasks = len(waits)
		}
		x.Idle = moment.Millis(apart(union(waits), busy))
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b WaitTime) int {
		return cmp.Or(cmp.Compare(b.Idle, a.Idle), cmp.Compare(b.Took, a.Took), cmp.Compare(a.For, b.For))
	})
	return list
}

// union joins times that touch, in order.
func union(list []Wait) (joined []Wait) {
	slices.SortFunc(list, func(a, b Wait) int { return a.Start.Compare(b.Start) })
	for _, w := range list {
		if n := len(joined); n > 0 && !w.Start.After(joined[n-1].End) {
			if w.End.After(joined[n-1].End) {
				joined[n-1].End = w.End
			}
			continue
		}
		joined = append(joined, w)
	}
	return joined
}

// apart is how long the times of a list last outside of those of another; both are unions.
func apart(list, busy []Wait) (took time.Duration) {
	k := 0
	for _, w := range list {
		took += w.Took()
		for k < len(busy) && !busy[k].End.After(w.Start) {
			k++
		}
		for i := k; i < len(busy) && busy[i].Start.Before(w.End); i++ {
			from, to := busy[i].Start, busy[i].End
			if from.Before(w.Start) {
				from = w.Start
			}
			if to.After(w.End) {
				to = w.End
			}
			took -= to.Sub(from)
		}
	}
	return took
}
