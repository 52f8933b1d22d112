package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"e3/internal/backoff"
	"e3/refstore"
	"e3/refstore/internal/remote"
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
	poll := s.table.o.Poll
	return remote.Follow(ctx, remote.Source{
		Key: key,
		Look: func(ctx context.Context, offset int64) (*remote.Head, func() io.ReadCloser, error) {
			h, err := s.lookAt(ctx, key)
			if err != nil || h == nil {
				return nil, nil, err
			}
			return &remote.Head{Stream: h.stream, Size: h.size, Sealed: h.sealed, Cuts: h.cuts, CutTo: h.cutTo}, func() io.ReadCloser {
				return &reader{ctx: ctx, store: s, key: key, head: h, offset: offset, end: h.size, damage: h.damage}
			}, nil
		},
		Wait: func(ctx context.Context, idle int) {
			pause := 8 * poll
			if idle < 6 { // 1.5 to the 5th is 7.6
				pause = time.Duration(float64(poll) * math.Pow(1.5, float64(idle)))
			}
			_ = backoff.Wait(ctx, pause) // the next look fails if the context has ended
		},
	}, offset), nil
}
