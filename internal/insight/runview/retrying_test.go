package runview_test

import (
	"testing"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// A run that says which tasks have no turn any more is ending: a task that waits for its next attempt has failed, even if
// the process is killed before it writes the end.
func TestRetryingWhenTheRunEnds(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		want   record.Summary
	}{
		"told by the run itself":         {"", record.Summary{Total: 3, Failed: 1, Skipped: 2}},
		"told when a dead run is closed": {events.ReasonCrashed, record.Summary{Total: 3, Skipped: 3}},
	} {
		abandoned := int(test.want.Skipped)
		f := runview.NewFold()
		for i, e := range []events.Event{
			{Type: events.RunStarted},
			{Type: events.TaskCreated, Data: &events.Data{Tasks: 3}},
			{Type: events.TaskStarted, Task: "a", Execution: "id", Data: &events.Data{Attempt: 1}},
			{Type: events.TaskFailed, Task: "a", Execution: "id", Data: &events.Data{Attempt: 1, ExitCode: 3}},
			{Type: events.TaskRetryScheduled, Task: "a", Data: &events.Data{Attempt: 2}},
			{Type: events.TaskAbandoned, Data: &events.Data{Tasks: abandoned, Reason: test.reason}},
			{Type: events.RunFailed, Data: &events.Data{Reason: events.ReasonCrashed}},
		} {
			e.Seq = int64(i + 1)
			f.Add(&e)
		}
		if got := f.Summary(); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
