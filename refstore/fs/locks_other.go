//go:build !linux

package fs

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"

	"e3/internal/host/filelock"
	"e3/refstore"
)

func lockFile(f *os.File, mode refstore.Mode) error {
	return filelock.Try(f, mode == refstore.Exclusive)
}

func lockHeld(f *os.File) (bool, error) {
	err := lockFile(f, refstore.Shared)
	if errors.Is(err, filelock.ErrLocked) {
		return true, nil
	}
	return false, err // closing the file releases it
}

// claimFiles has one lock file for each claim.
type claimFiles struct {
	files  map[int64]*os.File
	closed bool
}

func (c *claimFiles) lock(s *Store, offset int64) error {
	if c.closed {
		return iofs.ErrClosed
	}
	path := join("locks", "claims", fmt.Sprintf("%02x", offset>>55), fmt.Sprintf("%016x", offset))
	var f *os.File
	err := s.files.inParent(path, func() (err error) {
		f, err = s.files.makeLock(path)
		return err
	})
	if err != nil {
		return err
	}
	if err := lockFile(f, refstore.Exclusive); err != nil {
		return errors.Join(err, f.Close())
	}
	if c.files == nil {
		c.files = make(map[int64]*os.File)
	}
	c.files[offset] = f
	return nil
}

func (c *claimFiles) unlock(offset int64) error {
	f := c.files[offset]
	delete(c.files, offset)
	if f == nil { // closed with the store
		return nil
	}
	return f.Close()
}

func (t *claimTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	var err error
	for _, f := range t.files {
		err = errors.Join(err, f.Close())
	}
	t.files = nil
	return err
}
