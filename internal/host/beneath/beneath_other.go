//go:build !linux

package beneath

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A Dir is an open folder. It is safe for concurrent use.
type Dir struct {
	root     *os.Root
	name     string
	confined bool
}

// Open opens a folder by a path that the caller trusts: links in the path are followed.
func Open(path string) (*Dir, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root, name: path}, nil
}

// Close closes the folder. A nil folder is closed.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return d.root.Close()
}

// check refuses names that lead through a link. A link that is put there afterwards still cannot lead out of the folder.
func (d *Dir) check(op, rel string) error {
	if !valid(rel) {
		return &fs.PathError{Op: op, Path: d.path(rel), Err: ErrName}
	}
	for i, c := range rel {
		if c != filepath.Separator {
			continue
		}
		if info, err := d.root.Lstat(rel[:i]); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return &fs.PathError{Op: op, Path: d.path(rel[:i]), Err: ErrLink}
		}
	}
	return nil
}

// noLink is check, and refuses rel, too, if it is a link.
func (d *Dir) noLink(op, rel string) error {
	if err := d.check(op, rel); err != nil {
		return err
	}
	if info, err := d.root.Lstat(rel); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return &fs.PathError{Op: op, Path: d.path(rel), Err: ErrLink}
	}
	return nil
}

// Sub opens a folder below d.
func (d *Dir) Sub(rel string) (*Dir, error) {
	if err := d.noLink("open", rel); err != nil {
		return nil, err
	}
	root, err := d.root.OpenRoot(rel)
	if err != nil {
		return nil, err
	}
	return &Dir{root, d.path(rel), d.confined}, nil
}

// OpenFile opens, or makes, a file. The flags are those of os.OpenFile.
func (d *Dir) OpenFile(rel string, flags int, perm fs.FileMode) (*os.File, error) {
	if err := d.noLink("open", rel); err != nil {
		return nil, err
	}
	return d.root.OpenFile(rel, flags, perm)
}

// Lstat looks at an entry, or at the folder itself.
func (d *Dir) Lstat(rel string) (fs.FileInfo, error) {
	if err := d.check("lstat", rel); err != nil {
		return nil, err
	}
	return d.root.Lstat(rel)
}

// SameFile tells whether two files are one.
func SameFile(a, b fs.FileInfo) bool { return os.SameFile(a, b) }

// InPlace tells whether the folder still lies at its Name.
func (d *Dir) InPlace() bool {
	info, err := os.Lstat(d.name)
	return err == nil && d.Same(info)
}

// Identity is the same for two open folders if they are one; "" where the system does not say.
func (d *Dir) Identity() string { return "" }

// Mkdir makes a folder. The umask applies to perm.
func (d *Dir) Mkdir(rel string, perm fs.FileMode) error {
	if err := d.check("mkdir", rel); err != nil {
		return err
	}
	return d.root.Mkdir(rel, perm)
}

// Chmod sets a mode.
func (d *Dir) Chmod(rel string, mode fs.FileMode) error {
	if err := d.noLink("chmod", rel); err != nil {
		return err
	}
	return d.root.Chmod(rel, mode)
}

// Rename moves an entry to a name below to, and replaces what is there.
func (d *Dir) Rename(rel string, to *Dir, name string) error {
	return d.pair("rename", rel, to, name, (*os.Root).Rename, os.Rename)
}

// Link gives a file a second name.
func (d *Dir) Link(rel string, to *Dir, name string) error {
	return d.pair("link", rel, to, name, (*os.Root).Link, os.Link)
}

// pair calls do with the paths of two names: this system has no calls for two open folders.
func (d *Dir) pair(op, rel string, to *Dir, name string, in func(r *os.Root, from, to string) error, between func(from, to string) error) error {
	if err := errors.Join(d.check(op, rel), to.check(op, name)); err != nil {
		return err
	}
	if d == to {
		return in(d.root, rel, name)
	}
	return between(d.path(rel), to.path(name))
}

// Symlink makes a link.
func (d *Dir) Symlink(target, rel string) error {
	if err := d.check("symlink", rel); err != nil {
		return err
	}
	return d.root.Symlink(target, rel)
}

// Readlink returns the target of a link.
func (d *Dir) Readlink(rel string) (string, error) {
	if err := d.check("readlink", rel); err != nil {
		return "", err
	}
	return d.root.Readlink(rel)
}

// Remove removes a file, a link or an empty folder.
func (d *Dir) Remove(rel string) error {
	if err := d.check("remove", rel); err != nil {
		return err
	}
	return d.root.Remove(rel)
}

// Unlink removes a file or a link, never a folder.
func (d *Dir) Unlink(rel string) error {
	if d.IsDir(rel) {
		return &fs.PathError{Op: "remove", Path: d.path(rel), Err: errors.New("it is a folder")}
	}
	return d.Remove(rel)
}

// RemoveAll removes an entry with all that is in it, even where the owner lacks permissions. A missing entry is no
// error.
func (d *Dir) RemoveAll(rel string) error {
	if err := d.check("remove", rel); err != nil {
		return err
	}
	err := d.root.RemoveAll(rel)
	if !errors.Is(err, fs.ErrPermission) || !d.IsDir(rel) {
		return err
	}
	if err := d.root.Chmod(rel, 0o700); err != nil {
		return err
	}
	sub, err := d.Sub(rel)
	if err == nil {
		err = errors.Join(sub.Empty(), sub.Close())
	}
	if err != nil {
		return err
	}
	return d.root.Remove(rel)
}

// Empty removes the entries of the folder, as RemoveAll.
func (d *Dir) Empty() error {
	list, err := d.ReadDir()
	for _, e := range list {
		err = errors.Join(err, d.RemoveAll(e.Name()))
	}
	return err
}

// Stamp is Lstat without an fs.FileInfo.
func (d *Dir) Stamp(rel string) (Stamp, error) {
	info, err := d.Lstat(rel)
	if err != nil {
		return Stamp{}, err
	}
	s := Stamp{Mode: info.Mode(), Size: info.Size(), Space: info.Size(), Modified: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Changed, s.Inode = changeTime(st), uint64(st.Ino)
	}
	return s, nil
}

// ReadDir lists the folder.
func (d *Dir) ReadDir() ([]fs.DirEntry, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

// HasEntries tells whether the folder has exactly n entries.
func (d *Dir) HasEntries(n int) bool {
	list, err := d.ReadDir()
	return err == nil && len(list) == n
}

// Discard is RemoveAll: this system does not tell mounts from folders.
func (d *Dir) Discard(rel string) error { return d.RemoveAll(rel) }

// Attributes lists the names of an entry's extended attributes: on this system they are not known.
func (d *Dir) Attributes(string) ([]string, error) { return nil, errors.ErrUnsupported }
