package cached

import (
	"context"
	"errors"
	"sync"

	"e3/objectstore"
)

// singleFlight runs one call per name at a time. Other callers with the name wait for its result.
type singleFlight struct {
	mu    sync.Mutex
	calls map[objectstore.Hash]*call
}

type call struct {
	done      chan struct{}
	err       error
	cancelled bool // the context of the call ended, so its error does not concern other callers
}

// do calls f unless a call for the same name is running. Then it waits for that call, and led is false: the caller
// checks the result, and repeats do if necessary. The error of the other call is returned, unless that call's context
// has ended.
func (s *singleFlight) do(ctx context.Context, h objectstore.Hash, f func() error) (led bool, err error) {
	s.mu.Lock()
	if other, ok := s.calls[h]; ok {
		s.mu.Unlock()
		select {
		case <-other.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		if other.cancelled {
			return false, nil
		}
		return false, other.err
	}
	if s.calls == nil {
		s.calls = map[objectstore.Hash]*call{}
	}
	own := &call{done: make(chan struct{}), err: errors.New("the call of another goroutine panicked")}
	s.calls[h] = own
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, h)
		s.mu.Unlock()
		close(own.done)
	}()
	own.err = f()
	own.cancelled = ctx.Err() != nil
	return true, own.err
}
