// Package modes defines the modes of a repository's files and folders, and sets them whatever the process's umask is.
package modes

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"

	"e3/internal/host/atomicfile"
)

// Access says which users can read and write a repository. format.json in the repository records it.
type Access string

const (
	Umask   Access = ""        // as the umask allows; for repositories without a setting
	Private Access = "private" // the owner
	Group   Access = "group"   // the folder's group
	World   Access = "world"   // the folder's group; all users may read
)

// Known reports whether this program knows a.
func (a Access) Known() bool { return a == Umask || a == Private || a.Shared() }

// Shared reports whether other users may write in the repository.
func (a Access) Shared() bool { return a == Group || a == World }

// Modes are the modes of one repository. The zero value is Umask.
type Modes struct {
	access Access
	root   string
}

// Of returns the modes of the repository in the folder root, which exists.
func Of(access Access, root string) Modes { return Modes{access, root} }

// pick returns the mode for the repository's access.
func (m Modes) pick(umask, private, group, world fs.FileMode) fs.FileMode {
	switch m.access {
	case Private:
		return private
	case Group:
		return group
	case World:
		return world
	}
	return umask
}

// File is the mode of a file that may change.
func (m Modes) File() fs.FileMode { return m.pick(0o666, 0o600, 0o660, 0o664) }

// Object is the mode of an object.
func (m Modes) Object() fs.FileMode { return m.pick(0o444, 0o400, 0o440, 0o444) }

// Folder is the mode of a folder. Files in a shared folder belong to its group: by the setgid bit, or by default on the
// BSDs.
func (m Modes) Folder() fs.FileMode {
	mode := m.pick(0o777, 0o700, 0o770, 0o775)
	if m.Exact() && runtime.GOOS == "linux" {
		mode |= fs.ModeSetgid
	}
	return mode
}

// Exact reports whether the modes must be set exactly, without regard to the umask. A private repository does not need
// this, since no usual umask clears bits of the owner.
func (m Modes) Exact() bool { return m.access.Shared() && runtime.GOOS != "windows" }

// Fix restores the bits of perm that the umask cleared when the file was made.
func (m Modes) Fix(f *os.File, perm fs.FileMode) error {
	if !m.Exact() {
		return nil
	}
	return f.Chmod(perm)
}

// Mkdir makes a folder. A shared folder appears with its mode: it is made aside and renamed.
func (m Modes) Mkdir(path string) error {
	if !m.Exact() {
		return os.Mkdir(path, m.Folder())
	}
	// The name looks like that of a dead session, so that a sweep removes the folder after a crash. If a sweep removes
	// it before the rename, the rename fails as if the folder above were missing, and the caller tries again.
	aside := filepath.Join(m.root, "tmp", fmt.Sprintf("session-folder-%d-%08x", os.Getpid(), rand.Uint32()))
	err := os.Mkdir(aside, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		return m.mkdirInPlace(path) // path is tmp itself, or tmp was removed by hand
	}
	if err == nil {
		err = os.Chmod(aside, m.Folder())
	}
	if err != nil {
		return err
	}
	err = atomicfile.RenameExclusive(aside, path)
	if err == nil {
		return nil
	}
	_ = os.Remove(aside)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return m.mkdirInPlace(path) // this file system cannot rename exclusively
}

// mkdirInPlace makes a folder at its final path, and then sets its mode.
func (m Modes) mkdirInPlace(path string) error {
	if err := os.Mkdir(path, m.Folder().Perm()); err != nil {
		return err
	}
	return os.Chmod(path, m.Folder())
}

// MkdirAll makes a folder in the repository, or the repository's own folder, with missing folders above it.
func (m Modes) MkdirAll(path string) error {
	const tries = 20 // another process may remove the empty folders above
	var err error
	for range tries {
		if err = m.Mkdir(path); err == nil || errors.Is(err, fs.ErrExist) {
			break
		}
		if above := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && above != path {
			if err := m.MkdirAll(above); err != nil {
				return err
			}
			continue
		}
		return err
	}
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		return nil
	}
	return err
}

// Create makes an empty file. If path exists, the error matches [fs.ErrExist]. Where the system allows it, the file
// appears with its mode.
func (m Modes) Create(path string) error {
	if atomicfile.CanLinkOpen() {
		if f, err := atomicfile.CreateUnnamed(filepath.Dir(path), m.File()); err == nil {
			defer f.Close() // nothing was written
			if err = m.Fix(f, m.File()); err == nil {
				err = atomicfile.LinkOpen(f, path)
			}
			if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
				return err
			}
			// On some file systems unnamed files can never get a name.
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, m.File())
	if err != nil {
		return err
	}
	return errors.Join(m.Fix(f, m.File()), f.Close())
}

// Take gives a task's output file to the repository's group, so that the group can read it.
func (m Modes) Take(f *os.File) error {
	if !m.Exact() {
		return nil
	}
	return takeGroup(f, m.root)
}
