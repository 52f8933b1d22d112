package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/format/manifest"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/packages"
	"e3/objectstore"
)

// Status is the present state of a workspace. Finding it writes nothing and takes no lock.
type Status struct {
	Workspace  string              `json:"workspace"`
	Package    *ListedPackage      `json:"package"`
	DeployedAt moment.Time         `json:"deployedAt"`
	File       string              `json:"file,omitempty"`      // the package file that the workspace follows
	Edited     bool                `json:"edited,omitempty"`    // differs from the deployed package
	Room       manifest.Room       `json:"room,omitempty"`      // closed: the setting room
	Elsewhere  *Elsewhere          `json:"elsewhere,omitempty"` // the deployment is of another machine
	LastRun    *runview.Run        `json:"lastRun"`             // without its tasks
	Deferred   []approval.Waiting  `json:"deferred,omitempty"`  // tasks that wait for approval
	Decided    []approval.Standing `json:"decided,omitempty"`   // tasks on whose decision no run has acted
	Busy       *Busy               `json:"busy"`                // who holds the workspace
	Folders    []Folder            `json:"folders,omitempty"`   // of failed commands, on this machine
	Faults     []human.Fault       `json:"faults,omitempty"`    // of the package file or its inputs
	Datasets   []DatasetRow        `json:"datasets"`            // inputs as declared, then outputs
	Unmade     []Unmade            `json:"growing,omitempty"`   // tasks that depend on a list yet to be made

	State  *State          `json:"-"`
	Run    *runview.Report `json:"-"` // LastRun
	Holder *BusyError      `json:"-"` // Busy
	Next   *record.Package `json:"-"` // the package that the next start would run; nil if nothing can be started
	East   bool            `json:"-"` // a package of the reference: it cannot be started, so no dataset is stale
}

// DatasetRow is a dataset with its declaration and freshness.
type DatasetRow struct {
	Name   string `json:"name"`
	Output bool   `json:"output"`
	record.Leaf
	FileSize  *int64             `json:"size,omitempty"` // of a file
	Task      string             `json:"-"`              // the task that makes an output, as command lines name it
	Freshness dataflow.Freshness `json:"state"`
	Set       bool               `json:"set,omitempty"`      // by e3 set
	Source    string             `json:"source,omitempty"`   // as the package file declares an input
	Location  string             `json:"location,omitempty"` // path or pattern
	LastTime  bool               `json:"lastTime,omitempty"` // of an item of the last list; a new list is due
}

// A Folder is the working folder of a failed command, which this machine keeps.
type Folder struct {
	Task      string `json:"task"`
	Execution string `json:"execution,omitempty"` // absent: a person's folder
	Host      string `json:"host"`
	Path      string `json:"path"`
	Bytes     int64  `json:"bytes"`
}

// A Standing counts the datasets of a workspace.
type Standing struct {
	Set, Changed, NoValue []string // inputs
	Stale, Missing        []string // outputs
	LeftOut               []string // outputs of failed tasks, without which their readers are current
	Current, Outputs      int
}

// Standing counts the datasets.
func (st *Status) Standing() (s Standing) {
	for i := range st.Datasets {
		d := &st.Datasets[i]
		if d.Output {
			s.Outputs++
		} else if d.Set {
			s.Set = append(s.Set, d.Name)
		}
		switch {
		case !d.Output && d.Freshness == dataflow.Absent:
			s.NoValue = append(s.NoValue, d.Name)
		case !d.Output && d.Freshness == dataflow.Stale:
			s.Changed = append(s.Changed, d.Name)
		case d.Output && d.Freshness == dataflow.Current:
			s.Current++
		case d.Output && d.Freshness == dataflow.Stale:
			s.Stale = append(s.Stale, d.Name)
		case d.Output && d.Freshness == dataflow.LeftOut:
			s.LeftOut = append(s.LeftOut, d.Name)
		case d.Output:
			s.Missing = append(s.Missing, d.Name)
		}
	}
	return s
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

func (w *Planner) statusOf(ctx context.Context, ws string, s *State) (*Status, error) {
	st := &Status{Workspace: ws, State: s, Datasets: []DatasetRow{}}
	var err error
	if st.Holder, err = w.states.Busy(ctx, ws); err != nil {
		return nil, err
	}
	if st.Run, err = w.states.Runs.Summary(ctx, ws); err != nil && !errors.Is(err, runview.ErrNoRun) {
		return nil, err
	}
	deferred, decided, err := w.approvals.deferred(ctx, s, ws, st.Run)
	if err != nil {
		return nil, err
	}
	if s.Deployed {
		freshness, err := w.datasetsOf(ctx, s, st)
		if err != nil {
			return nil, err
		}
		if st.Run == nil || !st.Run.Live { // a forced run at work may wait even for these tasks
			current := func(b approval.Block) bool { return freshness[b.Task] == dataflow.Current }
			deferred, decided = slices.DeleteFunc(deferred, current), slices.DeleteFunc(decided, current)
		}
		row := packages.RegisteredOf(s.Package(), st.East)
		st.Package, st.DeployedAt = &row, moment.At(s.DeployedAt)
	}
	st.Busy, st.Deferred, st.Decided = st.Holder.Answer(), approval.WaitingOf(deferred), approval.StandingOf(decided)
	if w.states.Folders != nil {
		st.Folders = w.states.Folders(ws)
	}
	if st.Run != nil {
		run := st.Run.Answer()
		run.Tasks = nil
		st.LastRun = &run
	}
	return st, nil
}

// datasetsOf adds the datasets and the package file to a status, and returns how fresh the outputs are.
func (w *Planner) datasetsOf(ctx context.Context, s *State, st *Status) (map[string]dataflow.Freshness, error) {
	ws := st.Workspace
	var err error
	if st.Elsewhere, err = w.states.links.elsewhere(ctx, ws, s); err != nil {
		return nil, err
	}
	t, err := w.states.readTree(ctx, s.RootHash, bothParts)
	if errors.Is(err, record.ErrType) {
		var rows []DatasetRow
		if rows, err = w.deployer.datasets.eastRows(ctx, s); err == nil {
			st.East, st.Datasets = true, append(st.Datasets, rows...)
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", ws, err)
	}
	next, err := w.preview(ctx, ws, s, t)
	if err != nil {
		return nil, err
	}
	st.File, st.Edited = next.file, next.edited
	if st.File != "" && len(next.faults) == 0 {
		rooms, err := w.states.rooms(ctx)
		if err != nil {
			return nil, err
		}
		if rooms.Set == manifest.ClosedRoom {
			st.Room = rooms.Set
		}
	}
	if st.Elsewhere == nil {
		st.Elsewhere = next.elsewhere // the clone was removed
	}
	freshness, err := w.freshness(ctx, ws, t, next, st.Run)
	if err != nil {
		return nil, err
	}
	st.Faults, st.Next = human.Faults(next.faults), next.pkg // with the known items
	st.Unmade, st.Datasets = freshness.unmade, rows(t, next, freshness)
	return freshness.of, nil
}

func rows(t *tree, next *preview, freshness outputs) []DatasetRow {
	list := make([]DatasetRow, 0, len(t.inputs)+len(t.tasks))
	for i := range next.pkg.Inputs {
		in := &next.pkg.Inputs[i]
		row := DatasetRow{Name: in.Name, Source: in.Source.String(), Location: strings.ReplaceAll(in.Location, "\n", ", "), Set: next.set[in.Name], Freshness: dataflow.Current}
		var ok bool
		if row.Leaf, ok = t.inputs.Get(in.Name); !ok {
			row.Leaf = record.Leaf{Kind: record.LeafUnassigned}
		}
		row.FileSize = fileSize(row.Leaf)
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
		list = append(list, DatasetRow{
			Leaf: leaf, FileSize: fileSize(leaf), Name: name, Output: true, Task: name, Freshness: freshness.of[name], LastTime: freshness.last[name],
		})
	}
	return list
}

// fileSize is the size of a file in an answer; nil for anything else.
func fileSize(l record.Leaf) *int64 {
	if l.Kind != record.LeafFile {
		return nil
	}
	return &l.Size
}

// preview is the package and the tree on which the next start would run.
type preview struct {
	file      string
	edited    bool
	elsewhere *Elsewhere
	pkg       *record.Package
	pkgHash   string
	inputs    record.Node
	set       map[string]bool
	marks     []string // of set inputs, and of set parameters that no task reads
	faults    []error

	built    bool // the package was rebuilt from its file
	warnings []manifest.Warning
	fresh    map[string]bool  // inputs whose content a start would first have to store
	graph    *graph.Graph     // of pkg, with its gates; nil: not made, or the graph does not grow
	failed   map[string]error // why known lists make no tasks, by family
	objects  Objects          // the repository's objects and the kept content of this preview; nil: nothing was kept
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
		p.set[file.name] = p.set[file.name] || len(marksOf(file.name, p.marks)) > 0
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
		scan := &scan{states: dry.states, base: filepath.Dir(link.File), set: s.marks(link)}
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

// outputs tells how fresh the outputs of a workspace are.
type outputs struct {
	of     map[string]dataflow.Freshness // by task
	last   map[string]bool               // items that may be gone
	unmade []Unmade
}

// freshness compares every output with the result that the next start would have. next gets the package that the
// start would have before it runs anything. run is the workspace's latest, nil if there is none.
func (w *Planner) freshness(ctx context.Context, ws string, t *tree, next *preview, run *runview.Report) (outputs, error) {
	inputs := objectstore.Sum(next.inputs.Encode()).String()
	if w.memory == nil {
		return w.findFreshness(ctx, ws, t, next, inputs)
	}
	generation, quiet, err := w.states.generation.Peek(ctx)
	if err != nil {
		return outputs{}, err
	}
	now := w.states.Now()
	want := &knownFreshness{of: freshnessOf{next.pkgHash, inputs}, generation: generation, tasks: t.tasksHash, run: progress(run), found: now}
	if known := w.memory.recall(ws, now, want, run != nil && run.Live); known != nil && quiet {
		return known.tell(next), nil
	}
	before, faults := next.pkg, len(next.faults)
	is, err := w.findFreshness(ctx, ws, t, next, inputs)
	if err == nil && quiet {
		w.memory.keep(ws, want.learned(next, is, before, faults, w.states.Now()))
	}
	return is, err
}

// findFreshness is freshness by the proof of a run and by a look at each task that it does not prove.
func (w *Planner) findFreshness(ctx context.Context, ws string, t *tree, next *preview, inputs string) (outputs, error) {
	is := outputs{of: make(map[string]dataflow.Freshness, len(next.pkg.Tasks))}
	proof, _, err := w.proofs.peek(ctx, ws)
	if err != nil {
		return is, err
	}
	if proof != nil && !proof.Partial && proof.Package == next.pkgHash && proof.Inputs == inputs && proof.Tasks == t.tasksHash {
		for i := range next.pkg.Tasks {
			is.of[next.pkg.Tasks[i].Name] = dataflow.Current
		}
		return is, nil
	}
	g, err := w.grown(ctx, next)
	if err != nil {
		return is, err
	}
	opts := dataflow.Options{Inputs: next.inputs, Lookups: w.states.Lookups}
	if proof != nil {
		if opts.Baseline, err = w.proofs.baseline(ctx, proof, next.pkgHash, next.pkg); err != nil {
			return is, err
		}
	}
	var objects objectstore.Store = hashOnly{w.states.Objects}
	if next.objects != nil {
		objects = next.objects
	}
	list, err := dataflow.ReadFreshness(ctx, g, objects, w.states.executions(), t.tasks, &opts)
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
