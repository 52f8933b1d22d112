// Package remote has what stores of records in a database share: the tries of a request, and followers of streams.
package remote

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"e3/refstore"
)

// A Head is the state of a stream.
type Head struct {
	Stream      string // differs if the stream was removed and made again
	Size        int64
	Sealed      bool
	Cuts, CutTo int64 // how often it was cut, and to which size the last time
}

// A Source is a stream that is followed.
type Source struct {
	Key refstore.Key
	// Look returns the stream's head, nil if there is no stream, and a function that opens the bytes from offset to the end that
	// the head has.
	Look func(ctx context.Context, offset int64) (h *Head, open func() io.ReadCloser, err error)
	// Wait waits until the stream may have grown. idle is the number of waits since it last has.
	Wait func(ctx context.Context, idle int)
}

// Follow returns a reader of a stream as it grows, from an offset on, until ctx ends or the reader is closed.
func Follow(ctx context.Context, s Source, offset int64) io.ReadCloser {
	f := &follower{Source: s, offset: offset}
	f.ctx, f.close = context.WithCancelCause(ctx)
	return f
}

type follower struct {
	Source
	ctx    context.Context // ends with fs.ErrClosed when the follower is closed
	close  context.CancelCauseFunc
	offset int64
	idle   int

	mu   sync.Mutex    // held by Read
	head *Head         // the latest head; nil until the stream exists
	now  io.ReadCloser // reads the unread bytes of head; nil at its end
}

func (f *follower) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if f.ctx.Err() != nil {
			return 0, context.Cause(f.ctx)
		}
		if len(p) == 0 {
			return 0, nil
		}
		if f.now != nil {
			n, err := f.now.Read(p)
			f.offset += int64(n)
			if n > 0 || err != nil && err != io.EOF {
				return n, f.cause(err)
			}
			f.now = nil
			if f.head.Sealed && f.offset >= f.head.Size {
				return 0, io.EOF
			}
		}
		news, err := f.look()
		if err != nil {
			return 0, f.cause(err)
		}
		if !news {
			f.Wait(f.ctx, f.idle)
			f.idle++
		}
	}
}

// cause returns the reason why the follower ended, if there is one, else err.
func (f *follower) cause(err error) error {
	if err != nil && f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return err
}

// look reads the head and reports whether there are unread bytes.
func (f *follower) look() (news bool, err error) {
	h, open, err := f.Look(f.ctx, f.offset)
	if err != nil {
		return false, fmt.Errorf("follow %q: %w", f.Key, err)
	}
	before := f.head
	switch {
	case h == nil && before == nil:
		return false, nil
	case h == nil, before != nil && h.Stream != before.Stream:
		return false, fmt.Errorf("follow %q: removed: %w", f.Key, refstore.ErrNotFound)
	case f.offset > h.Size, before != nil && !untouched(before, h, f.offset):
		return false, fmt.Errorf("follow %q at %d: it was cut to %d bytes: %w", f.Key, f.offset, h.CutTo, refstore.ErrConflict)
	}
	f.head = h
	if f.offset == h.Size {
		if h.Sealed {
			return false, io.EOF
		}
		return false, nil
	}
	f.idle, f.now = 0, open()
	return true, nil
}

// untouched reports whether the first offset bytes are certainly the same in two heads of a stream.
func untouched(before, now *Head, offset int64) bool {
	return now.Cuts == before.Cuts || now.Cuts == before.Cuts+1 && now.CutTo >= offset
}

func (f *follower) Close() error {
	f.close(fs.ErrClosed)
	f.mu.Lock() // so no Read waits any more
	defer f.mu.Unlock()
	if f.now == nil {
		return nil
	}
	err := f.now.Close()
	f.now = nil
	return err
}
