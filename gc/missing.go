package gc

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/internal/reach"
	"e3/objectstore"
)

// missing counts the missing objects that something refers to. The mark phase has already found missing directories
// and records. So missing checks only files, and only if the sweep saw fewer files than were marked.
func (c *collection) missing(ctx context.Context) error {
	c.report.Missing = c.gone
	files := c.marked.Of(reach.File)
	if int64(files.Len()) == c.present {
		return nil
	}
	if c.far != nil {
		return c.missingFar(ctx, files)
	}
	const chunk = 4096
	var some []objectstore.Hash
	count := func() error {
		gone, err := c.Objects.Missing(ctx, some)
		c.report.Missing += len(gone)
		some = some[:0]
		return err
	}
	for h := range files.All() {
		if some = append(some, h); len(some) == chunk {
			if err := count(); err != nil {
				return err
			}
		}
	}
	return count()
}

// missingFar is missing where listing a shard costs less than checking some of its objects.
func (c *collection) missingFar(ctx context.Context, files *objectstore.HashSet) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(c.workers)
	count := func(names []objectstore.Hash) {
		if len(names) == 0 {
			return
		}
		g.Go(func() error {
			there := make(map[objectstore.Hash]bool, len(names))
			for _, h := range names {
				there[h] = false
			}
			gone := len(there)
			for e, err := range c.Objects.WalkShard(ctx, names[0][0]) {
				if err != nil {
					return err
				}
				if seen, wanted := there[e.Hash]; wanted && !seen {
					there[e.Hash] = true
					gone--
				}
			}
			mu.Lock()
			defer mu.Unlock()
			c.report.Missing += gone
			return nil
		})
	}
	var shard []objectstore.Hash
	for h := range files.All() { // in order
		if len(shard) > 0 && shard[0][0] != h[0] {
			count(shard)
			shard = nil
		}
		shard = append(shard, h)
	}
	count(shard)
	return g.Wait()
}
