package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"e3/internal/backoff"
	"e3/refstore"
)

// absent ignores an ErrNotFound.
func absent(err error) error {
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	return err
}

// Open implements [refstore.Streams].
func (s *Store) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	h, err := s.lookAt(ctx, key)
	if err == nil && h == nil {
		err = refstore.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", key, err)
	}
	return &reader{ctx: ctx, store: s, key: key, head: h, offset: offset, end: h.size, damage: h.damage}, nil
}

// reader reads the content that a stream had when it was opened: the parts, one after another, and then the tail. In a
// damaged stream it reads zeros for missing bytes, and returns the damage instead of io.EOF at the end.
type reader struct {
	ctx    context.Context
	store  *Store
	key    refstore.Key
	head   *head
	offset int64
	end    int64
	damage error

	part      io.ReadCloser // the open part, nil between parts
	remaining int64         // bytes of it to read
}

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case r.offset >= r.end && r.damage != nil:
			return 0, fmt.Errorf("read %q: %w", r.key, r.damage)
		case r.offset >= r.end:
			return 0, io.EOF
		case r.part == nil && r.offset >= r.head.inParts():
			n := copy(p, r.head.tail[r.offset-r.head.inParts():])
			n = int(min(int64(n), r.end-r.offset))
			r.offset += int64(n)
			return n, nil
		case r.part == nil:
			if err := r.open(); err != nil {
				return 0, fmt.Errorf("read %q at %d: %w", r.key, r.offset, err)
			}
			continue
		}
		n, err := r.part.Read(p[:min(int64(len(p)), r.remaining)])
		r.offset += int64(n)
		r.remaining -= int64(n)
		if err == io.EOF && r.remaining > 0 {
			_ = r.Close() // it was read to its end
			r.fill(r.remaining, fmt.Errorf("a part ends %d bytes before its size", r.remaining))
			err = nil
		} else if err == io.EOF || r.remaining == 0 {
			err = r.Close()
		}
		if err != nil {
			return n, fmt.Errorf("read %q at %d: %w", r.key, r.offset, err)
		}
		if n > 0 {
			return n, nil
		}
	}
}

// open opens the part that holds the offset. If the part is gone, open reads the stream's current head, which has the
// bytes in another part.
func (r *reader) open() error {
	k := r.store.table.streamKey(r.key)
	start, i := int64(0), 0
	for r.offset >= start+r.head.parts[i].size { // the offset is below inParts, so there is such a part
		start += r.head.parts[i].size
		i++
	}
	p := r.head.parts[i]
	part, err := r.store.table.openBlob(r.ctx, blobNames(k, []streamPart{p})[0], k, r.offset-start, p.size)
	if err == nil {
		r.part, r.remaining = part, min(start+p.size, r.end)-r.offset
		return nil
	}
	if !errors.Is(err, refstore.ErrNotFound) {
		return err
	}
	now, failed := r.store.table.readHead(r.ctx, k)
	switch {
	case failed != nil:
		return failed
	case now == nil || now.stream != r.head.stream:
		return fmt.Errorf("it was removed: %w", refstore.ErrNotFound)
	case now.version == r.head.version:
		r.fill(min(start+p.size, r.end)-r.offset, fmt.Errorf("a part of it is missing: %v", err)) // hides ErrNotFound
		return nil
	}
	r.end = min(r.end, now.size) // the stream may have been cut
	r.head, r.damage = now, now.damage
	return nil
}

// fill makes the reader yield zeros in place of n lost bytes.
func (r *reader) fill(n int64, why error) {
	r.part, r.remaining = io.NopCloser(zeros{}), n
	r.damage = fmt.Errorf("the stream is %w: %w", refstore.ErrDamaged, why)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func (r *reader) Close() error {
	if r.part == nil {
		return nil
	}
	err := r.part.Close()
	r.part = nil
	return err
}

// Follow implements [refstore.Streams]. It polls the head at intervals that begin with Options.Poll and grow while
// nothing changes.
func (s *Store) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	return &follower{ctx: both, close: cancel, store: s, key: key, offset: offset, pause: s.table.o.Poll}, nil
}

// follower reads a stream as it grows.
type follower struct {
	ctx    context.Context // ends with fs.ErrClosed when the follower is closed
	close  context.CancelCauseFunc
	store  *Store
	key    refstore.Key
	offset int64
	pause  time.Duration

	mu   sync.Mutex // held by Read
	head *head      // the latest head; nil until the stream exists
	now  *reader    // reads the unread bytes of head; nil at its end
}

func (f *follower) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if err := f.ctx.Err(); err != nil {
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
			_ = backoff.Wait(f.ctx, f.pause) // look fails if the context has ended
			f.pause = min(f.pause*3/2, f.store.table.o.Poll*8)
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
	h, err := f.store.lookAt(f.ctx, f.key)
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
	f.pause = f.store.table.o.Poll
	f.now = &reader{ctx: f.ctx, store: f.store, key: f.key, head: h, offset: f.offset, end: h.size, damage: h.damage}
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
	if f.now == nil {
		return nil
	}
	err := f.now.Close()
	f.now = nil
	return err
}
