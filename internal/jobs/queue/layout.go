package queue

import (
	"context"
	"iter"
	"slices"
	"strings"

	"e3/refstore"
)

// In a repository whose description spreads such records over several partitions ([Store.Spread]), the jobs and the
// finished jobs of a queue are in shards, one partition each, by the first digit of the hash in their ids; entries of
// jobs that were enqueued in quick succession are spread too ([index.shardFor]).

// shards are the names of the shards of a partition. The first shard of the entries is the partition itself.
const shards = "0123456789abcdef"

// spread is a record store that keeps the shards of queues apart. To its users a partition is whole, but the listing
// of a partition in shards is ordered only within each shard. It is safe for concurrent use.
type spread struct {
	refstore.Store
	batch   Batcher // nil: there is none
	sharded bool
}

func newSpread(store Store) *spread {
	return &spread{Store: refstore.Unreadable{Store: store.Store}, batch: store.Batch, sharded: store.Spread}
}

// inShards tells whether a partition is kept in shards by the ids of its jobs.
func (s *spread) inShards(partition string) bool {
	rest, ok := strings.CutPrefix(partition, Kind+"/")
	_, what, below := strings.Cut(rest, "/")
	if !s.sharded || !ok || !below { // Names
		return false
	}
	run, finished := strings.CutPrefix(what, "finished/")
	return what == "jobs" || finished && !strings.Contains(run, "/")
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
func (s *spread) key(key refstore.Key) refstore.Key {
	if s.inShards(key.Partition) {
		key.Partition = shardPartition(key.Partition, shardOf(key.Sort))
	}
	return key
}

func (s *spread) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	at := s.key(key)
	r, err := s.Store.Get(ctx, at, fields...)
	if err == nil || r.Key == at {
		r.Key = key
	}
	return r, err
}

func (s *spread) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	r.Key = s.key(r.Key)
	return s.Store.Put(ctx, r)
}

func (s *spread) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	return s.Store.Delete(ctx, s.key(key), v)
}

func (s *spread) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return s.listShards(ctx, q, shards)
}

// listShards is List of some shards of a partition. A partition without shards is listed as a whole.
func (s *spread) listShards(ctx context.Context, q refstore.Query, of string) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		partitions := []string{q.Partition}
		if s.inShards(q.Partition) {
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

// ReadBatch implements [Batcher] if the store can.
func (s *spread) ReadBatch(ctx context.Context, keys []refstore.Key) ([]refstore.Record, error) {
	at := make([]refstore.Key, len(keys))
	for i := range keys {
		at[i] = s.key(keys[i])
	}
	records, err := s.batch.ReadBatch(ctx, at)
	for i := range records {
		records[i].Key = logical(records[i].Key)
	}
	return records, err
}

// WriteBatch implements [Batcher] if the store can.
func (s *spread) WriteBatch(ctx context.Context, puts []refstore.Record, gone []refstore.Key) error {
	records, keys := make([]refstore.Record, len(puts)), make([]refstore.Key, len(gone))
	for i, r := range puts {
		records[i] = r
		records[i].Key = s.key(r.Key)
	}
	for i := range gone {
		keys[i] = s.key(gone[i])
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
