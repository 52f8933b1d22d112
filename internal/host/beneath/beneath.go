// Package beneath reaches what lies below an open folder: through its descriptor, without following links, and never
// upwards. Somebody who can rename things there changes what is found, but cannot lead out of the folder.
//
// All names are relative to a folder, such as "a/b"; "." is the folder itself. A name with ".." or an absolute one is
// [ErrName]. A link on the way is [ErrLink]; at the end of a name, the calls treat the link itself.
package beneath

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
)

// Errors, wrapped in an *fs.PathError or *os.LinkError that names the path.
var (
	ErrName  = errors.New("it is no name below the folder")
	ErrLink  = errors.New("a symbolic link is in the way")
	ErrMount = errors.New("another file system is mounted there")
)

// Name is the path under which the folder was opened. It serves messages, and programs that must be given a path: what
// lies there may be another folder by now.
func (d *Dir) Name() string { return d.name }

// path is the name of an entry in messages.
func (d *Dir) path(rel string) string { return filepath.Join(d.name, rel) }

// Confine makes d, and each folder that is opened through it from now on, refuse what is mounted below it: ErrMount.
// On other systems than Linux mounts are not told apart.
func (d *Dir) Confine() *Dir {
	d.confined = true
	return d
}

// Same tells whether info is of the folder itself.
func (d *Dir) Same(info fs.FileInfo) bool {
	own, err := d.Lstat(".")
	return err == nil && SameFile(own, info)
}

// IsDir tells whether rel is a folder, no link to one.
func (d *Dir) IsDir(rel string) bool {
	info, err := d.Lstat(rel)
	return err == nil && info.IsDir()
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
			return filepath.IsLocal(part) // no name of a device
		}
		rel = rest
	}
}
