package postgres

import (
	"context"
	"fmt"
	"io"

	"e3/refstore"
	"e3/refstore/internal/remote"
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
	var wake <-chan struct{}
	return remote.Follow(ctx, remote.Source{
		Key: key,
		Look: func(ctx context.Context, offset int64) (*remote.Head, func() io.ReadCloser, error) {
			if wake == nil { // before the first look
				var err error
				if wake, err = s.WatchStreams(ctx, key.Partition); err != nil {
					return nil, nil, err
				}
			}
			h, err := s.look(ctx, key, offset, chunksRead)
			if err != nil || h == nil {
				return nil, nil, err
			}
			return &remote.Head{Stream: h.stream, Size: h.size, Sealed: h.sealed, Cuts: h.cuts, CutTo: h.cutTo}, func() io.ReadCloser {
				return &reader{ctx: ctx, store: s, key: key, head: h, offset: offset, end: h.size}
			}, nil
		},
		Wait: func(context.Context, int) { <-wake }, // it wakes from time to time, and closes in the end
	}, offset), nil
}
