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

	"e3/refstore"
)

// maxHolder bounds the bytes that are read of a lock file.
const maxHolder = 64 << 10

// lockPath is the file of a lock. Lock files are never removed: the lock belongs to the file, not to its name.
func (s *files) lockPath(name string) (string, error) {
	if name == "" || len(name) > refstore.MaxSort {
		return "", fmt.Errorf("lock %.100q: %w: a name has 1 to %d bytes", name, refstore.ErrInvalid, refstore.MaxSort)
	}
	return s.path("locks", "named", escape(name)+lockSuffix), nil
}

// namedLock is a held lock.
type namedLock struct {
	once sync.Once
	file *os.File
	text []byte
	err  error
}

// TryLock implements [refstore.Locker].
func (s *Store) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	path, err := s.files.lockPath(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = s.files.inParent(path, func() (err error) {
		f, err = s.files.makeStream(path, os.O_RDWR|os.O_CREATE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, err)
	}
	if err := lockFile(f, mode); err != nil {
		if errors.Is(err, errLocked) {
			text, _ := readHolder(f)
			err = &refstore.LockedError{Name: name, Holder: text}
		} else {
			err = fmt.Errorf("lock %q: %w", name, err)
		}
		f.Close() // nothing was written
		return nil, err
	}
	l := &namedLock{file: f, text: bytes.Clone(holder)}
	if err := writeHolder(f, holder); err != nil {
		return nil, fmt.Errorf("lock %q: %w", name, errors.Join(err, l.Unlock()))
	}
	return l, nil
}

// Unlock clears the holder's text, unless a later shared holder has written another, and releases the lock.
func (l *namedLock) Unlock() error {
	l.once.Do(func() {
		text, err := readHolder(l.file)
		if err == nil && bytes.Equal(text, l.text) {
			err = l.file.Truncate(0)
		}
		l.err = errors.Join(err, l.file.Close())
	})
	return l.err
}

// Previous returns nil: a kernel's lock is never taken over.
func (l *namedLock) Previous() []byte { return nil }

// writeHolder writes the text first and sets the length last. So a reader sees the old text, the new one, or, if they
// differ in length, the new one with the rest of the old one.
func writeHolder(f *os.File, text []byte) error {
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(text)))
}

func readHolder(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, maxHolder))
}

// Holder implements [refstore.Locker]. On Linux it asks the kernel; elsewhere it must take a shared lock for a moment.
func (s *Store) Holder(ctx context.Context, name string) ([]byte, bool, error) {
	path, err := s.files.lockPath(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, false, err
	}
	f, err := s.files.openThere(path, os.O_RDONLY)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("lock %q: %w", name, err)
	}
	defer f.Close() // nothing was written
	held, err := lockHeld(f)
	if err != nil {
		return nil, false, fmt.Errorf("lock %q: %w", name, err)
	}
	if !held { // the text of a dead holder is void
		return nil, false, nil
	}
	text, err := readHolder(f)
	if err != nil {
		return nil, true, fmt.Errorf("lock %q: %w", name, err)
	}
	return text, true, nil
}

// claimTable holds the claims of this store. The kernel does not exclude two claims through one open file from each
// other, so the table does.
type claimTable struct {
	path string
	mu   sync.Mutex
	held map[int64]struct{}
	claimFiles
}

// claimOffset maps a key to the 63 bits that name its claim: two keys have the same number only by a random collision.
func claimOffset(key [32]byte) int64 {
	return min(int64(binary.BigEndian.Uint64(key[:])>>1), math.MaxInt64-1) // the byte after it must have an offset too
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
		if errors.Is(err, errLocked) {
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
