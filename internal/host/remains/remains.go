// Package remains keeps the folders of failed commands on this machine, so that a person can enter them.
//
// Such a folder stays until the next start of its workspace. Its number and size are bounded. It is moved here as a
// whole by one rename, after the end of its execution is on record; after a crash before the rename, the sweep of its
// session removes it. No object, record or key depends on it.
package remains

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	"e3/internal/host/runner"
)

// Prefix begins the name of the folder of a user's kept folders.
const Prefix = "failed-"

// Bounds of the kept folders.
const (
	MaxFolders = 8              // number of kept folders of one workspace
	MaxBytes   = int64(1) << 30 // bytes of one folder
	MaxAll     = int64(4) << 30 // bytes of all folders of a user
	MaxAge     = 7 * 24 * time.Hour
	maxEntries = 200_000 // entries of one folder: more take long to measure and to remove
)

// Errors of Keep: the folder stays where it is.
var (
	ErrTooLarge = errors.New("the folder of the command is too large to be kept")
	ErrFull     = errors.New("the limit of kept folders of failed commands is reached")
)

// A Folder is a kept folder.
type Folder struct {
	Execution string    `json:"execution"`
	Workspace string    `json:"workspace"`
	Task      string    `json:"task"`
	Run       string    `json:"run"`
	At        time.Time `json:"at"`
	Bytes     int64     `json:"bytes"`
	Visit     bool      `json:"visit,omitempty"` // a person has made and left it; it replaces no other
	Mild      bool      `json:"mild,omitempty"`  // the failure does not fail the run: its folder gives way to one that does
	Root      string    `json:"-"`               // holds the working directory, HOME and TMPDIR
}

// The folders in a Root.
func (f *Folder) Work() string { return filepath.Join(f.Root, "room", "work") }
func (f *Folder) Home() string { return filepath.Join(f.Root, "room", "home") }
func (f *Folder) Temp() string { return filepath.Join(f.Root, "room", "tmp") }

// aboutFile describes a kept folder, in its root. A root without this file is the rest of a removal.
const aboutFile = "about.json"

const maxAbout = 64 << 10

// Folders holds the kept folders of this user, which lie beside the folders of processes. It is safe for concurrent
// use.
type Folders struct {
	root string
	mu   sync.Mutex
	full map[place]bool // for which Keep has returned ErrFull
}

// A place is what folders of one kind have in common.
type place struct {
	workspace, run string
	mild           bool
}

// In returns the Folders in the temporary folder of a repository on this machine. It makes nothing; Keep does.
func In(tmp string) *Folders {
	return &Folders{root: filepath.Join(tmp, Prefix+strconv.Itoa(os.Getuid())), full: map[place]bool{}}
}

// Keep takes the sandbox name out of an open folder, for a failed command. It replaces the folder of an earlier attempt
// of the task, the folders of earlier runs of the workspace and, where the bounds ask for it, the folder of a failure
// that is allowed by one that is not. Each of several processes may exceed the bounds by one
// folder.
func (k *Folders) Keep(in *beneath.Dir, name string, f Folder) (*Folder, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := place{f.Workspace, f.Run, f.Mild}
	if k.full[at] {
		return nil, ErrFull
	}
	box, err := in.Sub(name)
	if err != nil {
		return nil, err
	}
	defer box.Close()
	if f.Bytes, err = size(box); err != nil {
		return nil, err
	}
	if _, err := modes.PrivateFolder(k.root); err != nil {
		return nil, err
	}
	k.remove(func(o *Folder) bool {
		return !f.Visit && o.Workspace == f.Workspace && (o.Run != f.Run || o.Task == f.Task) || f.At.Sub(o.At) > MaxAge
	})
	for !k.fits(&f) {
		if f.Mild || !k.giveWay(f.Workspace) {
			k.full[at] = k.count(f.Workspace) >= MaxFolders
			return nil, ErrFull
		}
	}
	if err := writeAbout(box, &f); err != nil {
		return nil, err
	}
	folders, err := beneath.Open(k.root)
	if err != nil {
		return nil, err
	}
	defer folders.Close()
	f.Root = filepath.Join(k.root, f.Execution)
	if err := in.Rename(name, folders, f.Execution); err != nil {
		return nil, err
	}
	return &f, nil
}

// fits tells whether one more folder stays within the bounds.
func (k *Folders) fits(f *Folder) bool {
	bytes := f.Bytes
	for _, o := range k.list() {
		bytes += o.Bytes
	}
	return k.count(f.Workspace) < MaxFolders && bytes <= MaxAll
}

func (k *Folders) count(ws string) int { return len(k.List(ws)) }

// giveWay removes the oldest folder of an allowed failure of a workspace that can be removed. It returns false if there
// is none.
func (k *Folders) giveWay(ws string) bool {
	list := slices.DeleteFunc(k.List(ws), func(o Folder) bool { return !o.Mild || o.Visit })
	slices.SortStableFunc(list, func(a, b Folder) int { return a.At.Compare(b.At) })
	for i := range list {
		k.remove(func(o *Folder) bool { return o.Execution == list[i].Execution })
		if k.Find(list[i].Execution) == nil {
			return true
		}
	}
	return false
}

// writeAbout replaces any file that the command has put there.
func writeAbout(root *beneath.Dir, f *Folder) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := root.Discard(aboutFile); err != nil {
		return err
	}
	file, err := root.OpenFile(aboutFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Close())
}

// size adds up the files below a folder. It omits other file systems and follows no links.
func size(root *beneath.Dir) (int64, error) {
	var n int64
	entries := 0
	err := root.Walk(func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // a command may have closed a folder to everyone
		}
		if entries++; entries > maxEntries {
			return ErrTooLarge
		}
		if !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if n += info.Size(); n > MaxBytes {
			return ErrTooLarge
		}
		return nil
	})
	return n, err
}

// List returns the kept folders of a workspace, or of all if ws is "", in the order of their names.
func (k *Folders) List(ws string) []Folder {
	return slices.DeleteFunc(k.list(), func(f Folder) bool { return ws != "" && f.Workspace != ws })
}

// Find returns the folder of an execution; nil if it is not kept.
func (k *Folders) Find(execution string) *Folder {
	if execution == "" || strings.ContainsAny(execution, `/\.`) {
		return nil
	}
	return read(filepath.Join(k.root, execution))
}

// Clear removes the folders of a workspace, except folders in which a process works.
func (k *Folders) Clear(ws string) { k.forget(func(f *Folder) bool { return f.Workspace == ws }) }

// Drop removes the folder of a task of a workspace, which has succeeded since.
func (k *Folders) Drop(ws, task string) {
	k.forget(func(f *Folder) bool { return f.Workspace == ws && f.Task == task })
}

func (k *Folders) forget(which func(*Folder) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.full)
	k.remove(which)
}

func (k *Folders) list() []Folder {
	entries, err := os.ReadDir(k.root)
	if err != nil {
		return nil
	}
	var list []Folder
	for _, e := range entries {
		if f := read(filepath.Join(k.root, e.Name())); f != nil {
			list = append(list, *f)
		}
	}
	return list
}

// read returns the kept folder at a path; nil if the folder is the rest of a removal.
func read(root string) *Folder {
	file, err := os.Open(filepath.Join(root, aboutFile))
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxAbout))
	f := &Folder{Root: root}
	if err != nil || json.NewDecoder(bytes.NewReader(text)).Decode(f) != nil || f.Execution != filepath.Base(root) {
		return nil
	}
	return f
}

// remove removes folders, and rests of removals. A folder stays if the system shows that a process works in it or has a
// file of it open, such as a person's shell.
func (k *Folders) remove(which func(*Folder) bool) {
	entries, err := os.ReadDir(k.root)
	if err != nil {
		return
	}
	var goes []string
	for _, e := range entries {
		if f := read(filepath.Join(k.root, e.Name())); f == nil || which(f) {
			goes = append(goes, e.Name())
		}
	}
	if len(goes) == 0 {
		return
	}
	occupied, _ := runner.Occupied(k.root)
	for _, name := range goes {
		if !occupied[name] {
			path := filepath.Join(k.root, name)
			_ = os.Remove(filepath.Join(path, aboutFile)) // first, so that what remains counts as the rest of a removal
			_ = beneath.Discard(path)                     // the next removal removes the rest
		}
	}
}
