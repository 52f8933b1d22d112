package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/record"
	"e3/refstore"
)

// closeDead closes what a predecessor left that did not end: under the dataflow lock, a
// run on record as running has no process any more. Its running executions become errors,
// its log gets the events that are missing (doc/design.md, "Crashes").
func (w *Workspaces) closeDead(ctx context.Context, ws, current string, x *executions.Executor) error {
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
			if err := w.closeRun(ctx, ws, id, current, x); err != nil {
				return fmt.Errorf("close dead run %s: %w", id, err)
			}
		}
	}
	return nil
}

func (w *Workspaces) closeRun(ctx context.Context, ws, id, current string, x *executions.Executor) error {
	rec, err := w.Records.Get(ctx, runKey(ws, id), fieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if imported(rec) {
		return nil // it came as it was
	}
	run, err := record.DecodeRun(rec.Value)
	if err != nil {
		// Its bytes were lost with the power, so it was never synced: it had not finished.
		run = &record.Run{State: record.RunRunning}
	}
	open := map[string]events.Event{} // executions that were started and not seen to end
	log, err := events.Resume(ctx, w.Records, ws, id, w.Now, func(e *events.Event) {
		switch {
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
	if log.Empty() {
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: run.PackageRef}})
	}
	for _, e := range open {
		if err := w.closeExecution(ctx, log, e, x); err != nil {
			return err
		}
	}
	end := events.Event{Type: events.RunFailed, Data: &events.Data{Reason: "crashed", Message: "the process of this run ended without finishing it"}}
	if run.State != record.RunRunning {
		// It had finished but for its last steps: do them.
		end = events.Event{Type: events.RunCompleted, Data: &events.Data{
			Duration: run.CompletedAt.Sub(run.StartedAt).Milliseconds(), Summary: summary(run.Summary), Outputs: run.OutputSnapshot}}
		switch run.State {
		case record.RunFailed:
			end.Type, end.Task, end.Data.Message = events.RunFailed, run.FailedTask, run.Error
		case record.RunCancelled:
			end.Type = events.RunCancelled
		}
		behind, err := w.behindRun(ctx, ws, id, current)
		if err != nil {
			return err
		}
		if behind {
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

// behindRun tells whether a state that names the run current must name the run id instead, which has finished: it is
// later, or the other one was imported.
func (w *Workspaces) behindRun(ctx context.Context, ws, id, current string) (bool, error) {
	if id > current {
		return true, nil
	}
	rec, err := w.Records.Get(ctx, runKey(ws, current), fieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	return imported(rec), err
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
