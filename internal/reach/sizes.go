package reach

import (
	"context"
	"iter"
	"slices"
	"sync"

	"e3/objectstore"
)

// SizedStore is an object store with sizes.
type SizedStore interface {
	objectstore.Store
	// Stat returns the size of an object in bytes, or objectstore.ErrNotFound.
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
}

// Sizes returns the sizes of a store's objects to a caller that needs most of them. If each lookup is a request, and
// the store can list its objects, each shard is listed once, at a thousandth of the cost. It is safe for concurrent
// use, and remembers the first result.
type Sizes struct {
	store  SizedStore
	lister interface {
		WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
	}
	shards [objectstore.Shards]struct {
		mu    sync.Mutex
		known bool
		list  []objectstore.Info // by name
	}
}

// NewSizes returns Sizes that have read nothing yet.
func NewSizes(store SizedStore) *Sizes {
	s := &Sizes{store: store}
	if _, far := store.(interface{ Parallel() int }); far {
		s.lister, _ = store.(interface {
			WalkShard(ctx context.Context, first byte) iter.Seq2[objectstore.Entry, error]
		})
	}
	return s
}

// Stat returns the size of an object in bytes, or objectstore.ErrNotFound. An object in no list is looked up, since
// it may be new.
func (s *Sizes) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if s.lister == nil {
		return s.store.Stat(ctx, h)
	}
	list, err := s.shard(ctx, h[0])
	if err != nil {
		return 0, err
	}
	i, found := slices.BinarySearchFunc(list, h, func(o objectstore.Info, h objectstore.Hash) int { return o.Hash.Compare(h) })
	if found {
		return list[i].Size, nil
	}
	return s.store.Stat(ctx, h)
}

// shard reads the list of a shard, once.
func (s *Sizes) shard(ctx context.Context, first byte) ([]objectstore.Info, error) {
	shard := &s.shards[first]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.known {
		return shard.list, nil
	}
	shard.list = nil
	for e, err := range s.lister.WalkShard(ctx, first) {
		if err != nil {
			return nil, err
		}
		shard.list = append(shard.list, e.Info)
	}
	slices.SortFunc(shard.list, func(a, b objectstore.Info) int { return a.Hash.Compare(b.Hash) })
	shard.known = true
	return shard.list, nil
}
