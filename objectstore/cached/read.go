package cached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"e3/objectstore"
)

const (
	// touchAfter is by how much the time of a copy may lag behind its last use, so that it is
	// rarely set.
	touchAfter = time.Hour

	noLimit = 1<<63 - 1
)

// errNoCopy says that the cache cannot take a copy, so that reading has to go on without.
var errNoCopy = errors.New("the cache cannot be written")

// Open returns the bytes of h: of the copy, which is made if there is none. Where no copy can be
// made they come as a stream.
func (s *Store) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	f, err := s.file(ctx, h, noLimit)
	if errors.Is(err, errNoCopy) {
		return s.remote.Open(ctx, h)
	}
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil ReadCloser
	}
	return f, nil
}

// Cached opens the copy of h, which is made if there is none, and returns the Dir in which it
// lies. The file is nil where no copy can be made.
func (s *Store) Cached(ctx context.Context, h objectstore.Hash) (*objectstore.Dir, *os.File, error) {
	f, err := s.file(ctx, h, noLimit)
	if errors.Is(err, errNoCopy) {
		return s.local, nil, nil
	}
	return s.local, f, err
}

// Materialize makes dst a file with the bytes of h, as Dir.Materialize.
func (s *Store) Materialize(ctx context.Context, h objectstore.Hash, dst string, perm fs.FileMode) error {
	return objectstore.Materialize(ctx, s, h, dst, perm)
}

// ReadAll reads an object that fits in limit bytes and checks it against its name. A copy
// that is not what it should be is fetched again.
func (s *Store) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	for attempt := 1; ; attempt++ {
		f, err := s.file(ctx, h, limit)
		if errors.Is(err, errNoCopy) {
			return s.readStream(ctx, h, limit)
		}
		if err != nil {
			return nil, err
		}
		b, err := readFile(f, h, limit)
		f.Close()
		if !isDamage(err) || attempt > 1 {
			return b, err
		}
		if err := s.local.Delete(ctx, h); err != nil {
			return nil, err
		}
	}
}

// readFile reads and checks all of f.
func readFile(f *os.File, h objectstore.Hash, limit int64) ([]byte, error) {
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	if fi.Size() > limit {
		return nil, &objectstore.TooLargeError{Hash: h, Limit: limit}
	}
	b := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	return b, check(h, b)
}

func check(h objectstore.Hash, b []byte) error {
	if got := objectstore.Sum(b); got != h {
		return &objectstore.CorruptError{Want: h, Got: got, Size: int64(len(b))}
	}
	return nil
}

// isDamage reports whether err speaks of a copy and not of the system.
func isDamage(err error) bool {
	var corrupt *objectstore.CorruptError
	return errors.As(err, &corrupt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// readStream is ReadAll without the cache.
func (s *Store) readStream(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	r, err := s.remote.Open(ctx, h)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, min(limit, noLimit-1)+1))
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	if int64(len(b)) > limit {
		return nil, &objectstore.TooLargeError{Hash: h, Limit: limit}
	}
	return b, check(h, b)
}

// file opens the copy of h at its start, after fetching it if need be, in which case it must fit in
// limit bytes. Many that want the same wait for one fetch. A copy may go at any time, as several
// processes trim the cache; one that is open stays readable.
func (s *Store) file(ctx context.Context, h objectstore.Hash, limit int64) (*os.File, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := s.openCopy(ctx, h)
		if !errors.Is(err, objectstore.ErrNotFound) {
			return f, err
		}
		led, err := s.fetches.do(ctx, h, func() error {
			return s.getting.with(ctx, func() (err error) {
				f, err = s.fetch(ctx, h, limit)
				return err
			})
		})
		if led {
			return f, err
		}
		var large *objectstore.TooLargeError // for the other's limit
		if err != nil && !errors.As(err, &large) {
			return nil, err
		}
	}
}

// openCopy opens the copy of h and notes that it is used. One that an earlier start of this machine has
// left is hashed first: what was not synced when the power went may have lost its end. A
// damaged one is removed and absent.
func (s *Store) openCopy(ctx context.Context, h objectstore.Hash) (*os.File, error) {
	f, err := s.local.OpenFile(h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, err
	}
	var fi fs.FileInfo
	if err == nil {
		if fi, err = f.Stat(); err == nil && !fi.Mode().IsRegular() {
			err = &objectstore.SpecialFileError{Path: f.Name(), Mode: fi.Mode()}
		}
		if err != nil {
			f.Close()
		}
	}
	if err != nil {
		s.warn(err)
		return nil, errNoCopy
	}
	now, used := s.o.Now(), fi.ModTime()
	if used.Before(s.o.Booted) || used.After(now.Add(touchAfter)) {
		err := verify(ctx, io.NewSectionReader(f, 0, noLimit), h)
		if err != nil {
			f.Close()
		}
		if isDamage(err) {
			if err := s.local.Delete(ctx, h); err != nil {
				s.warn(err)
				return nil, errNoCopy
			}
			return nil, fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		used = time.Time{}
	}
	if now.Sub(used) > touchAfter {
		// Another user's cannot be dated: it goes sooner.
		_ = os.Chtimes(f.Name(), time.Time{}, now)
	}
	return f, nil
}

// fetch brings h into the cache and opens it.
func (s *Store) fetch(ctx context.Context, h objectstore.Hash, limit int64) (*os.File, error) {
	if f, err := s.openCopy(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		return f, err // somebody was faster
	}
	var remoteErr error
	f, err := s.local.Insert(ctx, h, func(dst *os.File) error {
		w := &limitedFile{f: dst, h: h, limit: limit}
		_, err := s.remote.Fetch(ctx, h, w)
		if w.err != nil {
			return w.err
		}
		remoteErr = err
		return err
	})
	var corrupt *objectstore.CorruptError
	var large *objectstore.TooLargeError
	switch {
	case err == nil:
		s.grew()
		return f, nil
	case errors.Is(remoteErr, objectstore.ErrNotFound):
		s.known.forget(h)
		return nil, fmt.Errorf("object %s: %w", h, objectstore.ErrNotFound)
	case remoteErr != nil:
		return nil, fmt.Errorf("fetch object %s: %w", h, remoteErr)
	case errors.As(err, &corrupt):
		return nil, fmt.Errorf("fetch from the shared store: %w", err)
	case errors.As(err, &large):
		return nil, large
	case ctx.Err() != nil:
		return nil, err
	}
	s.warn(fmt.Errorf("it cannot take an object, and reading goes on without: %w", err))
	return nil, errNoCopy
}

// limitedFile is a file that takes no byte beyond limit and remembers its first fault, so that it can be
// told from one of the source.
type limitedFile struct {
	f     *os.File
	h     objectstore.Hash
	limit int64

	mu  sync.Mutex
	err error
}

// WriteAt writes p at off, from several goroutines.
func (w *limitedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := 0, error(&objectstore.TooLargeError{Hash: w.h, Limit: w.limit})
	if int64(len(p)) <= w.limit-off {
		n, err = w.f.WriteAt(p, off)
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = err
		}
	}
	return n, err
}

// Verify reads what the remote store holds under a name and checks it: a *CorruptError tells that
// it is something else. A damaged copy in the cache is removed.
func (s *Store) Verify(ctx context.Context, h objectstore.Hash) error {
	if err := s.local.Verify(ctx, h); isDamage(err) {
		if err := s.local.Delete(ctx, h); err != nil {
			return err
		}
	}
	r, err := s.remote.Open(ctx, h)
	if err != nil {
		return err
	}
	defer r.Close()
	return verify(ctx, r, h)
}
