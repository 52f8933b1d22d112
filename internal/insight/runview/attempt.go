package runview

import (
	"cmp"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/events"
)

// An Attempt is an attempt at a task, as events tell it.
type Attempt struct {
	Task        string
	ExecutionID string         // "" if it could not start
	Key         executions.Key // zero if unknown
	MadeBy      string         // the run that made it; "" if unknown
	Number      int64          // of the attempts of its run, from 1; 0 if unknown
	Worker      string         // user@host; "" if unknown
	StartedAt   time.Time
	EndedAt     time.Time // zero while it goes on
	State       TaskState // its outcome; "" while it goes on
	// Duration is the time that it took. It is 0 while Timed is false.
	Duration time.Duration
	Timed    bool
	Shared   bool // another run's execution, which this run waited for
	ExitCode int64
	Reason   string // of an end without success, like Message
	Message  string
	Output   string   // hash of the output of a success
	Refused  *Refusal // of an attempt that waited for approval; nil: it was not rejected
}

// A Refusal is the rejection of a task that waited for approval.
type Refusal struct {
	By   string
	At   time.Time
	Text string // with the user, and the reason if one was given
}

// Reason is the given reason; "": none.
func (r *Refusal) Reason() string {
	_, why, _ := strings.Cut(r.Text, r.By+": ")
	return why
}

// Exited reports whether the command ended by itself without success, so that ExitCode is its own.
func (a *Attempt) Exited() bool { return a.State == TaskFailed || a.State == TaskDeferred }

// Tell adds the facts of an event about the attempt: its begin, its end, its rejection, or that its result was found
// in the cache. MadeBy is the first run that does not share it.
func (a *Attempt) Tell(e *events.Event) {
	d, state := e.Facts(), Outcome(e)
	if key, ok := executions.ParseKey(d.Key); ok {
		a.Key = key
	}
	switch {
	case e.Type == events.TaskStarted:
		a.StartedAt = e.Time
		if !d.Shared {
			a.MadeBy, a.Number = e.Run, d.Attempt
		}
	case e.Type == events.TaskCached:
		a.Output = cmp.Or(a.Output, d.Output)
		if !a.Timed && d.Key != "" { // a proven task's event has no duration
			a.Timed, a.Duration = true, events.Milliseconds(d.Duration)
		}
	case state != "":
		a.State, a.EndedAt = state, e.Time
		a.Timed, a.Duration = true, events.Milliseconds(d.Duration)
		a.ExitCode, a.Reason, a.Message, a.Output = d.ExitCode, d.Reason, d.Message, d.Output
		if !d.Shared && a.MadeBy == "" {
			a.MadeBy, a.Number = e.Run, d.Attempt
		}
	case d.Block != "" && d.Reason == events.ReasonRejected: // after its end
		a.Refused = &Refusal{By: d.By, At: e.Time, Text: d.Message}
	}
}

// An AttemptFold folds the events of a run into its attempts.
type AttemptFold struct {
	open map[string]*Attempt // by execution
}

// Add adds the next event. It returns the attempt that the event begins or ends, nil if it does neither, and whether
// this is the first event of the attempt. An end without a begin means that the attempt could not start, or belongs to
// another run whose result was awaited.
func (f *AttemptFold) Add(e *events.Event) (a *Attempt, first bool) {
	ends := Outcome(e) != ""
	if e.Type != events.TaskStarted && !ends {
		return nil, false
	}
	a = f.open[e.Execution]
	if first = a == nil || e.Execution == "" || e.Type == events.TaskStarted; first {
		a = &Attempt{Task: e.Task, ExecutionID: e.Execution, Worker: e.Worker, Number: e.Facts().Attempt}
	}
	if a.Tell(e); !ends {
		if f.open == nil {
			f.open = map[string]*Attempt{}
		}
		f.open[e.Execution] = a
		return a, true
	}
	if delete(f.open, e.Execution); first {
		a.StartedAt = e.Time.Add(-a.Duration)
	}
	// The event of an end comes a little after the end.
	if end := a.StartedAt.Add(a.Duration); a.Duration > 0 && end.Before(a.EndedAt) {
		a.EndedAt = end
	}
	a.Shared = e.Facts().Shared
	return a, first
}
