package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"e3/internal/host/filelock"
	"e3/refstore"
)

// SessionBegan implements [refstore.Sessions].
func (s *Store) SessionBegan(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	_, began, err := s.Session()
	return began, err
}

// Protect implements [refstore.Sessions]. The names are visible to other processes when it returns. Nothing is synced,
// since protection ends when the machine stops.
func (s *Store) Protect(ctx context.Context, names []string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "\n\x00") {
			return nil, fmt.Errorf("protect %.100q: %w: a name is one line", name, refstore.ErrInvalid)
		}
		text.WriteString(name)
		text.WriteByte('\n')
	}
	var file string
	err = s.aside(func(path string) error {
		dir, base := filepath.Split(path)
		file = dir + protectPrefix + base
		_, err := s.files.createFile(file, []byte(text.String()), false)
		if err != nil {
			err = errors.Join(err, s.files.removeIfThere(file))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("protect %d names: %w", len(names), readOnly(err))
	}
	// A file that cannot be removed now is removed with the session.
	return sync.OnceFunc(func() { _ = s.files.remove(file) }), nil
}

// readOnly adds refstore.ErrReadOnly to an error that tells that this process may not write.
func readOnly(err error) error {
	if !errors.Is(err, refstore.ErrReadOnly) && (errors.Is(err, iofs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return fmt.Errorf("%w: %w", refstore.ErrReadOnly, err)
	}
	return err
}

// LiveSessions implements [refstore.Sessions]. A session whose lock file this process may not open counts as live; only
// its owner can find out more. Its protected names must be readable, though: without them any object may be in use.
func (s *Store) LiveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	var list []refstore.SessionInfo
	err := s.eachSession(func(name string, info iofs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		live, err := s.lives(name)
		if err != nil || !live {
			return err
		}
		names, err := s.protected(name)
		if err != nil {
			return fmt.Errorf("what session %s protects: %w", name, err)
		}
		list = append(list, refstore.SessionInfo{Began: info.ModTime(), Protected: names})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("live sessions: %w", err)
	}
	return list, nil
}

// eachSession calls f for every session that has a lock file, with its name and the lock file's stat.
func (s *Store) eachSession(f func(name string, lock iofs.FileInfo) error) error {
	entries, err := s.files.readDir(temp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.name, lockSuffix)
		if !ok || !strings.HasPrefix(name, sessionPrefix) {
			continue
		}
		info, err := s.files.Lstat(join(temp, e.name))
		if errors.Is(err, iofs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		if err := f(name, info); err != nil {
			return err
		}
	}
	return nil
}

// lives reports whether a session's lock is held. If the lock is free, lives takes it, shared, for an instant. A
// session that is just beginning then picks another name, and a sweep skips this one.
func (s *Store) lives(name string) (bool, error) {
	lock, err := s.files.openFile(join(temp, name+lockSuffix), os.O_RDONLY, 0)
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return false, nil
	case errors.Is(err, iofs.ErrPermission):
		return true, nil
	case err != nil:
		return false, err
	}
	defer lock.Close() // nothing was written
	err = filelock.Try(lock, false)
	if errors.Is(err, filelock.ErrLocked) {
		return true, nil
	}
	return false, err
}

// protected reads the names that a session protects.
func (s *Store) protected(name string) ([]string, error) {
	dir := join(temp, name)
	entries, err := s.files.readDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.name, protectPrefix) {
			continue
		}
		data, _, err := s.files.readFile(join(dir, e.name), false)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // it was released
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			// A line without a newline is still being written; its writer checks the line's names afterwards.
			if line, whole := strings.CutSuffix(line, "\n"); whole {
				names = append(names, line)
			}
		}
	}
	return names, nil
}
