package repo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	reffs "e3/refstore/fs"
)

// scratch is where the processes of this user and machine keep the working data of commands: sandboxes, checkouts,
// notes, sockets of supervisors, folders of failed commands. It is a folder with sessions of its own, which only this
// user can enter, outside of the repository and the project. So a member of the repository's group cannot replace a
// folder in which a command runs, and a program that looks upwards for its project does not find this project. The
// folders of copies and overlays have these properties anyway.
//
// scratch is for a repository in a folder. Candidates are the cache, the system's temporary folder, and tmp in the
// repository, in this order. The first that is this user's alone and on the file system of the repository is used, so
// that outputs can be moved into the repository. If there is none, outputs are copied from the cache. Nothing in the
// repository says where it is.
type scratch struct {
	repository string // its folder, without symbolic links
	bases      func() []string
	options    reffs.Options
	records    *reffs.Store // its session protects the objects that commands of this process store
	warn       func(error)
	tidy       func() // removes scratch folders of repositories that are gone

	choose func() (scratchPlace, error)
	mu     sync.Mutex
	own    *reffs.Store // nil: nothing was made yet
}

// A scratchPlace is a folder that scratch can use.
type scratchPlace struct {
	dir     string
	inside  bool // in the repository
	distant bool // outputs must be copied
}

// here is a process's place on this machine: a store whose session holds the sandboxes.
type here interface {
	SessionDir() (string, error)
	SessionLock() (*os.File, error)
	KeepSession()
	Temp() string
}

const (
	scratchFolder = "scratch"    // in this machine's folder for a repository
	scratchOf     = "repository" // a file in it: the repository's path
)

// machineFolder is the name of this machine's folder for a repository at a path without symbolic links.
func machineFolder(root string) string {
	sum := sha256.Sum256([]byte("e3 here\x00" + root + "\x00" + folderNumber(root)))
	return hex.EncodeToString(sum[:16])
}

// cacheDir is the folder for data that this machine can lose.
func (r *Repo) cacheDir() (string, error) {
	dir := r.opts.Getenv(CacheDirVariable)
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no folder for what this machine keeps: %w; set %s", err, CacheDirVariable)
		}
		dir = filepath.Join(user, "e3")
	}
	return filepath.Abs(dir)
}

// scratchBases are the folders that hold scratch folders of repositories.
func (r *Repo) scratchBases() []string {
	var bases []string
	if dir, err := r.cacheDir(); err == nil {
		bases = append(bases, realPath(dir))
	}
	return append(bases, filepath.Join(realPath(os.TempDir()), fmt.Sprintf("e3-%d", os.Getuid())))
}

func newScratch(r *Repo, root string, records *reffs.Store) *scratch {
	s := &scratch{repository: root, bases: sync.OnceValue(r.scratchBases), records: records, warn: r.warn, tidy: r.tidyScratch}
	s.options = reffs.Options{
		Now: r.opts.Now, Modes: modes.Of(modes.Private, ""), DeadSession: r.closeLeft, Waiting: r.waiting,
		Boot: sync.OnceValue(func() string { return boot(root) }),
	}
	s.choose = sync.OnceValues(s.chosen)
	return s
}

// places are the folders that processes of this user may have used, the best first.
func (s *scratch) places() []scratchPlace {
	var places []scratchPlace
	for _, base := range s.bases() {
		places = append(places, scratchPlace{dir: filepath.Join(base, machineFolder(s.repository), scratchFolder)})
	}
	return append(places, scratchPlace{dir: filepath.Join(s.repository, "tmp", fmt.Sprintf("%s-%d", scratchFolder, os.Getuid())), inside: true})
}

// chosen is the folder of this process.
func (s *scratch) chosen() (scratchPlace, error) {
	var faults []error
	var distant *scratchPlace
	for _, p := range s.places() {
		above := existing(p.dir)
		if err := errors.Join(modes.Alone(p.dir), mayWrite(above)); err != nil {
			faults = append(faults, err)
		} else if p.inside || sameMount(above, s.repository) {
			return p, nil
		} else if distant == nil {
			distant = &scratchPlace{dir: p.dir, distant: true}
		}
	}
	if distant == nil {
		return scratchPlace{}, fmt.Errorf("no folder for commands to run in is this user's alone (%w): set %s to one that is", errors.Join(faults...), CacheDirVariable)
	}
	return *distant, nil
}

// existing is path, or the nearest folder above it that exists.
func existing(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// store makes the folder.
func (s *scratch) store() (*reffs.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		return s.own, nil
	}
	p, err := s.choose()
	if err != nil {
		return nil, err
	}
	fresh, err := s.make(p)
	if err != nil {
		return nil, fmt.Errorf("make a folder for commands to run in: %w; %s names another", err, CacheDirVariable)
	}
	if s.own, err = reffs.Open(p.dir, s.options); err != nil {
		return nil, err
	}
	s.tidy()
	switch {
	case !fresh: // it was told before
	case p.inside:
		s.warn(fmt.Errorf("commands run in %s, below the project: a program that looks for its project upwards finds this one. "+
			"%s names a folder of yours on the file system of the repository", p.dir, CacheDirVariable))
	case p.distant:
		s.warn(fmt.Errorf("commands run in %s, on another file system than the repository, so their outputs are copied. "+
			"%s names a folder of yours on that of the repository", p.dir, CacheDirVariable))
	}
	return s.own, nil
}

// make makes a place, and checks that it is still this user's alone. fresh tells whether this repository has not used it
// before.
func (s *scratch) make(p scratchPlace) (fresh bool, err error) {
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o700); err != nil {
		return false, err
	}
	if _, err := modes.PrivateFolder(p.dir); err != nil {
		return false, err
	}
	if err := modes.Alone(p.dir); err != nil {
		return false, err
	}
	path := filepath.Join(p.dir, scratchOf)
	if text, err := os.ReadFile(path); err == nil && string(text) == s.repository+"\n" {
		return false, nil
	}
	f, err := os.CreateTemp(p.dir, scratchOf+"-*")
	if err != nil {
		return false, err
	}
	_, err = f.WriteString(s.repository + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return true, err
}

// SessionDir returns the folder of this process.
func (s *scratch) SessionDir() (string, error) {
	own, err := s.store()
	if err != nil {
		return "", err
	}
	return own.SessionDir()
}

// SessionLock returns the file whose lock shows that this process lives.
func (s *scratch) SessionLock() (*os.File, error) {
	own, err := s.store()
	if err != nil {
		return nil, err
	}
	return own.SessionLock()
}

// KeepSession leaves the folder of this process to the next sweep.
func (s *scratch) KeepSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own != nil {
		s.own.KeepSession()
	}
}

// Temp is the folder that holds the folders of processes. It may not exist.
func (s *scratch) Temp() string {
	p, err := s.choose()
	if err != nil {
		return os.DevNull // nothing can be there
	}
	return filepath.Join(p.dir, "tmp")
}

// Sweep removes the folders of dead processes of this user, wherever they ran, and returns their number.
func (s *scratch) Sweep(ctx context.Context) (int, error) {
	swept := 0
	var errs []error
	for _, p := range s.places() {
		if _, err := os.Lstat(filepath.Join(p.dir, scratchOf)); err != nil || modes.Alone(p.dir) != nil {
			continue // no process has run here, or the folder may be another user's
		}
		n, err := s.sweepAt(ctx, p.dir)
		swept, errs = swept+n, append(errs, err)
	}
	return swept, errors.Join(errs...)
}

func (s *scratch) sweepAt(ctx context.Context, dir string) (int, error) {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	if p, err := s.choose(); own != nil && err == nil && p.dir == dir {
		return own.Sweep(ctx)
	}
	there, err := reffs.Open(dir, s.options)
	if err != nil {
		return 0, err
	}
	n, err := there.Sweep(ctx)
	return n, errors.Join(err, there.Close())
}

// Close removes the folder of this process.
func (s *scratch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own == nil {
		return nil
	}
	return s.own.Close()
}

// unusedScratch is how long a scratch folder stays if neither its repository nor the folder around that can be found:
// the disk may not be mounted.
const unusedScratch = 7 * 24 * time.Hour

// tidied is a file in a base whose time is that of the latest tidying.
const tidied = "tidied"

// tidyScratch is SweepGone once a day. Nothing depends on it.
func (r *Repo) tidyScratch() {
	for _, base := range r.scratchBases() {
		path := filepath.Join(base, tidied)
		if info, err := os.Lstat(path); err == nil && r.opts.Now().Sub(info.ModTime()) < 24*time.Hour {
			continue
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
			f.Close()
			_, _, _ = r.sweepGone(context.Background(), base, false)
		}
	}
}

// SweepGone removes the scratch folders of repositories that are gone, and returns their number and size. A dry run
// removes none.
func (r *Repo) SweepGone(ctx context.Context, dry bool) (n int, bytes int64, err error) {
	var errs []error
	for _, base := range r.scratchBases() {
		m, size, err := r.sweepGone(ctx, base, dry)
		n, bytes, errs = n+m, bytes+size, append(errs, err)
	}
	return n, bytes, errors.Join(errs...)
}

func (r *Repo) sweepGone(ctx context.Context, base string, dry bool) (n int, bytes int64, err error) {
	names, err := os.ReadDir(base)
	if err != nil || modes.Alone(base) != nil {
		return 0, 0, nil // there is no such folder, or it is not this user's
	}
	var errs []error
	for _, e := range names {
		dir := filepath.Join(base, e.Name(), scratchFolder)
		if !gone(dir, e.Name(), r.opts.Now()) {
			continue
		}
		size, removed, err := removeScratch(ctx, dir, dry)
		if errs = append(errs, err); removed {
			n, bytes = n+1, bytes+size
		}
	}
	return n, bytes, errors.Join(errs...)
}

// gone tells whether the repository of a scratch folder is gone for certain.
func gone(dir, name string, now time.Time) bool {
	text, err := os.ReadFile(filepath.Join(dir, scratchOf))
	root, whole := strings.CutSuffix(string(text), "\n")
	if err != nil || !whole || !filepath.IsAbs(root) {
		return false
	}
	if _, err := os.Lstat(root); err == nil && machineFolder(root) == name {
		return false
	}
	if _, err := os.Lstat(filepath.Dir(root)); err == nil {
		return true
	}
	info, err := os.Lstat(filepath.Join(dir, "tmp")) // changes with each session
	return err == nil && now.Sub(info.ModTime()) > unusedScratch
}

// removeScratch removes a scratch folder unless a process lives in it.
func removeScratch(ctx context.Context, dir string, dry bool) (size int64, removed bool, err error) {
	s, err := reffs.Open(dir, reffs.Options{Modes: modes.Of(modes.Private, dir)})
	if err != nil {
		return 0, false, err
	}
	size = sizeBelow(dir)
	if !dry {
		_, err = s.Sweep(ctx)
	}
	live, listed := s.LiveSessions(ctx)
	if err = errors.Join(err, listed, s.Close()); err != nil || len(live) > 0 || dry {
		return size, dry && err == nil && len(live) == 0, err
	}
	if err = beneath.Discard(dir); err == nil {
		_ = os.Remove(filepath.Dir(dir)) // fails if there is more in it
	}
	return size, err == nil, err
}

// sizeBelow adds up the files below a folder.
func sizeBelow(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // a command may have made a folder inaccessible
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}
