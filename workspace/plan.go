package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/dataflow/plan"
	"e3/internal/format/manifest"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
)

// Planner determines what a start would do, without doing it.
type Planner struct {
	states    *States
	proofs    *proofs
	deployer  *Deployer
	approvals *Approvals
	memory    *freshnessMemory // nil: each answer is found anew
}

// deployerInto returns a deployer that stores its objects in objects, and asks no server.
func (w *Planner) deployerInto(objects Objects) *Deployer {
	states := w.states.withObjects(objects)
	states.Remote = unasked{states.Remote}
	return assemble(states).Deployer
}

// PlanOptions are the options of a planned start.
type PlanOptions struct {
	Concurrency int
	Memory      int64 // bytes; 0: no limit
	Capacities  map[string]float64
	Force       bool
	Filter      string
	Set         []Override // as of StartOptions
	FileNamed   bool       // as of StartOptions
}

// Plan is what a start would do now. Planning writes nothing and takes no lock.
type Plan struct {
	Workspace string     `json:"workspace"`
	New       bool       `json:"new,omitempty"` // the start would deploy first
	Package   PackageRef `json:"package"`
	File      string     `json:"file,omitempty"`      // the package file that the workspace follows
	Edited    bool       `json:"edited,omitempty"`    // differs from the deployed package
	Elsewhere *Elsewhere `json:"elsewhere,omitempty"` // the deployment is of another machine
	Busy      *Busy      `json:"busy"`                // the holder that a start must wait for
	*dataflow.Planned
	Concurrency int           `json:"concurrency"` // commands at a time
	Expected    *Expected     `json:"expected"`    // null without history
	Steps       []PlannedTask `json:"tasks"`
	Unmade      []Unmade      `json:"growing,omitempty"` // lists of items to make
	Rooms       []TaskRoom    `json:"rooms,omitempty"`   // absent: all run in the open, by default

	Warnings []manifest.Warning `json:"-"` // of the package file, if it was read
	Holder   *BusyError         `json:"-"` // Busy
	Graph    *dataflow.Graph    `json:"-"`
	// Objects also reads the objects that the start would store before its first lookup.
	Objects plan.Objects `json:"-"`
}

// Expected is the expected duration of a run.
type Expected struct {
	Least          moment.Millis `json:"leastMs"`        // if all waiting tasks are hits
	Most           moment.Millis `json:"mostMs"`         // if all waiting tasks run
	WithoutHistory int           `json:"withoutHistory"` // tasks that count with the average
	CriticalPath   []string      `json:"criticalPath"`   // tasks
	CriticalTime   moment.Millis `json:"criticalMs"`
}

// Plan determines what a start of the workspace with these options would do. It reads the package file and its inputs
// as Start does, and fails with the errors of Start before its first task.
func (w *Planner) Plan(ctx context.Context, ws string, o PlanOptions) (plan *Plan, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		plan, err = w.planOf(ctx, ws, s, &o)
		return err
	})
	return plan, err
}

func (w *Planner) planOf(ctx context.Context, ws string, s *State, o *PlanOptions) (*Plan, error) {
	if !s.Deployed {
		return nil, fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
	}
	if !o.FileNamed {
		link, err := w.states.links.link(ctx, ws, s)
		if err != nil {
			return nil, err
		}
		if other, err := w.states.links.unfollowed(ctx, ws, s, link); err != nil || other != nil {
			return nil, either(other, err)
		}
	}
	objects := newKeeping(w.states.Objects)
	next, _, err := w.previewNow(ctx, ws, s, objects)
	if err == nil {
		err = errors.Join(next.faults...)
	}
	if err == nil {
		err = next.override(ctx, w.deployerInto(objects), ws, o.Set)
	}
	if err == nil {
		err = w.foresee(ctx, next, objects)
	}
	if err != nil {
		return nil, err
	}
	return w.plan(ctx, ws, next, objects, o)
}

// PlanFile is Plan for a start that first deploys a package file, as DeployNew does: the workspace need not exist, and
// without a name it is named after the package.
func (w *Planner) PlanFile(ctx context.Context, ws, file string, o PlanOptions) (*Plan, error) {
	objects := newKeeping(w.states.Objects)
	read, err := w.states.readFile(file)
	if err != nil {
		return nil, err
	}
	next, err := w.previewNew(ctx, ws, read, objects, o.Set)
	if err == nil {
		err = w.foresee(ctx, next.preview, objects)
	}
	if err != nil {
		return nil, err
	}
	plan, err := w.plan(ctx, next.ws, next.preview, objects, &o)
	if err == nil {
		plan.New = !next.deployed
	}
	return plan, err
}

// CheckFile reports what would keep a start that first deploys a package file from running its first task, as far as
// that can be found without reading many or large files: faults of the file and of its inputs, values that do not fit, a filter
// that matches nothing. It writes nothing and takes no lock. It returns the workspace that the start would make, and the
// file for DeployNew.
func (w *Planner) CheckFile(ctx context.Context, ws, file string, set []Override, filter string) (string, *PackageFile, error) {
	read, err := w.states.readFile(file)
	if err != nil {
		return "", nil, err
	}
	next, err := w.previewNew(ctx, ws, read, glancing(w.states.Objects), set)
	if errors.Is(err, objectstore.ErrNotFound) {
		return ws, read, nil // it needs the content of a file that was not read
	}
	if err != nil {
		return "", nil, err
	}
	g, err := graph.Whole(next.pkg)
	if err != nil {
		return "", nil, err
	}
	return next.ws, read, checkFilter(g, filter)
}

// A newPreview is the preview of a package file that is not deployed yet.
type newPreview struct {
	*preview
	ws       string
	deployed bool // with another package
}

func (w *Planner) previewNew(ctx context.Context, ws string, read *PackageFile, objects *keeping, set []Override) (*newPreview, error) {
	built, err := w.deployerInto(objects).buildRead(ctx, read, nil)
	if err != nil {
		return nil, err
	}
	if ws == "" {
		if ws, _, err = w.states.ownName(ctx, built.Package.Name, built.Link.File); err != nil {
			return nil, err
		}
	}
	next := &newPreview{preview: previewBuilt(built), ws: ws}
	assign := func(t *tree) error {
		if err := next.assign(ctx, w.states.withObjects(objects), t, built.Link); err != nil {
			return err
		}
		return w.deployerInto(objects).previewVariables(ctx, next.preview)
	}
	err = w.states.steady(ctx, ws, func(s *State) error {
		next.deployed = s.Deployed
		t, err := w.kept(ctx, ws, s, next.preview)
		if err == nil {
			err = assign(t)
		}
		return err
	})
	var unknown *UnknownError
	if errors.As(err, &unknown) && unknown.What == "workspace" {
		err = assign(&tree{})
	}
	if err == nil {
		err = next.regrow(ctx, w.deployerInto(objects))
	}
	if err == nil {
		err = next.override(ctx, w.deployerInto(objects), ws, set)
	}
	return next, err
}

// kept reads the tree that an install would leave, and which of its inputs are set.
func (w *Planner) kept(ctx context.Context, ws string, s *State, next *preview) (*tree, error) {
	if !s.Deployed {
		return &tree{}, nil
	}
	h, err := w.states.holdings(ctx, ws, s, next.pkg)
	if err != nil {
		return nil, err
	}
	for name, set := range h.set {
		next.set[name] = set
		next.marks = append(next.marks, name)
	}
	return &h.tree, nil
}

// previewStart previews the tree that the next start would run on. Lost parts of the tree and of the package are
// rebuilt in memory, as the start would rebuild them in the repository.
func (w *Planner) previewStart(ctx context.Context, ws string, s *State, objects *keeping) (*preview, *tree, error) {
	next, t, err := w.previewNow(ctx, ws, s, objects)
	if err == nil {
		err = w.foresee(ctx, next, objects)
	}
	return next, t, err
}

// previewNow is previewStart without the lists of items that cached tasks have made.
func (w *Planner) previewNow(ctx context.Context, ws string, s *State, objects *keeping) (*preview, *tree, error) {
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if err != nil {
		err = fmt.Errorf("workspace %s: %w", ws, w.states.notRunnable(ctx, s, err))
	} else {
		var next *preview
		if next, err = w.previewWith(ctx, ws, s, t, objects); err == nil {
			return next, t, nil
		}
	}
	var part *PartError
	if !errors.As(err, &part) {
		return nil, nil, err
	}
	link, linkErr := w.states.links.link(ctx, ws, s)
	if linkErr != nil {
		return nil, nil, linkErr
	}
	if link == nil || folderGone(link.File) {
		pkg, pkgErr := w.states.Packages.Load(ctx, s.PackageHash)
		if pkgErr != nil {
			return nil, nil, err
		}
		if t, err = w.states.rebuilt(ctx, ws, s, pkg); err != nil {
			return nil, nil, err
		}
		next, err := w.previewWith(ctx, ws, s, t, objects)
		return next, t, err
	}
	built, err := w.deployerInto(objects).Build(ctx, link.File, nil)
	if err != nil {
		return nil, nil, err
	}
	next := previewBuilt(built)
	if t, err = w.kept(ctx, ws, s, next); err == nil {
		if err = next.assign(ctx, w.states.withObjects(objects), t, built.Link); err == nil {
			err = next.regrow(ctx, w.deployerInto(objects))
		}
	}
	return next, t, err
}

// previewBuilt is the preview of a new package before anything is kept from the workspace.
func previewBuilt(b *Built) *preview {
	return &preview{file: b.Link.File, pkg: b.Package, pkgHash: b.Hash, built: true, warnings: b.Warnings, set: map[string]bool{}}
}

// selected tells which tasks a filter selects: what it names, and what these need.
func selected(g *graph.Graph, filter string) func(task string) bool {
	if filter == "" {
		return func(string) bool { return true }
	}
	_, selects := g.Select(filter)
	return func(task string) bool {
		i, ok := g.Find(task)
		return ok && selects[i]
	}
}

// plan plans a run on a preview.
func (w *Planner) plan(ctx context.Context, ws string, next *preview, objects plan.Objects, o *PlanOptions) (*Plan, error) {
	p := &Plan{
		Workspace: ws, Package: PackageRef{Name: next.pkg.Name, Version: next.pkg.Version, Hash: next.pkgHash},
		File: next.file, Edited: next.edited, Elsewhere: next.elsewhere, Warnings: next.warnings, Objects: objects, Concurrency: o.Concurrency,
	}
	var err error
	if p.Holder, err = w.states.Busy(ctx, ws); err != nil {
		return nil, err
	}
	p.Busy = p.Holder.Answer()
	g := next.graph
	if g == nil {
		if g, err = graph.Whole(next.pkg); err != nil {
			return nil, err
		}
	}
	if p.Graph = g; g.Origin != g.Package {
		if p.Graph, err = graph.New(next.pkg); err != nil {
			return nil, err
		}
	}
	if err := checkFilter(g, o.Filter); err != nil {
		return nil, err
	}
	proof, at, err := w.proofs.peek(ctx, ws)
	if err == nil && proof != nil {
		var there bool
		if there, err = w.proofs.onRecord(ctx, proof, selected(g, o.Filter)); !there {
			proof = nil
		}
	}
	if err != nil {
		return nil, err
	}
	durations, _ := w.proofs.durations(ctx, ws)
	opts := dataflow.PlanOptions{
		Options: dataflow.Options{
			Workspace: ws, Inputs: next.inputs,
			Concurrency: o.Concurrency, Memory: o.Memory, Capacities: o.Capacities, Force: o.Force, Filter: o.Filter, Lookups: w.states.Lookups,
			Expected: func(task string) time.Duration { return durations[task] },
		},
		Fresh:    next.fresh,
		Failed:   next.failed,
		Linked:   next.file != "",
		Gathered: objects,
	}
	if k, ok := objects.(*keeping); ok {
		opts.Stored = k.stores
	}
	if proof == nil {
		state := &State{WorkspaceState: record.WorkspaceState{PackageName: next.pkg.Name, PackageHash: next.pkgHash}}
		inputs := objectstore.Sum(next.inputs.Encode()).String()
		if proof, err = w.proofs.nearest(ctx, ws, at, state, inputs); err != nil {
			return nil, err
		}
	}
	if proof != nil {
		if opts.Baseline, err = w.proofs.baseline(ctx, proof, next.pkgHash, next.pkg); err != nil {
			return nil, err
		}
	}
	x := w.states.executions()
	if p.Planned, err = dataflow.Plan(ctx, g, w.states.Objects, x, opts); err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	if p.History {
		p.Expected = &Expected{moment.Millis(p.Least), moment.Millis(p.Most), p.Unknown, p.names(p.Critical), moment.Millis(p.CriticalTime)}
	}
	for i := range p.Growing {
		g := &p.Growing[i]
		p.Unmade = append(p.Unmade, Unmade{Name: g.Name, Pending: g.Pending, Tasks: g.Tasks, For: p.names(g.Waits), Err: human.FaultOf(g.Err)})
	}
	return p, nil
}
