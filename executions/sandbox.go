package executions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
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
	stdout, stderr        *os.File  // opened for appending
	logsUsed              bool      // something was printed
	logsTaken             bool      // the files were moved to the execution's record
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
	if err := os.Mkdir(root, 0o700); err != nil {
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

// renew makes whatever is missing or was touched since it was made.
func (b *sandbox) renew(fresh bool) error {
	if !fresh {
		if err := removeAll(b.work); err != nil {
			return err
		}
	}
	if err := os.Mkdir(b.work, 0o700); err != nil {
		return err
	}
	for _, d := range []struct {
		path string
		made *time.Time
	}{{b.home, &b.homeTime}, {b.tmp, &b.tmpTime}} {
		if !fresh {
			if info, err := os.Lstat(d.path); err == nil && changeTime(info).Equal(*d.made) {
				continue
			}
			if err := removeAll(d.path); err != nil {
				return err
			}
		}
		if err := os.Mkdir(d.path, 0o700); err != nil {
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
		if *f, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR|os.O_APPEND, 0o644); err != nil {
			return err
		}
	}
	b.logsUsed, b.logsTaken = false, false
	return nil
}

func (b *sandbox) closeLogs() {
	for _, f := range []**os.File{&b.stdout, &b.stderr} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

// removeAll removes a tree even where a command took away its own permissions.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		child := filepath.Join(path, e.Name())
		if !e.IsDir() {
			err = os.Remove(child)
		} else {
			err = removeAll(child)
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(path)
}
