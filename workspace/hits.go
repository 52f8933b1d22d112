package workspace

import (
	"context"
	"errors"
	"fmt"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Hits finds the executions that would answer a start of the workspace, without running anything: for its present
// contents, and for the present package file and linked inputs. visit is called by several goroutines at a time, and
// twice for an execution that answers both. A package of the reference cannot be started and has no hits.
func (w *Planner) Hits(ctx context.Context, ws string, visit func(task string, key executions.Key, executionID string) error) error {
	return w.states.steady(ctx, ws, func(s *State) error {
		if !s.Deployed {
			return nil
		}
		return w.hitsOf(ctx, ws, s, visit)
	})
}

func (w *Planner) hitsOf(ctx context.Context, ws string, s *State, visit func(task string, key executions.Key, executionID string) error) error {
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if errors.Is(err, record.ErrType) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("workspace %s: %w", ws, err)
	}
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if err != nil {
		return fmt.Errorf("workspace %s: %w", ws, err)
	}
	if err := w.hits(ctx, pkg, t.inputs, visit); err != nil {
		return fmt.Errorf("workspace %s: %w", ws, err)
	}
	next, err := w.preview(ctx, ws, s, t)
	if errors.Is(err, errBadLink) {
		return nil // until it is deployed again it follows nothing
	}
	if err == nil {
		if err = w.foresee(ctx, next, next.objects); isLost(err) { // a start reports it; the items of last time have hits
			err = nil
		}
	}
	if err != nil {
		return err
	}
	if next.pkgHash == s.PackageHash && objectstore.Sum(next.inputs.Encode()) == objectstore.Sum(t.inputs.Encode()) {
		return nil
	}
	if err := w.hits(ctx, next.pkg, next.inputs, visit); err != nil {
		return fmt.Errorf("workspace %s: %w", ws, err)
	}
	return nil
}

// PackageHits is Hits for a workspace in which a registered package has just been deployed.
func (w *Planner) PackageHits(ctx context.Context, ref PackageRef, visit func(task string, key executions.Key, executionID string) error) error {
	pkg, err := w.states.Packages.Load(ctx, ref.Hash)
	if errors.Is(err, record.ErrType) {
		return nil
	}
	if err == nil {
		err = w.hits(ctx, pkg, defaults(pkg), visit)
	}
	if err != nil {
		return fmt.Errorf("package %s: %w", ref, err)
	}
	return nil
}

// defaults returns the inputs of a workspace in which the package has just been deployed.
func defaults(pkg *record.Package) record.Node {
	inputs := make(record.Node, len(pkg.Inputs))
	for i := range pkg.Inputs {
		inputs[i] = record.NodeEntry{Name: pkg.Inputs[i].Name, Leaf: pkg.Inputs[i].Default}
	}
	inputs.Sort()
	return inputs
}

func (w *Planner) hits(ctx context.Context, pkg *record.Package, inputs record.Node, visit func(string, executions.Key, string) error) error {
	g, err := graph.New(pkg)
	if err != nil {
		return err
	}
	x := w.states.executions()
	return dataflow.Hits(ctx, g, w.states.Objects, x, inputs, w.states.Lookups, func(i int32, key executions.Key, hit *executions.Hit) error {
		return visit(g.Name(i), key, hit.ExecutionID)
	})
}
