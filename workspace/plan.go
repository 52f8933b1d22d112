package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/manifest"
	"e3/internal/record"
)

// PlanOptions are the options of a start that is only planned.
type PlanOptions struct {
	Concurrency int
	Memory      int64 // bytes; 0: no limit
	Capacities  map[string]float64
	Force       bool
	Filter      string
}

// Plan is what a start would do now. Nothing was written and no lock was taken to learn it.
type Plan struct {
	Workspace string
	New       bool // nothing is deployed in the workspace yet: the start would do that
	Package   PackageRef
	File      string             // the package file that it follows, "" without one
	Edited    bool               // the file says something else than what is deployed
	Elsewhere *Elsewhere         // who decides what is deployed, if that is not this machine
	Warnings  []manifest.Warning // of the package file, where it was read
	Busy      *BusyError         // who holds the workspace, so that a start must wait; nil: nobody
	Graph     *dataflow.Graph
	*dataflow.Planned
	// Objects reads also what the start would store before it looks anything up.
	Objects NextObjects
}

// Plan tells what a start of the workspace with these options would do: it follows the package file and its inputs as Start
// does, and fails as that would before its first task.
func (w *Workspaces) Plan(ctx context.Context, ws string, o PlanOptions) (plan *Plan, err error) {
	err = w.steady(ctx, ws, func(s *State) (err error) {
		plan, err = w.planOf(ctx, ws, s, &o)
		return err
	})
	return plan, err
}

func (w *Workspaces) planOf(ctx context.Context, ws string, s *State, o *PlanOptions) (*Plan, error) {
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	t, err := w.readTree(ctx, s.RootHash, bothParts)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, w.notRunnable(ctx, s, err))
	}
	objects := newKeeping(w.Objects)
	next, err := w.previewWith(ctx, ws, s, t, objects)
	if err == nil {
		err = errors.Join(next.faults...)
	}
	if err != nil {
		return nil, err
	}
	return w.plan(ctx, ws, next, objects, o)
}

// PlanFile is Plan for a workspace in which a package file would be deployed first, as DeployNew does it: the workspace may
// not exist, and without a name it is the package's.
func (w *Workspaces) PlanFile(ctx context.Context, ws, file string, o PlanOptions) (*Plan, error) {
	objects := newKeeping(w.Objects)
	built, err := w.over(objects).Build(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if ws == "" {
		ws = built.Package.Name
		if err := w.takenBy(ctx, ws, built); err != nil {
			return nil, err
		}
	}
	next := &preview{
		file: built.Link.File, pkg: built.Package, pkgHash: built.Hash, built: true, warnings: built.Warnings, set: map[string]bool{},
	}
	deployed := false
	err = w.steady(ctx, ws, func(s *State) error {
		deployed = s.Deployed
		t, err := w.kept(ctx, ws, s, next)
		if err == nil {
			next.assign(t, built.Link)
		}
		return err
	})
	var unknown *UnknownError
	if errors.As(err, &unknown) && unknown.What == "workspace" {
		next.assign(&tree{}, built.Link)
	} else if err != nil {
		return nil, err
	}
	plan, err := w.plan(ctx, ws, next, objects, &o)
	if err == nil {
		plan.New = !deployed
	}
	return plan, err
}

// kept reads what an install would leave of what the workspace holds, and which of its inputs are set.
func (w *Workspaces) kept(ctx context.Context, ws string, s *State, next *preview) (*tree, error) {
	if !s.Deployed {
		return &tree{}, nil
	}
	t, err := w.treeOf(ctx, ws, s, bothParts)
	if !errors.Is(err, errStale) && (lost(err) || errors.Is(err, record.ErrType)) {
		return &tree{}, nil // nothing can be kept: it is gone, or the reference's
	}
	if err != nil {
		return nil, err
	}
	wasSet, err := w.setValues(ctx, ws, s)
	if err != nil {
		return nil, err
	}
	for i := range t.inputs {
		next.set[t.inputs[i].Name] = wasSet(t.inputs[i].Name, t.inputs[i].Leaf)
	}
	return t, nil
}

// plan plans a run on what was previewed.
func (w *Workspaces) plan(ctx context.Context, ws string, next *preview, objects NextObjects, o *PlanOptions) (*Plan, error) {
	p := &Plan{
		Workspace: ws, Package: PackageRef{next.pkg.Name, next.pkg.Version, next.pkgHash},
		File: next.file, Edited: next.edited, Elsewhere: next.elsewhere, Warnings: next.warnings, Objects: objects,
	}
	var err error
	if p.Busy, err = w.Busy(ctx, ws); err != nil {
		return nil, err
	}
	generation, quiet, err := w.generation.Peek(ctx)
	if err != nil {
		return nil, err
	}
	proof, err := w.proof(ctx, ws, generation, quiet)
	if err != nil {
		return nil, err
	}
	if p.Graph, err = dataflow.NewGraph(next.pkg); err != nil {
		return nil, err
	}
	if err := checkFilter(p.Graph, o.Filter); err != nil {
		return nil, err
	}
	durations := w.durations(ctx, ws)
	opts := dataflow.PlanOptions{
		Options: dataflow.Options{
			Workspace: ws, Inputs: next.inputs,
			Concurrency: o.Concurrency, Memory: o.Memory, Capacities: o.Capacities, Force: o.Force, Filter: o.Filter, Lookups: w.Lookups,
			Expected: func(task string) time.Duration { return durations[task] },
		},
		Fresh:    next.fresh,
		Gathered: objects,
	}
	if proof == nil {
		err = w.checkPlanned(ctx, ws, next)
	} else {
		opts.Baseline, err = w.baseline(ctx, proof, next.pkgHash, next.pkg)
	}
	if err != nil {
		return nil, err
	}
	x := executions.NewStore(w.Records, w.Objects)
	if p.Planned, err = dataflow.Plan(ctx, p.Graph, w.Objects, x, opts); err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	return p, nil
}

// checkPlanned finds inputs whose content is gone, as a start does it.
func (w *Workspaces) checkPlanned(ctx context.Context, ws string, next *preview) error {
	stored := slices.DeleteFunc(slices.Clone(next.inputs), func(e record.NodeEntry) bool { return next.fresh[e.Name] })
	missing, err := w.missingInputs(ctx, stored)
	if err != nil {
		return err
	}
	return missed(ws, next.pkg, missing)
}
