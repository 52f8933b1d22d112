package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// reaper closes dead executions and reads the state of others. *executions.Curator and *executions.Executor implement
// it.
type reaper interface {
	CloseIfDead(ctx context.Context, key executions.Key, id string) (bool, error)
	Get(ctx context.Context, key executions.Key, id string) (*executions.Execution, error)
	BegunFor(ctx context.Context, ws, run string) ([]executions.Begun, error)
	DropBegun(ctx context.Context, ws, run string) error
}

// closed is the result of closeDead.
type closed struct {
	current string        // the run that the state names
	old     []oldRun      // all runs on record
	late    int           // executions that go on without their run
	ended   events.Sealed // the end of the run that the state names
	journal int64         // number of the journal's stream that records the last run; 0: not known
}

// closeDead closes runs that did not end. Since the caller holds the dataflow lock, a run recorded as running has no
// process any more. Its queued jobs that no worker has begun are withdrawn, its running executions become errors, its
// log gets the missing events, and its record is made from them (doc/design.md, "Crashes"). Executions that workers
// continue are noted; their ends are appended to the journal later. current is the run that the state names.
func (w *Runner) closeDead(ctx context.Context, lock *hold, current string, x reaper) (closed, error) {
	ws := lock.ws
	c := closed{current: current}
	for rec, err := range w.states.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return c, fmt.Errorf("look for dead runs: %w", err)
		}
		c.old = append(c.old, oldRun{id: rec.Key.Sort})
	}
	confirmed, late := false, false
	for _, o := range c.old {
		end, err := events.SealedEnd(ctx, w.states.Records, ws, o.id)
		if err != nil {
			return c, err
		}
		if end.Event == nil {
			if !confirmed { // so no listed run belongs to a live later holder
				if err := w.states.confirm(ctx, ws); err != nil {
					return c, err
				}
				confirmed = true
			}
			if c.current, err = w.closeRun(ctx, lock, o.id, c.current, x); err != nil {
				return c, fmt.Errorf("close dead run %s: %w", o.id, err)
			}
			if end, err = events.SealedEnd(ctx, w.states.Records, ws, o.id); err != nil {
				return c, err
			}
		}
		if end.Event != nil {
			late, c.journal = late || end.Facts().Late > 0, max(c.journal, end.Facts().Journal)
		}
		if o.id == c.current {
			c.ended = end
		}
	}
	var err error
	if late {
		c.late, err = w.states.tellLate(ctx, ws, x)
	}
	return c, err
}

// closeRun closes a run whose log has no end. Its process may be suspended, unaware that it has lost the lease, so its
// pending writes may arrive until the log has its end. The second of two writers gets a conflict; a process that gets
// it reads the records again.
func (w *Runner) closeRun(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	const tries = 20 // one process has only a few writes pending
	for try := 1; ; try++ {
		now, err := w.closeOnce(ctx, lock, id, current, x)
		if !errors.Is(err, refstore.ErrConflict) || try == tries {
			return now, err
		}
		if err := w.states.confirm(ctx, lock.ws); err != nil {
			return current, err
		}
	}
}

// closeOnce makes one attempt, which may fail with ErrConflict. It writes the end last: after a crash before that,
// closing starts again, and events that were already written are not repeated.
func (w *Runner) closeOnce(ctx context.Context, lock *hold, id, current string, x reaper) (string, error) {
	c := newClosing(w, lock.ws, id)
	c.x = x
	if found, err := c.readRecord(ctx); err != nil || !found {
		return current, err
	}
	var err error
	if c.log, err = events.Resume(ctx, w.states.Records, c.ws, id, w.states.Now, c.readEvent); err != nil {
		return current, err
	}
	defer c.log.Close()
	defer context.AfterFunc(lock.lasting, func() { c.log.Stop(context.Cause(lock.lasting)) })()
	if c.f.End() != nil { // the log has its end, and Resume has cut off the rest
		return current, nil
	}
	if err := c.readJobs(ctx); err != nil {
		return current, err
	}
	if err := c.tellTasks(ctx); err != nil {
		return current, err
	}
	end, err := c.ending(ctx)
	if err != nil {
		return current, err
	}
	if end, err = c.promise(ctx, end); err != nil {
		return current, err
	}
	if current, err = w.name(ctx, lock, id, current); err != nil {
		return current, err
	}
	if err := x.DropBegun(ctx, c.ws, id); err != nil {
		return current, err
	}
	c.emit(end)
	if err := c.log.Close(); err != nil {
		return current, err
	}
	return current, w.states.TellLeft(ctx, c.ws, id, x) // the run may have left more that is known only now
}

// name makes the state name an ended run, if that run is later than the run that the state names.
func (w *Runner) name(ctx context.Context, lock *hold, id, current string) (string, error) {
	behind, err := w.states.behindRun(ctx, lock.ws, id, current)
	if err != nil || !behind {
		return current, err
	}
	_, err = w.states.update(ctx, lock, lock.ws, false, func(s *State) error {
		s.CurrentRunID = id
		return nil
	})
	if err != nil {
		return current, err
	}
	return id, nil
}

// behindRun tells whether a state that names the run current must name the ended run id instead, because id is later or
// current was imported.
func (w *States) behindRun(ctx context.Context, ws, id, current string) (bool, error) {
	if id > current {
		return true, nil
	}
	rec, err := w.Records.Get(ctx, runview.Key(ws, current), runview.FieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return runview.Imported(rec), nil
	}
	return runview.Imported(rec), err
}
