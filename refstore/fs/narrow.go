package fs

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/internal/host/beneath"
	"e3/refstore"
)

// A sync of the whole file system also waits for what other programs have written to it. So a store knows what it has
// written since its last sync, and syncs this file by file where many writes of other programs wait (doc/design.md,
// "Writing and durability"). Writes of other e3 processes show in tmp/: a live process has its session there, and a
// process that ends with unsynced writes leaves its session's lock file like a dead process. While there is another
// session, or after another session was swept, the file system is synced.

const (
	// maxNarrow is the greatest number of files and folders that are synced one by one.
	maxNarrow = 4096
	// narrowAtOnce is the number of files that are synced at a time: a file system writes its journal once for all that
	// wait.
	narrowAtOnce = 16
	// worthOne is a number of bytes for each file to sync: if the machine has more unwritten bytes, syncing the files
	// is cheaper than syncing the file system. A file takes some 0.1 ms, in which a disk of 600 MB/s writes as much.
	worthOne = 64 << 10
	// worthAny is the least number of unwritten bytes for a sync by files; an idle machine mostly has fewer.
	worthAny = 4 << 20
)

// unsynced holds what a store has written since its last sync. It is safe for concurrent use.
type unsynced struct {
	off bool // every sync is one of the whole file system
	in  tree // the root of the store

	syncing sync.Mutex // held during a sync: a second sync returns after the first, and relies on it
	rooted  bool       // the root is durable; guarded by syncing

	mu     sync.Mutex
	paths  map[string]struct{} // files, and folders whose entries have changed
	all    bool                // more than paths must be synced
	always bool                // everything must be synced, each time
	relied bool                // others may rely on what this store has not synced
	wrote  bool                // relied has been set at least once
	swept  bool                // a dead process may have left unsynced writes
	named  map[string]bool     // folders whose names are durable in the folders above them
	made   uint64              // the number of folders that this store has made
}

// unrelied are the kinds of records on which no result relies: indexes that can be made again, leases and jobs.
var unrelied = map[string]bool{"INDEX": true, "LEASE": true, "QUEUE": true}

// relies reports whether other records, or other processes, rely on records of a partition.
func relies(partition string) bool {
	kind, _, _ := strings.Cut(partition, "/")
	return !unrelied[kind]
}

// note adds files that were written, or folders whose entries have changed.
func (u *unsynced) note(relied bool, paths ...string) {
	if u.off {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if relied {
		u.relied, u.wrote = true, true
	}
	if u.all {
		return
	}
	if u.paths == nil {
		u.paths = make(map[string]struct{})
	}
	for _, path := range paths {
		u.paths[path] = struct{}{}
	}
	if len(u.paths) > maxNarrow {
		u.all, u.paths = true, nil
	}
}

// file notes a file that was written, and its folder.
func (u *unsynced) file(relied bool, path string) { u.note(relied, path, filepath.Dir(path)) }

// folder notes a folder that was made.
func (u *unsynced) folder(path string) {
	u.mu.Lock()
	u.made++
	delete(u.named, path)
	u.mu.Unlock()
	u.file(false, path)
}

// unsure takes a folder and the folders above it. It returns the folders above that must be synced, so that the names
// of all these folders are durable. made is an argument of sure.
func (u *unsynced) unsure(dirs []string) (above []string, made uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, dir := range dirs[1:] {
		if !u.named[dirs[i]] {
			above = append(above, dir)
		}
	}
	return above, u.made
}

// sure remembers that the names of folders are durable, after a sync of what unsure has returned. If a folder was made
// since unsure, it remembers nothing: the folder may be one of these, and made after the sync.
func (u *unsynced) sure(dirs []string, made uint64) {
	if u.off {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.made != made {
		return
	}
	if u.named == nil {
		u.named = make(map[string]bool)
	}
	for _, dir := range dirs {
		u.named[dir] = true
	}
}

// doubt makes the next sync one of the file system: writes of this store, or with swept those of a dead process, may
// not be durable.
func (u *unsynced) doubt(swept bool) {
	if u.off {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all, u.paths = true, nil
	if u.swept = u.swept || swept; !swept {
		u.relied, u.wrote = true, true
	}
}

// left reports whether others may rely on unsynced writes of this store or of the sessions that it has swept.
func (u *unsynced) left() (relied, swept bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.relied, u.swept
}

// take returns the paths to be synced, and forgets them. If the store has written nothing, everything is to be synced:
// the caller wants the writes of others to be durable.
func (u *unsynced) take() (paths []string, all bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for path := range u.paths {
		paths = append(paths, path)
	}
	all = u.off || u.always || u.all || !u.wrote
	u.all, u.relied, u.swept, u.paths = false, false, false, nil
	return paths, all
}

// sync makes all writes before the call durable: few by syncing the files, else by wide.
func (u *unsynced) sync(alone func() (bool, error), wide func() error) error {
	u.syncing.Lock()
	defer u.syncing.Unlock()
	paths, all := u.take()
	all = all || unwritten() < max(int64(len(paths))*worthOne, worthAny)
	if !all {
		yes, err := alone()
		all = err != nil || !yes
	}
	var err error
	if !all {
		if !u.rooted { // whoever made the folder may have synced nothing
			paths = append(paths, ".")
			err = syncAboveRoot(u.in)
		}
		err = errors.Join(err, syncEach(u.in, paths))
		all = errors.Is(err, errUnopened)
	}
	if all {
		err = wide()
	}
	if err != nil {
		u.doubt(false)
		return err
	}
	u.rooted = true
	return nil
}

// errUnopened says that a path could not be opened for a sync, for example another user's file.
var errUnopened = errors.New("not opened")

// syncFolders syncs folders; all of them must exist.
func syncFolders(t tree, dirs []string) error {
	if len(dirs) == 1 {
		return syncOne(t, dirs[0])
	}
	var g errgroup.Group
	for _, dir := range dirs {
		g.Go(func() error { return syncOne(t, dir) })
	}
	return g.Wait()
}

// syncEach syncs files and folders. A missing path is no error: its removal is noted as a change of the folder above.
func syncEach(t tree, paths []string) error {
	var g errgroup.Group
	g.SetLimit(narrowAtOnce)
	for _, path := range paths {
		g.Go(func() error {
			err := syncOne(t, path)
			if errors.Is(err, iofs.ErrNotExist) {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// syncAboveRoot makes the name of the root durable.
func syncAboveRoot(t tree) error {
	above, err := beneath.Open(filepath.Dir(t.Name()))
	if err != nil {
		return fmt.Errorf("%w: %w", errUnopened, err)
	}
	return errors.Join(syncOne(tree{above}, "."), above.Close())
}

// alone reports whether the store's session is the only one; sessions of dead processes count, too.
func alone(s *Store) (bool, error) {
	s.mu.Lock()
	own := ""
	if s.session != nil {
		own = filepath.Base(s.session.name)
	}
	s.mu.Unlock()
	entries, err := s.files.readDir(temp)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return false, err
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.name, lockSuffix); strings.HasPrefix(name, sessionPrefix) && name != own {
			return false, nil
		}
	}
	return true, nil
}

// Wrote returns a function that notes a path below the root: the caller has written or named a file there, or made a
// folder, without the store. With [Options.Narrow], a store of objects in the same repository must call it.
func Wrote(s *Store) func(path string) {
	return func(path string) {
		if name, ok := strings.CutPrefix(path, s.files.root+string(filepath.Separator)); ok {
			s.files.unsynced.file(true, name)
		}
	}
}

// SyncAll makes every later Sync of the store one of the file system. The caller relies on writes of processes that may
// end without a trace.
func SyncAll(s *Store) {
	s.files.unsynced.mu.Lock()
	defer s.files.unsynced.mu.Unlock()
	s.files.unsynced.always = true
}

// note notes the files of a record that was put.
func (w *writer) note() {
	u, sl, relied := w.store.files.unsynced, w.slot, relies(w.slot.key.Partition)
	switch sl.shape {
	case virtualShape:
		u.file(relied, sl.path)
		return
	case dirShape:
		u.note(relied, filepath.Dir(sl.path))
		if w.filled || w.record.Version != refstore.Absent {
			noteLogs(w.store.files, sl.path)
		}
	}
	u.file(relied, sl.value())
	for _, f := range w.record.Fields {
		u.file(relied, sl.field(f.Name))
	}
}

// noteLogs notes the files in the folder of an execution. Its logs may have grown since they were noted: a command writes
// to the file of its stream.
func noteLogs(s *files, dir string) {
	for _, dir := range []string{dir, join(dir, otherLogs)} {
		entries, err := s.readDir(dir)
		if err != nil {
			s.unsynced.doubt(false)
		}
		for _, e := range entries {
			s.unsynced.note(false, join(dir, e.name))
		}
	}
}

// narrows reports whether the system can sync folders and knows what a sync of the file system leaves out.
func narrows(o Options) bool { return o.Narrow && runtime.GOOS == "linux" }

// syncOne syncs a file or folder, and wideSync the file system of an open folder. unwritten returns the number of bytes
// in the machine's memory that wait to be written to disks. Tests replace them.
var syncOne, wideSync, unwritten = tree.sync, syncFS, unwrittenBytes
