package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/packages"
	"e3/objectstore"
)

// Status is the present state of a workspace. Finding it writes nothing and takes no lock.
type Status struct {
	Workspace string
	State     *State
	File      string           // the package file that the workspace follows, "" if none
	Edited    bool             // the file differs from the deployed package
	Elsewhere *Elsewhere       // the origin of the deployment, if that is not this machine
	Busy      *BusyError       // the holder of the workspace; nil: none
	LastRun   *runview.Report  // without its tasks; nil before the first run
	Deferred  []approval.Block // blocks that wait for approval, with or without a run at work
	Decided   []approval.Block // blocks that were approved or rejected, and on which no run has acted yet
	Faults    []error          // why the package file or its inputs cannot be read
	Datasets  []DatasetRow     // inputs in the package's order, then outputs
	Unmade    []Unmade         // what is not known of the outputs before a task has made a list of items
	Package   *record.Package  // the package that the next start would run; nil if nothing can be started
	Rooms     Rooms            // of tasks that name none, for the next start; none if the workspace follows no file
	East      bool             // a package of the reference: it cannot be started, so no dataset is stale
}

// PackageRow is the deployed package; nil if there is none.
func (st *Status) PackageRow() *PackageRow {
	if !st.State.Deployed {
		return nil
	}
	row := packages.RowOf(st.State.Package(), st.East)
	return &row
}

// DatasetRow is a dataset with its declaration and freshness.
type DatasetRow struct {
	record.Leaf
	Name      string
	Output    bool
	Task      string             // the task that makes an output, as command lines name it
	Source    record.InputSource // of an input
	Location  string             // of an input: path or pattern relative to the package file
	Set       bool               // an input with a value from "e3 set"
	Freshness dataflow.Freshness
	// LastTime says that the output is of an item of the last list, and that the list is to be made anew: the next start may
	// find that the item is gone.
	LastTime bool
}

// Status reads a workspace and, if it follows a package file, that file and its inputs: the freshness is what the next
// start would find.
func (w *Planner) Status(ctx context.Context, ws string) (st *Status, err error) {
	err = w.states.steady(ctx, ws, func(s *State) (err error) {
		st, err = w.statusOf(ctx, ws, s)
		return err
	})
	return st, err
}

func (w *Planner) statusOf(ctx context.Context, ws string, s *State) (st *Status, err error) {
	st = &Status{Workspace: ws, State: s}
	if st.Busy, err = w.states.Busy(ctx, ws); err != nil {
		return nil, err
	}
	if st.LastRun, err = w.states.Runs.Summary(ctx, ws); err != nil && !errors.Is(err, runview.ErrNoRun) {
		return nil, err
	}
	if st.Deferred, st.Decided, err = w.approvals.deferred(ctx, s, ws, st.LastRun); err != nil {
		return nil, err
	}
	if !s.Deployed {
		return st, nil
	}
	if st.Elsewhere, err = w.states.links.elsewhere(ctx, ws, s); err != nil {
		return nil, err
	}
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if errors.Is(err, record.ErrType) {
		if st.Datasets, err = w.deployer.datasets.eastRows(ctx, s); err == nil {
			st.East = true
			return st, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	next, err := w.preview(ctx, ws, s, t)
	if err != nil {
		return nil, err
	}
	st.File, st.Edited, st.Faults, st.Package = next.file, next.edited, next.faults, next.pkg
	if st.File != "" && len(st.Faults) == 0 {
		if st.Rooms, err = w.states.rooms(ctx); err != nil {
			return nil, err
		}
	}
	if st.Elsewhere == nil {
		st.Elsewhere = next.elsewhere // the clone was removed
	}
	freshness, err := w.freshness(ctx, ws, t, next)
	if err != nil {
		return nil, err
	}
	st.Faults, st.Package = next.faults, next.pkg // with the items that are known
	st.Unmade, st.Datasets = freshness.unmade, rows(t, next, freshness)
	if st.LastRun == nil || !st.LastRun.Live { // during a run, the run may have been forced
		current := func(b approval.Block) bool { return freshness.of[b.Task] == dataflow.Current }
		st.Deferred, st.Decided = slices.DeleteFunc(st.Deferred, current), slices.DeleteFunc(st.Decided, current)
	}
	return st, nil
}

func rows(t *tree, next *preview, freshness outputs) []DatasetRow {
	list := make([]DatasetRow, 0, len(t.inputs)+len(t.tasks))
	for i := range next.pkg.Inputs {
		in := &next.pkg.Inputs[i]
		row := DatasetRow{Name: in.Name, Source: in.Source, Location: in.Location, Set: next.set[in.Name], Freshness: dataflow.Current}
		var ok bool
		if row.Leaf, ok = t.inputs.Get(in.Name); !ok {
			row.Leaf = record.Leaf{Kind: record.LeafUnassigned}
		}
		switch is, _ := next.inputs.Get(in.Name); {
		case row.Kind == record.LeafUnassigned && !in.Source.OfMachine(): // a start gives it a value
			row.Freshness = dataflow.Absent
		case is != row.Leaf:
			row.Freshness = dataflow.Stale
		}
		list = append(list, row)
	}
	for i := range next.pkg.Tasks {
		name := next.pkg.Tasks[i].Name
		leaf, ok := t.tasks.Get(name)
		if !ok {
			leaf = record.Leaf{Kind: record.LeafUnassigned}
		}
		list = append(list, DatasetRow{Leaf: leaf, Name: name, Output: true, Task: name, Freshness: freshness.of[name], LastTime: freshness.last[name]})
	}
	return list
}

// preview is the package and tree that the next start would run on.
type preview struct {
	file      string
	edited    bool
	elsewhere *Elsewhere
	pkg       *record.Package
	pkgHash   string
	inputs    record.Node
	set       map[string]bool
	marks     []string // of what was set, also of parameters that no task reads
	faults    []error

	built    bool // the package was rebuilt from its file
	warnings []manifest.Warning
	fresh    map[string]bool  // inputs whose content a start would first have to store
	graph    *graph.Graph     // of pkg, with its gates; nil: not made, or nothing grows
	failed   map[string]error // families that known lists do not make, and why
	objects  Objects          // that also has this content, as far as it was kept; nil: not kept
}

// preview follows the package file as a start does, but stores nothing.
func (w *Planner) preview(ctx context.Context, ws string, s *State, t *tree) (*preview, error) {
	objects := newKeeping(w.states.Objects) // lists of items are read from what a start would store
	p, err := w.previewWith(ctx, ws, s, t, objects)
	if err == nil {
		p.objects = objects
	}
	return p, err
}

// previewWith is preview with a given store for the objects that it reads.
func (w *Planner) previewWith(ctx context.Context, ws string, s *State, t *tree, objects Objects) (*preview, error) {
	p, err := w.previewFile(ctx, ws, s, t, objects)
	if err != nil {
		return nil, err
	}
	dry := w.deployerInto(objects)
	err = dry.previewVariables(ctx, p)
	if err == nil && len(p.faults) == 0 {
		err = p.regrow(ctx, dry)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.faults = append(p.faults, err)
	}
	return p, nil
}

// previewFile previews the package file and its linked inputs.
func (w *Planner) previewFile(ctx context.Context, ws string, s *State, t *tree, objects Objects) (*preview, error) {
	pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, w.states.notRunnable(ctx, s, err))
	}
	p := &preview{pkg: pkg, pkgHash: s.PackageHash, inputs: t.inputs, set: map[string]bool{}}
	wasSet, err := w.deployer.setValues(ctx, ws, s, pkg)
	if err != nil {
		return nil, err
	}
	for i := range t.inputs {
		p.set[t.inputs[i].Name] = wasSet(t.inputs[i].Name, t.inputs[i].Leaf)
	}
	p.marks, _, err = w.states.links.marked(ctx, ws, s)
	if err = ignoreBadLink(err); err != nil {
		return nil, err
	}
	for _, file := range paramFiles(pkg) {
		p.set[file] = p.set[file] || len(marksOf(file, p.marks)) > 0
	}
	if err := missingValues(ws, pkg, t.inputs); err != nil {
		p.faults = append(p.faults, err)
		return p, nil
	}
	link, err := w.states.links.link(ctx, ws, s)
	switch {
	case err == nil && link == nil:
		p.elsewhere, err = w.states.links.elsewhere(ctx, ws, s)
	case err == nil && folderGone(link.File):
		p.elsewhere = s.here(link)
	}
	if err != nil || link == nil || p.elsewhere != nil {
		return p, err
	}
	p.file = link.File
	if err := p.follow(ctx, w.deployerInto(objects), ws, link, s); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.faults = append(p.faults, locateIn(link.File, err))
		return p, nil
	}
	err = p.assign(ctx, w.states.withObjects(objects), t, link)
	if lost, _ := objectstore.IsLost(err); lost { // a start restores what the files have
		if _, fault := w.deployerInto(objects).Build(ctx, link.File, nil); fault == nil {
			err = p.assign(ctx, w.states.withObjects(objects), t, link)
		}
	}
	return p, err
}

// follow updates the link and the package from the files on disk.
func (p *preview) follow(ctx context.Context, dry *Deployer, ws string, link *record.Link, s *State) error {
	info, err := statLinked(ws, link.File)
	if err != nil {
		return err
	}
	bits, params := executables(link), paramLeaves(link)
	rooms, err := dry.states.rooms(ctx)
	if err != nil {
		return err
	}
	if proves(link.Stat, fileStat(info)) && link.Package == s.PackageHash && link.Room == rooms.known(link).text() &&
		sameImages(dry.states.Images, filepath.Dir(link.File), link) {
		scan := &scan{states: dry.states, base: filepath.Dir(link.File)}
		if err := scan.inputs(ctx, link.Inputs); err != nil || executables(link) == bits && !paramsOf(dry.states).reshaped(ctx, link, params) {
			p.warnings = leftOutOf(link)
			return err
		}
	}
	before := *link
	before.Package = s.PackageHash
	built, err := dry.Build(ctx, link.File, &before)
	if err != nil {
		return err
	}
	p.edited = (link.Room == built.Link.Room || !proves(link.Stat, fileStat(info))) && !bytes.Equal(declarations(built.Package), declarations(p.pkg))
	p.built, p.pkg, p.pkgHash, p.warnings, link.Inputs = true, built.Package, built.Hash, built.Warnings, built.Link.Inputs
	return nil
}

// declarations encodes a package without the content of its linked inputs.
func declarations(pkg *record.Package) []byte {
	bare := *pkg
	bare.Inputs = slices.Clone(pkg.Inputs)
	for i := range bare.Inputs {
		if in := &bare.Inputs[i]; in.Source != record.FromValue {
			in.Default = record.Leaf{Kind: record.LeafUnassigned}
		}
	}
	return bare.Encode()
}

// assign gives every input the value that it would have.
func (p *preview) assign(ctx context.Context, w *States, t *tree, link *record.Link) error {
	p.inputs = make(record.Node, 0, len(p.pkg.Inputs))
	p.fresh = map[string]bool{}
	linked := make(map[string]record.Leaf, len(link.Inputs))
	for i := range link.Inputs {
		linked[link.Inputs[i].Name] = link.Inputs[i].Leaf
	}
	for i := range p.pkg.Inputs {
		in := &p.pkg.Inputs[i]
		leaf, follows := linked[in.Name]
		if !follows {
			leaf = in.Default
		}
		if have, ok := t.inputs.Get(in.Name); ok && p.set[in.Name] && have.Kind == leaf.Kind && in.Source != record.FromParams {
			leaf = have
		} else if follows || p.built || in.Source == record.FromValue { // the file has it
			p.fresh[in.Name] = true
		}
		p.inputs = append(p.inputs, record.NodeEntry{Name: in.Name, Leaf: leaf})
	}
	p.inputs.Sort()
	return p.assignParams(ctx, w, t)
}

// outputs is how the outputs of a workspace relate to what the next start would make.
type outputs struct {
	of     map[string]dataflow.Freshness // by task
	last   map[string]bool               // of items that may be gone
	unmade []Unmade
}

// freshness compares every output with the result that the next start would have. The package of next becomes the one that the
// start would have before it runs anything.
func (w *Planner) freshness(ctx context.Context, ws string, t *tree, next *preview) (outputs, error) {
	is := outputs{of: make(map[string]dataflow.Freshness, len(next.pkg.Tasks))}
	proof, _, err := w.proofs.peek(ctx, ws)
	if err != nil {
		return is, err
	}
	inputs := objectstore.Sum(next.inputs.Encode()).String()
	if proof != nil && proof.Package == next.pkgHash && proof.Inputs == inputs && proof.Tasks == t.tasksHash {
		for i := range next.pkg.Tasks {
			is.of[next.pkg.Tasks[i].Name] = dataflow.Current
		}
		return is, nil
	}
	g, err := w.grown(ctx, next)
	if err != nil {
		return is, err
	}
	x := w.states.executions()
	var objects objectstore.Store = hashOnly{w.states.Objects}
	if next.objects != nil {
		objects = next.objects
	}
	list, err := dataflow.ReadFreshness(ctx, g, objects, x, next.inputs, t.tasks, w.states.Lookups)
	if err != nil {
		return is, fmt.Errorf("workspace %s: %w", ws, err)
	}
	for i, s := range list {
		if i := int32(i); g.IsTask(i) {
			is.of[g.Name(i)] = s
		}
	}
	is.unmade, is.last = unmade(next, g, list)
	return is, nil
}

// hashOnly is a store that hashes what is put and keeps nothing.
type hashOnly struct{ Objects }

// Put implements objectstore.Store.
func (hashOnly) Put(_ context.Context, r io.Reader) (objectstore.Info, error) {
	h := objectstore.NewHasher()
	n, err := io.Copy(h, r)
	return objectstore.Info{Hash: h.Hash(), Size: n}, err
}

// Refresh tells whether an object exists. No refresh is needed, since nothing will name it. If a check is a request
// there is none: a missing object would be read again, which finds the same hash.
func (s hashOnly) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	if presumes(s.Objects) {
		return true, nil
	}
	missing, err := s.Missing(ctx, []objectstore.Hash{h})
	return len(missing) == 0, err
}

// Presumes passes on the store's answer.
func (s hashOnly) Presumes() bool { return presumes(s.Objects) }

// ReadAll reads an object in the store's most efficient way.
func (s hashOnly) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	return objectstore.ReadAll(ctx, s.Objects, h, limit)
}
