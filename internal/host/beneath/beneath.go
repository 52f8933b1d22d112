// Package beneath reaches what lies below an open folder: through its descriptor, without following links, and never
// upwards. A rename below the folder changes what a call finds, but never leads out of the folder.
//
// All names are relative to a folder, such as "a/b"; "." is the folder itself. A name with ".." or an absolute one is
// [ErrName]. A link on the way is [ErrLink]; at the end of a name, the calls treat the link itself.
package beneath

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Errors, wrapped in an *fs.PathError or *os.LinkError that names the path.
var (
	ErrName  = errors.New("it is no name below the folder")
	ErrLink  = errors.New("a symbolic link is in the way")
	ErrMount = errors.New("something is mounted there: unmount it")
)

// Nonblock is a flag of OpenFile with which a pipe does not keep the call waiting. It has no effect on regular files, and
// spares package os four system calls for each.
const Nonblock = unix.O_NONBLOCK

// Folder is a flag of OpenFile: it opens only folders, and never waits.
const Folder = unix.O_DIRECTORY

// Name is the path under which the folder was opened. It is for messages, and for programs that must be given a path:
// by now the path may lead to another folder.
func (d *Dir) Name() string { return d.name }

// path is the name of an entry in messages.
func (d *Dir) path(rel string) string { return filepath.Join(d.name, rel) }

// A Stamp is what a folder tells of an entry. A change of a file's content changes it too, within the limits of the file
// system's clock.
type Stamp struct {
	Mode              fs.FileMode
	Size, Space       int64 // Space: of its blocks
	Modified, Changed int64 // the times of its content and of its status, in nanoseconds since 1970
	Inode             uint64
	Links             uint64 // the number of its names; 0 if the system is not asked
}

// Confine makes d, and each folder that is opened through it from now on, refuse mounts below it with ErrMount. Other
// systems than Linux do not tell mounts from folders.
func (d *Dir) Confine() *Dir {
	d.confined = true
	return d
}

// Same tells whether info is of the folder itself.
func (d *Dir) Same(info fs.FileInfo) bool {
	own, err := d.Lstat(".")
	return err == nil && SameFile(own, info)
}

// IsDir tells whether rel is a folder; a link to a folder is none.
func (d *Dir) IsDir(rel string) bool {
	info, err := d.Lstat(rel)
	return err == nil && info.IsDir()
}

// RemoveAll removes what lies at a path, as Dir.RemoveAll. The caller trusts the folders on the path.
func RemoveAll(path string) error { return at(path, (*Dir).RemoveAll) }

// Discard removes what lies at a path, as Dir.Discard. The caller trusts the folders on the path.
func Discard(path string) error { return at(path, (*Dir).Discard) }

// at opens the folder of a path. If the folder does not exist, there is nothing to remove.
func at(path string, do func(d *Dir, rel string) error) error {
	d, err := Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	return do(d, filepath.Base(path))
}

// Walk calls do for everything below the folder, as fs.WalkDir does. Others may change the folder meanwhile; Walk never
// leaves it.
func (d *Dir) Walk(do fs.WalkDirFunc) error {
	err := d.walkIn(".", do)
	if err == fs.SkipAll || err == fs.SkipDir {
		return nil
	}
	return err
}

func (d *Dir) walkIn(rel string, do fs.WalkDirFunc) error {
	list, err := d.ReadDir()
	if err != nil {
		return do(rel, nil, err)
	}
	for _, e := range list {
		at := filepath.Join(rel, e.Name())
		err := do(at, e, nil)
		if err == nil && e.IsDir() {
			var sub *Dir
			if sub, err = d.Sub(e.Name()); err == nil {
				err = sub.walkIn(at, do)
				sub.Close()
			} else {
				err = do(at, e, err)
			}
		}
		if err == fs.SkipDir && e.IsDir() {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// split divides a name into its folder, which is "" for the present one, and its last part.
func split(rel string) (dir, base string, err error) {
	if !valid(rel) {
		return "", "", ErrName
	}
	i := strings.LastIndexByte(rel, filepath.Separator)
	if i < 0 {
		return "", rel, nil
	}
	return rel[:i], rel[i+1:], nil
}

// valid tells whether every part of a name leads downwards.
func valid(rel string) bool {
	if rel == "." {
		return true
	}
	for {
		part, rest, more := strings.Cut(rel, string(filepath.Separator))
		if part == "" || part == "." || part == ".." || strings.IndexByte(part, 0) >= 0 {
			return false
		}
		if !more {
			return true
		}
		rel = rest
	}
}
