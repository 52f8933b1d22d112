package workspace

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/format/items"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
)

// An expansion is a package that was made from a definition and lists of items.
type expansion struct {
	pkg *record.Package
	def *manifest.Definition // with the tasks of the package
	// faults are the families whose lists cannot be read, or are known and make no tasks. These families are pending.
	faults map[string]error
}

// A sourceOf returns the dataset of an input, or of a task with its label; false if it is not known. Both names are as
// in record.PackageList. If the task has several outputs, it is the directory of all of them.
type sourceOf func(input, task string) (record.Leaf, bool)

// expand makes a package from the definition of the package before and the present lists of items. A list whose
// dataset is the same as in before is not read again; a list of a task whose dataset source does not know stays as it
// was. expand stores the tasks, except those that before already names: before must be the package that the locked
// workspace has deployed. It does not store the package.
func (w *Deployer) expand(ctx context.Context, before *record.Package, source sourceOf) (*expansion, error) {
	def, err := definitionOf(ctx, w.states.Objects, before)
	if err != nil {
		return nil, err
	}
	pkg := &record.Package{Name: before.Name, Version: before.Version, Description: before.Description, Inputs: before.Inputs, Definition: before.Definition}
	pkg.Tasks = before.Tasks
	return w.expandInto(ctx, pkg, def, before.Lists, source)
}

// definitionOf reads the definition of a package, without the tasks that follow from lists.
func definitionOf(ctx context.Context, objects objectstore.Store, pkg *record.Package) (*manifest.Definition, error) {
	h, err := objectstore.ParseHash(pkg.Definition)
	if err != nil {
		return nil, fmt.Errorf("definition of package %s: %w", pkg.Name, err)
	}
	data, err := objectstore.ReadAll(ctx, objects, h, manifest.MaxFileSize)
	if err != nil {
		return nil, fmt.Errorf("definition of package %s: %w", pkg.Name, err)
	}
	def, err := manifest.DecodeDefinition(data)
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", pkg.Name, err)
	}
	return def, nil
}

// expandInto gives a package the tasks of its definition. The objects of tasks that it has already are not stored again.
func (w *Deployer) expandInto(ctx context.Context, pkg *record.Package, def *manifest.Definition, known []record.PackageList, source sourceOf) (*expansion, error) {
	held := make(map[string]bool, len(pkg.Tasks))
	for i := range pkg.Tasks {
		held[pkg.Tasks[i].Task] = true
	}
	x := &expansion{pkg: pkg, faults: map[string]error{}}
	r := &listReader{w: w.states, source: source, known: map[string]*record.PackageList{}, seen: map[string]int64{}, faults: map[string]error{}, lists: manifest.Lists{}}
	for i := range known {
		r.known[listKey(&known[i])] = &known[i]
	}
	var err error
	for more := true; more; { // a list may make tasks that make further lists
		if x.def, err = def.Expand(r.lists); err != nil {
			return nil, err
		}
		more = false
		for i := range x.def.Families {
			for k := range x.def.Families[i].Sources {
				found, err := r.look(ctx, &x.def.Families[i].Sources[k])
				if err != nil {
					return nil, err
				}
				more = more || found
			}
		}
	}
	pkg.Lists = r.all
	for i := range x.def.Families {
		f := &x.def.Families[i]
		p := record.PackageFamily{Name: f.Base, ReadBy: f.ReadBy, Reads: f.Waits, Pending: f.Pending, Count: int64(f.Count)}
		for k := range f.Sources {
			p.Lists = append(p.Lists, r.seen[f.Sources[k].Key])
			if fault := r.faults[f.Sources[k].Key]; fault != nil && x.faults[f.Base] == nil {
				x.faults[f.Base] = &ItemsError{Family: f.Base, Source: f.Sources[k].Key, Err: fault}
			}
		}
		if f.Fault != nil {
			x.faults[f.Base] = f.Fault
		}
		pkg.Families = append(pkg.Families, p)
	}
	if err = paramsOf(w.states).redefine(ctx, x.def, pkg); err != nil {
		return nil, err
	}
	pkg.Tasks, err = w.packageTasks(ctx, x.def, pkg.Inputs, held)
	return x, err
}

// grownFromFile gives a package the tasks of a definition with lists of items, as far as the inputs make the lists
// known. It returns the definition with these tasks.
//
// before, which may be nil, is the link that a previous build of the same file left: lists that tasks make are taken
// from its package.
func (w *Deployer) grownFromFile(ctx context.Context, pkg *record.Package, def *manifest.Definition, before *record.Link) (*manifest.Definition, error) {
	known, err := w.knownLists(ctx, before)
	if err != nil {
		return nil, err
	}
	data, err := def.Encode()
	if err != nil {
		return nil, err
	}
	h, err := objectstore.PutBytes(ctx, w.states.Objects, data)
	if err != nil {
		return nil, fmt.Errorf("store definition: %w", err)
	}
	pkg.Definition = h.String()
	defaults := make(map[string]record.Leaf, len(pkg.Inputs))
	for i := range pkg.Inputs {
		defaults[pkg.Inputs[i].Name] = pkg.Inputs[i].Default
	}
	source := func(input, _ string) (record.Leaf, bool) {
		leaf, ok := defaults[input]
		return leaf, ok && input != ""
	}
	x, err := w.expandInto(ctx, pkg, def, known, source)
	if len(known) > 0 && ctx.Err() == nil && (err != nil || len(x.faults) > 0) { // lists of an earlier file may not fit this one
		pkg.Lists, pkg.Families, pkg.Tasks = nil, nil, nil
		x, err = w.expandInto(ctx, pkg, def, nil, source)
	}
	if err != nil {
		return nil, err
	}
	return x.def, x.err()
}

// An ItemsError says why a list of items cannot be used.
type ItemsError struct {
	Where  string // the place in the package file with ": "; "" without the file
	Family string // the task whose matrix it is
	Source string
	Err    error
}

func (e *ItemsError) Error() string {
	return fmt.Sprintf("%stask %s: the items of %s: %v", e.Where, e.Family, e.Source, e.Err)
}

func (e *ItemsError) Unwrap() error { return e.Err }

// err returns the faults as one error; nil if there are none.
func (x *expansion) err() error {
	var errs []error
	for i := range x.def.Families {
		if err := x.faults[x.def.Families[i].Base]; err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// listKey is the key of a list's source, in the form of manifest.ItemSource.
func listKey(l *record.PackageList) string {
	switch {
	case l.Input != "":
		return l.Input
	case l.Entry != "":
		return l.Task + "." + l.Entry
	}
	return l.Task
}

// A listReader reads the lists of an expansion, each once.
type listReader struct {
	w      *States
	source sourceOf
	known  map[string]*record.PackageList // of the package before

	all    []record.PackageList
	seen   map[string]int64 // bytes in all
	lists  manifest.Lists
	faults map[string]error // of lists that were read
}

// look reads a list unless it did so before, and reports whether the list is new and known.
func (r *listReader) look(ctx context.Context, s *manifest.ItemSource) (bool, error) {
	if _, again := r.seen[s.Key]; again {
		return false, nil
	}
	r.seen[s.Key] = int64(len(r.all))
	l := record.PackageList{Input: s.Input, Task: s.Task, Entry: s.Entry}
	defer func() { r.all = append(r.all, l) }()
	leaf, ok := r.source(s.Input, s.Task)
	ok = ok && leaf.Kind != record.LeafUnassigned
	from := leaf
	var err error
	if ok {
		from, err = r.dataset(ctx, s, leaf)
	}
	if k := r.known[s.Key]; err == nil && k != nil && k.Known() && (ok && k.From == from.Hash || !ok && s.Task != "") {
		list, err := r.load(ctx, k.List)
		if err == nil {
			l, r.lists[s.Key] = *k, list
			return true, nil
		}
		if !isLost(err) {
			return false, err
		}
	}
	if !ok {
		return false, nil
	}
	var list *manifest.List
	if err == nil {
		list, err = r.read(ctx, s, from)
	}
	lost, _ := objectstore.IsLost(err)
	if lost && s.URL != "" && r.w.asksNone() {
		return false, nil // a start fetches it
	}
	if lost || ctx.Err() != nil {
		return false, err
	}
	if err != nil {
		r.faults[s.Key] = err
		return false, nil
	}
	h, err := objectstore.PutBytes(ctx, r.w.Objects, list.Encode())
	if err != nil {
		return false, fmt.Errorf("store list of items: %w", err)
	}
	l.From, l.List = from.Hash, h.String()
	r.lists[s.Key] = list
	return true, nil
}

// load reads the object of a list.
func (r *listReader) load(ctx context.Context, hash string) (*manifest.List, error) {
	data, err := r.bytes(ctx, hash)
	if err != nil {
		return nil, err
	}
	return manifest.DecodeList(data)
}

func (r *listReader) bytes(ctx context.Context, hash string) ([]byte, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, fmt.Errorf("list of items: %w", err)
	}
	data, err := objectstore.ReadAll(ctx, r.w.Objects, h, manifest.MaxList)
	if err != nil {
		return nil, fmt.Errorf("list of items: %w", err)
	}
	return data, nil
}

// dataset returns a source's dataset: an input, the output of a task, or one of a task's several outputs.
func (r *listReader) dataset(ctx context.Context, s *manifest.ItemSource, leaf record.Leaf) (record.Leaf, error) {
	if s.Entry == "" {
		return leaf, nil
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return leaf, err
	}
	entries, err := dirtree.Read(ctx, r.w.Objects, h)
	if err != nil {
		return leaf, err
	}
	e, ok := entries.Find(s.Entry)
	if !ok {
		return leaf, fmt.Errorf("%s has no entry %s", s.Task, s.Entry)
	}
	kind := record.LeafFile
	if e.Kind == dirtree.KindDir {
		kind = record.LeafDir
	}
	return record.Leaf{Kind: kind, Hash: e.Hash.String(), Size: e.Size}, nil
}

// read reads the items of a source from its dataset.
func (r *listReader) read(ctx context.Context, s *manifest.ItemSource, leaf record.Leaf) (*manifest.List, error) {
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return nil, err
	}
	if s.Sheet {
		if h, err = sheetIn(ctx, r.w.Objects, h, s.Path); err != nil {
			return nil, err
		}
	} else if leaf.Kind == record.LeafDir {
		return r.folder(ctx, s, h)
	}
	data, err := objectstore.ReadAll(ctx, r.w.Objects, h, items.MaxFile)
	if err != nil {
		return nil, err
	}
	if leaf.Kind != record.LeafValue {
		return items.File(s.Path, data)
	}
	v, err := value.Decode(data)
	if err != nil {
		return nil, err
	}
	text, err := v.JSON()
	if err != nil {
		return nil, err
	}
	plain, err := value.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	return items.Value(plain)
}

// folder reads the items of a directory.
func (r *listReader) folder(ctx context.Context, s *manifest.ItemSource, h objectstore.Hash) (*manifest.List, error) {
	var names []string
	if s.Glob == "" {
		entries, err := dirtree.Read(ctx, r.w.Objects, h)
		if err != nil {
			return nil, err
		}
		for i := range entries {
			switch e := &entries[i]; e.Kind {
			case dirtree.KindDir:
				names = append(names, e.Name+"/")
			case dirtree.KindLink:
				return nil, fmt.Errorf("%s is a symbolic link, which is no item", e.Name)
			default:
				names = append(names, e.Name)
			}
		}
		return items.Folder(names)
	}
	err := dirtree.Walk(ctx, r.w.Objects, h, func(rel string, e dirtree.Entry) error {
		if e.Kind == dirtree.KindFile {
			names = append(names, rel)
		}
		if len(names) > manifest.MaxItems {
			return fmt.Errorf("more than %d files", manifest.MaxItems)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case s.Files != "":
		return items.Files(s.Files, names)
	}
	return items.Glob(s.Glob, names)
}

// below is the path of an item in its dataset: the output's entry, if there are several outputs, and the path below
// it.
func below(entry, path string) string { return strings.Trim(entry+"/"+path, "/") }
