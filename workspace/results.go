package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// Results are outputs of a workspace with their places in a folder for people.
type Results struct {
	Outputs []ResultOutput // outputs that have a value, in the order of the package
	Missing []string       // outputs that no task has made yet
	// Unknown are tasks of the file whose outputs, or whose readers, the package cannot tell because a list of items
	// is not made yet. Files that earlier runs left for these tasks stay.
	Unknown []string
	// Source identifies what the outputs were made from: the package and the tree. While it stays, so do the outputs.
	Source string

	choice ResultChoice
	specs  []*manifest.Spec // of Unknown
}

// A ResultChoice says which outputs are results, and where they lie.
type ResultChoice struct {
	Of []string // names and patterns; none: the outputs that no task reads, in place all
	// InPlace leaves each output at the path that its task writes; else its path is a ResultPath.
	InPlace bool
}

// Holds returns the task, without its item, whose output a file may be although no output has its path, since a list
// of items is not made yet; "" if there is none.
func (r *Results) Holds(file string) string {
	if !r.choice.InPlace {
		task := file
		if i := strings.IndexAny(task, "/."); i >= 0 { // see ResultPath
			task = task[:i]
		}
		if slices.Contains(r.Unknown, task) {
			return task
		}
		return ""
	}
	for _, s := range r.specs {
		if slices.ContainsFunc(s.Outputs, func(o manifest.Output) bool { return o.Covers(file) }) {
			return s.Base
		}
	}
	return ""
}

// ResultOutput is the output of a task, or one of its several outputs.
type ResultOutput struct {
	Task string // train[4]
	Name string // train[4] or train[4].model
	Path string // in a folder, with slashes
	record.Leaf
}

// ResultSource is the Source of the results of a workspace.
func (w *Datasets) ResultSource(ctx context.Context, ws string) (string, error) {
	s, err := w.deployed(ctx, ws)
	if err != nil {
		return "", err
	}
	return resultSource(s), nil
}

func resultSource(s *State) string { return s.PackageHash + "/" + s.RootHash }

// Results finds the outputs of a choice. They are protected from collection until release is called.
func (w *Datasets) Results(ctx context.Context, ws string, of ResultChoice) (r *Results, release func(), err error) {
	for {
		if r, err = w.results(ctx, ws, of); err != nil {
			return nil, nil, err
		}
		release, err = w.states.protect(ctx, r.names()...)
		if refstore.Unprotected(err) {
			return r, func() {}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		now, err := w.ResultSource(ctx, ws)
		if err == nil && now == r.Source {
			return r, release, nil
		}
		release()
		if err != nil {
			return nil, nil, err
		}
	}
}

// ResultsOfRun is Results for a run with values of its own, whose outputs the workspace does not have. They have no
// Source.
func (w *Datasets) ResultsOfRun(ctx context.Context, run *RunResult, of ResultChoice) (r *Results, release func(), err error) {
	tasks := record.Node{}
	for _, c := range run.Outcome.Results(run.Graph, true) {
		tasks = append(tasks, record.NodeEntry{Name: c.Task, Leaf: c.Leaf})
	}
	tasks.Sort()
	r = &Results{choice: of}
	if err := w.choose(ctx, run.Package, tasks, r); err != nil {
		return nil, nil, err
	}
	release, err = w.states.protect(ctx, r.names()...)
	if refstore.Unprotected(err) {
		return r, func() {}, nil
	}
	return r, release, err
}

// names are the objects of the results, in the form that protect takes.
func (r *Results) names() []string {
	names := make([]string, len(r.Outputs))
	for i := range r.Outputs {
		names[i] = "file " + r.Outputs[i].Hash
		if r.Outputs[i].Kind == record.LeafDir {
			names[i] = "dir " + r.Outputs[i].Hash
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (w *Datasets) results(ctx context.Context, ws string, of ResultChoice) (r *Results, err error) {
	err = w.states.steady(ctx, ws, func(s *State) error {
		if !s.Deployed {
			return fmt.Errorf("workspace %s: %w", ws, ErrNotDeployed)
		}
		pkg, err := w.states.Packages.Load(ctx, s.PackageHash)
		if err != nil {
			return fmt.Errorf("workspace %s: %w", ws, w.states.notRunnable(ctx, s, err))
		}
		t, err := w.states.readTree(ctx, s.RootHash, tasksPart)
		if err != nil {
			return fmt.Errorf("workspace %s: %w", ws, err)
		}
		r = &Results{Source: resultSource(s), choice: of}
		return w.choose(ctx, pkg, t.tasks, r)
	})
	return r, err
}

// choose fills in the results.
func (w *Datasets) choose(ctx context.Context, pkg *record.Package, tasks record.Node, r *Results) error {
	of, every := r.choice.Of, r.choice.InPlace && len(r.choice.Of) == 0
	read := readOutputs(pkg)
	unread, err := w.unknown(ctx, pkg, r)
	if err != nil {
		return err
	}
	if len(of) == 0 {
		r.Missing = append(r.Missing, unread...)
	}
	found := make([]bool, len(of))
	for i := range pkg.Tasks {
		t := &pkg.Tasks[i]
		whole, some := matching(of, t.Name, found)
		whole = whole || every
		last := len(of) == 0 && !read[output{t.Name, ""}] && !slices.Contains(r.Unknown, graph.Base(t.Name))
		if !whole && !some && !last {
			continue
		}
		outputs, err := w.outputsOf(ctx, t)
		if err != nil {
			return err
		}
		leaf, ok := tasks.Get(t.Name)
		missing := !ok || leaf.Kind == record.LeafUnassigned
		var entries dirtree.Entries
		for k := range outputs.Entries {
			e := &outputs.Entries[k]
			o := ResultOutput{Task: t.Name, Name: t.Name, Path: ResultPath(t.Name, "", e.Path, e.Kind == record.KindDir), Leaf: leaf}
			if outputs.Multi {
				o.Name, o.Path = t.Name+"."+e.Name, ResultPath(t.Name, e.Name, e.Path, e.Kind == record.KindDir)
			}
			if r.choice.InPlace {
				o.Path = e.Path
			}
			chosen := whole || last && !read[output{t.Name, e.Name}]
			if some && !chosen {
				chosen, _ = matching(of, o.Name, found)
			}
			switch {
			case !chosen:
				continue
			case missing:
				r.Missing = append(r.Missing, o.Name)
				continue
			case !fs.ValidPath(o.Path):
				return fmt.Errorf("%s: %q cannot be the path of a file", o.Name, o.Path)
			case outputs.Multi:
				if entries == nil {
					if entries, err = w.entriesOf(ctx, leaf); err != nil {
						return fmt.Errorf("%s: %w", t.Name, err)
					}
				}
				if o.Leaf, ok = entryLeaf(entries, e.Name); !ok {
					r.Missing = append(r.Missing, o.Name)
					continue
				}
			}
			r.Outputs = append(r.Outputs, o)
		}
	}
	for i, is := range found {
		if !is && pendingFamily(pkg, of[i]) {
			r.Missing = append(r.Missing, of[i])
			continue
		}
		if !is {
			unknown := &UnknownError{What: "output", Name: of[i]}
			for k := range pkg.Tasks {
				unknown.Known = append(unknown.Known, pkg.Tasks[k].Name)
			}
			return unknown
		}
	}
	return nil
}

// unknown fills in Unknown, and returns the pending families that no task reads, in place all.
func (w *Datasets) unknown(ctx context.Context, pkg *record.Package, r *Results) (unread []string, err error) {
	pending := map[string]bool{}
	for i := range pkg.Families {
		if f := &pkg.Families[i]; f.Pending {
			pending[f.Name] = true
			if len(f.ReadBy) == 0 || r.choice.InPlace {
				unread = append(unread, f.Name)
			}
		}
	}
	if len(pending) == 0 {
		return nil, nil
	}
	def, err := definitionOf(ctx, w.states.Objects, pkg)
	if err != nil {
		return nil, err
	}
	for i := range def.Families {
		if f := &def.Families[i]; pending[f.Base] {
			r.Unknown = append(append(r.Unknown, f.Base), f.Reads...)
		}
	}
	slices.Sort(r.Unknown)
	r.Unknown = slices.Compact(r.Unknown)
	for i := range def.Families {
		r.specs = append(r.specs, def.Families[i].Spec)
	}
	for i := range def.Tasks {
		r.specs = append(r.specs, def.Tasks[i].Spec)
	}
	r.specs = slices.DeleteFunc(slices.Compact(r.specs), func(s *manifest.Spec) bool { return !slices.Contains(r.Unknown, s.Base) })
	return unread, nil
}

// pendingFamily reports whether a name may mean tasks that are not known, since the list of their items was not made.
func pendingFamily(pkg *record.Package, name string) bool {
	return slices.ContainsFunc(pkg.Families, func(f record.PackageFamily) bool {
		rest, ok := strings.CutPrefix(name, f.Name)
		return f.Pending && ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
	})
}

// output is one output of a task, or its whole output if entry is empty.
type output struct{ task, entry string }

// readOutputs are the outputs that tasks read. An entry of "" means that the task's whole output is read.
func readOutputs(pkg *record.Package) map[output]bool {
	read := map[output]bool{}
	for i := range pkg.Lists { // a task's matrix reads these
		read[output{pkg.Lists[i].Task, pkg.Lists[i].Entry}] = true
	}
	for i := range pkg.Tasks {
		for _, wire := range pkg.Tasks[i].Wiring {
			switch wire.Kind {
			case record.WireOutput:
				read[output{wire.Name, wire.Entry}] = true
			case record.WireFanIn:
				for _, item := range wire.Items {
					read[output{item.Task, item.Entry}] = true
				}
			}
		}
	}
	return read
}

// matching reports whether a pattern means a task or an output by its name, with or without the label. some says that
// a pattern may mean one of several outputs. The patterns that match are marked in found.
func matching(of []string, name string, found []bool) (whole, some bool) {
	base, _, labelled := strings.Cut(name, "[")
	for i, pattern := range of {
		switch {
		case events.Match(pattern, name), labelled && pattern == base:
			whole, found[i] = true, true
		case strings.Contains(pattern, ".") || strings.Contains(pattern, "*"):
			some = true
		}
	}
	return whole, some
}

func (w *Datasets) outputsOf(ctx context.Context, t *record.PackageTask) (*record.Output, error) {
	h, err := objectstore.ParseHash(t.Task)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, w.states.Objects, h, record.MaxTask)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", t.Name, err)
	}
	return &task.Output, nil
}

func (w *Datasets) entriesOf(ctx context.Context, leaf record.Leaf) (dirtree.Entries, error) {
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return nil, err
	}
	return dirtree.Read(ctx, w.states.Objects, h)
}

func entryLeaf(entries dirtree.Entries, name string) (record.Leaf, bool) {
	switch e, ok := entries.Find(name); {
	case !ok:
	case e.Kind == dirtree.KindDir:
		return record.Leaf{Kind: record.LeafDir, Hash: e.Hash.String()}, true
	case e.Kind == dirtree.KindFile:
		return record.Leaf{Kind: record.LeafFile, Hash: e.Hash.String(), Size: e.Size, Executable: e.Executable}, true
	}
	return record.Leaf{}, false
}

// ResultPath is the place of an output in a folder for people: named after the task, its item and the output, with the
// suffix of the file that the task writes. Names of tasks and outputs hold no dot, so no two outputs have one place.
func ResultPath(task, entry, written string, dir bool) string {
	place, label, labelled := strings.Cut(task, "[")
	if labelled {
		place += "/" + strings.TrimSuffix(label, "]")
	}
	if entry != "" {
		place += "/" + entry
	}
	if dir {
		return place
	}
	return place + suffix(written)
}

// suffix is the last extension of a file. If that says how the file is packed, the extension before it is included:
// .tar.gz.
func suffix(file string) string {
	base := path.Base(file)
	ext := path.Ext(base)
	stem := strings.TrimSuffix(base, ext)
	if stem == "" {
		return ""
	}
	if inner := path.Ext(stem); slices.Contains([]string{".gz", ".bz2", ".xz", ".zst", ".lz4", ".br", ".bgz"}, ext) && inner != stem {
		return inner + ext
	}
	return ext
}

// A Project is what this machine knows of the files that a workspace follows.
type Project struct {
	Folder string              // the folder of the package file; "" if the workspace follows none here
	File   string              // the package file
	Plan   *record.ResultsPlan // what the package file says about results
	Inputs []record.LinkInput  // files, directories and patterns; values are not among them

	excepts []*manifest.Except // of the inputs, once one is needed
}

// TakesIn returns the input that takes in a path in the folder of the package file, with slashes; nil if none does.
func (p *Project) TakesIn(file string) *record.LinkInput {
	for i := range p.Inputs {
		if p.Takes(i, file) {
			return &p.Inputs[i]
		}
	}
	return nil
}

// Takes reports whether the i-th input takes in a path.
func (p *Project) Takes(i int, file string) bool {
	in := &p.Inputs[i]
	switch {
	case slices.Contains(manifest.FilesOf(in.Location), file):
		return true
	case in.Source == record.FromSheet:
		return slices.ContainsFunc(in.Files, func(f record.LinkFile) bool { return f.Path == file })
	case in.Source == record.FromGlob:
		return manifest.MatchGlob(in.Location, file) && !p.except(i).LeavesIn(file)
	case in.Source == record.FromEnvironment:
		return slices.ContainsFunc(manifest.FilesOf(in.Location), func(source string) bool {
			return manifest.MatchGlob(source, file) && !p.except(i).LeavesIn(file)
		})
	case in.Source == record.FromDir:
		rel, inside := strings.CutPrefix(file, in.Location+"/")
		return inside && !p.except(i).LeavesIn(rel)
	}
	return false
}

// except knows what an input leaves out.
func (p *Project) except(i int) *manifest.Except {
	if p.excepts == nil {
		p.excepts = make([]*manifest.Except, len(p.Inputs))
	}
	if p.excepts[i] == nil {
		p.excepts[i] = exceptOf(&p.Inputs[i])
	}
	return p.excepts[i]
}

// Project returns what is known of the package file of a workspace.
func (w *Datasets) Project(ctx context.Context, ws string) (*Project, error) {
	s, err := w.deployed(ctx, ws)
	if err != nil {
		return nil, err
	}
	p := &Project{Plan: &record.ResultsPlan{}}
	link, err := w.states.links.link(ctx, ws, s)
	if err = ignoreBadLink(err); err != nil || link == nil {
		return p, err
	}
	p.Folder, p.File, p.Inputs = filepath.Dir(link.File), link.File, link.Inputs
	p.Plan, err = w.ResultsPlan(ctx, ws)
	return p, err
}

// ResultsPlan is what the package file of a workspace said about results when this machine last deployed it. It reads
// only this machine's records.
func (w *Datasets) ResultsPlan(ctx context.Context, ws string) (*record.ResultsPlan, error) {
	rec, err := w.states.Local.Get(ctx, planKey(ws))
	switch {
	case errors.Is(err, refstore.ErrNotFound), errors.Is(err, refstore.ErrDamaged):
		return &record.ResultsPlan{}, nil
	case err != nil:
		return nil, fmt.Errorf("results of workspace %s: %w", ws, err)
	}
	plan, err := record.DecodeResultsPlan(rec.Value)
	if err != nil {
		return &record.ResultsPlan{}, nil // damaged; the next deploy writes it again
	}
	return plan, nil
}

func resultsPartition(ws string) string { return "INDEX/results/" + ws }

func planKey(ws string) refstore.Key {
	return refstore.Key{Partition: resultsPartition(ws), Sort: "plan"}
}

// ResultsKey is the key of this machine's record of a folder with results of a workspace. A folder beside the
// repository is named by its relative path, so that a copy of both has a record of its own folder.
func (w *Datasets) ResultsKey(ws, folder string) refstore.Key {
	return refstore.Key{Partition: resultsPartition(ws), Sort: objectstore.Sum([]byte(w.states.links.noted(folder))).String()}
}

// savePlan remembers what the package file says about results.
func (w *links) savePlan(ctx context.Context, ws string, r *manifest.Results) error {
	plan := record.ResultsPlan{}
	if r != nil {
		plan = record.ResultsPlan{Dir: r.Dir, Of: r.Of, GitIgnore: r.GitIgnore}
	}
	fresh := plan.Encode()
	for {
		rec, err := w.Local.Get(ctx, planKey(ws))
		switch {
		case errors.Is(err, refstore.ErrNotFound) && r == nil, err == nil && string(rec.Value) == string(fresh):
			return nil
		case err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged):
			return fmt.Errorf("results of workspace %s: %w", ws, err)
		}
		_, err = w.Local.Put(ctx, refstore.Record{Key: planKey(ws), Value: fresh, Version: rec.Version})
		if !errors.Is(err, refstore.ErrConflict) {
			return err
		}
		if err := w.confirm(ctx, ws); err != nil {
			return err
		}
	}
}

// forgetResults removes this machine's records of results. The files stay.
func (w *links) forgetResults(ctx context.Context, ws string) error {
	for rec, err := range w.Local.List(ctx, refstore.Query{Partition: resultsPartition(ws), KeysOnly: true}) {
		if err != nil {
			return err
		}
		if err := refstore.Forget(ctx, w.Local, w.Locks, rec.Key); err != nil {
			return err
		}
	}
	return nil
}
