package runview_test

import (
	"testing"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
)

// Tests which event is the last one of a task with one retry.
func TestAttempts(t *testing.T) {
	failed := func(attempt int64, reason executions.Reason) events.Event {
		return events.Event{Type: events.TaskFailed, Data: &events.Data{Attempt: attempt, Reason: string(reason)}}
	}
	event := func(kind events.Type) events.Event { return events.Event{Type: kind, Data: &events.Data{}} }
	suspended := event(events.TaskDeferred)
	suspended.Execution = "id"
	refused := failed(1, "")
	refused.Data.Block = "id"
	for name, test := range map[string]struct {
		from   int64
		events []events.Event // the task ends with the last of them
	}{
		"succeeds":                    {1, []events.Event{event(events.TaskStarted), event(events.TaskCompleted)}},
		"is cached":                   {1, []events.Event{event(events.TaskCached)}},
		"fails twice":                 {1, []events.Event{failed(1, ""), event(events.TaskRetryScheduled), failed(2, "")}},
		"a lost worker is no failure": {1, []events.Event{failed(1, executions.ReasonLost), failed(2, ""), failed(3, "")}},
		"suspends itself":             {1, []events.Event{suspended, event(events.TaskResumed), failed(2, ""), failed(3, "")}},
		"waits for review":            {1, []events.Event{event(events.TaskDeferred), event(events.TaskResumed), failed(1, ""), failed(2, "")}},
		"is refused":                  {1, []events.Event{refused}},
		"is cancelled":                {1, []events.Event{failed(1, executions.ReasonCancelled)}},
		"attempts of before":          {3, []events.Event{failed(1, ""), failed(2, ""), failed(3, "")}},
	} {
		a := runview.Attempts{From: test.from, Retries: 1}
		for i := range test.events {
			if got, want := a.Last(&test.events[i]), i == len(test.events)-1; got != want {
				t.Errorf("%s: after event %d: got %v, want %v", name, i, got, want)
			}
		}
	}
}
