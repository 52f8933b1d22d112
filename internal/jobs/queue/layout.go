package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// ErrTooNew is wrapped if a queue has a layout that this program does not know. Nothing is read from such a queue, and
// nothing written into it.
var ErrTooNew = errors.New("use a newer e3")

// ErrNoLayout is wrapped if the record of a queue cannot be read. It is not ErrMalformed: no reader may pass over a queue.
var ErrNoLayout = errors.New("its record cannot be read; e3 verify --repair makes it again")

// Layouts of a queue, as its record in [Names] states them. In the sharded one, jobs and finished jobs are in as many
// partitions as there are shards, by the first digit of the hash in their ids; entries of jobs that were enqueued in
// quick succession are spread too ([index.shardFor]).
const (
	plainLayout   = 1 // stated by no number
	shardedLayout = 2
)

// shards are the names of the shards of a partition. The first one of the entries is the partition itself.
const shards = "0123456789abcdef"

// nameRecord announces a queue.
type nameRecord struct {
	Layout int `json:"layout,omitempty"`
}

// nameValue is the record of a queue that a process makes in a store.
func nameValue(store refstore.Store) []byte {
	if s, ok := store.(refstore.Spreader); ok && s.Spreads() {
		return encode(nameRecord{Layout: shardedLayout})
	}
	return encode(nameRecord{})
}

// layoutOf returns the layout that a record of [Names] states. A newer one may have more fields.
func layoutOf(r refstore.Record) (int, error) {
	var rec nameRecord
	if err := json.Unmarshal(r.Value, &rec); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNoLayout, err)
	}
	switch rec.Layout {
	case 0:
		return plainLayout, nil
	case shardedLayout:
		return shardedLayout, nil
	}
	return 0, fmt.Errorf("queue %s has layout %d, this program knows up to %d: %w", r.Key.Sort, rec.Layout, shardedLayout, ErrTooNew)
}

// spread is a record store that keeps the shards of a queue apart. To its users a partition is whole, but a listing of
// one in shards is ordered within each shard only. It is safe for concurrent use.
type spread struct {
	refstore.Store
	batch refstore.Batcher // nil: there is none
	now   func() time.Time
	made  []byte // the record of a queue that this process makes

	making sync.Mutex // one put of a queue's record at a time
	asking sync.Mutex // one read of it at a time
	mu     sync.Mutex
	known  map[string]stated
}

// stated is the layout of a queue as it was read.
type stated struct {
	layout int
	absent bool // the queue was not made yet
	at     time.Time
}

// absentFor is how long a process relies on the absence of a queue. It works with the layout that it would give it.
const absentFor = time.Minute

// layout returns the layout of a queue: the one that this process would give it, if it was not made yet. ErrTooNew.
func (s *spread) layout(ctx context.Context, queue string) (stated, error) {
	if l, ok := s.recall(queue); ok {
		return l, nil
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	if l, ok := s.recall(queue); ok {
		return l, nil
	}
	l := stated{at: s.now()}
	r, err := s.Store.Get(ctx, refstore.Key{Partition: Names, Sort: queue})
	if l.absent = errors.Is(err, refstore.ErrNotFound); l.absent {
		r, err = refstore.Record{Value: s.made}, nil
	}
	if err == nil {
		l.layout, err = layoutOf(r)
	} else if errors.Is(err, refstore.ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrNoLayout, err)
	}
	if err != nil {
		return stated{}, fmt.Errorf("layout of queue %s: %w", queue, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxRemembered {
		clear(s.known)
	}
	s.known[queue] = l
	return l, nil
}

// recall returns what is known of a queue's layout, unless it is too old.
func (s *spread) recall(queue string) (stated, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.known[queue]
	most := remembered
	if l.absent {
		most = absentFor
	}
	return l, ok && s.now().Sub(l.at) < most
}

// announce makes the record of a queue, unless it exists.
func (s *spread) announce(ctx context.Context, queue string) error {
	if l, ok := s.recall(queue); ok && !l.absent {
		return nil
	}
	s.making.Lock() // one of many concurrent callers makes it
	defer s.making.Unlock()
	for {
		l, err := s.layout(ctx, queue)
		if err != nil || !l.absent {
			return err
		}
		_, err = s.Store.Put(ctx, refstore.Record{Key: refstore.Key{Partition: Names, Sort: queue}, Value: s.made})
		if err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
		s.mu.Lock()
		if err == nil {
			l.absent = false
			s.known[queue] = l
		} else {
			delete(s.known, queue) // another process has made it, perhaps in another layout
		}
		s.mu.Unlock()
	}
}

// sharded tells whether a queue is in shards.
func (s *spread) sharded(ctx context.Context, queue string) (bool, error) {
	l, err := s.layout(ctx, queue)
	return l.layout == shardedLayout, err
}

// inShards tells whether a partition is kept in shards by the ids of its jobs. ErrTooNew.
func (s *spread) inShards(ctx context.Context, partition string) (bool, error) {
	rest, ok := strings.CutPrefix(partition, Kind+"/")
	queue, what, below := strings.Cut(rest, "/")
	if !ok || !below { // Names
		return false, nil
	}
	is, err := s.sharded(ctx, queue)
	run, finished := strings.CutPrefix(what, "finished/")
	return is && (what == "jobs" || finished && !strings.Contains(run, "/")), err
}

// shardOf returns the shard of a job: the first digit of the hash in its id, or the first shard if that is no id.
func shardOf(id string) string {
	if _, hash, ok := strings.Cut(id, "."); ok && hash != "" && strings.Contains(shards, hash[:1]) {
		return hash[:1]
	}
	return shards[:1]
}

// shardPartition is a shard of a partition.
func shardPartition(partition, shard string) string { return partition + "/" + shard }

// shardsOf are the shards of a partition.
func shardsOf(partition string) (all []string) {
	for _, shard := range strings.Split(shards, "") {
		all = append(all, shardPartition(partition, shard))
	}
	return all
}

// key is where the record of a key is.
func (s *spread) key(ctx context.Context, key refstore.Key) (refstore.Key, error) {
	is, err := s.inShards(ctx, key.Partition)
	if is {
		key.Partition = shardPartition(key.Partition, shardOf(key.Sort))
	}
	return key, err
}

func (s *spread) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	at, err := s.key(ctx, key)
	if err != nil {
		return refstore.Record{}, err
	}
	r, err := s.Store.Get(ctx, at, fields...)
	if err == nil || r.Key == at {
		r.Key = key
	}
	return r, err
}

func (s *spread) Put(ctx context.Context, r refstore.Record) (v refstore.Version, err error) {
	if r.Key, err = s.key(ctx, r.Key); err != nil {
		return refstore.Absent, err
	}
	return s.Store.Put(ctx, r)
}

func (s *spread) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	at, err := s.key(ctx, key)
	if err != nil {
		return err
	}
	return s.Store.Delete(ctx, at, v)
}

func (s *spread) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return s.listShards(ctx, q, shards)
}

// listShards is List of some shards of a partition. One that is not in shards is listed as a whole.
func (s *spread) listShards(ctx context.Context, q refstore.Query, of string) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		partitions := []string{q.Partition}
		is, err := s.inShards(ctx, q.Partition)
		if err != nil {
			yield(refstore.Record{}, err)
			return
		}
		if is {
			partitions = slices.DeleteFunc(shardsOf(q.Partition), func(p string) bool { return !strings.Contains(of, p[len(p)-1:]) })
		}
		for _, partition := range partitions {
			part := q
			part.Partition = partition
			for r, err := range s.Store.List(ctx, part) {
				if r.Key.Partition == partition {
					r.Key.Partition = q.Partition
				}
				if !yield(r, err) {
					return
				}
			}
		}
	}
}

// WriteBatch implements [refstore.Batcher] if the store can.
func (s *spread) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) (err error) {
	records, keys := make([]refstore.Record, len(puts)), make([]refstore.Key, len(gone))
	for i, r := range puts {
		records[i] = r
		if records[i].Key, err = s.key(ctx, r.Key); err != nil {
			return err
		}
	}
	for i := range gone {
		if keys[i], err = s.key(ctx, gone[i]); err != nil {
			return err
		}
	}
	return s.batch.WriteBatch(ctx, records, keys)
}

// logical is the key by which this package knows a record that is stored at a key.
func logical(key refstore.Key) refstore.Key {
	parts := strings.Split(key.Partition, "/")
	n := len(parts) - 1
	if n < 3 || len(parts[n]) != 1 || !strings.Contains(shards, parts[n]) {
		return key
	}
	if parts[2] == "jobs" && n == 3 || parts[2] == "finished" && n == 4 {
		key.Partition = strings.Join(parts[:n], "/")
	}
	return key
}
