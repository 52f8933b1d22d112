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
// that whoever writes to the file goes on writing to the stream. ErrConflict if the stream exists.
func (s *Store) AdoptStream(ctx context.Context, key refstore.Key, path string) error {
	dst, err := s.checkStream(ctx, key, 0)
	if err == nil {
		err = s.inParent(dst, func() error { return os.Link(path, dst) })
	}
	if errors.Is(err, iofs.ErrExist) {
		err = fmt.Errorf("%w: it exists", refstore.ErrConflict)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("adopt %s as %q: %w", path, key, err)
	}
	return nil
}
