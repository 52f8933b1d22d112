package fs

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
)

// The client of a network file system answers from what it remembers for a while, half a minute or more: what a file was like, and
// that a name was free. It asks the server when a file or a folder is opened (what NFS calls close-to-open consistency). So where
// the store lies on one, what decides is asked of an open file, and what is not found is looked for once more after the folder
// above it was opened. Elsewhere the kernel knows, and is asked once.

// looks are those calls to the kernel whose answers may be remembered, and the one that has it ask. Tests put others in their place.
type looks struct {
	network bool
	stat    func(path string) (stamp, error) // does not open the file
	enter   func(dir string) error           // opens a folder, and closes it
}

func looksAt(root *os.File) looks {
	return looks{network: onNetwork(root), stat: statFile, enter: func(dir string) error {
		f, err := openDir(dir)
		if err != nil {
			return err
		}
		return f.Close()
	}}
}

// again calls look, and once more if it found nothing at path though there may be something.
func (s *Store) again(path string, look func() error) error {
	err := look()
	if s.looks.network && errors.Is(err, iofs.ErrNotExist) && s.refresh(filepath.Dir(path)) {
		err = look()
	}
	return err
}

// refresh has the file system ask what is in a folder, and returns whether the folder is there.
func (s *Store) refresh(dir string) bool {
	err := s.looks.enter(dir)
	if errors.Is(err, iofs.ErrNotExist) && len(dir) > len(s.root) && s.refresh(filepath.Dir(dir)) {
		err = s.looks.enter(dir)
	}
	return err == nil
}

// stat returns the stamp of a regular file, as it is.
func (s *Store) stat(path string) (st stamp, err error) {
	look := s.looks.stat
	if s.looks.network {
		look = statOpen
	}
	err = s.again(path, func() (err error) {
		st, err = look(path)
		return err
	})
	return st, err
}

// exists returns an error unless there is something at path. It may have gone a moment ago.
func (s *Store) exists(path string) error {
	return s.again(path, func() error {
		_, err := os.Lstat(path)
		return err
	})
}

// read returns the content of a regular file, which is never written in place.
func (s *Store) read(path string) (data []byte, st stamp, err error) {
	err = s.again(path, func() (err error) {
		data, st, err = readFile(path)
		return err
	})
	return data, st, err
}

// openThere opens the file of a stream or lock that is there.
func (s *Store) openThere(path string, flags int) (f *os.File, err error) {
	err = s.again(path, func() (err error) {
		f, err = openStream(path, flags)
		return err
	})
	return f, err
}
