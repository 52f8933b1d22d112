// Package kept keeps folders that this machine can make again: unpacked images, and environments of programs. Each is
// made once for its user, at its final path, and is used by any number of processes.
//
// A lock on the folder excludes its making and its removal from its use, and ends with the process that has it. A note
// is written last: a folder without a note is half-made, and is made anew. The note's time is the time of the last use.
package kept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/host/beneath"
	"e3/internal/host/filelock"
)

// Folders is the path of a folder of this user alone, in which each kept folder has one of its own, with the content
// (tree) and the note (about).
type Folders string

const (
	treeName  = "tree"
	aboutName = "about"
)

// A Folder is a kept folder in use. While it is open, no process removes it.
type Folder struct {
	Path string // of its content
	lock *os.File
}

// Close ends the use.
func (f *Folder) Close() error { return f.lock.Close() }

// A Maker makes folders and knows them again.
type Maker struct {
	// Make fills an empty folder, and returns what Fits compares. The folder aside lies beside it; files in it stay
	// until the next Make, also after an error.
	Make func(folder, aside string) (mark string, err error)
	// Fits reports whether a folder is still as it was made. nil: it is.
	Fits func(folder, mark string) (bool, error)
	// Waiting is called if another process has been making the folder for a second. It may be nil.
	Waiting func(holder string)
}

// Open returns the folder of this name, and makes it first if it is not there.
func (s Folders) Open(ctx context.Context, name string, m *Maker) (*Folder, error) {
	at := filepath.Join(string(s), name)
	for {
		if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err := s.open(ctx, at, m, false)
		if errors.Is(err, errHalfMade) {
			f, err = s.open(ctx, at, m, true)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errGone) {
			return f, err
		}
		if _, gone := os.Lstat(at); gone == nil { // something in it is missing, and not the folder
			return nil, err
		}
	}
}

var (
	errHalfMade = errors.New("the folder is not made")
	errGone     = errors.New("another process has removed the folder")
)

// open is one try of Open. With alone, it makes a folder that does not fit.
func (s Folders) open(ctx context.Context, at string, m *Maker, alone bool) (_ *Folder, err error) {
	lock, err := lock(ctx, at, m.Waiting, alone)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	f := &Folder{Path: filepath.Join(at, treeName), lock: lock}
	fits, err := f.fits(at, m)
	switch {
	case err != nil:
		return nil, err
	case !fits && !alone:
		return nil, errHalfMade
	case !fits:
		if err := f.make(at, m); err != nil {
			return nil, err
		}
	}
	if alone { // others may use it too; while the lock changes hands, it may be removed
		if err := share(ctx, lock, at); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	return f, os.Chtimes(filepath.Join(at, aboutName), now, now)
}

// fits reports whether the folder was made and is as it was.
func (f *Folder) fits(at string, m *Maker) (bool, error) {
	about, err := os.ReadFile(filepath.Join(at, aboutName))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || m.Fits == nil {
		return err == nil, err
	}
	_, mark, _ := strings.Cut(string(about), "\n")
	fits, err := m.Fits(f.Path, mark)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return fits, err
}

// make makes the folder anew. The caller has the lock alone.
func (f *Folder) make(at string, m *Maker) error {
	if err := clear(at); err != nil {
		return err
	}
	if err := os.Mkdir(f.Path, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(f.Path, 0o755); err != nil { // whatever the umask
		return err
	}
	mark, err := m.Make(f.Path, at)
	if err == nil {
		err = f.note(at, mark)
	}
	if err != nil {
		return errors.Join(err, beneath.Discard(f.Path))
	}
	return nil
}

// note writes the note of a folder that is made.
func (f *Folder) note(at, mark string) error {
	size, err := bytesIn(f.Path)
	if err == nil {
		err = syncAll(at) // a loss of power must not leave a note without the files
	}
	if err != nil {
		return err
	}
	text := strconv.FormatInt(size, 10) + "\n" + mark
	return atomicfile.WriteFile(filepath.Join(at, aboutName), []byte(text), atomicfile.Options{Perm: 0o600})
}

// clear removes what is in a folder, the note first.
func clear(at string) error {
	if err := os.Remove(filepath.Join(at, aboutName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(at)
	for _, e := range entries {
		err = cmp.Or(err, beneath.Discard(filepath.Join(at, e.Name())))
	}
	return err
}

// lock locks a folder, and makes sure that the locked folder is still at its path.
func lock(ctx context.Context, at string, waiting func(string), alone bool) (*os.File, error) {
	f, err := os.Open(at)
	if err != nil {
		return nil, err
	}
	var w filelock.Waiter
	if waiting != nil {
		w.Tell = func(_, holder string) { waiting(holder) }
	}
	if err := w.Wait(ctx, f, alone); err != nil {
		return nil, err // the file is closed
	}
	if err := inPlace(f, at); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// inPlace returns errGone unless an open folder is at its path.
func inPlace(f *os.File, at string) error {
	held, err := f.Stat()
	there, gone := os.Stat(at)
	if err == nil && (gone != nil || !os.SameFile(held, there)) {
		err = errGone
	}
	return err
}

// share turns the lock of one into a lock of many. Another process may have the folder for a moment.
func share(ctx context.Context, f *os.File, at string) error {
	for {
		err := filelock.Try(f, false)
		if err == nil {
			break
		}
		if !errors.Is(err, filelock.ErrLocked) {
			return err
		}
		select { // the other process looks at the folder, and leaves it as it is
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	if err := inPlace(f, at); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(at, aboutName)); err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}

// A Bound says which folders a Trim removes.
type Bound struct {
	Age   time.Duration // unused for longer; 0: whatever their age
	Spare time.Duration // used within this time: they stay, however large all are together
	Bytes int64         // the size of all that stay, the latest used first; 0: no bound
}

// A Trimmed says what a Trim has done.
type Trimmed struct {
	Removed      int
	RemovedBytes int64
	Kept         int
	KeptBytes    int64
}

// Trim removes folders that no process uses. A dry run only counts them.
func (s Folders) Trim(now time.Time, b Bound, dry bool) (Trimmed, error) {
	var done Trimmed
	entries, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return done, nil
	}
	list := make([]known, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, s.known(e.Name(), now))
		}
	}
	slices.SortFunc(list, func(a, b known) int { return cmp.Or(b.used.Compare(a.used), cmp.Compare(a.name, b.name)) })
	errs := []error{err}
	total := int64(0)
	for _, k := range list {
		total += k.bytes
		unused := now.Sub(k.used)
		removed := false
		if b.Age > 0 && unused > b.Age || unused > b.Spare && (b.Bytes > 0 && total > b.Bytes || !k.made) {
			removed, err = s.remove(k.name, dry)
			errs = append(errs, err)
		}
		if removed {
			total -= k.bytes
			done.Removed, done.RemovedBytes = done.Removed+1, done.RemovedBytes+k.bytes
		} else if k.made {
			done.Kept, done.KeptBytes = done.Kept+1, done.KeptBytes+k.bytes
		}
	}
	return done, errors.Join(errs...)
}

// A known is a folder as a Trim sees it.
type known struct {
	name  string
	made  bool
	used  time.Time
	bytes int64
}

// known reads the note of a folder. A folder without one is half-made, or a process is making it.
func (s Folders) known(name string, now time.Time) known {
	k := known{name: name, used: now}
	at := filepath.Join(string(s), name)
	info, err := os.Stat(filepath.Join(at, aboutName))
	if k.made = err == nil; !k.made {
		info, err = os.Stat(at)
	}
	if err == nil {
		k.used = info.ModTime()
	}
	if about, err := os.ReadFile(filepath.Join(at, aboutName)); err == nil {
		size, _, _ := strings.Cut(string(about), "\n")
		k.bytes, _ = strconv.ParseInt(size, 10, 64)
	}
	return k
}

// remove removes a folder, unless a process uses it. dry: it only tells whether it would.
func (s Folders) remove(name string, dry bool) (bool, error) {
	at := filepath.Join(string(s), name)
	f, err := os.Open(at)
	if err != nil {
		return false, ignoreGone(err)
	}
	defer f.Close()
	if err := filelock.Try(f, true); errors.Is(err, filelock.ErrLocked) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if err := inPlace(f, at); dry || err != nil {
		return err == nil, ignoreGone(err)
	}
	if err := clear(at); err != nil {
		return false, fmt.Errorf("remove %s: %w", at, err)
	}
	return true, os.Remove(at)
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errGone) {
		return nil
	}
	return err
}

// bytesIn is the size of all files in a folder.
func bytesIn(folder string) (size int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
