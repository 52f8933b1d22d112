package fs

import (
	"errors"
	iofs "io/fs"
	"os"
)

// New files and folders have the repository's modes (modes.Modes). Files that are written aside have their mode before
// they get their name. Streams, locks and folders must have their mode from the start too, since other users of the
// repository open them.

func (s *files) createFile(name string, data []byte, durable bool) (stamp, error) {
	return s.tree.createFile(name, data, s.modes, durable)
}

func (s *files) mkdir(name string) error { return s.foreign(name, s.modes.Mkdir(s.Dir, name)) }

// makeStream opens a file that readers may open, and makes it if need be.
func (s *files) makeStream(name string) (*os.File, error) {
	if !s.modes.Exact() {
		return s.openFile(name, os.O_RDWR|os.O_CREATE, s.modes.File())
	}
	return s.openOr(name, func() error { return s.modes.Create(s.Dir, name) })
}

// makeLock opens a file that is locked, and makes it if need be. Only writers can open it: a reader could hold its lock.
func (s *files) makeLock(name string) (*os.File, error) {
	if s.modes.Lock().Perm()&0o077 == 0 {
		return s.openFile(name, os.O_RDWR|os.O_CREATE, s.modes.Lock())
	}
	return s.openOr(name, func() error { return s.modes.CreateLock(s.Dir, name) })
}

// openOr opens a file, which create makes if it is missing.
func (s *files) openOr(name string, create func() error) (*os.File, error) {
	for {
		f, err := s.openFile(name, os.O_RDWR, 0)
		if !errors.Is(err, iofs.ErrNotExist) {
			return f, err
		}
		if err := create(); err != nil && !errors.Is(err, iofs.ErrExist) {
			return nil, s.foreign(name, err)
		}
	}
}
