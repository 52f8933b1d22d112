package cached

import (
	"context"
	"errors"
	"sync"

	"e3/objectstore"
)

// flights let one caller at a time do something about a name, while others wait for what comes of it.
type flights struct {
	mu sync.Mutex
	of map[objectstore.Hash]*flight
}

type flight struct {
	landed chan struct{}
	err    error
	ended  bool // the context did, which says nothing to others
}

// do calls f unless somebody is at it for the same name. Then it waits, and led is false: the
// caller looks whether that did what it wants, and comes again if not. An error is the caller's
// too, unless the other's context was done.
func (s *flights) do(ctx context.Context, h objectstore.Hash, f func() error) (led bool, err error) {
	s.mu.Lock()
	if other, ok := s.of[h]; ok {
		s.mu.Unlock()
		select {
		case <-other.landed:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		if other.ended {
			return false, nil
		}
		return false, other.err
	}
	if s.of == nil {
		s.of = map[objectstore.Hash]*flight{}
	}
	own := &flight{landed: make(chan struct{}), err: errors.New("the call that was waited for ended in a panic")}
	s.of[h] = own
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.of, h)
		s.mu.Unlock()
		close(own.landed)
	}()
	own.err = f()
	own.ended = ctx.Err() != nil
	return true, own.err
}
