package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"e3/refstore"
)

// Follow implements [refstore.Streams]. It wakes up by file notification where that works, and polls at the store's
// interval.
func (s *Store) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	path, err := s.checkStream(ctx, key, offset)
	if err != nil {
		return nil, fmt.Errorf("follow %q: %w", key, err)
	}
	return &follower{
		ctx: ctx, store: s, key: key, path: path, offset: offset,
		wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}, nil
}

type follower struct {
	ctx   context.Context
	store *Store
	key   refstore.Key
	path  string

	wake  chan struct{}
	close sync.Once
	// closed ends a waiting Read.
	closed chan struct{}

	mu     sync.Mutex // held by Read, and by Close once Read has left
	file   *os.File   // nil until the stream exists
	offset int64
	cancel func() // ends the subscription; nil without one
}

func (f *follower) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		select {
		case <-f.closed:
			return 0, iofs.ErrClosed
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		default:
		}
		n, err := f.take(p)
		if err != nil && err != io.EOF {
			err = fmt.Errorf("follow %q at %d: %w", f.key, f.offset, err)
		}
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		if f.subscribe() {
			continue // check again: data may have come before the subscription
		}
		poll := time.NewTimer(f.store.poll)
		select {
		case <-f.wake:
		case <-poll.C:
		case <-f.closed:
		case <-f.ctx.Done():
		}
		poll.Stop()
	}
}

// take reads the available bytes. It returns 0 and nil when there are none yet.
func (f *follower) take(p []byte) (int, error) {
	if f.file == nil {
		file, err := f.store.files.openThere(f.path, os.O_RDONLY)
		if errors.Is(err, iofs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		f.file = file
	}
	// Stat before the read: if the stream was already sealed then, the read gets all the rest.
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() < f.offset {
		return 0, fmt.Errorf("%w: it has only %d bytes", refstore.ErrConflict, info.Size())
	}
	n, err := f.file.ReadAt(p, f.offset)
	f.offset += int64(n)
	switch {
	case n > 0:
		return n, nil
	case err != nil && err != io.EOF:
		return 0, err
	case len(p) == 0:
		return 0, nil
	case sealed(info):
		return 0, io.EOF
	case !f.store.files.same(f.file, f.path):
		return 0, fmt.Errorf("removed: %w", refstore.ErrNotFound)
	}
	return 0, nil
}

// subscribe begins file notification if possible, and reports whether it has just done so.
func (f *follower) subscribe() bool {
	if f.store.notify == nil || f.cancel != nil {
		return false
	}
	f.cancel = f.store.notify.subscribe(f.store.files.absolute(filepath.Dir(f.path)), filepath.Base(f.path), f.wake, nil)
	return f.cancel != nil
}

// Close ends the follower; it may be called while Read waits.
func (f *follower) Close() error {
	var err error
	f.close.Do(func() {
		close(f.closed)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.cancel != nil {
			f.cancel()
		}
		if f.file != nil {
			err = f.file.Close()
		}
	})
	return err
}
