package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"

	"e3/refstore"
)

// AdoptStream makes the file at path, which lies on the repository's file system, the stream of key: by a rename, so
// that whoever writes to the file goes on writing to the stream. ErrConflict if the stream exists. A file that has both names, as a kill
// between the two has left it, loses the first.
func (s *Store) AdoptStream(ctx context.Context, key refstore.Key, path string) error {
	dst, err := s.checkStream(ctx, key, 0)
	if err == nil {
		err = s.inParent(dst, func() error { return os.Link(path, dst) })
	}
	if errors.Is(err, iofs.ErrExist) && !sameFile(path, dst) {
		err = fmt.Errorf("%w: it exists", refstore.ErrConflict)
	} else if errors.Is(err, iofs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("adopt %s as %q: %w", path, key, err)
	}
	return nil
}

// sameFile tells whether two paths lead to one file.
func sameFile(a, b string) bool {
	first, errA := os.Lstat(a)
	second, errB := os.Lstat(b)
	return errA == nil && errB == nil && os.SameFile(first, second)
}
