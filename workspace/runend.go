package workspace

import (
	"context"
	"fmt"

	"e3/dataflow"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// end publishes, records and proves the run's results. timed is the version of the record of durations.
func (r *run) end(ctx context.Context, g *dataflow.Graph, out *dataflow.Outcome, durations record.Durations, timed *refstore.Version) error {
	var after *tree
	publish := func() error {
		if r.o.Publish == Never {
			if r.durable {
				return r.w.states.Records.Sync(ctx)
			}
			return nil
		}
		state, err := r.w.states.edit(ctx, r.lock, r.ws, r.durable, tasksPart, func(s *State, t *tree) error {
			t.assign(out.Results(g, !r.shown || t.rebuilt))
			after = t
			// The inputs come from this state, which may be replaced before the run's record names them.
			return r.w.states.staleOr(ctx, r.ws, s, r.keepNode(ctx, t.inputsHash))
		})
		if err != nil {
			return err
		}
		r.snapOutputs(state.RootHash, after.inputsHash, after.tasksHash)
		return nil
	}
	// The generation must be what it was before the first lookup. All tasks have ended, so it may be read now.
	generation, quiet := r.generation, false
	read := func() (err error) { generation, quiet, err = r.w.states.generation.Read(ctx); return err }
	partial := out.State != record.RunCompleted || out.Summary.Failed > 0 || r.o.Filter != ""
	less := partial && (out.Answered == 0 || out.Answered < out.Kept) // it proves nothing, or less than the proof that is there
	proves := !less && r.o.Publish != Never && r.quiet
	if !proves && r.spared == "" {
		read = func() error { return nil }
	}
	// In turn, the sync of publish covers what was written before it.
	err := atOnce(
		r.w.states,
		r.log.Flush,
		func() error { return r.w.proofs.saveDurations(ctx, r.ws, g, out, durations, timed) },
		publish,
		read,
	)
	if err != nil {
		return err
	}
	r.rec.Tasks, r.rec.Summary = out.Executions(g), out.Summary
	r.rec.State, r.rec.FailedTask, r.rec.Error = out.State, out.FailedTask, out.Error
	r.waiting = out.Waiting
	if err := r.write(ctx, 0); err != nil {
		return err
	}
	steps := []func() error{func() error { return r.finish(ctx) }}
	if generation != r.generation {
		r.spared = "" // its proof has fallen
	}
	if proves && quiet && generation == r.generation {
		r.spared = ""
		// A proof relies on the run's record alone. The folders' times are from before the first lookup: objects that are
		// removed during the run show as a change.
		steps = append(steps, func() error {
			return r.w.proofs.saveProof(ctx, r.ws, &record.Proof{
				RunID: r.rec.RunID, Package: r.state.PackageHash, Inputs: r.inputs, Tasks: after.tasksHash, Generation: r.generation, Partial: partial, Open: out.Open,
				Shards: r.folders.times(), CheckedAt: r.folders.at, Durable: r.durable,
			}, &r.stored.version)
		})
	}
	return atOnce(r.w.states, steps...)
}

// write writes the run's last record, which has the bounds of the log: others events are still to be written before
// the last one.
func (r *run) write(ctx context.Context, others int) error {
	r.rec.CompletedAt = r.w.states.Now()
	var err error
	if r.last, err = r.lastEvent(ctx, others); err != nil {
		return err
	}
	if r.durable {
		return r.put(ctx, r.w.states.Records.PutSync)
	}
	return r.put(ctx, r.w.states.Records.Put)
}

// lastEvent makes the event that will end the log, with the times of the record, so that both agree.
func (r *run) lastEvent(ctx context.Context, others int) (*events.Event, error) {
	if r.broken {
		if err := r.noteLeft(ctx); err != nil {
			return nil, err
		}
	}
	if r.late > 0 {
		var err error
		if r.late, err = r.w.states.tellLate(ctx, r.ws, r.o.Executor); err != nil {
			return nil, err
		}
	}
	e := runview.End(r.rec)
	e.Time = r.rec.CompletedAt
	e.Data.Late, e.Data.Journal, e.Data.PackageHash = r.late, max(r.place.Stream, r.journal), r.grown
	if r.rec.State == record.RunCancelled {
		e.Data.By, e.Data.Message = causeOf(r.cause)
	}
	if r.waiting > 0 {
		e.Data.Reason, e.Data.Tasks, e.Data.Message = events.ReasonWaits, r.waiting, "what is left waits for approval"
	}
	e.Data.Git = r.edits.tell(r.git)
	if r.o.Traffic != nil {
		e.Data.Requests = r.o.Traffic()
	}
	e = r.log.Draft(e, others)
	return &e, nil
}

// put writes the run's record only over its own last version: any other version comes from a process that took over and
// closed the run.
func (r *run) put(ctx context.Context, put func(context.Context, refstore.Record) (refstore.Version, error)) error {
	err := r.keepSnapshots(ctx)
	if err == nil {
		err = r.w.states.checkLease(r.ws)
	}
	var bounds []byte
	if err == nil {
		bounds, err = events.Bounds{First: r.first, Last: r.last}.Text()
	}
	if err == nil {
		r.version, err = put(ctx, refstore.Record{
			Key: runview.Key(r.ws, r.rec.RunID), Value: r.rec.Encode(), Version: r.version,
			Fields: []refstore.Field{{Name: FieldEvents, Value: bounds}},
		})
	}
	if err != nil {
		return fmt.Errorf("record run: %w", err)
	}
	return nil
}

// finish makes the state name the run's record, then writes the last event. So a reader of the event finds both, and
// a reader of the state finds the record.
func (r *run) finish(ctx context.Context) error {
	if err := r.name(ctx); err != nil {
		return err
	}
	return r.tellEnd(ctx)
}

// name makes the state refer to the run's record.
func (r *run) name(ctx context.Context) error {
	_, err := r.w.states.update(ctx, r.lock, r.ws, r.durable, func(s *State) error {
		s.CurrentRunID = r.rec.RunID
		return nil
	})
	return err
}

// tellEnd writes the last event, and removes the records of runs that the state no longer names.
func (r *run) tellEnd(ctx context.Context) error {
	return atOnce(
		r.w.states,
		func() (err error) {
			r.old, err = r.w.cleaner.deleteRuns(ctx, r.ws, r.old, r.spared)
			return err
		},
		func() error {
			r.emit(*r.last)
			return r.log.Close()
		},
	)
}
