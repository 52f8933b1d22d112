package fs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"math"
	"os"
	"sync"

	"e3/internal/host/filelock"
	"e3/refstore"
)

// maxHolder bounds the bytes that are read of a lock file.
const maxHolder = 64 << 10

// lockPath is the file of a lock. Lock files are never removed: the lock belongs to the file, not to its name.
func (s *files) lockPath(name string) (string, error) {
	if name == "" || len(name) > refstore.MaxSort {
		return "", fmt.Errorf("lock %.100q: %w: a name has 1 to %d bytes", name, refstore.ErrInvalid, refstore.MaxSort)
	}
	return join("locks", "named", escape(name)+lockSuffix), nil
}

// textSuffix is the end of the name of a file with the text of a lock's holder. The lock file itself is closed to readers.
const textSuffix = ".holder"

// namedLock is a held lock.
type namedLock struct {
	once  sync.Once
	files *files
	file  *os.File
	name  string // path of the file with the text; "" if there is none
	text  []byte
	err   error
}

// TryLock implements [refstore.Locker].
func (s *Store) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (lock refstore.Lock, err error) {
	path, err := s.files.lockPath(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	err = s.withRoom(func() error {
		lock, err = s.tryLock(name, path, mode, holder)
		return err
	})
	return lock, err
}

func (s *Store) tryLock(name, path string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	var f *os.File
	err := s.files.inParent(path, func() (err error) {
		f, err = s.files.makeLock(path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if err := lockFile(f, mode); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			text, _ := s.files.holderText(path)
			err = &refstore.LockedError{Name: name, Holder: text}
		} else {
			err = fmt.Errorf("lock %q: %w", name, err)
		}
		f.Close() // nothing was written
		return nil, err
	}
	l := &namedLock{files: s.files, file: f, text: bytes.Clone(holder)}
	if l.name = path + textSuffix; len(holder) == 0 && s.files.tree.exists(l.name) != nil {
		l.name = ""
	} else {
		if err := s.files.writeHolder(l.name, holder); err != nil {
			return nil, fmt.Errorf("lock %q: %w", name, errors.Join(err, l.Unlock()))
		}
	}
	return l, nil
}

// Unlock clears the holder's text, unless a later shared holder has written its own text, and releases the lock.
func (l *namedLock) Unlock() error {
	l.once.Do(func() {
		if l.name != "" {
			text, _, err := l.files.readFile(l.name, false)
			if err == nil && bytes.Equal(text, l.text) {
				err = l.files.writeHolder(l.name, nil)
			}
			l.err = err
		}
		l.err = errors.Join(l.err, l.file.Close())
	})
	return l.err
}

// Previous returns nil: a kernel's lock is never taken over.
func (l *namedLock) Previous() []byte { return nil }

// writeHolder writes the text of a lock's holder.
func (s *files) writeHolder(name string, text []byte) error {
	f, err := s.makeStream(name)
	if err != nil {
		return err
	}
	return errors.Join(writeText(f, text), f.Close())
}

// holderText returns the text of a lock's holder, which is empty if there is none.
func (s *files) holderText(path string) ([]byte, error) {
	text, _, err := s.read(path+textSuffix, false)
	if errors.Is(err, iofs.ErrNotExist) {
		err = nil
	}
	return text[:min(len(text), maxHolder)], err
}

// writeText writes the text first and sets the length last. So a reader sees the old text or the new text, or, if they
// differ in length, the new text with the rest of the old one.
func writeText(f *os.File, text []byte) error {
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

func readText(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, maxHolder))
}

// Holder implements [refstore.Locker]. It takes no lock: on Linux it asks the kernel. A process that may only read
// cannot open the lock file, and looks the lock up in the kernel's list. Without such a list, a holder counts as alive
// as long as its text is there.
func (s *Store) Holder(ctx context.Context, name string) ([]byte, bool, error) {
	path, err := s.files.lockPath(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, false, err
	}
	held, err := s.files.held(path)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	known := !errors.Is(err, errors.ErrUnsupported)
	if err != nil && known {
		return nil, false, fmt.Errorf("lock %q: %w", name, err)
	}
	if known && !held { // the text of a dead holder is void
		return nil, false, nil
	}
	text, err := s.files.holderText(path)
	if err != nil {
		return nil, true, fmt.Errorf("lock %q: %w", name, err)
	}
	return text, known || len(text) > 0, nil
}

// held reports whether a lock is held; errors.ErrUnsupported if this process cannot know.
func (s *files) held(path string) (bool, error) {
	f, err := s.openThere(path, os.O_RDONLY)
	if err == nil {
		defer f.Close() // nothing was written
		return lockHeld(f)
	}
	if !errors.Is(err, iofs.ErrPermission) {
		return false, err
	}
	info, err := s.lstat(path)
	if err != nil {
		return false, err
	}
	if s.looks.network { // its holder may be on another machine
		return false, errors.ErrUnsupported
	}
	held, err := filelock.Held(info)
	if err != nil {
		err = errors.ErrUnsupported
	}
	return held, err
}

// claimTable holds the claims of this store. Two claims through one open file do not conflict for the kernel, so the
// table makes them conflict.
type claimTable struct {
	name string
	mu   sync.Mutex
	held map[int64]struct{}
	claimFiles
}

// claimOffset maps a key to the offset, of 63 bits, of its claim: two keys share an offset only by a random collision.
func claimOffset(key [32]byte) int64 {
	// the byte behind the claim's must have an offset, too
	return min(int64(binary.BigEndian.Uint64(key[:])>>1), math.MaxInt64-1)
}

// TryClaim implements [refstore.Locker].
func (s *Store) TryClaim(_ context.Context, key [32]byte, _ []byte) (refstore.Lock, error) {
	t, offset := &s.claims, claimOffset(key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.held[offset]; taken {
		return nil, fmt.Errorf("claim %x: %w", key[:8], refstore.ErrClaimed)
	}
	if err := t.lock(s, offset); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			err = refstore.ErrClaimed
		}
		return nil, fmt.Errorf("claim %x: %w", key[:8], err)
	}
	if t.held == nil {
		t.held = make(map[int64]struct{})
	}
	t.held[offset] = struct{}{}
	return &claim{table: t, offset: offset}, nil
}

type claim struct {
	table  *claimTable
	offset int64
}

// Previous returns nil: a kernel's lock is never taken over.
func (c *claim) Previous() []byte { return nil }

// Unlock releases the claim, once.
func (c *claim) Unlock() error {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if c.offset < 0 {
		return nil
	}
	err := c.table.unlock(c.offset)
	delete(c.table.held, c.offset)
	c.offset = -1
	return err
}
