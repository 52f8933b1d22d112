package executions

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"e3/internal/atomicfile"
)

// FileMode is fs.FileMode.
type FileMode = fs.FileMode

// A sandbox is where one command runs: an empty directory of its own, a private
// HOME and TMPDIR beside it, and the two files that take its output. Sandboxes are
// reused, which saves a command of a millisecond a tenth of its cost; what the last command
// touched is made anew.
type sandbox struct {
	root, work, home, tmp string
	homeTime, tmpTime     time.Time // as they were made: any change shows
	dirMode               FileMode  // of folders that are made for a command, with the umask
	group                 FileMode  // ModeSetgid if what is made in the repository is of its group: so are the logs then
	stdout, stderr        *os.File  // opened for appending
	logsUsed              bool      // something was printed
	logsTaken             bool      // the files were moved to the execution's record
	consumed              bool      // it is marked: outputs are taken out of it

	// Below work: the folders that are there, empty, from the last command, and what has
	// been made for the present one. Paths are as declared.
	spare map[string]bool
	dirs  []string // parents before children
	files []string
}

// sandboxes is a pool. All of them lie in a directory that belongs to this process and
// is swept after its death.
type sandboxes struct {
	scratch func() (string, error)
	mu      sync.Mutex
	free    []*sandbox
	made    int
}

func (p *sandboxes) acquire() (*sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		box := p.free[n-1]
		p.free = p.free[:n-1]
		return box, nil
	}
	dir, err := p.scratch()
	if err != nil {
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	p.made++
	root := filepath.Join(dir, "w"+strconv.Itoa(p.made))
	box := &sandbox{root: root, work: filepath.Join(root, "work"), home: filepath.Join(root, "home"), tmp: filepath.Join(root, "tmp")}
	if err := box.make(); err != nil {
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	if err := box.renew(true); err != nil {
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	return box, nil
}

// release cleans the sandbox and keeps it for the next command. One that cannot be
// cleaned is dropped: its remains lie in this process's scratch and go with it.
func (p *sandboxes) release(box *sandbox) {
	if err := box.renew(false); err != nil {
		box.closeLogs()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, box)
}

// make makes the sandbox's own folder and finds out what the umask does. Nobody but this user gets in: what leads to the repository is moved
// out of it.
func (b *sandbox) make() error {
	if err := os.Mkdir(b.root, 0o755); err != nil {
		return err
	}
	info, err := os.Lstat(b.root)
	if err != nil {
		return err
	}
	b.dirMode, b.group = info.Mode().Perm(), info.Mode()&fs.ModeSetgid
	return os.Chmod(b.root, 0o700|b.group)
}

// folder makes a folder that a command finds, the same in every repository.
func (b *sandbox) folder(path string) error {
	err := os.Mkdir(path, 0o700)
	if err == nil && b.group != 0 {
		err = os.Chmod(path, 0o700)
	}
	return err
}

// renew makes whatever is missing or was touched since it was made.
func (b *sandbox) renew(fresh bool) error {
	if fresh || !b.tidy() {
		if err := atomicfile.RemoveAll(b.work); err != nil {
			return err
		}
		if err := b.folder(b.work); err != nil {
			return err
		}
		b.spare = map[string]bool{}
	}
	if b.consumed {
		if err := os.Remove(b.mark()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		b.consumed = false
	}
	b.dirs, b.files = b.dirs[:0], b.files[:0]
	for _, d := range []struct {
		path string
		made *time.Time
	}{{b.home, &b.homeTime}, {b.tmp, &b.tmpTime}} {
		if !fresh {
			// Its stamp shows what was there and went, unless that was within one tick.
			if info, err := os.Lstat(d.path); err == nil && changeTime(info).Equal(*d.made) && hasEntries(d.path, 0) {
				continue
			}
			if err := atomicfile.RemoveAll(d.path); err != nil {
				return err
			}
		}
		if err := b.folder(d.path); err != nil {
			return err
		}
		info, err := os.Lstat(d.path)
		if err != nil {
			return err
		}
		*d.made = changeTime(info)
	}
	if !fresh && !b.logsUsed && !b.logsTaken {
		return nil
	}
	b.closeLogs()
	for name, f := range map[string]**os.File{"stdout": &b.stdout, "stderr": &b.stderr} {
		// The old file is unlinked, not truncated: a child that escaped may hold it.
		path := filepath.Join(b.root, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var err error
		if *f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o666); err != nil {
			return err
		}
	}
	b.logsUsed, b.logsTaken = false, false
	return nil
}

// mark is the file that says that outputs are taken out of the sandbox.
func (b *sandbox) mark() string { return filepath.Join(b.root, "consumed") }

// consume marks the sandbox, so that whoever adopts the execution does not take what is left for all that there was.
func (b *sandbox) consume() error {
	f, err := os.OpenFile(b.mark(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	b.consumed = true
	return f.Close()
}

// mkdir makes a folder for the command and those above it; rel is a local path, "." the work
// folder itself.
func (b *sandbox) mkdir(rel string) error {
	if rel == "." || slices.Contains(b.dirs, rel) {
		return nil
	}
	if err := b.mkdir(filepath.Dir(rel)); err != nil {
		return err
	}
	b.dirs = append(b.dirs, rel)
	if b.spare[rel] {
		delete(b.spare, rel)
		return nil
	}
	err := os.Mkdir(filepath.Join(b.work, rel), 0o755)
	if errors.Is(err, fs.ErrExist) { // a directory input has brought it
		if info, e := os.Lstat(filepath.Join(b.work, rel)); e == nil && info.IsDir() {
			return nil
		}
	}
	return err
}

// ready removes the folders of earlier commands that this one did not ask for.
func (b *sandbox) ready() error {
	for len(b.spare) > 0 {
		for rel := range b.spare {
			if err := atomicfile.RemoveAll(filepath.Join(b.work, rel)); err != nil {
				return err
			}
			delete(b.spare, rel)
		}
	}
	return nil
}

// tidy removes the files that were staged and keeps the folders, if that leaves nothing else:
// making folders is what costs most. It returns false where the command left anything
// of its own, or changed a folder. No path is used before every folder on it is known to be
// one: the command may have put a link in its place.
func (b *sandbox) tidy() bool {
	if !isDir(b.work, b.dirMode&0o700) {
		return false
	}
	children := map[string]int{".": 0}
	for _, rel := range b.dirs {
		if !isDir(filepath.Join(b.work, rel), b.dirMode) {
			return false
		}
		children[rel] += 0
		children[filepath.Dir(rel)]++
	}
	for _, rel := range b.files {
		if _, made := children[filepath.Dir(rel)]; !made {
			return false
		}
		if err := os.Remove(filepath.Join(b.work, rel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	for rel, n := range children {
		if !hasEntries(filepath.Join(b.work, rel), n) {
			return false
		}
	}
	for _, rel := range b.dirs {
		b.spare[rel] = true
	}
	return true
}

// isDir tells whether path itself is a directory of that mode.
func isDir(path string, mode FileMode) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && info.Mode().Perm() == mode
}

// hasEntries tells whether a directory has exactly n entries.
func hasEntries(dir string, n int) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer f.Close()
	names, err := f.Readdirnames(n + 1)
	return len(names) == n && (err == nil || err == io.EOF)
}

func (b *sandbox) closeLogs() {
	for _, f := range []**os.File{&b.stdout, &b.stderr} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}
