// Package fs is a [refstore.Store] in a plain directory, with streams, locks and watches. It runs on Linux and
// macOS, and is tested on Linux.
//
// # Files
//
// layout.go alone maps keys to paths. The value of a record and each of its side fields are separate files, which hold
// the caller's bytes and nothing else. An execution is the exception: its side fields are in the file of its value
// (fold.go). A segment of a key that would be unsafe as a file name is escaped, so no key names anything outside the
// repository. All names are relative to the folder, which is opened once, and no symbolic link below it is ever
// followed (tree.go).
//
// # Writing
//
// Every file is written aside, in the session's folder under tmp/, and renamed into place. A crash leaves the old state
// or the new one, and files under tmp/ that [Store.Sweep] removes. There are two exceptions, for a few microseconds
// each. An update of a record with fields writes new fields before the new value (as [refstore.Store] allows). And the
// side fields of a record that is one plain file are in a folder "<file>~", which a crash during creation or deletion
// may leave without its record. Readers ignore that folder, and the next creation of the record removes it.
//
// A longer version of an unfinished job of a queue overwrites the old one in its file, in one write of at most a page:
// a new file and the removal of the old file are most of the cost of such a change. A reader compares the stamps before
// and after, and reads again; a torn record that it still reads does not match its sum. Nor does a record that a crash
// of the machine has torn. On network file systems, and where the file has other names or another owner, the file is
// replaced.
//
// An EXECUTION record is a folder, built aside and renamed: its creation is atomic over value and fields, takes no lock
// and syncs nothing, because it is the hot path of a cold run. Creation of other records takes no lock either, unless
// they have side fields. Updates and deletions hold a lock on one of 256 lock files, chosen by the key.
//
// # Versions
//
// A version is the value file's modification time in nanoseconds, inode number and size. An update sets a time greater
// than the one it replaces, and checks the time that the file system has stored. So versions never recur while a record
// exists, whatever the clock does and however coarse the stored times are. A deletion first raises the floor of its
// lock file to the deleted time, and a creation takes a time above the floor; so versions do not recur after deletion
// and re-creation either. One gap remains, because creation takes no lock: a creation that reads the floor during a
// deletion of the same key may take a time below the new floor. A version can then recur only if the clock was set back
// in between, and if time, inode and size are all those of an earlier version.
//
// The client of a network file system caches attributes and the absence of names. So there versions are compared by an
// open file, and a name that is not found is looked up again (network.go).
//
// # Durability
//
// [Store.Put] syncs nothing: what it wrote survives the death of the process, not of the machine. [Store.PutSync] and
// [Store.Sync] make it survive the death of the machine, too. With Options.Narrow, Sync spares what other programs have
// written (narrow.go).
package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/filelock"
	"e3/internal/host/modes"
	"e3/refstore"
)

// Options tune a store. The zero value is sufficient except in tests.
type Options struct {
	// Now gives modification times to records. nil is time.Now.
	Now func() time.Time
	// Poll is the interval at which followers and watchers check for changes, beside file notification, which misses
	// changes from other hosts. 0 is 200 ms.
	Poll time.Duration
	// NoNotify turns file notification off.
	NoNotify bool
	// Boot identifies the current boot of the machine and mount of the file system: unsynced writes under another Boot
	// may be lost. "" or nil means unknown. If machines share the folder, it begins with the machine's name and a
	// space.
	Boot func() string
	// Mend, which may be nil, is called by Sweep when it finds a session that began under another Boot: unsynced
	// writes since that time may be torn. The session is removed once Mend has succeeded.
	Mend func(ctx context.Context, since time.Time) error
	// DeadSession, which may be nil, is called by Sweep with the folder of a dead session, before the folder is
	// removed. If the call fails, the session stays for the next Sweep.
	DeadSession func(ctx context.Context, dir string) error
	// Also, which may be nil, is called by Sweep after its own work. It removes other remains of dead processes, and
	// returns the number of these processes.
	Also func(ctx context.Context) (int, error)
	// Modes are the modes of new files and folders. With the zero value the umask decides.
	Modes modes.Modes
	// BareJobs says that jobs and their entries have no side fields, so that the store does not look for them. In a
	// store below an overlay they have side fields.
	BareJobs bool
	// Narrow lets Sync sync single files where they are few. With it, whoever writes to the repository by other means
	// than this store tells [Wrote] each path.
	Narrow bool
	// Waiting says how to wait for locks.
	Waiting filelock.Waiter
}

// Store is a repository's directory. It is safe for concurrent use, by any number of processes.
type Store struct {
	files       *files
	now         func() time.Time
	poll        time.Duration
	notify      *notifier // nil without file notification
	claims      claimTable
	waiting     filelock.Waiter
	kept        keptLocks
	making      atomic.Bool  // room is being made on a full disk
	relieved    atomic.Int64 // how often room was made
	reserveUsed atomic.Bool  // since the reserve was last kept
	boot        func() string
	mend        func(ctx context.Context, since time.Time) error
	deadSession func(ctx context.Context, dir string) error
	also        func(ctx context.Context) (int, error)

	mu      sync.Mutex
	session *session  // begun by the first write
	since   time.Time // beginning of this process's earlier session, if the folder of that session vanished
	closed  bool
}

// files gives access to the files below the folder of a store: it maps names to paths, and makes, finds and reads
// files.
type files struct {
	tree
	root  string // absolute; for messages, and for callers
	modes modes.Modes
	looks looks
	bare  bool // Options.BareJobs

	unsynced *unsynced
	floors   floors
}

var (
	_ refstore.Store    = (*Store)(nil)
	_ refstore.Streams  = (*Store)(nil)
	_ refstore.Locker   = (*Store)(nil)
	_ refstore.Watcher  = (*Store)(nil)
	_ refstore.Sessions = (*Store)(nil)
)

// Open opens the repository in dir, which must exist. It writes nothing, so a read-only repository can be opened and
// read. The caller closes the store.
func Open(dir string, o Options) (*Store, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open repository %s: %w", dir, err)
	}
	f, err := beneath.Open(root)
	if err != nil {
		return nil, fmt.Errorf("open repository %s: %w", dir, err)
	}
	in := tree{f}
	fl := &files{
		tree: in, root: root, modes: o.Modes, looks: looksAt(in), bare: o.BareJobs,
		unsynced: &unsynced{off: !narrows(o), in: in},
	}
	s := &Store{files: fl, now: o.Now, poll: o.Poll, boot: o.Boot, mend: o.Mend, deadSession: o.DeadSession, waiting: o.Waiting, also: o.Also}
	if s.now == nil {
		s.now = time.Now
	}
	if s.boot == nil {
		s.boot = func() string { return "" }
	}
	if s.mend == nil {
		s.mend = func(context.Context, time.Time) error { return nil }
	}
	if s.deadSession == nil {
		s.deadSession = func(context.Context, string) error { return nil }
	}
	if s.poll <= 0 {
		s.poll = 200 * time.Millisecond
	}
	if !o.NoNotify {
		s.notify = new(notifier)
	}
	s.claims.name = join("locks", "claims")
	return s, nil
}

// Root is the folder of the store. The store closes it.
func (s *Store) Root() *beneath.Dir { return s.files.Dir }

// Close removes the session's folder and releases all claims. Other locks stay held until they are unlocked.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.session != nil {
		err = s.session.end(leaves(s))
	}
	if s.notify != nil {
		err = errors.Join(err, s.notify.close())
	}
	return errors.Join(err, s.claims.close(), s.kept.close(), s.files.floors.close(), s.files.Close())
}

// leaves reports whether the store's session must stay, since something may not be durable. If only writes of swept
// sessions may not be durable, leaves syncs them: otherwise each command would leave them to the next.
func leaves(s *Store) bool {
	relied, swept := s.files.unsynced.left()
	return relied || swept && wideSync(s.files.tree) != nil
}

// Sync returns once everything that was written to the repository before the call, by whatever process of this machine,
// survives power loss. On Linux it syncs the file system that holds the root; with Options.Narrow it syncs only the
// written files, if they are few. macOS offers only sync(2), which need not wait for the disk.
func (s *Store) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.files.unsynced.sync(func() (bool, error) { return alone(s) }, func() error { return wideSync(s.files.tree) }); err != nil {
		return fmt.Errorf("sync repository %s: %w", s.files.root, err)
	}
	return nil
}

// mkdirs makes a folder, and missing folders above it.
func (s *files) mkdirs(dir string) error {
	if dir == "." {
		return nil
	}
	err := s.mkdir(dir)
	if errors.Is(err, iofs.ErrNotExist) {
		if err = s.mkdirs(filepath.Dir(dir)); err != nil {
			return err
		}
		err = s.mkdir(dir)
	}
	if err == nil {
		s.unsynced.folder(dir)
	}
	if errors.Is(err, iofs.ErrExist) {
		return nil
	}
	return err
}

// inParent runs f, which creates something under a name. If f failed because the folder above is missing, inParent
// makes the folder and tries again, a few times, since a sweep may remove empty folders meanwhile.
func (s *files) inParent(name string, f func() error) error {
	const tries = 20
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == tries || !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		if err := s.mkdirs(filepath.Dir(name)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
	}
}

// syncAbove syncs the folders above a name, up to the root.
func (s *files) syncAbove(name string) error { return syncFolders(s.tree, above(name)) }

// above returns the folders above a name, up to the root.
func above(name string) (dirs []string) {
	for dir := filepath.Dir(name); ; dir = filepath.Dir(dir) {
		if dirs = append(dirs, dir); dir == "." {
			return dirs
		}
	}
}

// syncDirs makes the names of a record durable: its folder, and those above it up to the root. If the record is a file,
// no other process removes and remakes the folders above. So their names are made durable once, and again after this
// store has made one of them.
func (s *files) syncDirs(sl slot) error {
	dirs := above(sl.value())
	if sl.shape != fileShape {
		return syncFolders(s.tree, dirs)
	}
	rest, made := s.unsynced.unsure(dirs)
	if err := syncFolders(s.tree, append(dirs[:1:1], rest...)); err != nil {
		return err
	}
	s.unsynced.sure(dirs[:len(dirs)-1], made)
	return nil
}
