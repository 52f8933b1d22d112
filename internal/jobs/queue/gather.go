package queue

import (
	"context"
	"sync"

	"e3/refstore"
)

// gathered are reads of records that share requests, on a store where each request costs: what is asked while a request is
// under way goes with the next. It is safe for concurrent use.
type gathered struct {
	mu      sync.Mutex
	waiting []*gatheredRead
	reading bool
}

type gatheredRead struct {
	key   refstore.Key
	rec   refstore.Record
	found bool
	err   error
	done  chan struct{}
}

// get reads a record. found is false also if it is damaged.
func (g *gathered) get(ctx context.Context, store Batcher, key refstore.Key) (rec refstore.Record, found bool, err error) {
	r := &gatheredRead{key: key, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	if !g.reading {
		g.reading = true
		go g.read(context.WithoutCancel(ctx), store)
	}
	g.mu.Unlock()
	select {
	case <-r.done:
		return r.rec, r.found, r.err
	case <-ctx.Done():
		return refstore.Record{}, false, ctx.Err()
	}
}

// read makes requests until no read waits.
func (g *gathered) read(ctx context.Context, store Batcher) {
	for some := g.take(); some != nil; some = g.take() {
		ctx, cancel := context.WithTimeout(ctx, sendTime)
		keys := make([]refstore.Key, 0, len(some))
		for key := range some {
			keys = append(keys, key)
		}
		list, err := store.ReadBatch(ctx, keys)
		cancel()
		there := make(map[refstore.Key]refstore.Record)
		for _, rec := range list {
			there[rec.Key] = rec
		}
		for key, reads := range some {
			for _, r := range reads {
				r.rec, r.found = there[key]
				r.err = err
				close(r.done)
			}
		}
	}
}

// take removes the reads of the next request; nil if there are none.
func (g *gathered) take() map[refstore.Key][]*gatheredRead {
	g.mu.Lock()
	defer g.mu.Unlock()
	some := make(map[refstore.Key][]*gatheredRead)
	var rest []*gatheredRead
	for _, r := range g.waiting {
		if some[r.key] == nil && len(some) == refstore.MaxReads {
			rest = append(rest, r)
			continue
		}
		some[r.key] = append(some[r.key], r)
	}
	if g.waiting = rest; len(some) == 0 {
		g.reading = false
		return nil
	}
	return some
}
