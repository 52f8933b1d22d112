package workspace

import (
	"time"

	"e3/internal/events"
)

func (c *closing) emit(e events.Event) {
	e = c.log.Emit(e)
	c.f.Add(&e)
}

// ran emits an event of an execution that a process had begun or went on with.
func (c *closing) ran(typ events.Type, at time.Time, task, execution, worker string, data *events.Data) {
	c.emit(events.Event{Type: typ, Time: at, Task: task, Execution: execution, Worker: worker, Data: data})
}

// crashed returns the data of an event that the run's own process did not write.
func crashed(key string, attempt int64) *events.Data {
	return &events.Data{Key: key, Attempt: attempt, Reason: events.ReasonCrashed}
}

// announce emits the first event of a task that no event names.
func (c *closing) announce(task string) {
	if c.f.Unnamed() <= 0 {
		c.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1, Reason: events.ReasonCrashed}})
	}
	c.emit(events.Event{Type: events.TaskMarkedReady, Task: task, Data: &events.Data{Reason: events.ReasonCrashed}})
}
