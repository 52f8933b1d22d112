package runview

import (
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/human"
)

// Notes say why a task has its state, and what it did without. They are untrusted text.
func (t *TaskReport) Notes() (notes []string) {
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	switch t.State {
	case TaskFailed:
		add("exit code %d", t.ExitCode)
	case TaskError:
		add("%s", t.Message)
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
	switch {
	case t.MayFail:
		add("allowed to fail")
	case t.LeftOut != "":
		add("left out of %s", t.LeftOut)
	}
	if t.Gathered != nil && t.State != TaskSkipped {
		add("%s", t.Gathered.LeftOut())
	}
	return notes
}

// whyAbandoned says what an abandoned task waited for when its run ended.
func (t *TaskReport) whyAbandoned() string {
	if t.Batch.Items > 0 && t.Reason == string(executions.ReasonBatch) {
		return "its batch failed, and the run ended before the item was tried alone"
	}
	return "waited for approval when the run ended"
}
