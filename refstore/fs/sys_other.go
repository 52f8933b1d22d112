//go:build !linux

package fs

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"

	"e3/internal/host/modes"
)

func (t tree) createFile(name string, data []byte, m modes.Modes, durable bool) (st stamp, err error) {
	f, err := t.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.File())
	if err != nil {
		return stamp{}, t.foreign(name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := m.Fix(f, m.File()); err != nil {
		return stamp{}, err
	}
	if _, err := f.Write(data); err != nil {
		return stamp{}, err
	}
	if durable {
		if err := f.Sync(); err != nil {
			return stamp{}, err
		}
	}
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return t.stampOf(info, name)
}

func (t tree) readFile(name string, _ bool) ([]byte, stamp, error) {
	f, err := t.openFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	st, err := t.stampOf(info, name)
	if err != nil {
		return nil, stamp{}, err
	}
	if st.size > maxFile {
		return nil, stamp{}, &iofs.PathError{Op: "read", Path: t.Path(name), Err: fmt.Errorf("%d bytes are too many for a record", st.size)}
	}
	data := make([]byte, st.size)
	_, err = io.ReadFull(f, data)
	return data, st, err
}

// overwrite does nothing here: records are replaced.
func (t tree) overwrite(string, []byte, stamp, uint64, int64) (stamp, error) {
	return stamp{}, errElsewhere
}

func (t tree) statFile(name string) (stamp, error) {
	info, err := t.Lstat(name)
	if err != nil {
		return stamp{}, err
	}
	return t.stampOf(info, name)
}

// exists returns an error if nothing has the name.
func (t tree) exists(name string) error {
	_, err := t.Lstat(name)
	return err
}

// statOpen is statFile by an open file.
func (t tree) statOpen(name string) (stamp, error) {
	f, err := t.openFile(name, os.O_RDONLY, 0)
	if err != nil {
		return stamp{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return stamp{}, err
	}
	return t.stampOf(info, name)
}

// stampOf leaves the inode out: the time alone distinguishes versions, since each version is later than the replaced
// one.
func (t tree) stampOf(info iofs.FileInfo, name string) (stamp, error) {
	if !info.Mode().IsRegular() {
		return stamp{}, &iofs.PathError{Op: "open", Path: t.Path(name), Err: notRegular(info)}
	}
	return stamp{mtime: info.ModTime().UnixNano(), size: info.Size()}, nil
}

// sync syncs a file, or a folder where folders can be synced.
func (t tree) sync(name string) error {
	f, err := t.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnopened, err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// subfolders returns the number of folders in a folder; less than 0: the system does not tell.
func (t tree) subfolders(string) int64 { return -1 }

// scarce returns false: free space is unknown here, and a full disk shows when something is written.
func (t tree) scarce(uint64) bool { return false }
