package cached

import (
	"context"
	"errors"
	"sync"

	"e3/objectstore"
)

// flights are calls under way by name: one caller at a time works on a name, the others wait for its result.
type flights struct {
	mu sync.Mutex
	of map[objectstore.Hash]*flight
}

type flight struct {
	landed chan struct{}
	err    error
	ended  bool // its context ended, so its error says nothing to others
}

// do calls f unless another call for the same name is under way. Then it waits, and led is false: the caller checks
// whether that call did what it needs, and repeats do if not. The other call's error is returned too, unless its
// context was done.
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
