package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"e3/refstore"
)

// stream is the state of one stream, under Store.mu.
type stream struct {
	data    []byte
	sealed  bool
	changed chan struct{} // closed and replaced at each change
}

// stream returns the key's stream, and makes one if it does not exist. A stream that only a follower waits for has
// data == nil and does not exist for others. It needs s.mu.
func (s *Store) stream(key refstore.Key) *stream {
	st := s.streams[key]
	if st == nil {
		st = &stream{changed: make(chan struct{})}
		s.streams[key] = st
	}
	return st
}

// existing returns the key's stream or ErrNotFound. It needs s.mu.
func (s *Store) existing(op string, key refstore.Key) (*stream, error) {
	st := s.streams[key]
	if st == nil || st.data == nil {
		return nil, fmt.Errorf("%s %q: %w", op, key, refstore.ErrNotFound)
	}
	return st, nil
}

// touch wakes the readers that wait for the key's stream. It needs s.mu.
func (s *Store) touch(key refstore.Key, st *stream) {
	close(st.changed)
	st.changed = make(chan struct{})
	s.wake(watched{partition: key.Partition, streams: true})
}

// Append implements [refstore.Streams].
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := checkOffset(ctx, key, offset); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(key)
	switch {
	case st.sealed:
		return fmt.Errorf("append to %q: %w", key, refstore.ErrSealed)
	case offset != int64(len(st.data)):
		return fmt.Errorf("append to %q at %d, which has %d bytes: %w", key, offset, len(st.data), refstore.ErrConflict)
	}
	if st.data == nil {
		st.data = []byte{}
	}
	st.data = append(st.data, data...)
	s.touch(key, st)
	return nil
}

// Open implements [refstore.Streams].
func (s *Store) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.existing("open", key)
	if err != nil {
		return nil, err
	}
	from := min(offset, int64(len(st.data)))
	return io.NopCloser(bytes.NewReader(st.data[from:])), nil // no byte of it changes: appends write behind it, and Cut lets them copy it
}

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return refstore.StreamInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.existing("size of", key)
	if err != nil {
		return refstore.StreamInfo{}, err
	}
	return refstore.StreamInfo{Size: int64(len(st.data)), Sealed: st.sealed}, nil
}

// Cut implements [refstore.Streams].
func (s *Store) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := checkOffset(ctx, key, size); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.existing("cut", key)
	switch {
	case err != nil:
		return err
	case st.sealed:
		return fmt.Errorf("cut %q: %w", key, refstore.ErrSealed)
	case size > int64(len(st.data)):
		return fmt.Errorf("cut %q to %d, which has %d bytes: %w", key, size, len(st.data), refstore.ErrConflict)
	}
	st.data = st.data[:size:size] // readers may still hold the tail's bytes
	s.touch(key, st)
	return nil
}

// Seal implements [refstore.Streams].
func (s *Store) Seal(ctx context.Context, key refstore.Key) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(key)
	if st.sealed {
		return nil
	}
	if st.data == nil {
		st.data = []byte{}
	}
	st.sealed = true
	s.touch(key, st)
	return nil
}

// Remove implements [refstore.Streams].
func (s *Store) Remove(ctx context.Context, key refstore.Key) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.existing("remove", key)
	if err != nil {
		return err
	}
	delete(s.streams, key)
	s.touch(key, st)
	return nil
}

// ListStreams implements [refstore.Streams].
func (s *Store) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Key{}, err)
			return
		}
		s.mu.Lock()
		var sorts []string
		for key, st := range s.streams {
			if key.Partition == q.Partition && st.data != nil {
				sorts = append(sorts, key.Sort)
			}
		}
		s.mu.Unlock()
		for i, sort := range q.Select(sorts) {
			if q.Limit > 0 && i == q.Limit || !yield(refstore.Key{Partition: q.Partition, Sort: sort}, nil) {
				return
			}
		}
	}
}

// ListPartitions implements [refstore.Streams].
func (s *Store) ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := check(ctx, refstore.Query{Partition: kind}.Validate()); err != nil {
			yield("", err)
			return
		}
		found := map[string][]string{}
		s.mu.Lock()
		for key, st := range s.streams {
			if of, _, _ := strings.Cut(key.Partition, "/"); of == kind && st.data != nil {
				found[key.Partition] = strings.Split(key.Partition, "/")
			}
		}
		s.mu.Unlock()
		for _, p := range slices.SortedFunc(maps.Keys(found), func(a, b string) int { return slices.Compare(found[a], found[b]) }) {
			if !yield(p, nil) {
				return
			}
		}
	}
}

// WatchStreams implements [refstore.Streams].
func (s *Store) WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error) {
	return s.watch(ctx, watched{partition: partition, streams: true})
}

// Follow implements [refstore.Streams].
func (s *Store) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if err := checkOffset(ctx, key, offset); err != nil {
		return nil, err
	}
	return &follower{ctx: ctx, store: s, key: key, offset: offset, closed: make(chan struct{})}, nil
}

// follower reads a stream as it grows.
type follower struct {
	ctx    context.Context
	store  *Store
	key    refstore.Key
	stream *stream // the stream found at key first; nil until the first Read
	offset int64
	close  sync.Once
	closed chan struct{}
}

func (f *follower) Read(p []byte) (int, error) {
	for {
		select {
		case <-f.closed:
			return 0, fs.ErrClosed
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		default:
		}
		n, changed, err := f.take(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		select {
		case <-changed:
		case <-f.closed:
		case <-f.ctx.Done():
		}
	}
}

// take copies the available bytes, or returns the channel that the next change closes.
func (f *follower) take(p []byte) (int, <-chan struct{}, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.stream == nil {
		f.stream = f.store.stream(f.key)
	}
	st := f.stream
	switch size := int64(len(st.data)); {
	case f.store.streams[f.key] != st:
		return 0, nil, fmt.Errorf("follow %q: removed: %w", f.key, refstore.ErrNotFound)
	case f.offset < size:
		n := copy(p, st.data[f.offset:])
		f.offset += int64(n)
		return n, nil, nil
	case f.offset > size && st.data != nil:
		return 0, nil, fmt.Errorf("follow %q at %d: it has only %d bytes: %w", f.key, f.offset, size, refstore.ErrConflict)
	case st.sealed:
		return 0, nil, io.EOF
	}
	return 0, st.changed, nil
}

func (f *follower) Close() error {
	f.close.Do(func() { close(f.closed) })
	return nil
}

func checkOffset(ctx context.Context, key refstore.Key, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("stream %q: %w: negative offset %d", key, refstore.ErrInvalid, offset)
	}
	return check(ctx, key.Validate())
}
