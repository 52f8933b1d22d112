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
	"strings"

	"e3/internal/host/atomicfile"
	"e3/internal/host/beneath"
)

// Access says which users can read and write a repository. format.json in the repository records it.
type Access string

const (
	Umask   Access = ""        // by the umask; for repositories without a setting
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

// Lock is the mode of a file that is locked. A process that can open a file can hold its lock, so only writers can open this one.
func (m Modes) Lock() fs.FileMode { return m.pick(0o666, 0o600, 0o660, 0o660) }

// Folder is the mode of a folder. Files in a shared folder belong to its group: by the setgid bit, or by default on
// macOS.
func (m Modes) Folder() fs.FileMode {
	mode := m.pick(0o777, 0o700, 0o770, 0o775)
	if m.Exact() && runtime.GOOS == "linux" {
		mode |= fs.ModeSetgid
	}
	return mode
}

// FolderOf is the mode of a folder by its name in the repository. In folders with files of several members the sticky
// bit keeps members from renaming or removing the files of others. Only its own member can write in a session's folder.
func (m Modes) FolderOf(name string) fs.FileMode {
	mode := m.Folder()
	if !m.access.Shared() {
		return mode
	}
	switch name {
	case "tmp", "locks", filepath.Join("locks", "records"), filepath.Join("locks", "named"):
		return mode | fs.ModeSticky
	}
	if filepath.Dir(name) == "tmp" && strings.HasPrefix(filepath.Base(name), "session-") {
		return mode &^ 0o020
	}
	return mode
}

// Exact reports whether the modes must be set exactly, without regard to the umask. A private repository does not need
// this, since no usual umask clears bits of the owner.
func (m Modes) Exact() bool { return m.access.Shared() }

// Fix restores the bits of perm that the umask cleared when the file was made.
func (m Modes) Fix(f *os.File, perm fs.FileMode) error {
	if !m.Exact() {
		return nil
	}
	return f.Chmod(perm)
}

// tries bounds the number of times that a file or folder is made again after another process has removed it.
const tries = 20

// FixLock is Fix for a new file that is locked: where the umask decides, it takes the right to read from users that
// cannot write.
func (m Modes) FixLock(f *os.File) error {
	if m.access != Umask {
		return m.Fix(f, m.Lock())
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	for _, write := range []fs.FileMode{0o020, 0o002} {
		if mode&write == 0 {
			mode &^= write << 1
		}
	}
	if mode == info.Mode().Perm() {
		return nil
	}
	return f.Chmod(mode)
}

// Mkdir makes a folder of the repository whose folder root is. A shared folder appears with its mode: it is made aside and
// renamed.
func (m Modes) Mkdir(root *beneath.Dir, name string) error {
	if !m.Exact() {
		return root.Mkdir(name, m.FolderOf(name))
	}
	if above := filepath.Dir(name); strings.HasPrefix(above, filepath.Join("tmp", "session-")) {
		return m.mkdirInPlace(root, name) // no other process looks there
	}
	for try := 1; ; try++ {
		// The name has the form of a dead session's name, so that a sweep removes the folder after a crash.
		aside := filepath.Join("tmp", fmt.Sprintf("session-folder-%d-%08x", os.Getpid(), rand.Uint32()))
		err := root.Mkdir(aside, 0o700)
		if errors.Is(err, fs.ErrNotExist) {
			return m.mkdirInPlace(root, name) // name is tmp itself, or tmp was removed by hand
		}
		if err == nil {
			if err = root.Chmod(aside, m.FolderOf(name)); err == nil {
				err = root.RenameExclusive(aside, name)
			}
			if err == nil {
				return nil
			}
			swept := errors.Is(root.Remove(aside), fs.ErrNotExist)
			if swept && try < tries && errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, beneath.ErrLink) {
			return err
		}
		return m.mkdirInPlace(root, name) // this file system cannot rename exclusively
	}
}

// mkdirInPlace makes a folder at its final path, and then sets its mode.
func (m Modes) mkdirInPlace(root *beneath.Dir, name string) error {
	if err := root.Mkdir(name, m.FolderOf(name).Perm()); err != nil {
		return err
	}
	return root.Chmod(name, m.FolderOf(name))
}

// MkdirAll makes a folder, with missing folders above it, unless it is there.
func (m Modes) MkdirAll(root *beneath.Dir, name string) error {
	var err error
	for range tries { // another process may remove the empty folders above
		if err = m.Mkdir(root, name); err == nil || errors.Is(err, fs.ErrExist) {
			break
		}
		if above := filepath.Dir(name); errors.Is(err, fs.ErrNotExist) && above != name {
			if err := m.MkdirAll(root, above); err != nil {
				return err
			}
			continue
		}
		return err
	}
	if root.IsDir(name) {
		return nil
	}
	return err
}

// Create makes an empty file. If it exists, the error matches [fs.ErrExist]. Where the system allows
// it, the file appears with its mode.
func (m Modes) Create(root *beneath.Dir, name string) error {
	return create(root, name, m.File(), func(f *os.File) error { return m.Fix(f, m.File()) })
}

// CreateLock is Create for a file that is locked.
func (m Modes) CreateLock(root *beneath.Dir, name string) error {
	return create(root, name, m.Lock(), m.FixLock)
}

func create(root *beneath.Dir, name string, mode fs.FileMode, fix func(*os.File) error) error {
	if atomicfile.CanLinkOpen() {
		if f, err := root.Unnamed(filepath.Dir(name), mode); err == nil {
			defer f.Close() // nothing was written
			if err = fix(f); err == nil {
				err = root.LinkOpen(f, name)
			}
			if err == nil || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
				return err
			}
			// On some file systems unnamed files can never get a name.
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(fix(f), f.Close())
}

// Take gives a task's output file to the repository's group, so that the group can read it.
func (m Modes) Take(f *os.File) error {
	if !m.Exact() {
		return nil
	}
	return takeGroup(f, m.root)
}
