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
	// touchAfter is the greatest lag of a copy's time behind its last use, so that the time is set rarely.
	touchAfter = time.Hour

	noLimit = 1<<63 - 1
)

// errNoCopy says that the cache cannot hold a copy, so that reads continue without it.
var errNoCopy = errors.New("the cache cannot be written")

// Open returns the bytes of h from the cache's copy. It fetches a missing copy. The copy is checked before its first
// byte is returned: until then a damaged copy can be fetched again. If no copy can be made, the remote bytes are
// streamed.
func (s *Store) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	var r io.ReadCloser
	err := s.read(ctx, h, noLimit, func(f *os.File) error {
		err := objectstore.CheckReader(ctx, h, io.NewSectionReader(f, 0, noLimit))
		if err != nil {
			f.Close()
			return err
		}
		r, err = objectstore.CheckingFile(h, f)
		return err
	})
	if errors.Is(err, errNoCopy) {
		r, err = s.remote.Open(ctx, h)
		if err == nil {
			r = objectstore.Checking(h, r, objectstore.UnknownSize)
		}
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// read calls use with the copy of h. If use reports damage, read calls it once more with another copy. use must close
// the copies.
func (s *Store) read(ctx context.Context, h objectstore.Hash, limit int64, use func(*os.File) error) error {
	for attempt := 1; ; attempt++ {
		f, err := s.file(ctx, h, limit)
		if err != nil {
			return err
		}
		if err = use(f); !isDamage(err) || attempt > 1 {
			return err
		}
		if err := s.Uncache(ctx, h); err != nil {
			return err
		}
	}
}

// Cached opens the copy of h, and returns the copy's Dir. It fetches a missing copy. The file is nil if no copy can be
// made.
func (s *Store) Cached(ctx context.Context, h objectstore.Hash) (*objectstore.Dir, *os.File, error) {
	f, err := s.file(ctx, h, noLimit)
	if errors.Is(err, errNoCopy) {
		return s.local, nil, nil
	}
	return s.local, f, err
}

// FetchCopy fetches h into the cache unless there is a copy.
func (s *Store) FetchCopy(ctx context.Context, h objectstore.Hash) error {
	f, err := s.file(ctx, h, noLimit)
	if err == nil {
		err = f.Close()
	}
	return err
}

// Uncache removes a damaged copy.
func (s *Store) Uncache(ctx context.Context, h objectstore.Hash) error { return s.local.Delete(ctx, h) }

// Shares is as of the Dir with the copies.
func (s *Store) Shares() bool { return s.local.Shares() }

// Materialize makes a file with the bytes of h, as Dir.Materialize.
func (s *Store) Materialize(ctx context.Context, h objectstore.Hash, in objectstore.Folder, name string, perm fs.FileMode) error {
	_, err := objectstore.Materialize(ctx, s, h, in, name, perm)
	return err
}

// ReadAll reads an object that fits in limit bytes and checks it against its name. A damaged copy is fetched again.
func (s *Store) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	var b []byte
	err := s.read(ctx, h, limit, func(f *os.File) (err error) {
		defer f.Close()
		b, err = objectstore.ReadFile(h, f, limit)
		return err
	})
	if errors.Is(err, errNoCopy) {
		r, err := s.remote.Open(ctx, h)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return objectstore.ReadStream(h, r, limit)
	}
	return b, err
}

// isDamage reports whether err tells of damaged bytes. Bytes that cannot be read are no damage.
func isDamage(err error) bool {
	var corrupt *objectstore.CorruptError
	return errors.As(err, &corrupt)
}

// file opens the copy of h at its start. A missing copy is fetched if it fits in limit bytes; concurrent readers wait
// for one fetch. Several processes trim the cache, so a copy may be removed at any time, but an open one stays
// readable.
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
		var large *objectstore.TooLargeError // under the limit of the other call
		if err != nil && !errors.As(err, &large) {
			return nil, err
		}
	}
}

// openCopy opens the copy of h and marks it as used. A copy from before this machine's start is hashed first, because a
// loss of power may have cut it off. A damaged copy is removed and counts as absent.
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
		err := objectstore.CheckReader(ctx, h, io.NewSectionReader(f, 0, noLimit))
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
		// Only the owner may set the time, so other users' copies are trimmed sooner.
		_ = os.Chtimes(f.Name(), time.Time{}, now)
	}
	return f, nil
}

// fetch copies h into the cache and opens it.
func (s *Store) fetch(ctx context.Context, h objectstore.Hash, limit int64) (*os.File, error) {
	if f, err := s.openCopy(ctx, h); !errors.Is(err, objectstore.ErrNotFound) {
		return f, err // another call has fetched it
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
		s.trimIfGrown()
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
	s.warn(fmt.Errorf("it cannot hold an object, so reading continues without it: %w", err))
	return nil, errNoCopy
}

// limitedFile accepts no byte beyond limit. It remembers its first fault, so that a fault of the file can be told from
// a fault of the source.
type limitedFile struct {
	f     *os.File
	h     objectstore.Hash
	limit int64

	mu  sync.Mutex
	err error
}

// WriteAt writes p at off. It is safe for concurrent use.
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

// Verify reads and checks the remote object; other bytes are a *CorruptError. It also removes a damaged copy from the
// cache.
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
	return objectstore.CheckReader(ctx, h, r)
}
