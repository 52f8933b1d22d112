package fs

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
)

// The client of a network file system caches attributes and missing names, for half a minute or more. It asks the
// server when a file or a folder is opened (NFS: close-to-open consistency). So on a network file system, decisions
// are based on an open file, and a name that is not found is looked up once more after the folder above it was
// opened. On a local file system, one call is enough.

// looks are the kernel calls whose results may be cached, and the call that refreshes the cache. Tests replace them.
type looks struct {
	network bool
	stat    func(name string) (stamp, error) // does not open the file
	enter   func(dir string) error           // opens a folder, and closes it
}

func looksAt(t tree) looks {
	return looks{network: onNetwork(t), stat: t.statFile, enter: func(dir string) error {
		f, err := t.OpenFile(dir, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	}}
}

// again calls look. If look found nothing at path, and this absence may be cached, again calls it once more.
func (s *files) again(path string, look func() error) error {
	err := look()
	if s.looks.network && errors.Is(err, iofs.ErrNotExist) && s.refresh(filepath.Dir(path)) {
		err = look()
	}
	return err
}

// refresh makes the client read the content of a folder from the server, and returns whether the folder exists.
func (s *files) refresh(dir string) bool {
	err := s.looks.enter(dir)
	if errors.Is(err, iofs.ErrNotExist) && dir != "." && s.refresh(filepath.Dir(dir)) {
		err = s.looks.enter(dir)
	}
	return err == nil
}

// stat returns the current stamp of a regular file.
func (s *files) stat(path string) (st stamp, err error) {
	look := s.looks.stat
	if s.looks.network {
		look = s.statOpen
	}
	err = s.again(path, func() (err error) {
		st, err = look(path)
		return err
	})
	return st, err
}

// exists returns an error if there is nothing at path. The result may be out of date at once.
func (s *files) exists(path string) error {
	return s.again(path, func() error { return s.tree.exists(path) })
}

// read returns the content of a regular file. An argument says whether the file may be overwritten meanwhile.
func (s *files) read(path string, overwritten bool) (data []byte, st stamp, err error) {
	err = s.again(path, func() (err error) {
		data, st, err = s.readFile(path, overwritten)
		return err
	})
	return data, st, err
}

// openThere opens the existing file of a stream or lock.
func (s *files) openThere(path string, flags int) (f *os.File, err error) {
	err = s.again(path, func() (err error) {
		f, err = s.openFile(path, flags, 0)
		return err
	})
	return f, err
}
