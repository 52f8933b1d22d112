package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"e3/internal/host/filelock"
	"e3/refstore"
)

// session is this store's folder under tmp/, and a lock: while the lock is held, the process lives.
//
// The lock file tmp/<name>.lock is made and locked before the folder tmp/<name> exists, and removed after it. So a
// folder without a lock file, or with an unlocked one, belongs to a dead session. The lock file holds Options.Boot. Its
// modification time, set under the lock and never changed afterwards, is the beginning of the session. Files in the
// folder whose names begin with protectPrefix list the names that the session protects, one per line.
type session struct {
	in    tree
	name  string // path of the folder
	lock  *os.File
	began time.Time
	count atomic.Uint64
	keep  atomic.Bool // leave the folder to the next Sweep
}

const (
	temp          = "tmp"
	sessionPrefix = "session-"
	lockSuffix    = ".lock"
	protectPrefix = "protect-"
)

// next is the path for a new file or folder in the session.
func (t *session) next() string {
	return t.name + string(filepath.Separator) + strconv.FormatUint(t.count.Add(1), 10)
}

// end removes the session. With unsynced, the lock file stays like a dead process's: the next run then knows that this
// store's writes may not be durable.
func (t *session) end(unsynced bool) error {
	if t.keep.Load() {
		return t.lock.Close()
	}
	if unsynced {
		return errors.Join(t.in.discard(t.name), t.lock.Close())
	}
	return errors.Join(t.in.discard(t.name), t.in.remove(t.name+lockSuffix), t.lock.Close())
}

// SessionDir returns the folder for temporary files of this store, and makes it if necessary. It is on the repository's
// file system. [Store.Close] removes it, or a [Store.Sweep] of another process once this process is dead. Names that
// consist of digits only, or of "protect-" and digits, are the store's own.
func (s *Store) SessionDir() (string, error) {
	dir, _, err := s.Session()
	return dir, err
}

// Temp is the folder in which the folders of the sessions lie. It may not exist.
func (s *Store) Temp() string { return s.files.absolute(temp) }

// Session is like [Store.SessionDir], and also returns the beginning of the session, by the file system's clock.
func (s *Store) Session() (dir string, began time.Time, err error) {
	t, err := s.begin()
	if err != nil {
		return "", time.Time{}, err
	}
	return s.files.absolute(t.name), t.began, nil
}

// SessionLock returns the open file whose lock shows that the session lives, and begins the session if necessary. A
// child process that inherits the file keeps the session's folder from being swept after this process has died. The
// store closes the file.
func (s *Store) SessionLock() (*os.File, error) {
	t, err := s.begin()
	if err != nil {
		return nil, err
	}
	return t.lock, nil
}

// KeepSession makes [Store.Close] leave the session's folder like a dead process's, for the next [Store.Sweep].
func (s *Store) KeepSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil {
		s.session.keep.Store(true)
	}
}

// begin returns the session, and makes it if necessary. If this leaves nearly no room on the disk, it sweeps, since the
// caller is about to write into the session's folder.
func (s *Store) begin() (t *session, err error) {
	made := false
	err = s.withRoom(func() error {
		t, made, err = s.beginNow()
		return err
	})
	if made && s.files.scarce(reserveSize) {
		_, _ = s.Sweep(context.Background()) // however much room there is now, the next write tells whether it fits
	}
	return t, err
}

// beginNow is begin without a sweep.
func (s *Store) beginNow() (t *session, made bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, fmt.Errorf("repository %s: %w", s.files.root, iofs.ErrClosed)
	}
	if s.session == nil {
		t, err := s.newSession(s.since)
		if err != nil {
			return nil, false, fmt.Errorf("begin a session in %s: %w", s.files.absolute(temp), readOnly(err))
		}
		s.session, made = t, true
	}
	return s.session, made, nil
}

// newSession begins a session. If it replaces an earlier session, since is the beginning of that session; otherwise
// zero.
func (s *Store) newSession(since time.Time) (*session, error) {
	for {
		name := fmt.Sprintf("%s%d-%08x", sessionPrefix, os.Getpid(), rand.Uint32())
		dir := join(temp, name)
		err := s.files.inParent(dir, func() error { return s.files.modes.CreateLock(s.files.Dir, dir+lockSuffix) })
		var lock *os.File
		if err == nil {
			if lock, err = s.files.openFile(dir+lockSuffix, os.O_RDWR, 0); errors.Is(err, iofs.ErrNotExist) {
				continue // it was swept before it was locked
			}
		}
		if errors.Is(err, iofs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A sweep or a listing of live sessions may hold the lock, or have removed the file.
		err = filelock.Try(lock, true)
		if err == nil && !s.files.same(lock, dir+lockSuffix) {
			err = filelock.ErrLocked
		}
		var began time.Time
		if err == nil {
			began, err = s.dateSession(lock, dir+lockSuffix, since)
		}
		if err == nil {
			err = s.files.inParent(dir, func() error { return s.files.mkdir(dir) })
		}
		if err == nil {
			return &session{in: s.files.tree, name: dir, lock: lock, began: began}, nil
		}
		// No other process uses this name. A leftover file would look like a session that ended with a crash of the
		// machine.
		if err := errors.Join(err, lock.Close(), s.files.removeIfThere(dir+lockSuffix)); !errors.Is(err, filelock.ErrLocked) {
			return nil, err
		}
	}
}

// dateSession writes the boot into a held lock file, which sets the file's time to the file system's current time, and
// returns that time. It is called after locking: so a collector that does not see this session began before it. A
// session that replaces an earlier one keeps the earlier date, because objects stored under the earlier session still
// need protection.
func (s *Store) dateSession(lock *os.File, name string, since time.Time) (time.Time, error) {
	boot := s.boot()
	_, err := lock.WriteString(boot)
	if err == nil {
		err = lock.Truncate(int64(len(boot))) // this sets the time of an empty file too
	}
	var info iofs.FileInfo
	if err == nil {
		info, err = lock.Stat()
	}
	if err != nil {
		return time.Time{}, err
	}
	// If the clock was set back, a running collector would treat objects of this session as older than itself. So a
	// session never begins before another live one.
	began := info.ModTime()
	latest := began
	err = s.eachSession(func(name string, info iofs.FileInfo) error {
		if !info.ModTime().After(latest) {
			return nil
		}
		live, err := s.lives(name)
		if live {
			latest = info.ModTime()
		}
		return err
	})
	if !since.IsZero() && since.Before(latest) {
		latest = since
	}
	if err != nil || latest.Equal(began) {
		return began, err
	}
	if err := s.files.SetTime(name, latest); err != nil {
		return time.Time{}, err
	}
	return latest, nil
}

// renew begins a new session after old's folder has vanished, so that a repository whose tmp/ was cleared by hand
// stays writable.
func (s *Store) renew(old *session) error {
	if err := s.files.tree.exists(old.name); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == old {
		s.session, s.since = nil, old.began
		return old.lock.Close()
	}
	return nil
}

// aside calls write with a new path in the session's folder.
func (s *Store) aside(write func(path string) error) error {
	for again := true; ; again = false {
		t, err := s.begin()
		if err != nil {
			return err
		}
		err = write(t.next())
		if !again || !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		if err := s.renew(t); err != nil {
			return err
		}
	}
}

// Sweep removes the sessions of dead processes with their files, and returns their number; sessions that ended with
// unsynced writes do not count. Folders that this user may not remove stay. Sweep may run at any time; on a full disk
// it uses the reserve.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	n, _, err := s.sweepFull(ctx)
	return n, err
}

// sweepFull is Sweep, and also tells whether it used the reserve.
func (s *Store) sweepFull(ctx context.Context) (n int, used bool, err error) {
	n, err = s.sweep(ctx)
	if refstore.DiskFull(err) && s.UseReserve() {
		used = true
		var more int
		more, err = s.sweep(ctx)
		n += more
	}
	return n, used, err
}

func (s *Store) sweep(ctx context.Context) (int, error) {
	entries, err := s.files.readDir(temp)
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	names := make(map[string]struct{})
	for _, e := range entries {
		if strings.HasPrefix(e.name, sessionPrefix) {
			names[strings.TrimSuffix(e.name, lockSuffix)] = struct{}{}
		}
	}
	var dead []deadSession
	defer func() {
		for _, d := range dead {
			if d.lock != nil {
				d.lock.Close() // nothing was written
			}
		}
	}()
	mender := mender{store: s}
	defer mender.end()
	var lost time.Time // the earliest beginning of a session that ended with the machine
	var errs []error
	for name := range names {
		d, err := s.files.findDead(ctx, join(temp, name), s.boot(), &mender)
		if errors.Is(err, iofs.ErrPermission) {
			continue // another user's session
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		}
		if d == nil {
			continue
		}
		dead = append(dead, *d)
		if d.lock != nil && (d.boot == "" || d.boot != s.boot()) && (lost.IsZero() || d.began.Before(lost)) {
			lost = d.began
		}
	}
	if !lost.IsZero() {
		if err := s.mend(ctx, lost); err != nil {
			return 0, err
		}
	}
	// until this store has synced, its own session stands for the swept ones
	if len(dead) > 0 && !s.files.unsynced.off {
		s.files.unsynced.doubt(true)
		if _, _, err := s.beginNow(); err != nil {
			return 0, fmt.Errorf("sweep: %w", err)
		}
	}
	swept := 0
	for _, d := range dead {
		if err := ctx.Err(); err != nil {
			return swept, err
		}
		ended := s.files.tree.exists(d.name) // a session without its folder has ended and left its lock file
		err := s.deadSession(ctx, s.files.absolute(d.name))
		if err == nil {
			err = s.files.removeDead(d)
		}
		switch {
		case errors.Is(err, iofs.ErrPermission):
			if d.lock != nil && !lost.IsZero() { // the session's folder stays, but Mend has been called
				_ = writeText(d.lock, []byte(s.boot()))
			}
		case err != nil:
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		case ended == nil:
			swept++
		}
	}
	if s.also != nil {
		n, err := s.also(ctx)
		swept, errs = swept+n, append(errs, err)
	}
	return swept, errors.Join(errs...)
}

// deadSession is a dead process's session, locked against other sweepers.
type deadSession struct {
	name  string   // path of the folder
	lock  *os.File // the lock file; nil if there is none
	began time.Time
	boot  string
}

// findDead returns a session if it is dead; now is this boot.
func (s *files) findDead(ctx context.Context, name, now string, mender *mender) (*deadSession, error) {
	lock, err := s.openFile(name+lockSuffix, os.O_RDWR, 0)
	if errors.Is(err, iofs.ErrNotExist) {
		return &deadSession{name: name}, nil
	}
	if err != nil {
		return nil, err
	}
	d := &deadSession{name: name, lock: lock}
	if ofAnotherBoot(lock, now) {
		err = mender.begin(ctx)
	}
	if err == nil {
		err = filelock.Try(lock, true)
	}
	if err == nil && !s.same(lock, name+lockSuffix) { // another sweeper removed it
		err = filelock.ErrLocked
	}
	if err == nil {
		err = d.read()
	}
	if err == nil {
		return d, nil
	}
	lock.Close() // nothing was written
	if errors.Is(err, filelock.ErrLocked) {
		err = nil
	}
	return nil, err
}

// ofAnotherBoot reports whether a session may have begun under another boot of this machine, or on another mount.
func ofAnotherBoot(lock *os.File, now string) bool {
	boot, err := readText(lock)
	return err == nil && string(boot) != now && (len(boot) == 0 || machineOf(string(boot)) == machineOf(now))
}

// mendLock is the lock of the sweeper that repairs the effects of a power loss. The others wait for it before they read
// anything. Its holder knows that no other sweeper holds a session: one that is held is alive, in a container that sees the
// folder through another mount.
const mendLock = "mend"

type mender struct {
	store *Store
	lock  *os.File // nil until it is held
}

// begin takes the lock; it may be called again.
func (m *mender) begin(ctx context.Context) error {
	if m.lock != nil {
		return nil
	}
	path, err := m.store.files.lockPath(mendLock)
	if err != nil {
		return err
	}
	var f *os.File
	err = m.store.files.inParent(path, func() (err error) {
		f, err = m.store.files.makeLock(path)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.store.waiting.Wait(ctx, f, true); err != nil {
		return err // it has closed the file
	}
	m.lock = f
	return nil
}

func (m *mender) end() {
	if m.lock != nil {
		m.lock.Close() // nothing was written
	}
}

// machineOf is the machine in a boot identifier, "" if it has none.
func machineOf(boot string) string {
	machine, _, ok := strings.Cut(boot, " ")
	if !ok {
		return ""
	}
	return machine
}

func (d *deadSession) read() error {
	info, err := d.lock.Stat()
	if err != nil {
		return err
	}
	boot, err := readText(d.lock)
	d.began, d.boot = info.ModTime(), string(boot)
	return err
}

func (s *files) removeDead(d deadSession) error {
	err := s.discard(d.name)
	if d.lock != nil && err == nil {
		err = s.removeIfThere(d.name + lockSuffix) // a session that begins under this name would remove the file itself
	}
	return err
}
