package runview

import (
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
)

// Notes say why a task has its state, and what it did without. They are untrusted text.
func (t *TaskReport) Notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch t.State {
	case TaskFailed, TaskError:
		add("%s", t.Failure())
	case TaskSkipped:
		add("%s", events.WhySkipped(t.Because, t.Gathered))
	case TaskRetrying:
		add("attempt %d follows", t.Attempt)
	case TaskDeferred:
		add("waits for approval since %s", human.Stamp(t.Since.Time))
	case TaskAbandoned:
		add("%s", t.whyAbandoned())
	case TaskClaimed, TaskRunning, TaskSuccess, TaskCached:
		if t.Attempt > 1 {
			add("attempt %d", t.Attempt)
		}
		if t.Worker != "" && t.State != TaskSuccess {
			add("by %s", human.Worker(t.Worker))
		}
	}
	if t.Approved != nil {
		add("%s", t.Approved)
	}
	if text := t.Allowance(); text != "" {
		add("%s", text)
	}
	if t.Gathered != nil && t.State != TaskSkipped {
		add("%s", t.Gathered.LeftOut())
	}
	return notes
}

// HasFailed reports whether the task has ended without success in this run, whether or not it may.
func (t *TaskReport) HasFailed() bool { return t.State == TaskFailed || t.State == TaskError }

// Failure says how a task that has failed ended. It is untrusted text.
func (t *TaskReport) Failure() string {
	if t.State == TaskFailed {
		return fmt.Sprintf("exit code %d", t.ExitCode)
	}
	return t.Message
}

// Allowance says why the failure of a task does not fail the run; "": it does.
func (t *TaskReport) Allowance() string {
	switch {
	case t.MayFail:
		return "allowed to fail"
	case t.LeftOut != "":
		return "left out of " + t.LeftOut
	}
	return ""
}

// Shown is the state in a word for people: a failure that is allowed is told apart from one that fails the run, and a task without a
// state waits for its turn.
func (t *TaskReport) Shown() string {
	switch {
	case t.HasFailed() && t.Allowance() != "":
		return string(TaskAllowed)
	case t.State == "":
		return string(TaskWaits)
	}
	return string(t.State)
}

// whyAbandoned says what an abandoned task waited for when its run ended.
func (t *TaskReport) whyAbandoned() string {
	if t.Batch.Items > 0 && t.Reason == string(executions.ReasonBatch) {
		return "its batch failed, and the run ended before the item was tried alone"
	}
	return "waited for approval when the run ended"
}

// Notes say what a list of runs tells of a run beside its status: what it was given, by whom it was cancelled, what failed.
// They are untrusted text.
func (r *Report) Notes(now time.Time) (notes []string) {
	if text := human.Unheard(r.Heard.At, r.Heard.Lease, now); text != "" {
		notes = append(notes, text)
	}
	if text := r.Cancelled(); text != "" && r.By != "" {
		notes = append(notes, "cancelled "+text)
	} else if text != "" {
		notes = append(notes, text)
	}
	if r.Filter != "" {
		notes = append(notes, "filter "+r.Filter)
	}
	if text := r.Given(); text != "" {
		notes = append(notes, text)
	}
	if r.State == record.RunFailed && r.FailedTask != "" {
		notes = append(notes, r.FailedTask+" failed")
	}
	if p := r.Provenance; p != nil {
		notes = append(notes, "imported "+Whence(Steps(p), now)[0])
	}
	return notes
}

// Given says what start --set and start --as gave to the run; "" if neither gave anything.
func (r *Report) Given() string {
	set := human.Truncate(r.Set.String(), 200)
	switch {
	case r.From == "" && set == "":
		return ""
	case r.From == "":
		return "set " + set
	case set == "":
		return "made from " + r.From
	}
	return "made from " + r.From + " with " + set
}

// Cancelled names the user who cancelled a run, and the reason, if they are known.
func (r *Report) Cancelled() string {
	switch {
	case r.By == "":
		return r.Why
	case r.Why == "":
		return "by " + r.By
	}
	return "by " + r.By + ": " + r.Why
}
