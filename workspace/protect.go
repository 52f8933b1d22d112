package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// Objects that a state names are kept as long as the state is; a collector may delete them once it is replaced. So work that
// uses a state for longer than a swap takes protects its objects (hold). And an object that is to be named by a state, but
// is neither in the present one nor just stored, is refreshed first (refresh). See doc/design.md, §13.

// protect makes names, "<kind> <hash>", known as in use until release is called.
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

// hold reads the workspace's state for a run that works from it: what it names is there until the run lets go.
func (r *run) hold(ctx context.Context) error {
	s, err := r.w.states.begin(ctx, r.lock, r.ws)
	for since := false; ; since = true { // the lock was taken
		if since {
			s, err = r.lock.read(ctx)
		}
		if err != nil {
			return err
		}
		if !s.Deployed && !since {
			continue
		}
		if !s.Deployed || r.state != nil && r.state.RootHash == s.RootHash && r.state.PackageHash == s.PackageHash {
			r.state = s // it is held already
			return nil
		}
		release, err := r.w.states.protect(ctx, "node "+s.RootHash, "package "+s.PackageHash)
		if err != nil {
			return fmt.Errorf("workspace %s: %w", r.ws, err)
		}
		r.held = append(r.held, release)
		// The state may have been replaced, and what it named collected, before the names were known: it is held if
		// it is read once more.
		r.state = s
	}
}

// letGo ends all holds.
func (r *run) letGo() {
	for _, release := range r.held {
		release()
	}
}

// holdPackage keeps a registered package for a deploy, even if it is removed from the register meanwhile. registered
// is false if it is not in the register any more: its objects may be gone.
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

// refreshPackage refreshes a package that nothing names, with all that it names. The content of an input that is not
// exported need not be there.
func (w *States) refreshPackage(ctx context.Context, hash string, pkg *record.Package) error {
	hashes := make([]string, 1, 1+len(pkg.Tasks))
	hashes[0] = hash
	for i := range pkg.Tasks {
		hashes = append(hashes, pkg.Tasks[i].Task)
	}
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
		there, err := w.refresh(ctx, in.Default)
		if err == nil && !there && !in.NoExport {
			err = fmt.Errorf("object %s: %w", in.Default.Hash, objectstore.ErrNotFound)
		}
		if err != nil {
			return &InputError{Input: in.Name, Err: err}
		}
	}
	return nil
}

// errStale says that a state was replaced, and what it named collected, before it was read: read it again.
var errStale = errors.New("the workspace has changed meanwhile")

// treeOf reads the tree of a state that was read before. Where a part of the tree is lost and the state is no more, the error
// is errStale.
func (w *States) treeOf(ctx context.Context, name string, s *State, want parts) (*tree, error) {
	t, err := w.readTree(ctx, s.RootHash, want)
	return t, w.staleOr(ctx, name, s, err)
}

// staleOr is err, or errStale where err says that something is lost and the state is no more.
func (w *States) staleOr(ctx context.Context, name string, s *State, err error) error {
	if !lost(err) {
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

// steady calls read with the state of a workspace, again where the state was replaced, and what it named collected, while
// it was being read.
func (w *States) steady(ctx context.Context, name string, read func(*State) error) error {
	for {
		s, err := w.State(ctx, name)
		if err != nil {
			return err
		}
		if err = read(s); !lost(err) {
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

// HoldDataset is Dataset; what it has found stays until release is called, whatever becomes of the workspace. Who cannot
// write in the repository keeps nothing.
func (w *Datasets) HoldDataset(ctx context.Context, ws string, p DatasetPath) (d *Dataset, release func(), err error) {
	d, err = w.Dataset(ctx, ws, p)
	for err == nil && d.Hash != "" {
		kind := map[record.LeafKind]string{record.LeafDir: "dir ", record.LeafNode: "node "}[d.Kind]
		if kind == "" {
			kind = "file "
		}
		release, err = w.states.protect(ctx, kind+d.Hash)
		if errors.Is(err, refstore.ErrReadOnly) {
			return d, func() {}, nil
		}
		if err != nil {
			break
		}
		var again *Dataset
		again, err = w.Dataset(ctx, ws, p)
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

// refresh keeps a dataset, with all below it, from a collection under way, so that it can be named. It reports whether all
// of it is there.
func (w *States) refresh(ctx context.Context, leaf record.Leaf) (bool, error) {
	if leaf.Kind == record.LeafUnassigned {
		return true, nil
	}
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return false, err
	}
	if leaf.Kind == record.LeafDir {
		return dirtree.Refresh(ctx, w.Objects, h)
	}
	return w.Objects.Refresh(ctx, h)
}

// renew refreshes what a linked input was when it was last read, or else reads it again. It reports whether it did.
func (w *States) renew(ctx context.Context, link *record.Link, in *record.LinkInput) (bool, error) {
	there, err := w.refresh(ctx, in.Leaf)
	if err == nil && !there {
		s := &scan{states: w, base: filepath.Dir(link.File), verify: true}
		err = s.input(ctx, in)
	}
	if err != nil {
		return false, &InputError{Input: in.Name, Err: err}
	}
	return !there, nil
}
