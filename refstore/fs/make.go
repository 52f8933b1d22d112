package fs

import (
	"errors"
	iofs "io/fs"
	"os"
)

// New files and folders have the repository's modes (modes.Modes). Files that are written aside have their mode before
// they get their name. Streams, locks and folders must have their mode from the start too, since other users of the
// repository open them.

func (s *files) createFile(path string, data []byte, durable bool) (stamp, error) {
	return createFile(path, data, s.modes, durable)
}

func (s *files) mkdir(path string) error { return s.modes.Mkdir(path) }

// openStream opens the existing file of a stream or lock.
func openStream(path string, flags int) (*os.File, error) { return openFile(path, flags, 0) }

// makeStream opens the file of a stream or lock, and makes it if the flags include O_CREAT.
func (s *files) makeStream(path string, flags int) (*os.File, error) {
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
