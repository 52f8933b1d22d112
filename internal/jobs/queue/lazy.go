package queue

import (
	"context"
	"errors"
	"strings"
	"sync"

	"e3/refstore"
)

// Where entries are aliases of jobs, a listing reads only their names, which give the order. An entry is read when its
// turn has come: until then other workers take most of them, and what is read then is as it is.

// lazy is the unread part of a candidate.
type lazy struct {
	mu     sync.Mutex
	unread bool
	gone   bool // it cannot be claimed: its job was taken, or is unreadable
}

// readsNames tells whether a listing of a partition reads only the names of the entries.
func (x *index) readsNames(ctx context.Context, queue, partition string) (bool, error) {
	if !strings.HasSuffix(partition, "/ready") {
		return false, nil
	}
	a, err := x.aliases(ctx, queue)
	return a != nil, err
}

// fetch reads a candidate of which only the name is known. It tells whether the candidate may be claimed.
func (x *index) fetch(ctx context.Context, c *candidate) (bool, error) {
	c.lazy.mu.Lock()
	defer c.lazy.mu.Unlock()
	if !c.lazy.unread {
		return !c.lazy.gone, nil
	}
	is, err := x.fetched(ctx, c.key)
	if err != nil {
		return false, err
	}
	c.lazy.unread, c.lazy.gone = false, is == nil
	if is != nil {
		c.entry, c.version = is.entry, is.version
	}
	return is != nil, nil
}

// fetched reads an entry. It returns nil if the entry is gone, or its job cannot be claimed or read.
func (x *index) fetched(ctx context.Context, key refstore.Key) (*candidate, error) {
	r, err := x.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	queue := strings.Split(key.Partition, "/")[1]
	x.mu.Lock()
	p := x.page(queue)
	suspect := p.suspects[key.Sort] == r.Version
	x.mu.Unlock()
	e, err := decodeEntry(r)
	switch {
	case err == nil && !suspect:
		return newCandidate(key, r.Version, e), nil
	case err != nil && !x.isDue(p, r):
		return nil, nil
	}
	c := &candidate{key: key, version: r.Version}
	if err == nil {
		c = newCandidate(key, r.Version, e)
	}
	is, err := x.confirm(ctx, c)
	if errors.Is(err, ErrMalformed) { // it can never be claimed
		x.mu.Lock()
		p.suspects[key.Sort] = r.Version
		x.mu.Unlock()
		return nil, nil
	}
	if is != nil && is.key != key {
		is = nil
	}
	return is, err
}

// A sight tells which candidates a worker can take. It reads those of which only the names are known.
type sight struct {
	ctx  context.Context
	x    *index
	want *Want
	err  error // the first error of a read
}

func (s *sight) fits(c *candidate) bool {
	there, err := s.x.fetch(s.ctx, c)
	if err != nil && s.err == nil {
		s.err = err
	}
	return there && s.x.fits(c, s.want)
}
