package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"e3/dataflow"
	"e3/internal/eastref"
	"e3/internal/record"
	"e3/objectstore"
)

// Deploy puts a registered package into a workspace and unlinks it from any file. One that was made by the reference
// brings its tree, which can be read.
func (w *Workspaces) Deploy(ctx context.Context, ws string, ref PackageRef) error {
	release, registered, err := w.holdPackage(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	pkg, err := w.LoadPackage(ctx, ref.Hash)
	var east *eastref.Package
	if errors.Is(err, record.ErrType) {
		east, err = w.loadEast(ctx, ref.Hash)
	}
	if err != nil {
		return fmt.Errorf("package %s: %w", ref, err)
	}
	if east == nil {
		if _, err := dataflow.NewGraph(pkg); err != nil {
			return err
		}
	}
	switch {
	case registered:
	case east == nil:
		if err := w.refreshPackage(ctx, ref.Hash, pkg); err != nil {
			return fmt.Errorf("package %s: %w", ref, err)
		}
	default:
		return fmt.Errorf("package %s is not in the register any more: %w", ref, ErrNotFound)
	}
	ctx, lock, err := w.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.explain(ctx, w.deploy(ctx, lock, ref, pkg, east))
}

// deploy does it under the lock.
func (w *Workspaces) deploy(ctx context.Context, lock *hold, ref PackageRef, pkg *record.Package, east *eastref.Package) error {
	ws := lock.ws
	from, err := w.origin(ctx, ws, nil, "", true)
	if err != nil {
		return err
	}
	// The link ends first: a crash may leave a workspace that follows nothing, but never one
	// that turns back to a file. Which inputs are set is read from it once more. Where the state says what it follows, that
	// ends with the state.
	if !w.shared {
		link, err := w.remembered(ctx, ws)
		if err != nil && !errors.Is(err, errBadLink) {
			return err
		}
		if link != nil {
			link.File = ""
			if err := w.saveLink(ctx, ws, link, true, nil); err != nil {
				return err
			}
		}
	}
	if east != nil {
		err = w.installEast(ctx, lock, ref, east, from)
	} else {
		_, err = w.install(ctx, lock, pkg, ref.Hash, from, true)
	}
	if err != nil {
		return err
	}
	return w.forgetLink(ctx, ws)
}

// DeployFile deploys a package file: the workspace follows the file and its inputs from
// then on.
func (w *Workspaces) DeployFile(ctx context.Context, ws, file string) (*Built, error) {
	ctx, lock, err := w.lockExisting(ctx, ws, record.Deployment)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	built, err := w.deployFile(ctx, lock, file, true)
	return built, lock.explain(ctx, err)
}

// deployFile does it under the lock.
func (w *Workspaces) deployFile(ctx context.Context, lock *hold, file string, durable bool) (*Built, error) {
	before, err := w.remembered(ctx, lock.ws) // what it says of files is true, whether they are followed or not
	if err != nil && !errors.Is(err, errBadLink) {
		return nil, err
	}
	built, err := w.Build(ctx, file, before)
	if err != nil {
		return nil, err
	}
	return built, w.deployBuilt(ctx, lock, built, durable)
}

// deployBuilt installs a package that was built from a file and remembers the link.
func (w *Workspaces) deployBuilt(ctx context.Context, lock *hold, built *Built, durable bool) error {
	ws := lock.ws
	if _, err := dataflow.NewGraph(built.Package); err != nil {
		return err
	}
	s, err := w.State(ctx, ws)
	if err != nil {
		return err
	}
	if built.Over, err = w.elsewhere(ctx, ws, s); err != nil {
		return err
	}
	from, err := w.origin(ctx, ws, s, built.Link.File, durable)
	if err != nil {
		return err
	}
	// A new workspace gets its link first: a crash in between leaves one that is deployed by the
	// next start, not one that follows nothing.
	if !s.Deployed {
		none := func([]string) []string { return nil }
		if err := w.saveLink(ctx, ws, built.Link, durable, none); err != nil {
			return err
		}
	}
	set, err := w.install(ctx, lock, built.Package, built.Hash, from, durable)
	if err != nil {
		return err
	}
	var keep func([]string) []string
	if !w.shared { // else they are in the state
		keep = func(marked []string) []string { return keptMarks(built.Package, marked, set) }
	}
	if err := w.saveLink(ctx, ws, built.Link, durable, keep); err != nil {
		return err
	}
	return w.forgetNotes(ctx, ws, from.id)
}

// keptMarks are the marks that stay when a package file is deployed; set tells for each input that held a set value whether it
// was kept.
func keptMarks(pkg *record.Package, marked []string, set map[string]bool) []string {
	for name, kept := range set { // also from a package that was not linked
		if kept && !slices.Contains(marked, name) {
			marked = append(marked, name)
		}
	}
	slices.Sort(marked)
	return slices.DeleteFunc(marked, func(name string) bool {
		kept, known := set[name]
		return known && !kept || !slices.ContainsFunc(pkg.Inputs, func(in record.PackageInput) bool { return in.Name == name })
	})
}

// install makes the package the workspace's. Values that were set stay where the name and
// the kind remain; set tells for each input that was set whether it was kept. Outputs
// stay where the task does.
func (w *Workspaces) install(ctx context.Context, lock *hold, pkg *record.Package, hash string, from origin, durable bool) (set map[string]bool, err error) {
	ws := lock.ws
	_, err = w.update(ctx, lock, ws, durable, func(s *State) error {
		set = map[string]bool{}
		old := &tree{}
		wasSet := func(string, record.Leaf) bool { return false }
		if s.Deployed {
			var err error
			if old, err = w.treeOf(ctx, ws, s, bothParts); errors.Is(err, errStale) || err != nil && !lost(err) && !errors.Is(err, record.ErrType) {
				return err
			} else if err != nil {
				old = &tree{} // nothing can be kept: it is gone, or the reference's
			}
			if wasSet, err = w.setValues(ctx, ws, s); err != nil {
				return err
			}
		}
		t := &tree{inputs: make(record.Node, 0, len(pkg.Inputs)), tasks: make(record.Node, 0, len(pkg.Tasks))}
		for i := range pkg.Inputs {
			in := &pkg.Inputs[i]
			leaf := in.Default
			if have, ok := old.inputs.Get(in.Name); ok && wasSet(in.Name, have) {
				if set[in.Name] = have.Kind == leaf.Kind; set[in.Name] {
					leaf = have
				}
			}
			t.inputs = append(t.inputs, record.NodeEntry{Name: in.Name, Leaf: leaf})
		}
		for i := range pkg.Tasks {
			leaf, ok := old.tasks.Get(pkg.Tasks[i].Name)
			if !ok {
				leaf = record.Leaf{Kind: record.LeafUnassigned}
			}
			t.tasks = append(t.tasks, record.NodeEntry{Name: pkg.Tasks[i].Name, Leaf: leaf})
		}
		t.inputs.Sort()
		t.tasks.Sort()
		root, err := w.writeTree(ctx, t, bothParts)
		if err != nil {
			return err
		}
		if durable {
			if err := w.Records.Sync(ctx); err != nil {
				return err
			}
		}
		now := w.Now()
		s.PackageName, s.PackageVersion, s.PackageHash = pkg.Name, pkg.Version, hash
		s.DeployedAt, s.RootHash, s.RootUpdatedAt, s.Deployed = now, root, now, true
		w.deployedFrom(s, from, pkg, set)
		return nil
	})
	return set, err
}

// lost tells whether an object is gone or damaged.
func lost(err error) bool {
	var corrupt *objectstore.CorruptError
	return errors.Is(err, objectstore.ErrNotFound) || errors.As(err, &corrupt)
}

// setValues tells which inputs hold a value that "e3 set" gave them: those that are marked, or
// where no file is followed those that differ from the package's default.
func (w *Workspaces) setValues(ctx context.Context, ws string, s *State) (func(string, record.Leaf) bool, error) {
	marks, marked, err := w.marked(ctx, ws, s)
	if errors.Is(err, errBadLink) {
		// What was set is not known any more. The linked files win: a value that is kept by
		// mistake would be stale for ever.
		return func(string, record.Leaf) bool { return false }, nil
	}
	if err != nil {
		return nil, err
	}
	if marked {
		return func(name string, _ record.Leaf) bool { return slices.Contains(marks, name) }, nil
	}
	pkg, err := w.LoadPackage(ctx, s.PackageHash)
	if errors.Is(err, record.ErrType) || lost(err) {
		return func(string, record.Leaf) bool { return false }, nil // made by the reference, or gone
	}
	if err != nil {
		return nil, err
	}
	defaults := make(map[string]record.Leaf, len(pkg.Inputs))
	for i := range pkg.Inputs {
		defaults[pkg.Inputs[i].Name] = pkg.Inputs[i].Default
	}
	return func(name string, have record.Leaf) bool {
		d, ok := defaults[name]
		return ok && have != d
	}, nil
}

// follow brings a linked workspace up to date with its package file and its inputs. It is
// called under the lock. It returns the package when it was built anew; work is told before that.
func (w *Workspaces) follow(ctx context.Context, lock *hold, s *State, durable bool, work func()) (*Built, error) {
	ws := lock.ws
	link, err := w.link(ctx, ws, s)
	if err != nil || link == nil {
		return nil, err
	}
	info, err := statLinked(ws, link.File)
	if err != nil {
		return nil, err
	}
	if !link.Stat.Proves(fileStat(info)) || link.Package != s.PackageHash {
		work()
		return w.deployFile(ctx, lock, link.File, durable)
	}
	scan := &scan{w: w, base: filepath.Dir(link.File)}
	executable := executables(link)
	if err := scan.inputs(ctx, link.Inputs); err != nil {
		return nil, err
	}
	touched := scan.touched.Load()
	if executable == executables(link) {
		behind := scan.changed.Load()
		if !behind {
			if behind, err = w.behind(ctx, s, link); err != nil {
				return nil, err
			}
		}
		if behind {
			reread, err := w.assignLinked(ctx, lock, link, durable)
			if err != nil {
				return nil, err
			}
			touched = touched || reread
		}
	}
	if executable != executables(link) {
		work()
		return w.deployFile(ctx, lock, link.File, durable) // how an input is staged is part of the task
	}
	if touched {
		return nil, w.saveLink(ctx, ws, link, durable, nil)
	}
	return nil, nil
}

// statLinked looks at the package file that a workspace follows.
func statLinked(ws, file string) (os.FileInfo, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("package file of workspace %s: %w; deploy it again from where it is now", ws, err)
	}
	return info, nil
}

// behind tells whether a linked input that is not set has another dataset in the tree than
// its link: an unset that failed half-way leaves that.
func (w *Workspaces) behind(ctx context.Context, s *State, link *record.Link) (bool, error) {
	t, err := w.readTree(ctx, s.RootHash, inputsPart)
	if err != nil {
		return false, err
	}
	for i := range link.Inputs {
		in := &link.Inputs[i]
		if have, ok := t.inputs.Get(in.Name); ok && have != in.Leaf && !slices.Contains(s.marks(link), in.Name) {
			return true, nil
		}
	}
	return false, nil
}

// restore takes linked inputs in again whose content is gone from the store.
func (w *Workspaces) restore(ctx context.Context, lock *hold, s *State, durable bool) error {
	ws := lock.ws
	link, err := w.link(ctx, ws, s)
	if err != nil || link == nil {
		return err
	}
	scan := &scan{w: w, base: filepath.Dir(link.File), verify: true}
	if err := scan.inputs(ctx, link.Inputs); err != nil {
		return err
	}
	if scan.changed.Load() {
		if _, err := w.assignLinked(ctx, lock, link, durable); err != nil {
			return err
		}
	}
	return w.saveLink(ctx, ws, link, durable, nil)
}

// assignLinked gives the tree what the link remembers of the inputs that are not set. What the tree does not hold may have been
// collected since it was read: it is refreshed, or read again, which reread tells.
func (w *Workspaces) assignLinked(ctx context.Context, lock *hold, link *record.Link, durable bool) (reread bool, err error) {
	ws := lock.ws
	_, err = w.edit(ctx, lock, ws, durable, inputsPart, func(s *State, t *tree) error {
		set, marked, err := w.marked(ctx, ws, s) // what was set since we read it stays
		if err != nil {
			return err
		}
		if !marked {
			set = link.Set
		}
		for i := range link.Inputs {
			in := &link.Inputs[i]
			if slices.Contains(set, in.Name) {
				continue
			}
			if have, _ := t.inputs.Get(in.Name); have != in.Leaf {
				again, err := w.renew(ctx, link, in)
				if err != nil {
					return err
				}
				reread = reread || again
			}
			t.inputs = t.inputs.Set(in.Name, in.Leaf)
		}
		return nil
	})
	return reread, err
}

// executables is a print of which file inputs have the executable bit.
func executables(link *record.Link) string {
	b := make([]byte, len(link.Inputs))
	for i := range link.Inputs {
		if link.Inputs[i].Leaf.Executable {
			b[i] = 1
		}
	}
	return string(b)
}
