package cached

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// statsPerList is the number of requests for one object that cost as much as a request that lists a thousand.
const statsPerList = 12

// ask asks the remote store for h.
func (s *Store) ask(ctx context.Context, h objectstore.Hash) (e objectstore.Entry, err error) {
	err = s.asking.with(ctx, func() error {
		e, err = s.remote.Stat(ctx, h)
		return err
	})
	return e, err
}

// Stat returns the size of h in bytes, if the remote store has it; a known size needs no request. It does not protect
// the object, which may be collected at any time.
func (s *Store) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if e := s.sweeping[h[0]].Load(); e != nil && e.Hash == h {
		return e.Size, nil
	}
	if s.known.has(h) {
		if f, err := s.openCopy(ctx, h); err == nil {
			defer f.Close()
			if fi, err := f.Stat(); err == nil {
				return fi.Size(), nil
			}
		}
	}
	e, err := s.ask(ctx, h)
	if err != nil {
		return 0, err
	}
	return e.Size, nil
}

// Missing asks the remote store for objects not known to be there, several at a time. For many names of one shard it
// lists the shard, as far as that is cheaper.
func (s *Store) Missing(ctx context.Context, hs []objectstore.Hash) ([]objectstore.Hash, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var open [objectstore.Shards][]objectstore.Hash
	absent := map[objectstore.Hash]bool{}
	for _, h := range hs {
		if _, twice := absent[h]; !twice && !s.known.has(h) {
			absent[h] = true
			open[h[0]] = append(open[h[0]], h)
		}
	}
	var mu sync.Mutex
	err := s.each(ctx, func(g *errgroup.Group, ctx context.Context) {
		for shard, asked := range open {
			if len(asked) < statsPerList {
				continue
			}
			g.Go(func() error {
				found, whole, err := s.list(ctx, byte(shard), asked)
				mu.Lock()
				defer mu.Unlock()
				for _, h := range found {
					delete(absent, h)
				}
				if whole {
					open[shard] = nil
				}
				return err
			})
		}
	})
	if err != nil {
		return nil, err
	}
	var rest []objectstore.Hash
	for _, asked := range open {
		for _, h := range asked {
			if absent[h] {
				rest = append(rest, h)
			}
		}
	}
	err = s.each(ctx, func(g *errgroup.Group, ctx context.Context) {
		for _, h := range rest {
			g.Go(func() error {
				_, err := s.ask(ctx, h)
				if errors.Is(err, objectstore.ErrNotFound) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				delete(absent, h)
				return err
			})
		}
	})
	if err != nil {
		return nil, err
	}
	var missing []objectstore.Hash
	for _, h := range hs {
		if absent[h] {
			delete(absent, h)
			missing = append(missing, h)
		}
	}
	return missing, nil
}

// each waits for the calls that start adds to its group.
func (s *Store) each(ctx context.Context, start func(*errgroup.Group, context.Context)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cap(s.asking))
	start(g, ctx)
	if err := g.Wait(); err != nil {
		return fmt.Errorf("look for objects: %w", err)
	}
	return nil
}

// list lists a shard as long as that is cheaper than a request for each of asked. It returns the objects found, and
// whether it has listed the whole shard.
func (s *Store) list(ctx context.Context, shard byte, asked []objectstore.Hash) (found []objectstore.Hash, whole bool, err error) {
	wanted := make(map[objectstore.Hash]bool, len(asked))
	for _, h := range asked {
		wanted[h] = true
	}
	room := 1000 * (len(asked) / statsPerList)
	for e, err := range s.remote.List(ctx, shard) {
		if err != nil {
			return found, false, err
		}
		if wanted[e.Hash] {
			found = append(found, e.Hash)
		}
		if room--; room == 0 {
			return found, false, nil
		}
	}
	return found, true, nil
}
