package beneath

import (
	"encoding/binary"
	"io/fs"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDepth bounds the folders that a removal has open at once.
const maxDepth = 64

// RemoveAll removes an entry with all that is in it, even where the owner lacks permissions. It goes on after an error,
// and returns the first error. A missing entry is no error. Nothing is removed through a mount: the error is ErrMount,
// and the mounted files stay. An empty folder takes one system call.
func (d *Dir) RemoveAll(rel string) error {
	dir, base, err := split(rel)
	if err == nil && base == "." {
		err = ErrName
	}
	at := -1
	if err == nil {
		if at, err = d.hold(); err == nil {
			defer d.release()
		}
	}
	if err == nil && dir != "" {
		if at, err = (way{at, d.confined}).open(dir, wayFlags, 0); err == nil {
			defer unix.Close(at)
		} else if err == unix.ENOENT {
			return nil
		}
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: d.path(rel), Err: err}
	}
	if path, err := new(remover).remove(at, base, 0); err != nil {
		return &fs.PathError{Op: "remove", Path: filepath.Join(d.path(dir), path), Err: err}
	}
	return nil
}

// Empty removes the entries of the folder, as RemoveAll.
func (d *Dir) Empty() error {
	at, err := d.hold()
	if err != nil {
		return &fs.PathError{Op: "remove", Path: d.name, Err: err}
	}
	defer d.release()
	r := &remover{top: at}
	for removed := true; removed; {
		if _, err := unix.Seek(at, 0, unix.SEEK_SET); err != nil {
			return &fs.PathError{Op: "remove", Path: d.name, Err: err}
		}
		var path string
		var err error
		if removed, path, err = r.pass(at, 1); err != nil {
			return &fs.PathError{Op: "remove", Path: d.path(path), Err: err}
		}
	}
	return nil
}

// A remover is one removal. Folders that lie too deep are moved up into the folder top, which is emptied until nothing is left.
type remover struct {
	top   int
	moved int
}

// remove removes the entry name of an open folder. It returns the path, from that folder on, of what could not be
// removed.
func (r *remover) remove(dir int, name string, depth int) (string, error) {
	err := removeFolder(dir, name)
	if err == unix.ENOTDIR {
		return name, mountOrBusy(ignoreMissing(unix.Unlinkat(dir, name, 0)))
	}
	if err != unix.ENOTEMPTY && err != unix.EEXIST {
		return name, err
	}
	if depth == maxDepth {
		return name, r.lift(dir, name)
	}
	fd, err := r.open(dir, name)
	if err != nil {
		return name, ignoreMissing(err)
	}
	defer unix.Close(fd)
	if depth == 0 {
		r.top = fd
	}
	for {
		removed, path, err := r.pass(fd, depth+1)
		if err != nil {
			return filepath.Join(name, path), err
		}
		// Some file systems skip entries while others are removed, and deep folders are moved to the top.
		err = removeFolder(dir, name)
		if err != unix.ENOTEMPTY && err != unix.EEXIST || !removed {
			return name, err
		}
		if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
			return name, err
		}
	}
}

func removeFolder(dir int, name string) error {
	return mountOrBusy(ignoreMissing(unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)))
}

func ignoreMissing(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// open opens a folder for its removal.
func (r *remover) open(dir int, name string) (int, error) {
	w := way{dir, true}
	fd, err := w.open(name, folderFlags, 0)
	if err == unix.EACCES && chmodat(dir, name, 0o700) == nil {
		fd, err = w.open(name, folderFlags, 0)
	}
	return fd, err
}

// lift moves a deep folder up into the folder top.
func (r *remover) lift(dir int, name string) error {
	for {
		r.moved++
		to := "e3-lifted-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		if err == unix.EACCES && chmodat(dir, name, 0o700) == nil { // its entry .. changes
			err = unix.Renameat2(dir, name, r.top, to, unix.RENAME_NOREPLACE)
		}
		if err != unix.EEXIST {
			return mountOrBusy(ignoreMissing(err))
		}
	}
}

// pass removes the entries of an open folder, and tells whether it had any.
func (r *remover) pass(fd, depth int) (removed bool, path string, first error) {
	buf := make([]byte, 8<<10)
	opened := false
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil && first == nil {
			path, first = ".", err
		}
		if err != nil || n <= 0 {
			return removed, path, first
		}
		for rest := buf[:n]; len(rest) > 0; {
			var name string
			var kind byte
			if name, kind, rest = firstEntry(rest); name == "" {
				continue
			}
			at, err := r.inside(fd, name, kind, depth)
			if err == unix.EACCES && !opened { // somebody has closed this folder
				opened = true
				if unix.Fchmod(fd, 0o700) == nil {
					at, err = r.inside(fd, name, kind, depth)
				}
			}
			if err != nil && first == nil {
				path, first = at, err
			}
			removed = removed || err == nil
		}
	}
}

// inside removes an entry of a kind.
func (r *remover) inside(fd int, name string, kind byte, depth int) (string, error) {
	if kind != unix.DT_DIR {
		if err := unix.Unlinkat(fd, name, 0); err != unix.EISDIR {
			return name, mountOrBusy(ignoreMissing(err))
		}
	}
	return r.remove(fd, name, depth)
}

// firstEntry cuts the first entry off the kernel's list; its name is "" for "." and "..". kind is DT_UNKNOWN if the
// file system does not tell.
func firstEntry(list []byte) (name string, kind byte, rest []byte) {
	const length, typed, text = unsafe.Offsetof(unix.Dirent{}.Reclen), unsafe.Offsetof(unix.Dirent{}.Type), unsafe.Offsetof(unix.Dirent{}.Name)
	end := int(binary.NativeEndian.Uint16(list[length:]))
	name = unix.ByteSliceToString(list[text:end])
	if name == "." || name == ".." {
		name = ""
	}
	return name, list[typed], list[end:]
}
