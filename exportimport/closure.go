package exportimport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/pkgref"
	"e3/internal/reach"
	"e3/objectstore"
)

// overlay is an object store that also has the package object of the zip.
type overlay struct {
	Objects
	extra map[objectstore.Hash][]byte
	// sizes caches the results of Stat, int64 by objectstore.Hash, if a Stat is a request. They stay valid, because
	// the export protects the objects.
	sizes sync.Map
}

func (o *overlay) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	if b, ok := o.extra[h]; ok {
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	return o.Objects.Open(ctx, h)
}

func (o *overlay) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	if b, ok := o.extra[h]; ok {
		return b, nil
	}
	return objectstore.ReadAll(ctx, o.Objects, h, limit)
}

func (o *overlay) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if b, ok := o.extra[h]; ok {
		return int64(len(b)), nil
	}
	if size, ok := o.sizes.Load(h); ok {
		return size.(int64), nil
	}
	size, err := o.Objects.Stat(ctx, h)
	if p, ok := o.Objects.(interface{ Presumes() bool }); ok && p.Presumes() && err == nil {
		o.sizes.Store(h, size)
	}
	return size, err
}

// A closure is the set of objects of a zip.
type closure struct {
	met    *reach.Set
	absent objectstore.HashSet // objects of met that are missing by design
	bytes  atomic.Int64        // of all objects, as far as known before they are read
}

// all yields the objects in the order of the zip.
func (c *closure) all() iter.Seq[objectstore.Hash] {
	return func(yield func(objectstore.Hash) bool) {
		for h := range c.met.All() {
			if !c.absent.Has(h) && !yield(h) {
				return
			}
		}
	}
}

// A MissingError says that an export fails because an object is missing or damaged.
type MissingError struct {
	What string // the dataset or record that needs it
	Err  error
}

func (e *MissingError) Error() string { return fmt.Sprintf("%s cannot be exported: %v", e.What, e.Err) }

func (e *MissingError) Unwrap() error { return e.Err }

// gather makes the closure of a workspace, or of a package alone (s.workspace is ""), and of executions. It removes
// executions whose output is incomplete from the list.
func (x *exporter) gather(ctx context.Context, s *snapshot, list []*taken) (*closure, []*taken, error) {
	for {
		g := x.gatherer(s, list)
		if err := g.walk(ctx, reach.Options{}); err != nil {
			return nil, nil, err
		}
		if !g.broken {
			s.noteLacking(g)
			switch {
			case g.imageless.Load() && x.opts.Images:
				s.notes = append(s.notes, "an image in which tasks run is not whole here, so it is not exported")
			case g.imageless.Load():
				s.notes = append(s.notes, "the images in which tasks run are left out; --images takes them along")
			}
			return &g.closure, list, nil
		}
		// Several executions may lack the same object, which is met once. So each is checked by itself.
		whole, err := x.whole(ctx, s, list)
		if err != nil {
			return nil, nil, err
		}
		list = whole
	}
}

// noteLacking notes which content is not exported.
func (s *snapshot) noteLacking(g *gatherer) {
	if s.pkg == nil {
		return
	}
	for i := range s.pkg.Inputs {
		switch in := &s.pkg.Inputs[i]; {
		case in.NoExport && g.noData && in.Default.Kind != record.LeafUnassigned:
			s.notes = append(s.notes, fmt.Sprintf("the content of input %s is left out", in.Name))
		case g.lacking[in.Name]:
			s.notes = append(s.notes, fmt.Sprintf("the content of input %s is not here, so it is not exported", in.Name))
		}
	}
}

// A gatherer is one try to make a closure.
type gatherer struct {
	objects objectstore.Store
	tasks   *tasks
	s       *snapshot
	noData  bool // leave out inputs marked "export: false"
	// each yields the executions; it is called twice.
	each func(ctx context.Context, yield func(*taken) error) error
	// inputs returns the input hashes of an execution.
	inputs func(ctx context.Context, t *taken) ([]string, error)
	// present returns the size of an object, or objectstore.ErrNotFound.
	present func(ctx context.Context, r reach.Ref) (int64, error)
	// size returns the size of an object, or objectstore.ErrNotFound.
	size func(ctx context.Context, h objectstore.Hash) (int64, error)
	// damaged, if not nil, reports whether an object whose size differs from its directory entry is damaged, and so
	// reported elsewhere.
	damaged func(ctx context.Context, h objectstore.Hash) bool
	// image reports whether to take along the image of a task; nil: if it is there.
	image func(objectstore.Hash) bool
	// If partial is true, executions with an incomplete output are left out with a note, and are not an error.
	partial bool

	closure closure
	broken  bool            // the output of an execution is incomplete
	lacking map[string]bool // inputs whose content is missing, as is allowed

	imageless atomic.Bool // an image of a task is left out, or missing
}

func (x *exporter) gatherer(s *snapshot, list []*taken) *gatherer {
	g := &gatherer{
		objects: x.objects, tasks: &x.tasks, s: s, noData: x.opts.NoData, partial: true, size: x.objects.Stat,
		damaged: func(ctx context.Context, h objectstore.Hash) bool { // reading it for the zip would find the damage
			_, err := objectstore.Copy(ctx, io.Discard, x.objects, h)
			return err != nil
		},
		each: func(_ context.Context, yield func(*taken) error) error {
			for _, t := range list {
				if err := yield(t); err != nil {
					return err
				}
			}
			return nil
		},
		inputs: func(ctx context.Context, t *taken) ([]string, error) {
			e, err := x.repo.Executions.Get(ctx, t.key, t.id)
			if errors.Is(err, executions.ErrNotFound) {
				return nil, &prunedError{t.id}
			}
			if err != nil {
				return nil, err
			}
			return e.InputHashes, nil
		},
		present: func(ctx context.Context, r reach.Ref) (int64, error) {
			size, err := x.objects.Stat(ctx, r.Hash)
			if err == nil {
				err = bounded(r, size)
			}
			return size, err
		},
	}
	g.image = func(objectstore.Hash) bool {
		if !x.opts.Images {
			g.imageless.Store(true)
		}
		return x.opts.Images
	}
	return g
}

// walk visits the whole closure. It sets Visit and Fault of the options unless they are set.
func (g *gatherer) walk(ctx context.Context, o reach.Options) error {
	if o.Visit == nil {
		o.Visit = g.visit
	}
	if o.Fault == nil {
		o.Fault = g.fault
	}
	g.lacking = map[string]bool{}
	o.Image = g.image
	if o.Dirs == nil {
		o.Dirs = reach.NewDirChecker(g.objects, maxStructure, g.size)
		o.Dirs.Damaged = g.damaged
	}
	w := reach.NewWalker(ctx, g.objects, o)
	g.closure.met = w.Met()
	// Weak references come last: an object that is also part of something required must exist.
	if err := g.required(ctx, w); err != nil {
		return err
	}
	if err := w.Wait(); err != nil {
		return err
	}
	if err := g.optional(ctx, w); err != nil {
		return err
	}
	return w.Wait()
}

// maxStructure bounds the objects that an import reads into memory: packages, tree nodes and directories. Other objects
// can have any size. An export refuses objects that no import would accept.
const maxStructure = 64 << 20

// bounded refuses an object that is too large for an import.
func bounded(r reach.Ref, size int64) error {
	if size <= maxStructure || r.Kind == reach.File || r.Kind == reach.FileOrDir { // FileOrDir is read no further than a directory can be long
		return nil
	}
	return &reach.MalformedError{Ref: r, Err: fmt.Errorf("%w, so it cannot travel: a folder has some 700,000 files at most", &objectstore.TooLargeError{Hash: r.Hash, Limit: maxStructure})}
}

// visit counts an object.
func (g *gatherer) visit(ctx context.Context, r reach.Ref) (int64, error) {
	size, err := g.present(ctx, r)
	g.closure.bytes.Add(size)
	return size, err
}

// Roles of roots.
const (
	roleOutput  = "output"
	roleTask    = "task"
	roleInput   = "input"
	rolePackage = "package"
	roleTree    = "tree"
)

// fault decides the consequence of a reference that cannot be followed.
func (g *gatherer) fault(f *reach.Fault) error {
	if !unusable(f.Err) {
		return f
	}
	switch {
	case f.Weak && errors.Is(f.Err, objectstore.ErrNotFound):
		g.closure.absent.Add(f.Ref.Hash)
		if f.Owner.Role == rolePackage || f.Owner.Role == roleTask && f.Owner.Kind == reach.AnExecution { // of a task
			g.imageless.Store(true)
		} else if f.Owner.Kind == reach.AWorkspace {
			g.lacking[f.Owner.ID] = true
		}
		return nil
	case g.partial && f.Owner.Kind == reach.AnExecution && f.Owner.Role == roleOutput && errors.Is(f.Err, objectstore.ErrNotFound):
		g.broken = true
		return nil
	}
	return &MissingError{What: describe(f), Err: f.Err}
}

// unusable reports whether an object is missing, damaged, or malformed.
func unusable(err error) bool {
	var corrupt *objectstore.CorruptError
	var malformed *reach.MalformedError
	return errors.Is(err, objectstore.ErrNotFound) || errors.As(err, &corrupt) || errors.As(err, &malformed)
}

// describe names what needs an object.
func describe(f *reach.Fault) string {
	path := joined(f.Path)
	switch f.Owner.Kind {
	case reach.AWorkspace:
		what := "workspace " + f.Owner.Name + ": " + f.Owner.Role
		if f.Owner.Role == roleInput || f.Owner.Role == roleTask {
			what = "dataset " + f.Owner.Name + "." + f.Owner.ID
		}
		if path != "" {
			what += "/" + path
		}
		return what
	case reach.AnExecution:
		return strings.TrimSuffix("the "+f.Owner.Role+" of execution "+f.Owner.ID+"/"+path, "/")
	}
	return strings.TrimSuffix(f.Owner.String()+"/"+path, "/")
}

// joined shortens a path for a message. Paths in foreign objects can have any depth.
func joined(path []string) string {
	const head, tail = 6, 2
	if len(path) > head+tail {
		path = slices.Concat(path[:head], []string{"…"}, path[len(path)-tail:])
	}
	short := make([]string, len(path))
	for i, name := range path {
		short[i] = shorten(name)
	}
	return strings.Join(short, "/")
}

// required adds the roots that must be complete.
func (g *gatherer) required(ctx context.Context, w *reach.Walker) error {
	s := g.s
	owner := reach.Owner{Kind: reach.AWorkspace, Name: s.workspace}
	if s.workspace == "" {
		owner = reach.Owner{Kind: reach.APackage, Name: pkgref.Key(s.state.PackageName, s.state.PackageVersion)}
	}
	root := func(k reach.Kind, hash, role, id string, weak bool) error {
		h, err := objectstore.ParseHash(hash)
		if err != nil {
			return fmt.Errorf("%s: %w", role, err)
		}
		o := owner
		o.Role, o.ID = role, id
		return w.Root(reach.Root{Ref: reach.Ref{Kind: k, Hash: h}, Owner: o, Weak: weak})
	}
	if s.pkg == nil { // made by the reference
		if err := root(reach.Package, s.state.PackageHash, rolePackage, "", false); err != nil || s.workspace == "" {
			return err
		}
		if err := root(reach.Node, s.state.RootHash, roleTree, "", false); err != nil {
			return err
		}
		return g.executions(ctx, w)
	}
	if err := root(reach.File, s.state.PackageHash, rolePackage, "", false); err != nil {
		return err
	}
	if s.workspace != "" {
		if err := root(reach.Nodes, s.state.RootHash, roleTree, "", false); err != nil {
			return err
		}
	}
	for _, hash := range s.pkg.Sources() {
		if err := root(reach.File, hash, rolePackage, "items", false); err != nil {
			return err
		}
	}
	for i := range s.pkg.Tasks {
		t := &s.pkg.Tasks[i]
		if err := root(reach.Task, t.Task, rolePackage, t.Name, false); err != nil {
			return err
		}
	}
	for i := range s.pkg.Inputs {
		if in := &s.pkg.Inputs[i]; in.Default.Kind != record.LeafUnassigned && !in.NoExport {
			if err := root(leafKind(in.Default), in.Default.Hash, roleInput, in.Name, false); err != nil {
				return err
			}
		}
	}
	marked := s.marks()
	for i := range s.inputs { // after an export these are the defaults
		in := &s.inputs[i]
		if in.Kind != record.LeafUnassigned && !marked[in.Name] {
			if err := root(leafKind(in.Leaf), in.Hash, roleInput, in.Name, false); err != nil {
				return err
			}
		}
	}
	for i := range s.tasks {
		if t := &s.tasks[i]; t.Kind != record.LeafUnassigned {
			if err := root(leafKind(t.Leaf), t.Hash, roleTask, t.Name, false); err != nil {
				return err
			}
		}
	}
	return g.executions(ctx, w)
}

func leafKind(l record.Leaf) reach.Kind {
	switch l.Kind {
	case record.LeafDir:
		return reach.Dir
	case record.LeafNode: // e3 writes no such leaf, but a zip may have one
		return reach.Node
	}
	return reach.File
}

// executions adds the outputs and the task objects.
func (g *gatherer) executions(ctx context.Context, w *reach.Walker) error {
	return g.each(ctx, func(t *taken) error {
		owner := reach.Owner{Kind: reach.AnExecution, ID: t.id, Key: t.key, Role: roleTask}
		if err := w.Root(reach.Root{Ref: reach.Ref{Kind: reach.Task, Hash: t.key.Task}, Owner: owner}); err != nil {
			return err
		}
		if t.state != record.Success {
			return nil
		}
		task, err := g.tasks.get(ctx, t.key.Task)
		if err != nil {
			return err
		}
		owner.Role = roleOutput
		return w.Root(reach.Root{Ref: reach.Ref{Kind: task.Output, Hash: t.output}, Owner: owner})
	})
}

// optional adds objects that may be missing: the nodes of snapshots, objects that e3 has made for the inputs of
// executions, and inputs that an earlier export has left out.
func (g *gatherer) optional(ctx context.Context, w *reach.Walker) error {
	s := g.s
	if s.pkg != nil && !g.noData {
		for i := range s.pkg.Inputs {
			in := &s.pkg.Inputs[i]
			if !in.NoExport || in.Default.Kind == record.LeafUnassigned {
				continue
			}
			h, err := objectstore.ParseHash(in.Default.Hash)
			if err != nil {
				return err
			}
			owner := reach.Owner{Kind: reach.AWorkspace, Name: s.workspace, Role: roleInput, ID: in.Name}
			if err := w.Root(reach.Root{Ref: reach.Ref{Kind: leafKind(in.Default), Hash: h}, Owner: owner, Weak: true}); err != nil {
				return err
			}
		}
	}
	if s.run != nil {
		for _, hash := range []string{s.run.InputSnapshot, s.run.OutputSnapshot} {
			if h, err := objectstore.ParseHash(hash); err == nil {
				owner := reach.Owner{Kind: reach.ARun, Name: s.workspace, ID: s.run.RunID}
				if err := w.Root(reach.Root{Ref: reach.Ref{Kind: reach.Nodes, Hash: h}, Owner: owner, Weak: true}); err != nil {
					return err
				}
			}
		}
	}
	hidden := g.hidden()
	return g.each(ctx, func(t *taken) error {
		task, err := g.tasks.get(ctx, t.key.Task)
		if err != nil || len(task.Dirs)+len(task.Made) == 0 {
			return err
		}
		inputs, err := g.inputs(ctx, t)
		if err != nil {
			return err
		}
		owner := reach.Owner{Kind: reach.AnExecution, ID: t.id, Key: t.key, Role: roleInput}
		return task.Inputs(inputs, func(i int, r reach.Ref) error {
			if hidden[position{t.key.Task, i}] {
				return nil
			}
			return w.Root(reach.Root{Ref: r, Owner: owner, Weak: true})
		})
	})
}

// marks are the inputs whose content may be missing.
func (s *snapshot) marks() map[string]bool {
	marked := map[string]bool{}
	for i := range s.pkg.Inputs {
		if in := &s.pkg.Inputs[i]; in.NoExport {
			marked[in.Name] = true
		}
	}
	return marked
}

// position is an input of a task.
type position struct {
	task  objectstore.Hash
	input int
}

// hidden returns the task inputs whose content must be left out.
func (g *gatherer) hidden() map[position]bool {
	if g.s.pkg == nil || !g.noData {
		return nil
	}
	marked := g.s.marks()
	all := map[position]bool{}
	for i := range g.s.pkg.Tasks {
		t := &g.s.pkg.Tasks[i]
		h, err := objectstore.ParseHash(t.Task)
		for j := range t.Wiring {
			if w := &t.Wiring[j]; err == nil && w.ReadsInput(func(name string) bool { return marked[name] }) {
				all[position{h, j}] = true
			}
		}
	}
	return all
}
