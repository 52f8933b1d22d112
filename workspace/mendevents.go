package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// MendEvents repairs the log of a run: damaged lines, and all that follows the end, go (events.Mend). The run's record tells again
// as much as it knows. The rest, up to the event of number last with which the run after this one says that it ended, is marked as
// lost. It returns how many are. The workspace must be idle.
func (w *Runner) MendEvents(ctx context.Context, ws, run string, last int64, x *executions.Curator) (lost int, err error) {
	ctx, lock, err := w.states.lock(ctx, ws, record.Dataflow, nil)
	if err != nil {
		return 0, err
	}
	defer lock.Unlock()
	var bounds events.Bounds
	rec, unread := w.states.Records.Get(ctx, runview.Key(ws, run), FieldEvents)
	if unread == nil {
		bounds = runview.BoundsOf(rec)
	}
	if lost, err = events.Mend(ctx, w.states.Records, ws, run, bounds.First); err != nil {
		return 0, lock.explain(ctx, err)
	}
	if unread == nil {
		if errors.As(bounds.Check(ctx, w.states.Records, ws, run), new(*events.BoundsError)) { // an end that is not this run's goes
			if err := events.DropEnd(ctx, w.states.Records, ws, run); err != nil {
				return 0, lock.explain(ctx, err)
			}
		}
	}
	s, err := lock.read(ctx)
	if err == nil {
		_, err = w.closeRun(ctx, lock, run, s.CurrentRunID, x)
	}
	if err == nil && last > 0 {
		var more int
		more, err = events.Fill(ctx, w.states.Records, ws, run, last)
		lost += more
	}
	return lost, lock.explain(ctx, err)
}

// maxFilled bounds the events that are marked as lost one by one. More are so many that the numbers begin anew.
const maxFilled = 10_000

// fill marks the events between the last one that is told and the end of the run as lost, so that the end keeps its number.
// It returns the number of executions that go on, of which the end must tell.
func (c *closing) fill(end *events.Event) int {
	for n := end.Seq - 1 - c.log.Seq(); n > 0 && n <= maxFilled; n-- {
		c.emit(events.Event{Type: events.EventLost, Time: end.Time})
	}
	return len(c.late)
}

// promise records how the log begins and ends, and the run if it was made anew, before the log has its end.
func (c *closing) promise(ctx context.Context, rec refstore.Record, run *record.Run, had events.Bounds, end events.Event) (events.Event, error) {
	if end.Seq != c.log.Seq()+1 { // it has other numbers now
		end.Seq = 0
	}
	end = c.log.Draft(end, 0)
	first := had.First
	if first == nil {
		first = c.f.Started()
	}
	text, err := events.Bounds{First: first, Last: &end}.Text()
	if err != nil {
		return end, err
	}
	value := run.Encode()
	if was, _ := rec.Field(FieldEvents); bytes.Equal(value, rec.Value) && bytes.Equal(was, text) {
		return end, nil
	}
	if err := c.log.Flush(); err != nil {
		return end, err
	}
	put := refstore.Record{Key: rec.Key, Value: value, Version: rec.Version, Fields: []refstore.Field{{Name: FieldEvents, Value: text}}}
	if _, err := c.w.states.Records.PutSync(ctx, put); err != nil {
		return end, fmt.Errorf("record run: %w", err)
	}
	return end, nil
}

// rebuilt makes the record of a run whose process died, without its tasks. old is its previous record, nil if that is
// unreadable. The run ended at its process's last sign of life, or at the recorded end of one of its executions. The
// time of the last event says when its death was noticed.
func (c *closing) rebuilt(ws, id string, old *record.Run) *record.Run {
	run := &record.Run{RunID: id, WorkspaceName: ws}
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
		run.StartedAt, _ = executions.ParseID(id)
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
