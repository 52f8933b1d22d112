package exportimport

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/packages"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// A snapshot is the state of a workspace at one moment, valid while it is protected.
type snapshot struct {
	workspace string
	state     record.WorkspaceState // as exported
	deployed  string                // hash of the package that is deployed here
	pkg       *record.Package       // as exported; nil if the reference made it
	pkgBytes  []byte                // of pkg; nil if pkg is the deployed package
	inputs    record.Node           // of the tree; nil if the reference made it
	tasks     record.Node
	run       *record.Run // the latest ended run; nil if there is none
	runSteps  []record.Step
	bounds    events.Bounds // of the events of run
	notes     []string
}

// take reads a workspace, protects the objects that it names, and reads it again. It repeats this until both reads
// agree, since a collection may have run in between.
func (x *exporter) take(ctx context.Context, ws string) (s *snapshot, release func(), err error) {
	if err := x.begin(ctx); err != nil {
		return nil, nil, err
	}
	for {
		s, err := x.read(ctx, ws)
		if err != nil {
			return nil, nil, err
		}
		release, err := x.protect(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		again, err := x.repo.Workspaces.State(ctx, ws)
		if err == nil && again.WorkspaceState == s.state {
			err = x.complete(ctx, s)
			if err == nil {
				return s, release, nil
			}
		}
		release()
		if err != nil {
			return nil, nil, err
		}
	}
}

// begin begins a session. A process that can write nothing in the repository exports without one: if a collection removes
// something meanwhile, the export fails.
func (x *exporter) begin(ctx context.Context) error {
	_, err := x.repo.Records.SessionBegan(ctx)
	if x.unprotected = refstore.Unprotected(err); x.unprotected {
		return nil
	}
	return err
}

// protect protects the objects that a snapshot names from collections.
func (x *exporter) protect(ctx context.Context, s *snapshot) (release func(), err error) {
	if x.unprotected {
		return func() {}, nil
	}
	release, err = x.repo.Records.Protect(ctx, s.roots())
	if refstore.Unprotected(err) { // the disk is full by now
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("protect what is exported: %w", err)
	}
	return release, nil
}

// read reads the state and the run that it names.
func (x *exporter) read(ctx context.Context, ws string) (*snapshot, error) {
	st, err := x.repo.Workspaces.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	if !st.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, workspace.ErrNotDeployed)
	}
	s := &snapshot{workspace: ws, state: st.WorkspaceState, deployed: st.PackageHash}
	if st.CurrentRunID == "" {
		return s, nil
	}
	rec, err := x.repo.Records.Get(ctx, runview.Key(ws, st.CurrentRunID), runview.FieldProvenance, runview.FieldEvents)
	if errors.Is(err, refstore.ErrNotFound) {
		return s, nil // complete notes this, if the state still names it
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", st.CurrentRunID, err)
	}
	if s.run, err = record.DecodeRun(rec.Value); err != nil {
		return nil, fmt.Errorf("run %s: %w", st.CurrentRunID, err)
	}
	s.bounds = runview.BoundsOf(rec)
	if data, ok := rec.Field(runview.FieldProvenance); ok {
		p, err := record.DecodeProvenance(data)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", st.CurrentRunID, err)
		}
		s.runSteps = p.Steps
	}
	return s, nil
}

// roots are the names to protect.
func (s *snapshot) roots() []string {
	var names []string
	add := func(k reach.Kind, hash string) {
		if h, err := objectstore.ParseHash(hash); err == nil {
			names = append(names, reach.Ref{Kind: k, Hash: h}.String())
		}
	}
	add(reach.Package, s.state.PackageHash)
	add(reach.Node, s.state.RootHash)
	if s.run != nil {
		add(reach.Nodes, s.run.InputSnapshot)
		add(reach.Nodes, s.run.OutputSnapshot)
	}
	return names
}

// complete reads the objects that the state names, and makes the exported package.
func (x *exporter) complete(ctx context.Context, s *snapshot) error {
	fail := func(err error) error { return fmt.Errorf("workspace %s: %w", s.workspace, err) }
	switch {
	case s.state.CurrentRunID != "" && s.run == nil:
		s.notes = append(s.notes, fmt.Sprintf("the record of run %s is gone, so it is not exported", s.state.CurrentRunID))
		s.state.CurrentRunID = ""
	case s.run == nil:
		s.notes = append(s.notes, "the workspace has not been run")
	}
	if err := x.noteLaterRun(ctx, s); err != nil {
		return fail(err)
	}
	pkg, err := x.repo.Workspaces.Packages.Load(ctx, s.deployed)
	if errors.Is(err, record.ErrType) {
		return nil // the reference's package and tree are exported unchanged
	}
	if err != nil {
		return fail(err)
	}
	root, err := x.readNode(ctx, s.state.RootHash)
	if err != nil {
		return fail(err)
	}
	for _, part := range []struct {
		name string
		node *record.Node
	}{{"inputs", &s.inputs}, {"tasks", &s.tasks}} {
		if leaf, ok := root.Get(part.name); ok {
			if *part.node, err = x.readNode(ctx, leaf.Hash); err != nil {
				return fail(err)
			}
		}
	}
	s.pkg = withDefaults(pkg, s.inputs)
	if s.pkg != pkg {
		s.pkgBytes = s.pkg.Encode()
		s.state.PackageName, s.state.PackageVersion = s.pkg.Name, s.pkg.Version
		s.state.PackageHash = objectstore.Sum(s.pkgBytes).String()
	}
	return nil
}

// noteLaterRun notes a run that has not ended.
func (x *exporter) noteLaterRun(ctx context.Context, s *snapshot) error {
	r, err := x.repo.Workspaces.Runs.Summary(ctx, s.workspace)
	if errors.Is(err, runview.ErrNoRun) {
		return nil
	}
	if err != nil {
		return err
	}
	if r.State != record.RunRunning || r.RunID <= s.state.CurrentRunID {
		return nil
	}
	doing := "is being made"
	if !r.Live {
		doing = "was interrupted"
	}
	s.notes = append(s.notes, fmt.Sprintf("run %s %s and is not exported; the latest run that has ended is", r.RunID, doing))
	return nil
}

func (x *exporter) readNode(ctx context.Context, hash string) (record.Node, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, x.repo.Objects, h, record.MaxNode)
	if err != nil {
		return nil, fmt.Errorf("tree: %w", err)
	}
	return record.DecodeNode(data)
}

// withDefaults returns the package with the given datasets as the defaults of its inputs. If that changes the
// package, its version gets a "+" and the beginning of its hash. The same datasets give the same version, whichever
// snapshot they come from.
func withDefaults(pkg *record.Package, inputs record.Node) *record.Package {
	changed := *pkg
	changed.Inputs = append([]record.PackageInput(nil), pkg.Inputs...)
	same := true
	for i := range changed.Inputs {
		in := &changed.Inputs[i]
		if in.Source.OfMachine() {
			continue // every start sets this input from its own environment
		}
		if leaf, ok := inputs.Get(in.Name); ok && leaf != in.Default {
			in.Default, same = leaf, false
		}
	}
	if same {
		return pkg
	}
	changed.Version = packages.SnapshotVersion(&changed)
	return &changed
}
