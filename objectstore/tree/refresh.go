package tree

import (
	"context"
	"errors"

	"e3/internal/parallel"
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

// errGone ends the look at files.
var errGone = errors.New("an object is gone")

// files refreshes files, on all cores if there are many.
func (r *refresher) files(ctx context.Context, hs []objectstore.Hash) (bool, error) {
	limit := 0
	if s, ok := r.store.(distant); ok {
		limit = s.Parallel()
	}
	err := parallel.AtMost(ctx, limit, len(hs), func(ctx context.Context, i int) error {
		ok, err := r.store.Refresh(ctx, hs[i])
		if err == nil && !ok {
			err = errGone
		}
		return err
	})
	if errors.Is(err, errGone) {
		return false, nil
	}
	return err == nil, err
}
