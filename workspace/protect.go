package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// Objects that a state names are kept as long as the state is current; afterwards, a collector may delete them. So work
// that uses a state for longer than a swap protects its objects (hold). An object that a state is about to name, but
// that is neither in the present state nor just stored, is first refreshed (refresh). See doc/design.md, §13.

// protect announces names, "<kind> <hash>", as in use until release is called.
func (w *States) protect(ctx context.Context, names ...string) (release func(), err error) {
	if w.Sessions == nil {
		return func() {}, nil
	}
	for _, name := range names {
		_, hash, _ := strings.Cut(name, " ")
		if _, err := objectstore.ParseHash(hash); err != nil {
			return nil, err
		}
	}
	return w.Sessions.Protect(ctx, names)
}

// hold reads the workspace's state for a run, and protects its objects until letGo.
func (r *run) hold(ctx context.Context) error {
	s, err := r.w.states.begin(ctx, r.lock, r.ws)
	for locked := false; ; locked = true { // whether s was read under the lock
		if locked {
			s, err = r.lock.read(ctx)
		}
		if err != nil {
			return err
		}
		if !s.Deployed && !locked {
			continue
		}
		if !s.Deployed || r.state != nil && r.state.RootHash == s.RootHash && r.state.PackageHash == s.PackageHash {
			r.state = s // already protected
			return nil
		}
		release, err := r.w.states.protect(ctx, "node "+s.RootHash, "package "+s.PackageHash)
		if err != nil {
			return fmt.Errorf("workspace %s: %w", r.ws, err)
		}
		r.held = append(r.held, release)
		// Before the protection took effect, the state may have been replaced and its objects collected. A second read
		// of the same state proves that they were not.
		r.state = s
	}
}

// letGo ends all protections.
func (r *run) letGo() {
	for _, release := range r.held {
		release()
	}
}

// holdPackage protects a registered package for a deployment, even if it is removed from the register meanwhile.
// registered is false if it is no longer registered: its objects may then be gone.
func (w *States) holdPackage(ctx context.Context, ref PackageRef) (release func(), registered bool, err error) {
	release, err = w.protect(ctx, "package "+ref.Hash)
	if err != nil {
		return nil, false, fmt.Errorf("package %s: %w", ref, err)
	}
	now, err := w.Packages.Find(ctx, ref.Name, ref.Version)
	if err != nil && !errors.Is(err, ErrNotFound) {
		release()
		return nil, false, err
	}
	return release, err == nil && now.Hash == ref.Hash, nil
}

// refreshPackage refreshes a package that nothing names, and everything that it names. The content of an input that is
// not exported may be absent.
func (w *States) refreshPackage(ctx context.Context, hash string, pkg *record.Package) error {
	hashes := make([]string, 1, 1+len(pkg.Tasks))
	hashes[0] = hash
	for i := range pkg.Tasks {
		hashes = append(hashes, pkg.Tasks[i].Task)
	}
	hashes = append(hashes, pkg.Sources()...)
	err := parallel.AtMost(ctx, w.Lookups, len(hashes), func(ctx context.Context, k int) error {
		h, err := objectstore.ParseHash(hashes[k])
		if err != nil {
			return err
		}
		there, err := w.Objects.Refresh(ctx, h)
		if err == nil && !there {
			err = fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		there, err := w.refresh(ctx, in.Default, record.Leaf{})
		if err == nil && !there && !in.NoExport {
			err = fmt.Errorf("object %s: %w", in.Default.Hash, objectstore.ErrNotFound)
		}
		if err != nil {
			return &InputError{Input: in.Name, Err: err}
		}
	}
	return nil
}

// errStale says that a state was replaced and its objects collected before they were read: read the new state.
var errStale = errors.New("the workspace has changed meanwhile")

// treeOf reads the tree of a state that was read earlier. If a part of it is lost and the state has been replaced, the
// error is errStale.
func (w *States) treeOf(ctx context.Context, name string, s *State, want parts) (*tree, error) {
	t, err := w.readTree(ctx, s.RootHash, want)
	return t, w.staleOr(ctx, name, s, err)
}

// staleOr returns err, or errStale if err says that something is lost and the state has been replaced.
func (w *States) staleOr(ctx context.Context, name string, s *State, err error) error {
	if !isLost(err) {
		return err
	}
	now, nowErr := w.State(ctx, name)
	if nowErr != nil {
		return errors.Join(err, nowErr)
	}
	if now.version != s.version {
		return fmt.Errorf("workspace %s: %w: %w", name, errStale, err)
	}
	return err
}

// steady calls read with the state of a workspace. It repeats that if the state was replaced, and its objects
// collected, during the read.
func (w *States) steady(ctx context.Context, name string, read func(*State) error) error {
	for {
		s, err := w.State(ctx, name)
		if err != nil {
			return err
		}
		if err = read(s); !isLost(err) {
			return err
		}
		now, nowErr := w.State(ctx, name)
		if nowErr != nil {
			return nowErr
		}
		if now.version == s.version {
			return err
		}
	}
}

// HoldDataset is Dataset, and protects the dataset until release is called, whatever happens to the workspace. A process that
// can write nothing in the repository reads without protection.
func (w *Datasets) HoldDataset(ctx context.Context, ws string, p DatasetPath) (d *Dataset, release func(), err error) {
	return w.hold(ctx, func() (*Dataset, error) { return w.Dataset(ctx, ws, p) })
}

// HoldOutput is HoldDataset for what an execution of a task has made, whether or not the workspace shows it: of an earlier
// run, or of one with values of its own.
func (w *Datasets) HoldOutput(ctx context.Context, ws string, p DatasetPath, e *executions.Execution) (d *Dataset, release func(), err error) {
	return w.hold(ctx, func() (*Dataset, error) { return w.output(ctx, ws, p, e) })
}

func (w *Datasets) output(ctx context.Context, ws string, p DatasetPath, e *executions.Execution) (*Dataset, error) {
	if e.State != record.Success {
		return nil, fmt.Errorf("execution %s of %s.%s has no output: its state is %s", e.ExecutionID, ws, p.Name, e.State)
	}
	task, err := executions.LoadTask(ctx, w.states.Objects, e.Key.Task)
	if err != nil {
		return nil, fmt.Errorf("the output of execution %s: %w", e.ExecutionID, err)
	}
	d := &Dataset{Workspace: ws, Path: p, Output: true, Leaf: record.Leaf{Kind: record.LeafDir, Hash: e.OutputHash}}
	if !task.Output.IsDir() {
		h, err := objectstore.ParseHash(e.OutputHash)
		if err != nil {
			return nil, fmt.Errorf("the output of execution %s: %w", e.ExecutionID, err)
		}
		size, err := w.states.Objects.Stat(ctx, h)
		if err != nil {
			return nil, fmt.Errorf("the output of execution %s: %w", e.ExecutionID, err)
		}
		executable := task.Output.Entries[0].Kind == record.KindExecutable
		d.Leaf = record.Leaf{Kind: record.LeafFile, Hash: e.OutputHash, Size: size, Executable: executable}
	}
	if p.Entry == "" {
		return d, nil
	}
	return d, w.descend(ctx, d)
}

// hold protects the dataset that look finds.
func (w *Datasets) hold(ctx context.Context, look func() (*Dataset, error)) (d *Dataset, release func(), err error) {
	d, err = look()
	for err == nil && d.Hash != "" {
		kind := map[record.LeafKind]string{record.LeafDir: "dir ", record.LeafNode: "node "}[d.Kind]
		if kind == "" {
			kind = "file "
		}
		release, err = w.states.protect(ctx, kind+d.Hash)
		if refstore.Unprotected(err) {
			return d, func() {}, nil
		}
		if err != nil {
			break
		}
		var again *Dataset
		again, err = look()
		if err == nil && again.Leaf == d.Leaf {
			return d, release, nil
		}
		release()
		d = again
	}
	if err != nil {
		return nil, nil, err
	}
	return d, func() {}, nil
}

// refresh protects a dataset, with everything below it, from a running collection, so that it can be named. It reports
// whether all of it exists. kept is the dataset that leaf will replace. The present state names kept, so the objects
// that both have are held until the new state is written: a folder with one changed file costs that file and the
// folders above it.
func (w *States) refresh(ctx context.Context, leaf, kept record.Leaf) (bool, error) {
	if leaf.Kind == record.LeafUnassigned {
		return true, nil
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return false, err
	}
	if leaf.Kind == record.LeafDir {
		var old objectstore.Hash
		if kept.Kind == record.LeafDir && kept.Hash != "" {
			if old, err = objectstore.ParseHash(kept.Hash); err != nil {
				return false, err
			}
		}
		return dirtree.Refresh(ctx, w.Objects, h, old)
	}
	return w.Objects.Refresh(ctx, h)
}

// renew refreshes the last known content of a linked input, which will replace kept. If that fails, it reads the
// input again, and returns true.
func (w *States) renew(ctx context.Context, link *record.Link, in *record.LinkInput, kept record.Leaf) (bool, error) {
	there, err := w.refresh(ctx, in.Leaf, kept)
	if err == nil && !there {
		s := &scan{states: w, base: filepath.Dir(link.File), verify: true}
		err = s.input(ctx, in)
	}
	if err != nil {
		return false, &InputError{Input: in.Name, Err: err}
	}
	return !there, nil
}
