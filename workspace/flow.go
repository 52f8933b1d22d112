package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/refstore"
)

// flow runs the dataflow: it makes the graph and the options, records the run, runs it, and records its end.
func (r *run) flow(ctx context.Context, info *RunInfo, proof *provenRun, inputs string) (*RunResult, error) {
	r.work()
	if proof == nil || r.o.Force || proof.Package != r.state.PackageHash || proof.Inputs != inputs {
		r.o.Executor.Prepare()
	}
	g, err := r.graph(ctx, info)
	if err != nil {
		return nil, err
	}
	opts, growth, err := r.options(ctx, info.Package, proof, inputs)
	if err != nil {
		return nil, err
	}
	durations, timed := r.w.proofs.durations(ctx, r.ws)
	opts.Expected = func(task string) time.Duration { return durations[task] }
	info.Expected, info.Graph = opts.Expected, g
	if r.o.OnStart != nil {
		r.o.OnStart(info)
	}
	if err := r.enter(ctx); err != nil {
		return nil, err
	}
	told := r.tellSuspensions()
	outcome, runErr := dataflow.Run(ctx, g, r.w.states.Objects, r.o.Executor, opts)
	told()
	defer r.o.Executor.Clear()() // while results are written
	if r.o.OnRest != nil {
		r.o.OnRest()
	}
	// Results are recorded even if the run is being cancelled.
	r.cause = context.Cause(ctx)
	r.broken = r.cause != nil || runErr != nil
	if errors.Is(r.cause, refstore.ErrLost) {
		return nil, errors.Join(r.cause, runErr) // nothing more is written
	}
	endErr := r.end(r.lock.lasting, outcome.Graph, outcome, durations, timed)
	res := &RunResult{
		Run: r.rec, TimedOut: outcome.TimedOut, Waiting: r.waiting, Graph: outcome.Graph, Outcome: outcome, Package: info.Package,
	}
	if growth != nil {
		res.Package = growth.pkg
	}
	if r.rec.State == record.RunCancelled && r.waiting == 0 {
		errors.As(r.cause, &res.Cancelled)
	}
	return res, errors.Join(runErr, endErr)
}

// graph returns the graph of the package, and puts the package into info.
func (r *run) graph(ctx context.Context, info *RunInfo) (g *dataflow.Graph, err error) {
	if info.Package == nil {
		if info.Package, err = r.w.states.Packages.Load(ctx, r.state.PackageHash); err != nil {
			return nil, fmt.Errorf("workspace %s: %w", r.ws, r.w.states.notRunnable(ctx, r.state, err))
		}
	}
	if g, err = graph.Whole(info.Package); err != nil {
		return nil, err
	}
	return g, checkFilter(g, r.o.Filter)
}

// options returns the dataflow's options, with the contents of the inputs and the proof of an earlier run.
func (r *run) options(ctx context.Context, pkg *record.Package, proof *provenRun, inputs string) (opts dataflow.Options, growth *runGrowth, err error) {
	opts = dataflow.Options{
		RunID: r.rec.RunID, Workspace: r.ws, Emit: r.emit, Restore: r.restored,
		Concurrency: r.o.Concurrency, Memory: r.o.Memory, Capacities: r.o.Capacities, Lookups: r.w.states.Lookups,
		Force: r.o.Force, Filter: r.o.Filter, FailFast: r.o.FailFast, Strict: r.o.Strict,
		Outstanding: r.o.Outstanding, Blocks: r.w.approvals.blocks, NoWait: r.o.NoWait,
	}
	if opts.Inputs, err = r.w.states.readNode(ctx, inputs); err != nil {
		return opts, nil, err
	}
	if err := missingValues(r.ws, pkg, opts.Inputs); err != nil {
		return opts, nil, err
	}
	if proof == nil {
		if opts.Inputs, err = r.checkInputs(ctx, opts.Inputs); err != nil {
			return opts, nil, err
		}
		if proof, err = r.w.proofs.nearest(ctx, r.ws, r.outset, r.state, r.inputs); err != nil {
			return opts, nil, err
		}
	}
	if growth = r.growth(ctx, pkg, opts.Inputs); growth != nil {
		opts.Growth, r.grows = growth, true
	}
	if proof != nil {
		if opts.Baseline, err = r.w.proofs.baseline(ctx, proof, r.state.PackageHash, pkg); err != nil {
			return opts, nil, err
		}
	}
	if r.o.Publish == Always {
		opts.Publish = func(_ context.Context, changes []dataflow.Change) error {
			_, err := r.w.states.edit(r.lock.lasting, r.lock, r.ws, r.durable, tasksPart, func(_ *State, t *tree) error {
				t.assign(changes)
				return nil
			})
			return err
		}
	}
	return opts, growth, nil
}

// enter records the run and its first event. Once the record is written, the run is finished even if it is cancelled.
func (r *run) enter(ctx context.Context) error {
	r.draftStarted()
	if err := r.put(ctx, r.w.states.Records.Put); err != nil {
		return err
	}
	if err := r.recorded(r.lock.lasting); err != nil {
		return err
	}
	r.emitStarted()
	err := r.tellSet()
	if err == nil {
		r.old, err = r.w.cleaner.deleteRuns(r.lock.lasting, r.ws, r.old, r.state.CurrentRunID, r.spared)
	}
	return err
}

// tellSuspensions writes an event when the lease is suspended because the store does not answer, and when it resumes.
func (r *run) tellSuspensions() (stop func()) {
	o, ok := r.w.states.Locks.(refstore.Outlasting)
	if !ok {
		return func() {}
	}
	return o.OnSuspension(func(s refstore.Suspension) {
		e := events.Event{Type: events.RunStalled, Data: &events.Data{Duration: s.For.Milliseconds()}}
		switch {
		case s.Over:
			e.Type = events.RunResumed
		case s.Err != nil:
			e.Data.Message = s.Err.Error()
		}
		r.emit(e)
	})
}

func checkFilter(g *dataflow.Graph, filter string) error {
	if filter == "" {
		return nil
	}
	named, _ := g.Select(filter)
	for _, yes := range named {
		if yes {
			return nil
		}
	}
	var known []string
	for i := range g.Len() {
		if i := int32(i); g.IsTask(i) || g.IsPending(i) {
			known = append(known, g.Name(i))
		}
	}
	return fmt.Errorf("--filter %s: %w", filter, &noMatch{UnknownError{What: "task", Name: filter, Known: known}})
}

// noMatch is the error of a filter that matches no task, with suggestions.
type noMatch struct{ UnknownError }

func (e *noMatch) Error() string { return ErrNoMatch.Error() }

func (e *noMatch) Unwrap() []error { return []error{ErrNoMatch, &e.UnknownError} }

// assign puts results into the tree, except those of tasks that a deployment has removed since.
func (t *tree) assign(changes []dataflow.Change) {
	for _, c := range changes {
		if _, ok := t.tasks.Get(c.Task); ok {
			t.tasks = t.tasks.Set(c.Task, c.Leaf)
		}
	}
}
