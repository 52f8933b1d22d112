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

	"e3/refstore"
)

// session is this store's folder under tmp/ and the lock that shows that its process lives.
//
// The lock file tmp/<name>.lock is made and locked before the folder tmp/<name> is, and removed after it. So a folder
// without a lock file, or with one that is not locked, is a dead session's.
type session struct {
	dir   string
	lock  *os.File
	count atomic.Uint64
}

const (
	sessionPrefix = "session-"
	lockSuffix    = ".lock"
)

// next is the path of a new file or folder in the session.
func (t *session) next() string {
	return t.dir + string(filepath.Separator) + strconv.FormatUint(t.count.Add(1), 10)
}

// end removes the session.
func (t *session) end() error {
	return errors.Join(os.RemoveAll(t.dir), os.Remove(t.lock.Name()), t.lock.Close())
}

// SessionDir returns the folder for temporary files of this store, and makes it if need be. It lies on the repository's
// file system. It is removed by [Store.Close], or by another's [Store.Sweep] once this process is dead. Names that
// consist of digits only are the store's own.
func (s *Store) SessionDir() (string, error) {
	t, err := s.begin()
	if err != nil {
		return "", err
	}
	return t.dir, nil
}

// begin returns the session, and makes it if need be.
func (s *Store) begin() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("repository %s: %w", s.root, iofs.ErrClosed)
	}
	if s.session == nil {
		t, err := s.newSession()
		if err != nil {
			return nil, fmt.Errorf("begin a session in %s: %w", s.path("tmp"), err)
		}
		s.session = t
	}
	return s.session, nil
}

func (s *Store) newSession() (*session, error) {
	for {
		name := fmt.Sprintf("%s%d-%08x", sessionPrefix, os.Getpid(), rand.Uint32())
		dir := s.path("tmp", name)
		var lock *os.File
		err := s.inParent(dir, func() (err error) {
			lock, err = openStream(dir+lockSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL)
			return err
		})
		if errors.Is(err, iofs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// A sweeper may come between: then its lock is taken, or the file is gone.
		err = flock(lock, refstore.Exclusive, false)
		if err == nil && !samePath(lock) {
			err = errLocked
		}
		if err == nil {
			err = mkdir(dir)
		}
		if err == nil {
			return &session{dir: dir, lock: lock}, nil
		}
		if err := errors.Join(err, lock.Close()); !errors.Is(err, errLocked) {
			return nil, err
		}
	}
}

// renew begins a new session after old's folder has vanished, so that a repository whose tmp/ was cleared by hand stays
// writable.
func (s *Store) renew(old *session) error {
	if _, err := os.Lstat(old.dir); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == old {
		s.session = nil
		return old.lock.Close()
	}
	return nil
}

// aside runs write with a new path in the session.
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

// Sweep removes the sessions of dead processes with the files that they left, and returns how many there were. It may
// run at any time.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	tmp := s.path("tmp")
	entries, err := readDir(tmp)
	if err != nil {
		return 0, fmt.Errorf("sweep: %w", err)
	}
	names := make(map[string]struct{})
	for _, e := range entries {
		if strings.HasPrefix(e.name, sessionPrefix) {
			names[strings.TrimSuffix(e.name, lockSuffix)] = struct{}{}
		}
	}
	swept := 0
	var errs []error
	for name := range names {
		if err := ctx.Err(); err != nil {
			return swept, err
		}
		dead, err := sweepSession(filepath.Join(tmp, name))
		if err != nil {
			errs = append(errs, fmt.Errorf("sweep: %w", err))
		} else if dead {
			swept++
		}
	}
	return swept, errors.Join(errs...)
}

func sweepSession(dir string) (dead bool, err error) {
	lock, err := openStream(dir+lockSuffix, os.O_RDWR)
	if errors.Is(err, iofs.ErrNotExist) {
		return true, os.RemoveAll(dir)
	}
	if err != nil {
		return false, err
	}
	defer lock.Close() // nothing was written
	switch err := flock(lock, refstore.Exclusive, false); {
	case errors.Is(err, errLocked):
		return false, nil
	case err != nil:
		return false, err
	}
	if !samePath(lock) { // another sweeper was faster
		return false, nil
	}
	return true, errors.Join(os.RemoveAll(dir), os.Remove(lock.Name()))
}

// samePath says whether an open file is still what its path names.
func samePath(f *os.File) bool {
	there, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	here, err := f.Stat()
	return err == nil && os.SameFile(here, there)
}
