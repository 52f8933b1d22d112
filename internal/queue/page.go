package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"

	"e3/refstore"
)

// candidate is an entry of an index, as it was listed.
type candidate struct {
	entry
	key     refstore.Key
	version refstore.Version // of the entry's record
	order   string           // sorts candidates, whichever index they are in
}

func newCandidate(key refstore.Key, v refstore.Version, e entry) *candidate {
	return &candidate{entry: e, key: key, version: v, order: e.job.order()}
}

// page is what a process knows of a queue's entries: the first ones, as it has listed them, less those that it has tried.
type page struct {
	listing chan struct{} // holds a token while somebody lists

	candidates []*candidate // in order
	listed     time.Time    // when, zero: never
	cost       time.Duration
	more       bool   // there were more
	last       string // the order of the last that was read, where there were more
	deep       place  // how far back it has looked for something that fits
	size       int    // how many are listed at a time
	woken      bool   // something may have changed since
	suspects   map[string]refstore.Version
	unreadable map[string]sighting // entries that could not be decoded, when they were compared with their jobs last
	races      int                 // lost lately

	looked time.Time // at what is delayed
	due    time.Time // when the next of that is; zero if there was none, or whoever waits was told
}

// place is how far entries were looked through, by their sort keys: "" is nowhere.
type place struct{ ready, delayed string }

// Sizes of a page: it grows while it is used up, so that listing a long queue costs little for each job.
const (
	minPage  = 16
	maxPage  = 512
	maxScan  = 2048 // entries that are read at a time to find some that fit
	lookBack = 256  // of which so many at once
	maxBytes = 16 << 20
)

// Listing takes at most a twentieth of the time, but once in maxAge.
const (
	restraint = 20
	maxAge    = 2 * time.Second
	// delayedPace is how often the delayed entries are looked at where the time of the next is not known.
	delayedPace = time.Second
)

// page returns what is known of a queue. It is called under q.mu.
func (q *Queue) page(queue string) *page {
	p := q.pages[queue]
	if p == nil {
		if len(q.pages) >= maxRemembered {
			clear(q.pages)
		}
		p = &page{listing: make(chan struct{}, 1), size: minPage, suspects: make(map[string]refstore.Version), unreadable: make(map[string]sighting)}
		q.pages[queue] = p
	}
	return p
}

// wake says that a queue may have changed.
func (q *Queue) wake(queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.page(queue).woken = true
}

// offer adds an entry that this process has just put to what it knows.
func (q *Queue) offer(c *candidate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.page(c.job.Queue)
	q.progress++
	q.offers++
	if strings.HasSuffix(c.key.Partition, "/delayed") {
		if at := c.job.AvailableAt; p.due.IsZero() || at.Before(p.due) {
			p.due = at
		}
		return
	}
	i, there := p.find(c)
	if p.more && i == len(p.candidates) || p.listed.IsZero() {
		p.woken = true
		return // others may be before it
	}
	if there {
		p.candidates[i] = c
		return
	}
	p.candidates = slices.Insert(p.candidates, i, c)
	if len(p.candidates) > 2*maxPage {
		p.candidates = slices.Delete(p.candidates, maxPage, len(p.candidates))
		if last := p.candidates[maxPage-1].order; !p.more || last < p.last {
			p.more, p.last = true, last
		}
	}
}

func (p *page) find(c *candidate) (int, bool) {
	return slices.BinarySearchFunc(p.candidates, c.order, func(c *candidate, order string) int { return strings.Compare(c.order, order) })
}

// withdraw forgets an entry.
func (q *Queue) withdraw(key refstore.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pages {
		p.candidates = slices.DeleteFunc(p.candidates, func(c *candidate) bool { return c.key == key })
	}
}

// next returns the entry that is to be tried next, and takes it from what is known; nil if there is none that fits.
func (q *Queue) next(ctx context.Context, want *Want) (*candidate, error) {
	if err := q.fill(ctx, want, (*page).old); err != nil {
		return nil, err
	}
	horizon := want.horizon()
	short := func(p *page, _ time.Time) bool { return p.short(horizon) }
	for again := false; ; again = true {
		for {
			c, of := q.best(want)
			if c == nil {
				break
			}
			if q.remove(of, c) {
				return c, nil
			}
		}
		if again {
			return nil, nil
		}
		if err := q.fill(ctx, want, short); err != nil {
			return nil, err
		}
	}
}

// remove takes a candidate from a page, and tells whether it was there: another caller may have it.
func (q *Queue) remove(p *page, c *candidate) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i, there := p.find(c)
	if there = there && p.candidates[i] == c; there {
		p.candidates = slices.Delete(p.candidates, i, i+1)
	}
	return there
}

// best chooses among the candidates of all queues that are wanted.
func (q *Queue) best(want *Want) (best *candidate, of *page) {
	for _, queue := range want.Queues {
		q.mu.Lock()
		p := q.page(queue)
		known, raced := slices.Clone(p.candidates), p.races > 0 // whether something fits is asked without a lock
		q.mu.Unlock()
		if c := q.choose(known, raced, want); c != nil && (best == nil || c.order < best.order) {
			best, of = c, p
		}
	}
	return best, of
}

// choose returns the first candidate that fits; or, if others were faster lately, any that is as good: several workers that each take the first one
// would collide on each.
func (q *Queue) choose(candidates []*candidate, raced bool, want *Want) *candidate {
	fits := func(c *candidate) bool { return q.fits(c, want) }
	i := slices.IndexFunc(candidates, fits)
	if i < 0 {
		return nil
	}
	if raced {
		equals := candidates[i:]
		level := rank(equals[0].order)
		n := sort.Search(len(equals), func(n int) bool { return rank(equals[n].order) != level })
		if from := rand.IntN(n); fits(equals[from]) {
			i += from
		}
	}
	return candidates[i]
}

// fits tells whether a candidate can be taken: an orphan may have to be left to others for a while, counted from when this process saw it first.
func (q *Queue) fits(c *candidate, want *Want) bool {
	j := &c.job
	if want.Fits != nil && !want.Fits(j) {
		return false
	}
	if bound := want.bound(); bound != "" && c.order > bound {
		return false
	}
	if !j.Orphaned() || want.Host == "" || j.MakerHost == want.Host && !want.Beside || want.Grace <= 0 {
		return true
	}
	now, name := q.o.Now(), j.Ref()+"#"+string(c.entry.version)
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.firstSeen(name, now)
	at := first.Add(want.Grace)
	if !now.Before(at) {
		return true
	}
	if p := q.page(j.Queue); p.due.IsZero() || at.Before(p.due) {
		p.due = at
	}
	return false
}

// old tells whether what is known has to be listed before anything is taken of it.
func (p *page) old(now time.Time) bool {
	return p.listed.IsZero() || now.Sub(p.listed) >= min(restraint*p.cost, maxAge) || p.dueBy(now)
}

// dueBy tells whether the time of something has come that was known to be later.
func (p *page) dueBy(now time.Time) bool { return !p.due.IsZero() && !now.Before(p.due) }

// short tells whether listing may find something where nothing that is known fits, up to an order unless that is "".
func (p *page) short(horizon string) bool {
	return p.woken || p.more && (horizon == "" || p.last < horizon)
}

// fill lists the queues that are wanted for which that is due.
func (q *Queue) fill(ctx context.Context, want *Want, due func(*page, time.Time) bool) error {
	for _, queue := range want.Queues {
		now := q.o.Now()
		q.mu.Lock()
		p := q.page(queue)
		is, listed := due(p, now), p.listed
		q.mu.Unlock()
		if !is {
			continue
		}
		select {
		case p.listing <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
		is = p.listed.Equal(listed) // else somebody else has just done so
		q.mu.Unlock()
		var err error
		if is {
			err = q.list(ctx, queue, p, want)
		}
		<-p.listing
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a queue's first entries, and, if none of them fits, some of those behind that are wanted, each time from where it came to. The caller holds
// the token.
func (q *Queue) list(ctx context.Context, queue string, p *page, want *Want) error {
	began := q.o.Now()
	q.mu.Lock()
	left := len(p.candidates)
	switch {
	case left == 0 && p.more:
		p.size = min(2*p.size, maxPage)
	case left > p.size/2:
		p.size = max(p.size/2, minPage)
	}
	p.woken = false
	size, deep, suspects, offers := p.size, p.deep, p.suspects, q.offers
	p.suspects = make(map[string]refstore.Version)
	look := p.looked.IsZero() || began.Sub(p.looked) >= delayedPace || p.dueBy(began)
	q.mu.Unlock()

	ready := partition(queue, "ready")
	found, last, more, err := q.read(ctx, p, ready, "", size, suspects)
	fits := func(c *candidate) bool { return q.fits(c, want) }
	some := slices.ContainsFunc(found, fits)
	var due time.Time
	if err == nil && look {
		var delayed []*candidate
		delayed, due, deep.delayed, err = q.readDelayed(ctx, p, queue, suspects, fits, some, deep.delayed)
		found = append(found, delayed...)
		some = some || slices.ContainsFunc(delayed, fits)
	}
	switch {
	case !more:
		deep.ready = ""
	case err == nil && !some:
		var behind []*candidate
		behind, deep.ready, err = q.behind(ctx, p, ready, max(deep.ready, last), want.horizon(), suspects, fits)
		found = append(found, behind...)
	}
	if err != nil {
		q.wake(queue)
		return err
	}
	slices.SortFunc(found, func(a, b *candidate) int { return strings.Compare(a.order, b.order) })

	now := q.o.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	p.candidates, p.listed, p.cost, p.more, p.last = found, now, now.Sub(began), more, last
	p.woken = p.woken || q.offers != offers // what was offered may not have been there yet
	p.deep = deep
	p.races /= 2
	if look {
		p.looked, p.due = now, due
	}
	return nil
}

// read lists entries behind a sort key, up to a number and a size. What this process was too late for, and what cannot be decoded, is compared with its job;
// a job that cannot be read is passed over: Repair tells of it.
func (q *Queue) read(ctx context.Context, p *page, partition, after string, limit int, suspects map[string]refstore.Version) (found []*candidate, last string, more bool, err error) {
	last = after
	var doubtful []*candidate
	n, size := 0, 0
	for r, err := range q.store.List(ctx, refstore.Query{Partition: partition, After: after, Limit: limit}) {
		if err != nil {
			return nil, "", false, err
		}
		n++
		size += len(r.Value)
		last, more = r.Key.Sort, n == limit || size >= maxBytes
		e, err := decodeEntry(r)
		switch {
		case err != nil:
			if q.isDue(p, r) {
				doubtful = append(doubtful, &candidate{key: r.Key, version: r.Version})
			}
		case suspects[r.Key.Sort] == r.Version:
			doubtful = append(doubtful, newCandidate(r.Key, r.Version, e))
		default:
			found = append(found, newCandidate(r.Key, r.Version, e))
		}
		if more {
			break
		}
	}
	for _, c := range doubtful {
		is, err := q.confirm(ctx, c)
		switch {
		case errors.Is(err, ErrMalformed): // it can never be claimed
			q.mu.Lock()
			p.suspects[c.key.Sort] = c.version
			q.mu.Unlock()
		case err != nil:
			return nil, "", false, err
		case is != nil && is.key.Partition == partition:
			found = append(found, is)
		}
	}
	return found, last, more, nil
}

// behind looks through entries behind a sort key, and before another one unless that is "", until it finds some that can be taken, or has read so many. It
// returns these, and how far it came: "" if that was the end.
func (q *Queue) behind(ctx context.Context, p *page, partition, after, before string, suspects map[string]refstore.Version, can func(*candidate) bool) ([]*candidate, string, error) {
	for scanned := 0; scanned < maxScan; scanned += lookBack {
		if before != "" && after >= before {
			return nil, "", nil
		}
		found, last, more, err := q.read(ctx, p, partition, after, lookBack, suspects)
		if err != nil {
			return nil, "", err
		}
		found = slices.DeleteFunc(found, func(c *candidate) bool { return !can(c) })
		if !more {
			return found, "", nil
		}
		if after = last; len(found) > 0 {
			return found, after, nil
		}
	}
	return nil, after, nil
}

// isDue tells whether it is time to compare an entry that cannot be decoded with its job: at once, and then as often as queues are repaired, in
// case it could not be replaced.
func (q *Queue) isDue(p *page, r refstore.Record) bool {
	now := q.o.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if seen, ok := p.unreadable[r.Key.Sort]; ok && seen.version == r.Version && now.Sub(seen.at) < repairPace {
		return false
	}
	if len(p.unreadable) >= maxPage {
		clear(p.unreadable)
	}
	p.unreadable[r.Key.Sort] = sighting{r.Version, now}
	return true
}

// readDelayed lists what is due of the first delayed entries, and, if some says that nothing is known yet that fits, and none of these does, what is due
// and fits of some of those behind. It tells when the next one is, if it came so far, and where to go on.
func (q *Queue) readDelayed(
	ctx context.Context, p *page, queue string, suspects map[string]refstore.Version, fits func(*candidate) bool, some bool, deep string,
) (found []*candidate, next time.Time, _ string, err error) {
	delayed := partition(queue, "delayed")
	found, last, more, err := q.read(ctx, p, delayed, "", maxPage, suspects)
	now := q.now()
	due := func(c *candidate) bool {
		at := q.due(&c.job, c.entry.version)
		if !at.After(now) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	found = slices.DeleteFunc(found, func(c *candidate) bool { return !due(c) })
	switch {
	case !more:
		deep = ""
	case err == nil && !some && !slices.ContainsFunc(found, fits):
		var behind []*candidate
		behind, deep, err = q.behind(ctx, p, delayed, max(deep, last), delayedOrder(now.Add(1)), suspects, func(c *candidate) bool { return due(c) && fits(c) })
		found = append(found, behind...)
	}
	return found, next, deep, err
}

// confirm compares an entry with its job, and removes it, or replaces it, if the job does not confirm it. It returns what there is of it then; nil if nothing is.
func (q *Queue) confirm(ctx context.Context, c *candidate) (*candidate, error) {
	queue := strings.Split(c.key.Partition, "/")[1]
	id, ok := indexed(c.key)
	if !ok {
		return nil, nil
	}
	s, err := q.load(ctx, queue, id)
	if err != nil && !isNotFound(err) {
		return nil, err
	}
	if err == nil {
		if now, ok := s.indexKey(); ok && now == c.key {
			if s.version == c.entry.version {
				return c, nil
			}
			return q.index(ctx, s)
		}
		if s.Status == Running && s.LockedBy != "" { // by somebody who died before others could know that he has it
			if s, err = q.expire(ctx, s); err != nil {
				return nil, err
			}
		}
		if _, err := q.mend(ctx, s); err != nil {
			return nil, err
		}
	}
	return nil, q.drop(ctx, c.key, c.version)
}
