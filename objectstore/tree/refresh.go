package tree

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// Refresh refreshes the tree h with everything below it, each directory once. It reports whether everything exists and
// the directories are intact; if not, it may have stopped early.
//
// It leaves out what the tree kept also has, at the same place: the caller knows that a reference holds kept until a
// reference to h is written. kept is zero if there is no such tree.
func Refresh(ctx context.Context, s objectstore.Refresher, h, kept objectstore.Hash) (bool, error) {
	return (&refresher{store: s, seen: new(objectstore.HashSet)}).dir(ctx, "", h, kept, 0)
}

type refresher struct {
	store objectstore.Refresher
	seen  *objectstore.HashSet
}

func (r *refresher) dir(ctx context.Context, rel string, h, kept objectstore.Hash, depth int) (bool, error) {
	if depth > MaxDepth {
		return false, tooDeep(rel)
	}
	if h == kept || !r.seen.Add(h) {
		return true, nil
	}
	// Refresh the directory first, so that it cannot be removed while its entries are looked up.
	if ok, err := r.store.Refresh(ctx, h); err != nil || !ok {
		return false, err
	}
	t, err := Read(ctx, r.store, h)
	var corrupt *objectstore.CorruptError
	if errors.Is(err, objectstore.ErrNotFound) || errors.As(err, &corrupt) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var old Entries
	if !kept.IsZero() {
		if old, err = Read(ctx, r.store, kept); err != nil {
			old = nil // then everything is refreshed
		}
	}
	var files []objectstore.Hash
	for i := range t {
		if t[i].Kind == KindFile && old.at(&t[i]) != t[i].Hash {
			files = append(files, t[i].Hash)
		}
	}
	if ok, err := r.files(ctx, files); err != nil || !ok {
		return false, err
	}
	for i := range t {
		if t[i].Kind != KindDir {
			continue
		}
		if ok, err := r.dir(ctx, rel+"/"+t[i].Name, t[i].Hash, old.at(&t[i]), depth+1); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// at returns the object of the entry of t that has the name and the kind of e; zero if there is none.
func (t Entries) at(e *Entry) objectstore.Hash {
	if found, ok := t.Find(e.Name); ok && found.Kind == e.Kind {
		return found.Hash
	}
	return objectstore.Hash{}
}

// files refreshes files, on all cores if there are many.
func (r *refresher) files(ctx context.Context, hs []objectstore.Hash) (bool, error) {
	chunk, limit := 64, runtime.GOMAXPROCS(0) // many for each hand-over, which is then cheap
	if s, ok := r.store.(distant); ok {
		chunk, limit = 1, s.Parallel()
	}
	var gone atomic.Bool
	some := func(hs []objectstore.Hash) error {
		for _, h := range hs {
			if gone.Load() {
				return nil
			}
			ok, err := r.store.Refresh(ctx, h)
			if err != nil {
				return err
			}
			if !ok {
				gone.Store(true)
			}
		}
		return nil
	}
	if len(hs) <= chunk {
		err := some(hs)
		return !gone.Load(), err
	}
	var g errgroup.Group
	g.SetLimit(limit)
	for from := 0; from < len(hs); from += chunk {
		g.Go(func() error { return some(hs[from:min(from+chunk, len(hs))]) })
	}
	err := g.Wait()
	return !gone.Load(), err
}
