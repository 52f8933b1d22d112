package queue

import (
	"context"
	"errors"
	"strings"
	"sync"

	"e3/refstore"
)

// Where entries are aliases of jobs, a listing reads only their names, which give the order. An entry is read when
// its turn has come: by then other workers have taken most entries, and the others are read in their present state.

// lazy is the unread part of a candidate.
type lazy struct {
	mu     sync.Mutex
	unread bool
	gone   bool // it cannot be claimed: its job was taken, or is unreadable
}

// unread returns the candidate of an entry that may be claimed now; only the entry's name is known.
func unread(queue string, key refstore.Key) *candidate {
	return &candidate{entry: entry{job: Job{Queue: queue}}, key: key, order: key.Sort, lazy: lazy{unread: true}}
}

// A listener tells which entries are new. Then a queue need not be listed to find a job that precedes the known ones.
type listener struct {
	made func() (sorts []string, all bool)
}

// listen has a queue's page learn from a listener, until done is called.
func (x *index) listen(queue string, made func() (sorts []string, all bool)) (done func()) {
	l := &listener{made}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.page(queue).made = l
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if p := x.page(queue); p.made == l {
			p.made, p.told = nil, false
		}
	}
}

// hear adds new entries to a queue's page. An entry behind the last one that the page has is left to a listing.
func (x *index) hear(queue string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(queue)
	if p.made == nil {
		return
	}
	sorts, all := p.made.made()
	if all || p.listed.IsZero() {
		p.woken, p.told = true, false
		return
	}
	for _, sort := range sorts {
		key := refstore.Key{Partition: partition(queue, "ready"), Sort: sort}
		if _, ok := indexed(key); !ok {
			continue
		}
		x.offers++ // a listing in progress may miss it
		c := unread(queue, key)
		switch i, there := p.find(c); {
		case there: // it was put anew
			p.candidates[i] = c
		case !p.more || i < len(p.candidates):
			p.insert(i, c)
		}
	}
}

// readsNames tells whether a listing of a partition reads only the names of the entries.
func (x *index) readsNames(partition string) bool {
	return strings.HasSuffix(partition, "/ready") && x.files != nil
}

// fetch reads a candidate whose name alone is known. It tells whether the candidate may be claimed.
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

// A sight tells which candidates a worker can take. It reads candidates whose names alone are known.
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
