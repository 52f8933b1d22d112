package runview

import (
	"time"

	"e3/internal/events"
)

// An Attempt is an attempt at a task, as the events of its run tell it.
type Attempt struct {
	Task, Execution, Key string
	Worker               string // "" if unknown
	Number               int64
	Start, End           time.Time // End is zero while it goes on
	State                TaskState // its outcome, "" while it goes on
	Shared               bool      // another run's execution, which this run waited for
	ExitCode             *int64    // nil if the command did not end by itself, and after success
	Reason, Message      string    // of an end without success
}

// An AttemptFold folds the events of a run into its attempts.
type AttemptFold struct {
	open map[string]*Attempt // by execution
}

// Add adds the next event. It returns the attempt that the event begins or ends, nil if it does neither, and whether
// this is the first event of the attempt. An end without a begin means that the attempt could not start, or belongs to
// another run whose result was awaited.
func (f *AttemptFold) Add(e *events.Event) (a *Attempt, first bool) {
	state := Outcome(e)
	if e.Type != events.TaskStarted && state == "" {
		return nil, false
	}
	d := e.Facts()
	took := events.Milliseconds(d.Duration)
	a = f.open[e.Execution]
	if first = a == nil || e.Execution == "" || e.Type == events.TaskStarted; first {
		a = &Attempt{Task: e.Task, Execution: e.Execution, Key: d.Key, Worker: e.Worker, Number: d.Attempt, Start: e.Time}
	}
	if state == "" {
		if f.open == nil {
			f.open = map[string]*Attempt{}
		}
		f.open[e.Execution] = a
		return a, true
	}
	if delete(f.open, e.Execution); first {
		a.Start = e.Time.Add(-took)
	}
	// The event of an end is a little later than the end.
	if a.End = e.Time; took > 0 && a.Start.Add(took).Before(a.End) {
		a.End = a.Start.Add(took)
	}
	a.State, a.Shared = state, d.Shared
	switch state {
	case TaskDeferred:
		a.ExitCode = &d.ExitCode
	case TaskFailed:
		a.Reason, a.ExitCode = d.Reason, &d.ExitCode
	case TaskError:
		a.Reason, a.Message = d.Reason, d.Message
	}
	return a, first
}
