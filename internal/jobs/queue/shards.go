package queue

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// Entries of jobs that may be claimed are in one partition while few are enqueued, so that an idle worker lists one.
// A process that enqueues quickly spreads them over shards, and marks those in the first one. A worker lists the first
// shard, and then the marked ones; so order among them is kept.
//
// A mark is put before the first entry of its shard, and again while entries follow. It is removed by a worker that
// finds the shard empty, once the mark has not changed for markQuiet: far longer than a process relies on its mark. An
// entry that comes later still, from a process that stood still, is without a mark until Repair finds it.
const (
	markPrefix = "+"              // before all orders
	markFor    = 5 * time.Second  // how long a process relies on a mark that it has put
	markQuiet  = 30 * time.Second // see above

	// perShard is how many jobs a second a process enqueues into a shard: each takes up to four write units there, of
	// the 1,000 that a partition has for all processes.
	perShard = 50
	// minShard is how many entries of a shard are listed at a time, at least.
	minShard = 4
	// runWorkers is the number of a queue's workers from which another run like this process's is to be expected.
	runWorkers = 4
)

func markKey(queue string, shard int64) refstore.Key {
	return refstore.Key{Partition: partition(queue, "ready"), Sort: markPrefix + shards[shard:shard+1]}
}

// markedShard returns the shard that a mark names.
func markedShard(key refstore.Key) (shard int64, ok bool) {
	name, ok := strings.CutPrefix(key.Sort, markPrefix)
	if !ok || len(name) != 1 {
		return 0, false
	}
	shard = int64(strings.Index(shards, name))
	return shard, shard > 0
}

// flow is how many jobs a process enqueues in a second, weighted towards the last one.
type flow struct {
	at   time.Time
	rate float64
}

// shardFor chooses the shard of the entry of a job that is about to be enqueued.
func (x *index) shardFor(j *Job) int64 {
	if !x.store.sharded || !j.AvailableAt.IsZero() {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.flows) >= maxRemembered {
		clear(x.flows)
	}
	f, now := x.flows[j.Queue], x.o.Now()
	f.rate = f.rate*math.Exp(-max(now.Sub(f.at), 0).Seconds()) + 1
	f.at = later(f.at, now)
	x.flows[j.Queue] = f
	all := f.rate * float64(1+x.page(j.Queue).workers/runWorkers)
	width := int64(1)
	for width < int64(len(shards)) && all > float64(width*perShard) {
		width *= 2
	}
	return rand.N(width)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// unmarked tells whether a job's entry needs a mark that this process has not put lately.
func (x *index) unmarked(s *Job, key refstore.Key) bool {
	if s.Shard == 0 || !strings.HasPrefix(key.Partition, partition(s.Queue, "ready")) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.marks[markKey(s.Queue, s.Shard)]
	return !ok || x.o.Now().Sub(at) >= markFor
}

// marked notes that this process has put a mark, in a put that began at this time.
func (x *index) marked(key refstore.Key, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.marks) >= maxRemembered {
		clear(x.marks)
	}
	x.marks[key] = at
}

// mark puts the mark of a shard again. It returns once this process's mark, or a later one, is there. A conflict of
// the put is no proof of that: a worker may just have removed the mark.
func (x *index) mark(ctx context.Context, queue string, shard int64) error {
	key, at := markKey(queue, shard), x.o.Now()
	r, err := x.store.Get(ctx, key)
	for {
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return err
		}
		before := r.Version
		if _, err = x.store.Put(ctx, refstore.Record{Key: key, Value: markValue(at), Version: before}); err == nil {
			break
		}
		if !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
		if r, err = x.store.Get(ctx, key); err == nil && r.Version != before {
			break
		}
	}
	x.marked(key, at)
	return nil
}

func markValue(at time.Time) []byte { return encode(turnRecord{At: TimeOf(at)}) }

// part is what a listing of entries has read.
type part struct {
	found []*candidate
	last  string // the sort key of the last entry read
	more  bool   // there may be others behind it
	none  bool   // there was no entry
}

// readShards is read for several partitions at once, with a share of limit from each. It returns only entries that no
// unread entry of higher priority can precede.
func (x *index) readShards(ctx context.Context, p *page, partitions []string, after string, limit int, suspects map[string]refstore.Version) ([]part, error) {
	parts, errs := make([]part, len(partitions)), make([]error, len(partitions))
	each := max(limit/max(len(partitions), 1), minShard)
	var reads sync.WaitGroup
	for i, partition := range partitions {
		reads.Go(func() { parts[i], errs[i] = x.read(ctx, p, partition, after, each, suspects) })
	}
	reads.Wait()
	return parts, errors.Join(errs...)
}

// join puts what was read of several shards into order.
func join(parts []part) part {
	if len(parts) == 1 {
		return parts[0]
	}
	var all part
	for _, p := range parts {
		all.found = append(all.found, p.found...)
		if p.more && (!all.more || p.last < all.last) {
			all.more, all.last = true, p.last
		}
		if !all.more {
			all.last = max(all.last, p.last)
		}
	}
	slices.SortFunc(all.found, func(a, b *candidate) int { return strings.Compare(a.order, b.order) })
	if all.more {
		all.found = slices.DeleteFunc(all.found, func(c *candidate) bool { return rank(c.order) > rank(all.last) })
	}
	return all
}

// readReady reads the first entries of jobs that may be claimed, in all shards that have some. It returns the
// partitions that it has read.
func (x *index) readReady(ctx context.Context, p *page, queue string, limit int, suspects map[string]refstore.Version) (part, []string, error) {
	partitions := []string{partition(queue, "ready")}
	first, err := x.read(ctx, p, partitions[0], "", limit, suspects)
	if err != nil {
		return part{}, nil, err
	}
	x.mu.Lock()
	marked := slices.Sorted(func(yield func(int64) bool) {
		for shard := range p.marked {
			if !yield(shard) {
				return
			}
		}
	})
	x.mu.Unlock()
	if len(marked) == 0 {
		return first, partitions, nil
	}
	for _, shard := range marked {
		partitions = append(partitions, readyPartition(queue, shard))
	}
	parts, err := x.readShards(ctx, p, partitions[1:], "", limit, suspects)
	if err != nil {
		return part{}, nil, err
	}
	for i, shard := range marked {
		if parts[i].none {
			x.unmark(ctx, p, queue, shard)
		}
	}
	return join(append(parts, first)), partitions, nil
}

// noteMarks notes the marks that a listing has found.
func (x *index) noteMarks(p *page, found map[int64]refstore.Version) {
	now := x.o.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	marked := make(map[int64]sighting, len(found))
	for shard, version := range found {
		marked[shard] = sighting{version, now}
		if was, ok := p.marked[shard]; ok && was.version == version {
			marked[shard] = was
		}
	}
	p.marked = marked
}

// unmark removes the mark of an empty shard once it has not changed for long. A failure is left to a later listing.
func (x *index) unmark(ctx context.Context, p *page, queue string, shard int64) {
	x.mu.Lock()
	seen, ok := p.marked[shard]
	x.mu.Unlock()
	if ok && x.o.Now().Sub(seen.at) >= markQuiet {
		_ = x.drop(ctx, markKey(queue, shard), seen.version)
	}
}

// readyPartitions are those that may have entries of a queue's claimable jobs.
func (rs *records) readyPartitions(queue string) []string {
	partitions := []string{partition(queue, "ready")}
	for shard := int64(1); rs.store.sharded && shard < int64(len(shards)); shard++ {
		partitions = append(partitions, readyPartition(queue, shard))
	}
	return partitions
}
