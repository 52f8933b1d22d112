package workspace

import (
	"bytes"
	"context"
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// ending makes the last event, without emitting it, and the run's final record.
func (c *closing) ending(ctx context.Context) (events.Event, error) {
	run := c.recorded
	if run == nil || run.State == record.RunRunning || run.Error == runview.CrashedError && c.bounds.Last == nil {
		return c.crashEnd(ctx)
	}
	// The run had finished except for its last steps, or its log has lost its end.
	if err := c.tellRecorded(ctx, run); err != nil {
		return events.Event{}, err
	}
	end := runview.End(run)
	if end.Time = run.CompletedAt; c.bounds.Last != nil {
		end = *c.bounds.Last
	}
	if n := c.fill(&end); n > 0 {
		end.Data.Late = max(end.Data.Late, n)
	}
	return end, nil
}

// crashEnd is the end of a run whose process died at work. The run's record is made anew.
func (c *closing) crashEnd(ctx context.Context) (events.Event, error) {
	c.abandon()
	c.recorded = c.rebuilt()
	if _, err := c.w.states.Runs.Expand(ctx, c.ws, c.run, c.f); err != nil { // unnamed tasks are not in the record
		return events.Event{}, err
	}
	c.recorded.Tasks = c.f.Executions()
	end := runview.End(c.recorded)
	end.Data.Reason, end.Data.Message = events.ReasonCrashed, runview.CrashedMessage
	end.Data.Late, end.Data.PackageHash = len(c.late)+c.others, c.f.Grown() // run records may be deleted
	return end, nil
}

// abandon reports the tasks that never started or still had an attempt due as abandoned, unless the log already does.
func (c *closing) abandon() {
	if c.f.Abandons() {
		return
	}
	if n := c.f.Waiting() + c.waiting; n > 0 {
		c.emit(events.Event{Type: events.TaskAbandoned, Data: &events.Data{Tasks: int(n), Reason: events.ReasonCrashed}})
	}
}

// maxFilled bounds the events that are marked as lost one by one. If more are lost, the end gets the next free number
// instead.
const maxFilled = 10_000

// fill marks the events between the last known one and the end of the run as lost, so that the end keeps its number.
// It returns the number of executions that go on, which the end must state.
func (c *closing) fill(end *events.Event) int {
	for n := end.Seq - 1 - c.log.Seq(); n > 0 && n <= maxFilled; n-- {
		c.emit(events.Event{Type: events.EventLost, Time: end.Time})
	}
	return len(c.late)
}

// promise records the bounds of the log before the log has its end, and the run's record if that was made anew.
func (c *closing) promise(ctx context.Context, end events.Event) (events.Event, error) {
	if end.Seq != c.log.Seq()+1 { // the log has other numbers now
		end.Seq = 0
	}
	end = c.log.Draft(end, 0)
	first := c.bounds.First
	if first == nil {
		first = c.f.Started()
	}
	text, err := events.Bounds{First: first, Last: &end}.Text()
	if err != nil {
		return end, err
	}
	value := c.recorded.Encode()
	if was, _ := c.rec.Field(FieldEvents); bytes.Equal(value, c.rec.Value) && bytes.Equal(was, text) {
		return end, nil
	}
	if err := c.log.Flush(); err != nil {
		return end, err
	}
	put := refstore.Record{
		Key: c.rec.Key, Value: value, Version: c.rec.Version, Fields: []refstore.Field{{Name: FieldEvents, Value: text}},
	}
	if _, err := c.w.states.Records.PutSync(ctx, put); err != nil {
		return end, fmt.Errorf("record run: %w", err)
	}
	return end, nil
}

// rebuilt makes the record of a run whose process died, without its tasks. The run ended at its process's last sign of
// life, or at the recorded end of one of its executions. The time of the last event says when its death was noticed.
func (c *closing) rebuilt() *record.Run {
	old, run := c.recorded, &record.Run{RunID: c.run, WorkspaceName: c.ws}
	switch s := c.f.Started(); {
	case old != nil:
		run.PackageRef, run.StartedAt, run.InputSnapshot = old.PackageRef, old.StartedAt, old.InputSnapshot
	case s != nil && s.Data != nil:
		run.PackageRef, run.InputSnapshot = s.Data.Package, s.Data.Inputs
		if s.Data.Reason != events.ReasonCrashed {
			run.StartedAt = s.Time
		}
	}
	if run.StartedAt.IsZero() {
		run.StartedAt, _ = executions.ParseID(c.run)
	}
	if run.CompletedAt = c.f.Alive(); run.CompletedAt.After(c.w.states.Now()) { // by the clock of a worker
		run.CompletedAt = c.w.states.Now()
	}
	if run.CompletedAt.Before(run.StartedAt) {
		run.CompletedAt = run.StartedAt
	}
	run.State, run.Error, run.Summary = record.RunFailed, runview.CrashedError, c.f.Summary()
	return run
}
