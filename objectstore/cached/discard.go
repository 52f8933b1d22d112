package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"e3/objectstore"
)

// Discard implements objectstore.Discarder. It asks the remote store even about objects that this process has seen
// there. A damaged object is read once more while it is condemned, and then removed. A lost object is uploaded again if
// the cache has a whole copy.
func (s *Store) Discard(ctx context.Context, h objectstore.Hash) (gone bool, err error) {
	lost, err := objectstore.IsLost(s.Verify(ctx, h))
	if !lost || err != nil {
		return false, err
	}
	_, err = s.delete(ctx, h, func(ctx context.Context, _ bool) (bool, error) {
		var corrupt *objectstore.CorruptError
		switch err := s.Verify(ctx, h); {
		case errors.As(err, &corrupt):
			lost = true
			return true, nil
		case errors.Is(err, objectstore.ErrNotFound):
			lost = true
			return false, nil
		default:
			lost = false
			return false, err
		}
	})
	if err != nil || !lost {
		return false, err
	}
	s.known.forget(h)
	return s.sendAgain(ctx, h)
}

// sendAgain uploads the copy of an object. With none there is no whole copy.
func (s *Store) sendAgain(ctx context.Context, h objectstore.Hash) (none bool, err error) {
	f, err := s.local.OpenFile(h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if lost, err := objectstore.IsLost(objectstore.CheckReader(ctx, h, f)); lost || err != nil {
		return lost, err
	}
	fi, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("object %s: %w", h, err)
	}
	return false, s.upload(ctx, objectstore.Info{Hash: h, Size: fi.Size()}, false, func() (io.ReaderAt, func(), error) {
		return f, func() {}, nil
	})
}

// Distrust makes the store ask the remote store again for every object that this process has seen there, since some may
// be lost. Until end is called, a put reads an existing object, whatever its size.
func (s *Store) Distrust() (end func()) {
	s.distrusts.Add(1)
	s.known.clear()
	return sync.OnceFunc(func() { s.distrusts.Add(-1) })
}

// Lacks reports whether an object is neither here nor in the remote store.
func (s *Store) Lacks(ctx context.Context, h objectstore.Hash) (bool, error) {
	if _, err := s.local.Stat(ctx, h); err == nil {
		return false, nil
	}
	_, err := s.ask(ctx, h)
	return objectstore.IsLost(err)
}
