package overlay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"

	"e3/refstore"
)

// maxCopy bounds a stream of the base that is changed here, in bytes: it is copied at once.
const maxCopy = 256 << 20

// gonePartition has the local records of streams of the base that were removed here.
const gonePartition = "INDEX/overlay"

// goneKey is the local record that says that a stream of the base was removed here.
func goneKey(key refstore.Key) refstore.Key {
	sum := sha256.Sum256([]byte(key.Partition + "\x00" + key.Sort))
	return refstore.Key{Partition: gonePartition, Sort: hex.EncodeToString(sum[:])}
}

// place is where a stream is.
type place int

const (
	nowhere place = iota
	inLocal
	inBase
)

// find returns which of the stores has a stream, and what it says of it.
func (s *Store) find(ctx context.Context, key refstore.Key) (place, refstore.StreamInfo, error) {
	info, err := s.local.Size(ctx, key)
	if !errors.Is(err, refstore.ErrNotFound) {
		return inLocal, info, err
	}
	_, err = s.local.Get(ctx, goneKey(key))
	if !errors.Is(err, refstore.ErrNotFound) {
		return nowhere, refstore.StreamInfo{}, err
	}
	info, err = s.base.Size(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nowhere, refstore.StreamInfo{}, nil
	}
	return inBase, info, err
}

// from returns the store that has a stream. ErrNotFound.
func (s *Store) from(ctx context.Context, what string, key refstore.Key) (refstore.Streams, refstore.StreamInfo, error) {
	at, info, err := s.find(ctx, key)
	switch {
	case err != nil:
		return nil, info, err
	case at == inBase:
		return s.base, info, nil
	case at == inLocal:
		return s.local, info, nil
	}
	return nil, info, fmt.Errorf("%s stream %q: %w", what, key, refstore.ErrNotFound)
}

// own makes a stream of the base, if it is there, one of the local store, so that it can be changed. ErrSealed.
func (s *Store) own(ctx context.Context, key refstore.Key) error {
	at, info, err := s.find(ctx, key)
	switch {
	case err != nil || at != inBase:
		return err
	case info.Sealed:
		return fmt.Errorf("change stream %q: %w", key, refstore.ErrSealed)
	case info.Size > maxCopy:
		return fmt.Errorf("change stream %q: %w: it has %d bytes, and at most %d are copied", key, refstore.ErrFull, info.Size, maxCopy)
	}
	r, err := s.base.Open(ctx, key, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxCopy))
	if err != nil {
		return err
	}
	err = s.local.Append(ctx, key, 0, data)
	if errors.Is(err, refstore.ErrConflict) { // another process has copied it meanwhile
		return nil
	}
	return err
}

// Append implements [refstore.Streams].
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := s.own(ctx, key); err != nil {
		return err
	}
	return s.local.Append(ctx, key, offset, data)
}

// Cut implements [refstore.Streams].
func (s *Store) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := s.own(ctx, key); err != nil {
		return err
	}
	return s.local.Cut(ctx, key, size)
}

// Seal implements [refstore.Streams].
func (s *Store) Seal(ctx context.Context, key refstore.Key) error {
	err := s.own(ctx, key)
	switch {
	case errors.Is(err, refstore.ErrSealed):
		return nil
	case err != nil:
		return err
	}
	return s.local.Seal(ctx, key)
}

// Open implements [refstore.Streams].
func (s *Store) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	from, _, err := s.from(ctx, "open", key)
	if err != nil {
		return nil, err
	}
	return from.Open(ctx, key, offset)
}

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	_, info, err := s.from(ctx, "size of", key)
	return info, err
}

// Remove implements [refstore.Streams].
func (s *Store) Remove(ctx context.Context, key refstore.Key) error {
	if _, _, err := s.from(ctx, "remove", key); err != nil {
		return err
	}
	if _, err := s.base.Size(ctx, key); err == nil {
		_, err := s.local.Put(ctx, refstore.Record{Key: goneKey(key)})
		if err != nil && !errors.Is(err, refstore.ErrConflict) { // it is marked already
			return err
		}
	} else if !errors.Is(err, refstore.ErrNotFound) {
		return err
	}
	err := s.local.Remove(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	return err
}

// Follow implements [refstore.Streams]. A stream that neither store has is awaited in both.
func (s *Store) Follow(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	at, _, err := s.find(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case at == inBase:
		return s.base.Follow(ctx, key, offset)
	case at == inLocal:
		return s.local.Follow(ctx, key, offset)
	}
	if err := key.Validate(); err != nil {
		return nil, err
	}
	f := &follower{s: s, key: key, offset: offset, outer: ctx}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	return f, nil
}

// follower reads a stream that was nowhere when it began.
type follower struct {
	s      *Store
	key    refstore.Key
	offset int64
	outer  context.Context // the caller's
	ctx    context.Context // ends with Close too
	stop   context.CancelCauseFunc

	mu    sync.Mutex
	inner io.ReadCloser // nil until there is a stream
}

// Read implements [io.Reader].
func (f *follower) Read(p []byte) (int, error) {
	f.mu.Lock()
	inner := f.inner
	f.mu.Unlock()
	if inner == nil {
		var err error
		if inner, err = f.await(); err != nil {
			return 0, err
		}
	}
	return inner.Read(p)
}

// await returns the stream once one of the stores has it.
func (f *follower) await() (io.ReadCloser, error) {
	changed, err := f.s.WatchStreams(f.ctx, f.key.Partition)
	if err != nil {
		return nil, f.ended(err)
	}
	for {
		at, _, err := f.s.find(f.ctx, f.key)
		if err != nil {
			return nil, f.ended(err)
		}
		if at != nowhere {
			inner, err := f.s.Follow(f.ctx, f.key, f.offset)
			if err != nil {
				return nil, f.ended(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.ctx.Err() != nil {
				inner.Close()
				return nil, f.ended(f.ctx.Err())
			}
			f.inner = inner
			return inner, nil
		}
		select {
		case <-changed:
		case <-f.ctx.Done():
		}
		if f.ctx.Err() != nil {
			return nil, f.ended(f.ctx.Err())
		}
	}
}

// ended is the error of a read that the caller, or Close, has ended.
func (f *follower) ended(err error) error {
	switch {
	case f.outer.Err() != nil:
		return context.Cause(f.outer)
	case f.ctx.Err() != nil:
		return fs.ErrClosed
	}
	return err
}

// Close implements [io.Closer].
func (f *follower) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.inner != nil {
		err = f.inner.Close()
	}
	f.stop(fs.ErrClosed)
	return err
}

// ListStreams implements [refstore.Streams].
func (s *Store) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		fail := func(err error) { yield(refstore.Key{}, err) }
		hidden := map[string]bool{}
		for rec, err := range s.local.List(ctx, refstore.Query{Partition: gonePartition, KeysOnly: true}) {
			if err != nil {
				fail(err)
				return
			}
			hidden[rec.Key.Sort] = true
		}
		local, far := q, q
		local.Limit = 0
		var sorts []string
		here := map[string]bool{}
		for key, err := range s.local.ListStreams(ctx, local) {
			if err != nil {
				fail(err)
				return
			}
			here[key.Sort] = true
			sorts = append(sorts, key.Sort)
		}
		if q.Limit > 0 {
			far.Limit = q.Limit + len(here) + len(hidden)
		}
		for key, err := range s.base.ListStreams(ctx, far) {
			if err != nil {
				fail(err)
				return
			}
			if !here[key.Sort] && !hidden[goneKey(key).Sort] {
				sorts = append(sorts, key.Sort)
			}
		}
		sorts = q.Select(sorts)
		if q.Limit > 0 {
			sorts = sorts[:min(q.Limit, len(sorts))]
		}
		for _, sort := range sorts {
			if !yield(refstore.Key{Partition: q.Partition, Sort: sort}, nil) {
				return
			}
		}
	}
}

// ListPartitions implements [refstore.Streams].
func (s *Store) ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		next, stop := iter.Pull2(s.local.ListPartitions(ctx, kind))
		defer stop()
		here, err, some := next()
		for there, baseErr := range s.base.ListPartitions(ctx, kind) {
			for some && err == nil && baseErr == nil && before(here, there) {
				if !yield(here, nil) {
					return
				}
				here, err, some = next()
			}
			if some && err != nil {
				baseErr = err
			}
			if baseErr != nil {
				yield("", baseErr)
				return
			}
			if some && here == there {
				here, err, some = next()
			}
			if !yield(there, nil) {
				return
			}
		}
		for ; some; here, err, some = next() {
			if !yield(here, err) || err != nil {
				return
			}
		}
	}
}

// WatchStreams implements [refstore.Streams].
func (s *Store) WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error) {
	here, err := s.local.WatchStreams(ctx, partition)
	if err != nil {
		return nil, err
	}
	there, err := s.base.WatchStreams(ctx, partition)
	if err != nil {
		return nil, err
	}
	return either(here, there), nil
}

// before compares partitions segment by segment, in the order of [refstore.Streams].
func before(a, b string) bool {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) < 0
}
