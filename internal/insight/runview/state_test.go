package runview_test

import (
	"testing"

	"e3/internal/events"
	"e3/internal/insight/runview"
)

func TestOutcome(t *testing.T) {
	for _, test := range []struct {
		name string
		e    events.Event
		want runview.TaskState
	}{
		{"success", events.Event{Type: events.TaskCompleted, Execution: "x"}, runview.TaskSuccess},
		{"exit code", events.Event{Type: events.TaskFailed, Data: &events.Data{ExitCode: 3}}, runview.TaskFailed},
		{"without data", events.Event{Type: events.TaskFailed}, runview.TaskFailed},
		{"error", events.Event{Type: events.TaskFailed, Data: &events.Data{Message: "killed"}}, runview.TaskError},
		{"suspended itself", events.Event{Type: events.TaskDeferred, Execution: "x", Data: &events.Data{Block: "b"}}, runview.TaskDeferred},
		{"waits before it begins", events.Event{Type: events.TaskDeferred, Data: &events.Data{Block: "b"}}, ""},
		{"rejected after it ended", events.Event{Type: events.TaskFailed, Execution: "x", Data: &events.Data{Block: "b", Message: "no"}}, ""},
		{"begins", events.Event{Type: events.TaskStarted, Execution: "x"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := runview.Outcome(&test.e); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
