package tree

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// FindLost returns the lost objects of a file, or of a directory with everything below it. look decides for each:
// objectstore.Discard or objectstore.Lost. Below a directory object that is lost itself, nothing is known.
func FindLost(ctx context.Context, s objectstore.Store, h objectstore.Hash, dir bool, look func(context.Context, objectstore.Hash) (bool, error)) ([]objectstore.Hash, error) {
	if !dir {
		lost, err := look(ctx, h)
		if err != nil || !lost {
			return nil, err
		}
		return []objectstore.Hash{h}, nil
	}
	f := &finder{store: s, look: look, seen: new(objectstore.HashSet)}
	f.group, f.ctx = errgroup.WithContext(ctx)
	f.group.SetLimit(workers(0, s))
	err := f.dir(h, 0)
	if waitErr := f.group.Wait(); err == nil || errors.Is(err, context.Canceled) {
		err = cmp.Or(waitErr, err)
	}
	return f.lost, err
}

// finder is one FindLost.
type finder struct {
	ctx   context.Context
	store objectstore.Store
	look  func(context.Context, objectstore.Hash) (bool, error)
	group *errgroup.Group
	seen  *objectstore.HashSet

	mu   sync.Mutex
	lost []objectstore.Hash
}

func (f *finder) add(h objectstore.Hash) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = append(f.lost, h)
}

func (f *finder) file(h objectstore.Hash) {
	if !f.seen.Add(h) {
		return
	}
	f.group.Go(func() error {
		lost, err := f.look(f.ctx, h)
		if err == nil && lost {
			f.add(h)
		}
		return err
	})
}

func (f *finder) dir(h objectstore.Hash, depth int) error {
	if depth > MaxDepth {
		return tooDeep("")
	}
	if !f.seen.Add(h) {
		return nil
	}
	lost, err := f.look(f.ctx, h)
	if err != nil {
		return err
	}
	var t Entries
	if !lost {
		t, err = Read(f.ctx, f.store, h)
		if lost, err = objectstore.IsLost(err); err != nil {
			return err
		}
	}
	if lost {
		f.add(h)
		return nil
	}
	for i := range t {
		switch t[i].Kind {
		case KindFile:
			f.file(t[i].Hash)
		case KindDir:
			if err := f.dir(t[i].Hash, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}
