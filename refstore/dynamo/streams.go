package dynamo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// StreamPace is the time for which callers should gather data between appends, since each append is a request that
// rewrites the stream's tail.
func (s *Store) StreamPace() time.Duration { return s.table.o.Pace }

// change is a new head of a stream, with the parts that it adds and drops.
type change struct {
	next    *head        // nil: no change
	added   []streamPart // blobs that were put for next; deleted if next does not become the head
	dropped []streamPart // blobs that next no longer names; deleted once next is the head
}

// maxHeads bounds the remembered heads. A head has at most 10 KiB if its stream is below 1 GiB.
const maxHeads = 1024

// remember keeps the head that this process wrote last, so that the next append need not read it; nil forgets it.
func (s *Store) remember(key refstore.Key, h *head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h == nil || h.sealed {
		delete(s.heads, key)
		return
	}
	if len(s.heads) >= maxHeads {
		for other := range s.heads {
			delete(s.heads, other)
			break
		}
	}
	s.heads[key] = h
}

// change replaces the head of a stream by the result of f; nil means that the stream does not exist. The first head
// given to f may be out of date. The result takes effect only if no other write came since. create says that the
// stream probably does not exist.
func (s *Store) change(ctx context.Context, key refstore.Key, create bool, f func(h *head) (change, error)) error {
	k := s.table.streamKey(key)
	s.mu.Lock()
	h := s.heads[key]
	s.mu.Unlock()
	fresh := false
	read := func() (err error) {
		h, err = s.table.readHead(ctx, k)
		fresh = true
		return err
	}
	if h == nil && !create {
		if err := read(); err != nil {
			return err
		}
	}
	for {
		c, err := f(h)
		if (err != nil || c.next == nil) && !fresh && ctx.Err() == nil {
			if err := read(); err != nil {
				return err
			}
			continue
		}
		if err != nil || c.next == nil {
			return err
		}
		won, doubt, err := s.writeHead(ctx, key, h, c.next)
		if won {
			s.remember(key, c.next)
			s.table.deleteBlobs(ctx, blobNames(k, c.dropped))
			return nil
		}
		s.remember(key, nil)
		if err != nil && doubt {
			return err
		}
		if h != nil || err != nil { // a refused creation may be delivered again, as for a record
			s.table.deleteBlobs(ctx, blobNames(k, c.added))
		}
		if err != nil {
			return err
		}
		if err := read(); err != nil {
			return err
		}
	}
}

// writeHead writes next in place of h, which may be nil. won reports whether next is now the head. With an error, doubt
// says that the write may have taken effect.
func (s *Store) writeHead(ctx context.Context, key refstore.Key, h, next *head) (won, doubt bool, err error) {
	k := s.table.streamKey(key)
	next.version = newVersion()
	condition, values := "attribute_not_exists("+partitionKey+")", attributes(nil)
	if h == nil {
		next.replaced, next.stream = "", newVersion()
		if err := s.enter(ctx, []itemKey{s.table.partitionItem(key.Partition)}); err != nil {
			return false, false, err
		}
	} else {
		next.replaced = h.version
		condition, values = attrVersion+" = :o", attributes{":o": &types.AttributeValueMemberS{Value: h.version}}
	}
	doubt, err = s.table.putItem(ctx, next.item(k), condition, values)
	if conditionFailed(err) {
		doubt, err = s.refused(ctx, k, next.version, next.replaced, doubt)
		if errors.Is(err, refstore.ErrConflict) {
			return false, false, nil
		}
	}
	return err == nil, doubt, err
}

// Append implements [refstore.Streams].
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := checkOffset(ctx, key, offset); err != nil {
		return err
	}
	err := s.change(ctx, key, offset == 0, func(h *head) (change, error) {
		next := head{}
		if h != nil {
			next = *h
		}
		switch {
		case next.sealed:
			return change{}, refstore.ErrSealed
		case next.damage != nil:
			return change{}, next.damage
		case offset != next.size:
			return change{}, fmt.Errorf("it has %d bytes: %w", next.size, refstore.ErrConflict)
		case h != nil && len(data) == 0:
			return change{}, nil
		}
		next.size += int64(len(data))
		next.tail = slices.Concat(next.tail, data)
		if len(next.tail) <= maxTail {
			return change{next: &next}, nil
		}
		return s.flush(ctx, s.table.streamKey(key), next)
	})
	if err != nil {
		return fmt.Errorf("append to %q at %d: %w", key, offset, err)
	}
	return nil
}

// flush converts the tail of a head to a part.
func (s *Store) flush(ctx context.Context, k itemKey, next head) (change, error) {
	c := change{next: &next}
	p, err := s.putPart(ctx, k, next.tail)
	if err != nil {
		return change{}, err
	}
	c.added = append(c.added, p)
	next.parts = append(slices.Clone(next.parts), p)
	next.tail = nil
	err = s.merge(ctx, k, &c)
	if err == nil && len(next.parts) > maxTable {
		err = fmt.Errorf("it has %d bytes in %d parts: %w", next.size, maxTable, refstore.ErrFull)
	}
	if err != nil {
		s.table.deleteBlobs(ctx, blobNames(k, c.added))
		return change{}, err
	}
	return c, nil
}

func (s *Store) putPart(ctx context.Context, k itemKey, data []byte) (streamPart, error) {
	p := newPart(int64(len(data)))
	return p, s.table.putBlob(ctx, blobNames(k, []streamPart{p})[0], k, data)
}

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return refstore.StreamInfo{}, err
	}
	h, err := s.lookAt(ctx, key)
	if err == nil && h == nil {
		err = refstore.ErrNotFound
	}
	if err != nil {
		return refstore.StreamInfo{}, fmt.Errorf("size of %q: %w", key, err)
	}
	return refstore.StreamInfo{Size: h.size, Sealed: h.sealed}, nil
}

// Tail implements [refstore.Tailer]. The next append needs no further read of the stream, unless another process is
// faster.
func (s *Store) Tail(ctx context.Context, key refstore.Key, n int64) ([]byte, refstore.StreamInfo, error) {
	if err := check(ctx, key.Validate()); err != nil {
		return nil, refstore.StreamInfo{}, err
	}
	h, err := s.lookAt(ctx, key)
	if err == nil && h == nil {
		err = refstore.ErrNotFound
	}
	if err != nil {
		return nil, refstore.StreamInfo{}, fmt.Errorf("tail of %q: %w", key, err)
	}
	if h.damage == nil {
		s.remember(key, h)
	}
	r := &reader{ctx: ctx, store: s, key: key, head: h, offset: max(0, h.size-n), end: h.size, damage: h.damage}
	defer r.Close() // nothing was written
	data, err := io.ReadAll(r)
	return data, refstore.StreamInfo{Size: h.size, Sealed: h.sealed}, err
}

// Cut implements [refstore.Streams].
func (s *Store) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := checkOffset(ctx, key, size); err != nil {
		return err
	}
	err := s.change(ctx, key, false, func(h *head) (change, error) {
		switch {
		case h == nil:
			return change{}, refstore.ErrNotFound
		case h.sealed:
			return change{}, refstore.ErrSealed
		case size > h.size:
			return change{}, fmt.Errorf("it has %d bytes: %w", h.size, refstore.ErrConflict)
		case size == h.size && h.damage == nil:
			return change{}, nil
		case h.version == "": // it may have been written meanwhile
			return change{}, h.damage
		}
		next := *h
		next.damage = nil
		next.size, next.cutTo = size, size
		next.cuts++
		c := change{next: &next}
		left := size
		next.parts = nil
		for i, p := range h.parts {
			if left == 0 {
				c.dropped = h.parts[i:]
				break
			}
			p.size = min(p.size, left) // the blob stays as it is
			left -= p.size
			next.parts = append(next.parts, p)
		}
		next.tail = h.tail[:left]
		return c, nil
	})
	if err != nil {
		return fmt.Errorf("cut %q to %d: %w", key, size, err)
	}
	return nil
}

// Seal implements [refstore.Streams]. The tail stays in the head, and is read with it.
func (s *Store) Seal(ctx context.Context, key refstore.Key) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	err := s.change(ctx, key, false, func(h *head) (change, error) {
		next := head{}
		if h != nil {
			next = *h
		}
		if next.sealed || next.damage != nil {
			return change{}, next.damage
		}
		next.sealed = true
		return change{next: &next}, nil
	})
	if err != nil {
		return fmt.Errorf("seal %q: %w", key, err)
	}
	return nil
}

// Remove implements [refstore.Streams].
func (s *Store) Remove(ctx context.Context, key refstore.Key) error {
	if err := check(ctx, key.Validate()); err != nil {
		return err
	}
	s.remember(key, nil)
	if err := s.remove(ctx, s.table.streamKey(key)); err != nil {
		return fmt.Errorf("remove %q: %w", key, err)
	}
	return nil
}

func (s *Store) remove(ctx context.Context, k itemKey) error {
	for {
		h, err := s.table.readHead(ctx, k)
		if err != nil {
			return err
		}
		if h == nil {
			return refstore.ErrNotFound
		}
		// Do not delete a new stream under the same key.
		old, doubt, err := s.table.deleteItem(ctx, k, attrStream+" = :i", attributes{":i": &types.AttributeValueMemberS{Value: h.stream}})
		switch {
		case conditionFailed(err) && doubt: // the stream is gone, by this deletion or another
			s.table.deleteBlobs(ctx, blobNames(k, h.parts)) // bytes appended meanwhile become leftovers
			return nil
		case conditionFailed(err):
			continue
		case err != nil:
			return err
		}
		h = s.table.decodeHead(k, old) // the stream may have grown meanwhile
		s.table.deleteBlobs(ctx, blobNames(k, h.parts))
		return nil
	}
}

// ListStreams implements [refstore.Streams]. Logs that are fields of their execution's record are not among them.
func (s *Store) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		if err := check(ctx, q.Validate()); err != nil {
			yield(refstore.Key{}, err)
			return
		}
		n := 0
		for item, err := range s.table.query(ctx, s.table.pk(streamPrefix, q.Partition), q, "", nil) {
			if err != nil {
				yield(refstore.Key{}, fmt.Errorf("list streams %q: %w", q.Partition, err))
				return
			}
			if !yield(refstore.Key{Partition: q.Partition, Sort: item.sk}, nil) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// ListPartitions implements [refstore.Streams]. It holds the names of all partitions of the kind in memory.
func (s *Store) ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := check(ctx, refstore.Query{Partition: kind}.Validate()); err != nil {
			yield("", err)
			return
		}
		var partitions []string
		for item, err := range s.table.query(ctx, s.table.pk(partitionPrefix, kind), refstore.Query{}, "", nil) {
			if err != nil {
				yield("", fmt.Errorf("list partitions of %q: %w", kind, err))
				return
			}
			partitions = append(partitions, item.sk)
		}
		slices.SortFunc(partitions, func(a, b string) int {
			return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
		})
		for _, p := range partitions {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func checkOffset(ctx context.Context, key refstore.Key, offset int64) error {
	if offset < 0 {
		return fmt.Errorf("stream %q: %w: negative offset %d", key, refstore.ErrInvalid, offset)
	}
	return check(ctx, key.Validate())
}
