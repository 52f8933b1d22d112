package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"

	"e3/internal/host/beneath"
	"e3/refstore"
)

// AdoptStream makes the file at path, on the repository's file system, the stream of key. It renames the file, so that
// processes that have it open continue to write to the stream. It returns ErrConflict if the stream exists. If an
// earlier call was killed and left the file with both names, it removes path.
func (s *Store) AdoptStream(ctx context.Context, key refstore.Key, path string) error {
	dst, err := s.checkStream(ctx, key, 0)
	if err == nil {
		link := func(dst string) error { return s.files.LinkFrom(path, dst) }
		if sl, ok, bad := executionOf(s, key); ok {
			err = makeLog(ctx, s, sl, dst, link)
		} else if err = bad; err == nil {
			err = s.files.inParent(dst, func() error { return link(dst) })
		}
	}
	if errors.Is(err, iofs.ErrExist) && !s.files.sameFile(path, dst) {
		err = fmt.Errorf("%w: it exists", refstore.ErrConflict)
	} else if errors.Is(err, iofs.ErrExist) {
		err = nil
	}
	if err == nil {
		s.files.unsynced.file(false, dst)
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("adopt %s as %q: %w", path, key, err)
	}
	return nil
}

// sameFile reports whether a path outside of the store and a name in it are one file.
func (t tree) sameFile(path, name string) bool {
	first, errA := os.Lstat(path)
	second, errB := t.Lstat(name)
	return errA == nil && errB == nil && beneath.SameFile(first, second)
}
