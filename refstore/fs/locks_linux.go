package fs

import (
	"errors"
	iofs "io/fs"
	"os"

	"golang.org/x/sys/unix"

	"e3/internal/host/filelock"
	"e3/refstore"
)

// Named locks and claims are locks of open file descriptions. Like flock they end with the open file, and so with the
// process; unlike flock they can be queried and have ranges. A named lock covers its whole file.

func lockFile(f *os.File, mode refstore.Mode) error {
	typ := int16(unix.F_WRLCK)
	if mode == refstore.Shared {
		typ = unix.F_RDLCK
	}
	return setLock(f, unix.Flock_t{Type: typ})
}

func setLock(f *os.File, l unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
			return filelock.ErrLocked
		case err != nil:
			return &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		return nil
	}
}

func lockHeld(f *os.File) (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l); err != nil {
		return false, &iofs.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return l.Type != unix.F_UNLCK, nil
}

// claimFiles is one file; a claim is a lock on one of its bytes, which need not exist.
type claimFiles struct {
	file   *os.File
	closed bool
}

func (c *claimFiles) lock(s *Store, offset int64) error {
	if c.closed {
		return iofs.ErrClosed
	}
	if c.file == nil {
		path := s.claims.name
		err := s.files.inParent(path, func() (err error) {
			c.file, err = s.files.makeLock(path)
			return err
		})
		if err != nil {
			return err
		}
	}
	return setLock(c.file, unix.Flock_t{Type: unix.F_WRLCK, Start: offset, Len: 1})
}

func (c *claimFiles) unlock(offset int64) error {
	if c.closed {
		return nil
	}
	return setLock(c.file, unix.Flock_t{Type: unix.F_UNLCK, Start: offset, Len: 1})
}

func (t *claimTable) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.file == nil {
		return nil
	}
	return t.file.Close()
}
