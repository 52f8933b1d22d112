package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/record"
	"e3/objectstore"
	"e3/refstore"
)

// closeDead closes what a predecessor left that did not end: under the dataflow lock, a
// run on record as running has no process any more. Its running executions become errors,
// its log gets the events that are missing (doc/design.md, "Crashes").
func (w *Workspaces) closeDead(ctx context.Context, ws, current string, o *StartOptions) error {
	for rec, err := range w.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + ws, KeysOnly: true}) {
		if err != nil {
			return fmt.Errorf("look for dead runs: %w", err)
		}
		id := rec.Key.Sort
		ended, err := events.Ended(ctx, w.Records, ws, id)
		if err != nil {
			return err
		}
		if !ended {
			if err := w.closeRun(ctx, ws, id, current, o); err != nil {
				return fmt.Errorf("close dead run %s: %w", id, err)
			}
		}
	}
	return nil
}

func (w *Workspaces) closeRun(ctx context.Context, ws, id, current string, o *StartOptions) error {
	rec, err := w.Records.Get(ctx, runKey(ws, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	run, err := record.DecodeRun(rec.Value)
	if err != nil {
		// Its bytes were lost with the power, so it was never synced: it had not finished.
		run = &record.Run{State: record.RunRunning}
	}
	open := map[string]events.Event{} // executions that were started and not seen to end
	sameBoot := o.Process == nil
	log, err := events.Resume(ctx, w.Records, ws, id, w.Now, func(e *events.Event) {
		switch {
		case e.Type == events.RunStarted && e.Data != nil && e.Data.Process != nil && o.Process != nil:
			sameBoot = e.Data.Process.BootID == o.Process.BootID && e.Data.Process.Mount == o.Process.Mount
		case e.Execution == "":
		case e.Type == events.TaskStarted:
			open[e.Execution] = *e
		default:
			delete(open, e.Execution)
		}
	})
	if err != nil {
		return err
	}
	defer log.Close()
	if !sameBoot {
		if err := w.recheck(ctx, id); err != nil {
			return err
		}
	}
	for _, e := range open {
		if err := w.closeExecution(ctx, log, e, o.Executor); err != nil {
			return err
		}
	}
	end := events.Event{Type: events.RunFailed, Data: &events.Data{Reason: "crashed", Message: "the process of this run ended without finishing it"}}
	if run.State != record.RunRunning {
		// It had finished but for its last steps: do them.
		end = events.Event{Type: events.RunCompleted, Data: &events.Data{
			Duration: run.CompletedAt.Sub(run.StartedAt).Milliseconds(), Summary: summary(run.Summary)}}
		switch run.State {
		case record.RunFailed:
			end.Type, end.Task, end.Data.Message = events.RunFailed, run.FailedTask, run.Error
		case record.RunCancelled:
			end.Type = events.RunCancelled
		}
		if id > current {
			if _, err := w.update(ctx, ws, false, func(s *State) error {
				s.CurrentRunID = id
				return nil
			}); err != nil {
				return err
			}
		}
	}
	log.Emit(end)
	return log.Close()
}

// recheck removes what a loss of power has left of objects that were written since a run
// began: nothing was synced yet, so a name may be there whose bytes are not. What
// named them is a miss then, and runs again. The run's id tells the time even where nothing
// else of it is left.
func (w *Workspaces) recheck(ctx context.Context, runID string) error {
	since, err := executions.ParseID(runID)
	if err != nil {
		return err
	}
	end, err := w.generation.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	since = since.Add(-time.Minute) // file systems and clocks round
	for e, err := range w.Objects.Walk(ctx) {
		if err != nil {
			return fmt.Errorf("check objects after a loss of power: %w", err)
		}
		if e.Time.Before(since) {
			continue
		}
		var corrupt *objectstore.CorruptError
		err := w.Objects.Verify(ctx, e.Hash)
		if errors.As(err, &corrupt) {
			err = w.Objects.Delete(ctx, e.Hash)
		}
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			return fmt.Errorf("check objects after a loss of power: %w", err)
		}
	}
	return nil
}

// closeExecution finds out what became of an execution whose end is not in the log.
func (w *Workspaces) closeExecution(ctx context.Context, log *events.Log, started events.Event, x *executions.Executor) error {
	if started.Data == nil {
		return nil
	}
	key, ok := executions.ParseKey(started.Data.Key)
	if !ok {
		return nil
	}
	end := events.Event{Type: events.TaskFailed, Task: started.Task, Execution: started.Execution, Data: &events.Data{
		Key: started.Data.Key, Attempt: started.Data.Attempt, Reason: "crashed"}}
	_, err := x.Bury(ctx, key, started.Execution)
	var e *executions.Execution
	if err == nil {
		e, err = x.Get(ctx, key, started.Execution)
	}
	switch {
	case errors.Is(err, executions.ErrNotFound):
		end.Data.Message = "the process of this run ended before the execution was on record"
	case errors.Is(err, executions.ErrMalformed):
		end.Data.Message = "the record of the execution was lost with the power"
	case err != nil:
		return err
	case e.State == record.Running:
		return nil // somebody else's, and alive
	case e.State == record.Success:
		end.Type, end.Data.Reason, end.Data.Output = events.TaskCompleted, "", e.OutputHash
		end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	default:
		end.Data.Message, end.Data.ExitCode = e.Message, e.ExitCode
		end.Data.Duration = e.CompletedAt.Sub(e.StartedAt).Milliseconds()
	}
	log.Emit(end)
	return nil
}
