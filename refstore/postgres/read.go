package postgres

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"e3/refstore"
)

// Open implements [refstore.Streams].
func (s *Store) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	h, err := s.existing(ctx, "open", key, offset, chunksRead)
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, store: s, key: key, head: h, offset: offset, end: h.size}, nil
}

// Tail implements [refstore.Tailer].
func (s *Store) Tail(ctx context.Context, key refstore.Key, n int64) ([]byte, refstore.StreamInfo, error) {
	h, err := s.existing(ctx, "tail of", key, -max(n, 1), chunksRead)
	if err != nil {
		return nil, refstore.StreamInfo{}, err
	}
	r := &reader{ctx: ctx, store: s, key: key, head: h, offset: max(h.size-n, 0), end: h.size}
	data, err := io.ReadAll(r)
	return data, refstore.StreamInfo{Size: h.size, Sealed: h.sealed}, err
}

// reader reads the content that a stream had when it was opened. In a damaged stream it reads zeros for missing bytes, and
// returns the damage instead of io.EOF at the end.
type reader struct {
	ctx    context.Context
	store  *Store
	key    refstore.Key
	head   *head // with the next chunks
	offset int64
	end    int64
	damage error
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.offset < r.end {
		for len(r.head.chunks) > 0 {
			c := r.head.chunks[0]
			switch beyond := c.start + int64(len(c.data)); {
			case c.start > r.offset:
				return r.zeros(p, c.start), nil
			case beyond > r.offset:
				n := copy(p, c.data[r.offset-c.start:])
				n = int(min(int64(n), r.end-r.offset))
				r.offset += int64(n)
				return n, nil
			}
			r.head.chunks = r.head.chunks[1:]
		}
		if err := r.next(); err != nil {
			return 0, fmt.Errorf("read %q at %d: %w", r.key, r.offset, err)
		}
		if r.offset < r.end && len(r.head.chunks) == 0 || lacks(r.head.chunks, r.offset) && len(r.head.chunks) == 1 {
			return r.zeros(p, r.end), nil
		}
	}
	if r.damage != nil {
		return 0, fmt.Errorf("read %q: %w", r.key, r.damage)
	}
	return 0, io.EOF
}

// lacks reports whether the first chunk ends before the offset.
func lacks(chunks []chunk, offset int64) bool {
	return len(chunks) > 0 && chunks[0].start+int64(len(chunks[0].data)) <= offset
}

// next reads further chunks, with the head as it is now.
func (r *reader) next() error {
	now, err := r.store.look(r.ctx, r.key, r.offset, chunksRead)
	if err != nil {
		return err
	}
	if now == nil || now.stream != r.head.stream {
		return fmt.Errorf("it was removed: %w", refstore.ErrNotFound)
	}
	r.end = min(r.end, now.size) // it may have been cut
	r.head = now
	return nil
}

// zeros reads zeros in place of the bytes that are missing before an offset.
func (r *reader) zeros(p []byte, to int64) int {
	n := int(min(int64(len(p)), min(to, r.end)-r.offset))
	clear(p[:n])
	r.damage = fmt.Errorf("the stream is %w: bytes before %d are missing", refstore.ErrDamaged, to)
	r.offset += int64(n)
	return n
}

func (r *reader) Close() error { return nil }

// Follow implements [refstore.Streams].
func (s *Store) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	wake, err := s.WatchStreams(both, key.Partition)
	if err != nil {
		cancel(err)
		return nil, err
	}
	return &follower{ctx: both, close: cancel, store: s, key: key, offset: offset, wake: wake}, nil
}

// follower reads a stream as it grows.
type follower struct {
	ctx    context.Context // ends with fs.ErrClosed when the follower is closed
	close  context.CancelCauseFunc
	store  *Store
	key    refstore.Key
	offset int64
	wake   <-chan struct{}

	mu   sync.Mutex // held by Read
	head *head      // the latest head; nil until the stream exists
	now  *reader    // reads the unread bytes of head; nil at its end
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
			if f.head.sealed && f.offset >= f.head.size {
				return 0, io.EOF
			}
		}
		news, err := f.look()
		if err != nil {
			return 0, f.cause(err)
		}
		if !news {
			select {
			case <-f.wake:
			case <-f.ctx.Done():
			case <-time.After(f.store.pause()):
			}
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
	h, err := f.store.look(f.ctx, f.key, f.offset, chunksRead)
	if err != nil {
		return false, fmt.Errorf("follow %q: %w", f.key, err)
	}
	before := f.head
	switch {
	case h == nil && before == nil:
		return false, nil
	case h == nil, before != nil && h.stream != before.stream:
		return false, fmt.Errorf("follow %q: removed: %w", f.key, refstore.ErrNotFound)
	case f.offset > h.size, before != nil && !untouched(before, h, f.offset):
		return false, fmt.Errorf("follow %q at %d: it was cut to %d bytes: %w", f.key, f.offset, h.cutTo, refstore.ErrConflict)
	}
	f.head = h
	if f.offset == h.size {
		if h.sealed {
			return false, io.EOF
		}
		return false, nil
	}
	f.now = &reader{ctx: f.ctx, store: f.store, key: f.key, head: h, offset: f.offset, end: h.size}
	return true, nil
}

// untouched reports whether the first offset bytes are certainly the same in two heads of a stream.
func untouched(before, now *head, offset int64) bool {
	return now.cuts == before.cuts || now.cuts == before.cuts+1 && now.cutTo >= offset
}

func (f *follower) Close() error {
	f.close(fs.ErrClosed)
	f.mu.Lock() // so no Read waits any more
	defer f.mu.Unlock()
	f.now = nil
	return nil
}
