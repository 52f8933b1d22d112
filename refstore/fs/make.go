package fs

import (
	"errors"
	iofs "io/fs"
	"os"
)

// What is made in the repository has the repository's modes (modes.Modes). A file is written aside, so it has its mode before it has its
// name; the others that share the repository must not find a stream, a lock or a folder with another mode either, even for a moment.

func (s *Store) createFile(path string, data []byte, durable bool) (stamp, error) {
	return createFile(path, data, s.modes, durable)
}

func (s *Store) mkdir(path string) error { return s.modes.Mkdir(path) }

// openStream opens the file of a stream or lock that is there.
func openStream(path string, flags int) (*os.File, error) { return openFile(path, flags, 0) }

// makeStream opens the file of a stream or lock, and makes it as the flags say.
func (s *Store) makeStream(path string, flags int) (*os.File, error) {
	if !s.modes.Exact() {
		return openFile(path, flags, s.modes.File())
	}
	for {
		f, err := (*os.File)(nil), iofs.ErrNotExist
		if flags&os.O_EXCL == 0 {
			f, err = openStream(path, flags&^os.O_CREATE)
		}
		if !errors.Is(err, iofs.ErrNotExist) {
			return f, err
		}
		err = s.modes.Create(path)
		switch {
		case err == nil && flags&os.O_EXCL != 0:
			return openStream(path, flags&^(os.O_CREATE|os.O_EXCL))
		case err != nil && (flags&os.O_EXCL != 0 || !errors.Is(err, iofs.ErrExist)):
			return nil, err
		}
	}
}
