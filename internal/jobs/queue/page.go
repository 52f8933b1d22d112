package queue

import (
	"context"
	"errors"
	"fmt"
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
	order   string           // sorts candidates across both indexes
	lazy    lazy
	checked bool // it was compared with its job after a lost claim
}

func newCandidate(key refstore.Key, v refstore.Version, e entry) *candidate {
	return &candidate{entry: e, key: key, version: v, order: e.job.order()}
}

// page is a process's cache of a queue's entries: the first ones as they were listed, except those that it has tried.
type page struct {
	listing chan struct{} // holds a token during a listing

	candidates []*candidate // in order
	listed     time.Time    // time of the last listing; zero: never
	cost       time.Duration
	pauses     pauses
	more       bool   // there were more
	last       string // the order of the last entry read, if there were more
	deep       place  // how far the queue was searched for fitting entries
	size       int    // how many entries are listed at a time
	woken      bool   // something may have changed since the last listing
	suspects   map[string]refstore.Version
	unreadable map[string]sighting // undecodable entries, and when they were last compared with their jobs
	races      int                 // claims lost lately
	lost       bool                // the last claim was lost
	from       string              // where among equal jobs' ids this process takes them, after lost claims
	made       *listener           // tells of new entries; nil: nothing does
	told       bool                // made has told all new entries since the last listing
	workers    int                 // number of holders in the last listing

	marked map[int64]sighting // shards that may have entries, as the last listing found them marked

	looked time.Time // last look at the delayed entries
	due    time.Time // when the next delayed entry is due; zero if there was none, or its waiter was woken
}

// place is the extent of a search, as sort keys; "" is the beginning.
type place struct{ ready, delayed string }

// Sizes of a page. It grows as it is used up, so that listing a long queue costs little per job.
const (
	minPage  = 16
	maxPage  = 512
	maxScan  = 2048 // entries that one search reads to find fitting ones
	lookBack = 256  // of these, entries in one listing
	maxBytes = 16 << 20
)

// Listing takes at most a twentieth of the time, and a fiftieth while jobs are known, but happens at least once in maxAge.
const (
	restraint = 20
	ageing    = 50
	maxAge    = 2 * time.Second
	// delayedPace is the interval of looks at the delayed entries while the time of the next one is unknown.
	delayedPace = time.Second
)

// page returns the page of a queue. The caller holds x.mu.
func (x *index) page(queue string) *page {
	p := x.pages[queue]
	if p == nil {
		if len(x.pages) >= maxRemembered {
			clear(x.pages)
		}
		p = &page{listing: make(chan struct{}, 1), size: minPage, suspects: make(map[string]refstore.Version), unreadable: make(map[string]sighting)}
		x.pages[queue] = p
	}
	return p
}

// wake records that a queue may have changed.
func (x *index) wake(queue string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.page(queue).woken = true
}

// offer adds an entry that this process has just put.
func (x *index) offer(c *candidate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(c.job.Queue)
	x.work.note(x.o.Now())
	x.offers++
	if strings.HasSuffix(c.key.Partition, "/delayed") {
		if at := c.job.AvailableAt.Time(); p.due.IsZero() || at.Before(p.due) {
			p.due = at
		}
		return
	}
	i, there := p.find(c)
	if p.more && i == len(p.candidates) || p.listed.IsZero() {
		p.woken = true
		return // other entries may precede it
	}
	if there {
		p.candidates[i] = c
		return
	}
	p.insert(i, c)
}

// insert adds a candidate at its place.
func (p *page) insert(i int, c *candidate) {
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

// raced tells whether the last claim from a queue was lost to another worker.
func (x *index) raced(queue string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.page(queue).lost
}

// tried records the result of claiming a candidate.
func (x *index) tried(c *candidate, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(c.job.Queue)
	switch {
	case errors.Is(err, refstore.ErrConflict):
		p.suspects[c.key.Sort] = c.version
		p.races, p.lost, p.woken, p.from = min(p.races+8, 64), true, true, fmt.Sprintf("%08x", rand.Uint32())
	case err == nil:
		p.races, p.lost = max(p.races-1, 0), false
	}
}

// withdraw forgets an entry.
func (x *index) withdraw(key refstore.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.pages {
		p.candidates = slices.DeleteFunc(p.candidates, func(c *candidate) bool { return c.key == key })
	}
}

// pick removes and returns the next entries to try, at most so many; none if no known one fits. It lists a queue only
// for the first of them.
func (x *index) pick(ctx context.Context, want *Want, most int) (chosen []*candidate, err error) {
	for _, queue := range want.Queues {
		x.hear(queue)
	}
	if err := x.fill(ctx, want, (*page).old); err != nil {
		return nil, err
	}
	horizon := want.horizon()
	short := func(p *page, _ time.Time) bool { return p.short(horizon) }
	for again := false; ; again = true {
		for len(chosen) < most {
			c, err := x.known(ctx, want)
			if err == nil && c != nil && x.doubtful(c) {
				c, err = x.recheck(ctx, c)
				if err == nil && c == nil {
					continue
				}
			}
			switch {
			case c != nil:
				chosen = append(chosen, c)
				if want.Chosen != nil && !want.Chosen(&c.job) {
					return chosen, nil
				}
				continue
			case err != nil && len(chosen) == 0:
				return nil, err
			}
			break // after an error the next call meets it again
		}
		if again || len(chosen) > 0 {
			return chosen, nil
		}
		if err := x.fill(ctx, want, short); err != nil {
			return nil, err
		}
	}
}

// known removes and returns the best known entry; nil if none fits.
func (x *index) known(ctx context.Context, want *Want) (*candidate, error) {
	for {
		c, of, err := x.best(ctx, want)
		if err != nil || c == nil || x.dropCandidate(of, c) {
			return c, err
		}
	}
}

// rechecked is how many jobs are read after a lost claim: each is a unit to read, together they are one request.
const rechecked = 8

// doubtful tells whether the job of an entry should be read before it is claimed, on a store that reads many in a request:
// after a lost claim, as other workers may have taken it, and the removal of its entry may be under way.
func (x *index) doubtful(c *candidate) bool {
	return x.batch.batches(0) && x.raced(c.job.Queue) && !c.checked
}

// recheck compares an entry that was taken from the page, and those that this process would try after it, with their jobs.
// It drops what is outdated, and returns the entry unless that is.
func (x *index) recheck(ctx context.Context, c *candidate) (*candidate, error) {
	some := append([]*candidate{c}, x.following(c, rechecked-1)...)
	keys := make([]refstore.Key, len(some))
	for i, c := range some {
		keys[i] = jobKey(c.job.Queue, c.job.ID)
	}
	list, err := x.store.ReadBatch(ctx, keys)
	if err != nil {
		x.wake(c.job.Queue)
		return nil, err
	}
	there := make(map[refstore.Key]refstore.Record)
	for _, r := range list {
		there[r.Key] = r
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(c.job.Queue)
	for i, s := range some {
		r, found := there[keys[i]]
		if s.checked = r.Version == s.entry.version; s.checked {
			continue
		}
		p.woken = true
		if j, err := decodeJob(r); found && err == nil && s.isOf(&j) {
			p.suspects[s.key.Sort] = s.version
		} else { // who has taken the job removes the entry, or Repair does
			x.take(s.key, s.entry.version)
		}
		if at, there := p.find(s); there && p.candidates[at] == s {
			p.candidates = slices.Delete(p.candidates, at, at+1)
		}
	}
	if !c.checked {
		return nil, nil
	}
	return c, nil
}

// isOf tells whether an entry is where the job has its entry in its present state.
func (c *candidate) isOf(j *Job) bool {
	key, ok := j.indexKey()
	return ok && key == c.key
}

// following are the entries that this process would try after one, if they all fitted.
func (x *index) following(c *candidate, most int) []*candidate {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(c.job.Queue)
	level := rank(c.order)
	same := slices.Clone(p.candidates)
	same = slices.DeleteFunc(same, func(s *candidate) bool { return s.checked || rank(s.order) != level })
	slices.SortFunc(same, func(a, b *candidate) int { return strings.Compare(a.after(p.from), b.after(p.from)) })
	return same[:min(most, len(same))]
}

// dropCandidate removes a candidate from a page, and tells whether it was there: another caller may have taken it.
func (x *index) dropCandidate(p *page, c *candidate) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, there := p.find(c)
	if there = there && p.candidates[i] == c; there {
		p.candidates = slices.Delete(p.candidates, i, i+1)
	}
	return there
}

// best returns the best candidate of all wanted queues.
func (x *index) best(ctx context.Context, want *Want) (best *candidate, of *page, err error) {
	see := sight{ctx: ctx, x: x, want: want}
	for _, queue := range want.Queues {
		x.mu.Lock()
		p := x.page(queue)
		known, from := slices.Clone(p.candidates), p.from // copied, since the fit is checked without the lock
		if p.races == 0 {
			from = ""
		}
		x.mu.Unlock()
		if c := choose(known, from, see.fits); c != nil && (best == nil || c.order < best.order) {
			best, of = c, p
		}
	}
	return best, of, see.err
}

// choose returns the first fitting candidate. After lost races it returns one of the same rank, the next in the circle
// of ids from a place that each worker draws for itself: several workers that all take the first one would collide each
// time, and so each has a part of the circle.
func choose(candidates []*candidate, from string, fits func(*candidate) bool) *candidate {
	i := slices.IndexFunc(candidates, fits)
	switch {
	case i < 0:
		return nil
	case from == "":
		return candidates[i]
	}
	equals := candidates[i:]
	level := rank(equals[0].order)
	equals = equals[:sort.Search(len(equals), func(n int) bool { return rank(equals[n].order) != level })]
	next := slices.MinFunc(equals, func(a, b *candidate) int { return strings.Compare(a.after(from), b.after(from)) })
	if fits(next) {
		return next
	}
	return equals[0]
}

// after is the hash in the id of a candidate's job, with a digit before it that is greater if the hash precedes from.
func (c *candidate) after(from string) string {
	id, _ := indexed(c.key)
	_, hash, _ := strings.Cut(id, ".")
	if hash < from {
		return "1" + hash
	}
	return "0" + hash
}

// fits tells whether a candidate can be taken. An orphan may be reserved for other workers for a while, counted from
// this process's first sight of it.
func (x *index) fits(c *candidate, want *Want) bool {
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
	now, name := x.o.Now(), j.Ref()+"#"+string(c.entry.version)
	x.mu.Lock()
	defer x.mu.Unlock()
	first := x.firstSeen(name, now)
	at := first.Add(want.Grace)
	if !now.Before(at) {
		return true
	}
	if p := x.page(j.Queue); p.due.IsZero() || at.Before(p.due) {
		p.due = at
	}
	return false
}

// old tells whether the page must be listed before any entry is taken from it.
func (p *page) old(now time.Time) bool {
	age := ageing * p.cost
	if p.told { // of all entries since
		age = maxAge
	}
	return p.listed.IsZero() || now.Sub(p.listed) >= min(age, maxAge) || p.dueBy(now)
}

// dueBy tells whether the time of the next delayed entry has come.
func (p *page) dueBy(now time.Time) bool { return !p.due.IsZero() && !now.Before(p.due) }

// short tells whether a listing may help if no known entry fits, up to an order unless that is "".
func (p *page) short(horizon string) bool {
	return p.woken || p.more && (horizon == "" || p.last < horizon)
}

// fill lists the wanted queues that are due.
func (x *index) fill(ctx context.Context, want *Want, due func(*page, time.Time) bool) error {
	for _, queue := range want.Queues {
		now := x.o.Now()
		x.mu.Lock()
		p := x.page(queue)
		is, listed := due(p, now), p.listed
		x.mu.Unlock()
		if !is {
			continue
		}
		select {
		case p.listing <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		x.mu.Lock()
		is = p.listed.Equal(listed) // otherwise another caller has just listed it
		x.mu.Unlock()
		var err error
		if is {
			err = x.list(ctx, queue, p, want)
		}
		<-p.listing
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a queue's first entries. If no entry fits, it also searches later entries, each time from the end of the
// last search. The caller holds the listing token.
func (x *index) list(ctx context.Context, queue string, p *page, want *Want) error {
	began := x.o.Now()
	x.mu.Lock()
	untried := len(p.candidates)
	switch {
	case x.files != nil: // names cost little, and all of them are read in any case
		p.size = maxPage
	case untried == 0 && p.more:
		p.size = min(2*p.size, maxPage)
	case untried > p.size/2:
		p.size = max(p.size/2, minPage)
	}
	p.woken, p.told = false, p.made != nil
	size, deep, suspects, offers := p.size, p.deep, p.suspects, x.offers
	p.suspects = make(map[string]refstore.Version)
	look := p.looked.IsZero() || began.Sub(p.looked) >= x.delayedPace(began) || p.dueBy(began)
	x.mu.Unlock()

	first, partitions, err := x.readReady(ctx, p, queue, size, suspects)
	found, last, more := first.found, first.last, first.more
	see := sight{ctx: ctx, x: x, want: want}
	fits := see.fits
	some := slices.ContainsFunc(found, fits)
	var due time.Time
	if err == nil && look {
		var delayed []*candidate
		delayed, due, deep.delayed, err = x.readDelayed(ctx, p, queue, suspects, fits, some, deep.delayed)
		found = append(found, delayed...)
		some = some || slices.ContainsFunc(delayed, fits)
	}
	switch {
	case !more:
		deep.ready = ""
	case err == nil && !some:
		var behind []*candidate
		behind, deep.ready, err = x.behind(ctx, p, partitions, max(deep.ready, last), want.horizon(), suspects, fits)
		found = append(found, behind...)
	}
	if err == nil {
		err = see.err
	}
	if err != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		p.woken, p.told = true, false
		return err
	}
	slices.SortFunc(found, func(a, b *candidate) int { return strings.Compare(a.order, b.order) })

	now := x.o.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	p.candidates, p.listed, p.cost, p.more, p.last = found, now, now.Sub(began), more, last
	if x.watcher != nil {
		p.pauses.add(now, min(restraint/2*p.cost, maxAge))
	} else { // a listing's time is the network's, and the polling interval limits its cost
		p.pauses.until = now.Add(min(p.cost, maxAge))
	}
	p.woken = p.woken || x.offers != offers // an offered entry may have come after the listing
	p.deep = deep
	p.races /= 2
	if look {
		p.looked, p.due = now, due
	}
	return nil
}

// read lists entries after a sort key, up to a number and a size. Entries of lost races, and undecodable ones, are
// compared with their jobs. An unreadable job is skipped: Repair reports it.
//
// The listing of a first shard from its beginning also finds the marks of others, which come before all entries.
func (x *index) read(ctx context.Context, p *page, partition, after string, limit int, suspects map[string]refstore.Version) (part, error) {
	read := part{last: after, none: true}
	var doubtful []*candidate
	marks := make(map[int64]refstore.Version)
	n, size := 0, 0
	limit += x.marksOf(p, partition, after)
	queue, names := strings.Split(partition, "/")[1], x.readsNames(partition)
	for r, err := range x.store.List(ctx, refstore.Query{Partition: partition, After: after, Limit: limit, KeysOnly: names}) {
		if err != nil {
			return part{}, err
		}
		n++
		size += len(r.Value)
		read.last, read.more = r.Key.Sort, n == limit || size >= maxBytes
		if shard, ok := markedShard(r.Key); ok {
			marks[shard] = r.Version
			continue
		}
		read.none = false
		if names {
			if _, ok := indexed(r.Key); ok {
				if v, ok := suspects[r.Key.Sort]; ok { // for when it is read
					x.mu.Lock()
					p.suspects[r.Key.Sort] = v
					x.mu.Unlock()
				}
				read.found = append(read.found, unread(queue, r.Key))
			}
			continue
		}
		e, err := decodeEntry(r)
		switch {
		case err != nil:
			if x.isDue(p, r) {
				doubtful = append(doubtful, &candidate{key: r.Key, version: r.Version})
			}
		case x.isTaken(r.Key, &e):
		case suspects[r.Key.Sort] == r.Version:
			doubtful = append(doubtful, newCandidate(r.Key, r.Version, e))
		default:
			read.found = append(read.found, newCandidate(r.Key, r.Version, e))
		}
		if read.more {
			break
		}
	}
	if after == "" && strings.HasSuffix(partition, "/ready") {
		x.noteMarks(p, marks)
	}
	for _, c := range doubtful {
		is, err := x.confirm(ctx, c)
		switch {
		case errors.Is(err, ErrMalformed): // it can never be claimed
			x.mu.Lock()
			p.suspects[c.key.Sort] = c.version
			x.mu.Unlock()
		case err != nil:
			return part{}, err
		case is != nil && is.key.Partition == partition:
			read.found = append(read.found, is)
		}
	}
	return read, nil
}

// marksOf is how many marks a listing may find besides entries.
func (x *index) marksOf(p *page, partition, after string) int {
	if after != "" || !strings.HasSuffix(partition, "/ready") {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(p.marked)
}

// behind searches the entries after a sort key, and before another one unless that is "", until it finds some that can
// be taken or has read maxScan. It returns these entries and where it stopped, "" for the end.
func (x *index) behind(ctx context.Context, p *page, partitions []string, after, before string, suspects map[string]refstore.Version, can func(*candidate) bool) ([]*candidate, string, error) {
	for scanned := 0; scanned < maxScan; scanned += lookBack {
		if before != "" && after >= before {
			return nil, "", nil
		}
		parts, err := x.readShards(ctx, p, partitions, after, lookBack, suspects)
		if err != nil {
			return nil, "", err
		}
		all := join(parts)
		found := slices.DeleteFunc(all.found, func(c *candidate) bool { return !can(c) })
		if !all.more {
			return found, "", nil
		}
		if after = all.last; len(found) > 0 {
			return found, after, nil
		}
	}
	return nil, after, nil
}

// isDue tells whether to compare an undecodable entry with its job: at once, and then at the pace of repairs, in case
// the entry could not be replaced.
func (x *index) isDue(p *page, r refstore.Record) bool {
	now := x.o.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	if seen, ok := p.unreadable[r.Key.Sort]; ok && seen.version == r.Version && now.Sub(seen.at) < repairPace {
		return false
	}
	if len(p.unreadable) >= maxPage {
		clear(p.unreadable)
	}
	p.unreadable[r.Key.Sort] = sighting{r.Version, now}
	return true
}

// readDelayed lists the due entries among the first delayed ones. If neither they nor the ready entries fit, it
// searches the later delayed entries for due ones that fit. It returns when the next entry is due, as far as it has
// read, and where to continue.
func (x *index) readDelayed(
	ctx context.Context, p *page, queue string, suspects map[string]refstore.Version, fits func(*candidate) bool, some bool, deep string,
) (found []*candidate, next time.Time, _ string, err error) {
	delayed := partition(queue, "delayed")
	first, err := x.read(ctx, p, delayed, "", maxPage, suspects)
	found, last, more := first.found, first.last, first.more
	now := x.now()
	due := func(c *candidate) bool {
		at := x.due(&c.job, c.entry.version)
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
		behind, deep, err = x.behind(ctx, p, []string{delayed}, max(deep, last), delayedOrder(TimeOf(now.Add(1))), suspects, func(c *candidate) bool { return due(c) && fits(c) })
		found = append(found, behind...)
	}
	return found, next, deep, err
}

// firstSeen is when this process first saw an orphan; name identifies it in its present state. The caller holds x.mu.
func (x *index) firstSeen(name string, now time.Time) time.Time {
	first, ok := x.orphans[name]
	if !ok {
		if len(x.orphans) >= maxRemembered {
			clear(x.orphans)
		}
		first = now
		x.orphans[name] = now
	}
	return first
}

// orphanSince is firstSeen for a caller without the lock.
func (x *index) orphanSince(name string, now time.Time) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.firstSeen(name, now)
}

// due is when a queued job may be claimed, by this process's clock. The writer's clock may be hours ahead, so the job
// waits no longer than the writer's delay, counted from this process's first sight of it.
func (x *index) due(j *Job, v refstore.Version) time.Time {
	now, at := x.o.Now(), j.AvailableAt.Time()
	if !at.After(now) {
		return at
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if waited := x.firstSeen(fmt.Sprintf("%s@%s", j.Ref(), v), now).Add(max(at.Sub(j.Updated.Time()), 0)); waited.Before(at) {
		return waited
	}
	return at
}

// wakeWaiter is wake for a waiter that lists next. delayedChanged says that the delayed entries have changed.
func (x *index) wakeWaiter(queue string, delayedChanged bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.page(queue)
	if p.made == nil || !p.told {
		p.woken = true
	}
	if p.dueBy(x.o.Now()) { // reported once, because a waiter that claims nothing does not list either
		p.due, delayedChanged = time.Time{}, true
	}
	if delayedChanged {
		p.woken, p.looked = true, time.Time{}
	}
}

// delayedPace is the interval of looks at the delayed entries while the time of the next is not known.
func (x *index) delayedPace(now time.Time) time.Duration {
	if x.watcher != nil {
		return delayedPace
	}
	return eager(x.work.age(now), delayedPace, idleDelayed)
}

// until returns how long to wait: until the next known time, or for the polling interval.
func (x *index) until(queue string) (wait time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p, now := x.page(queue), x.o.Now()
	wait = x.o.MostPace
	if x.watcher == nil {
		pace := eager(x.work.age(now), max(x.o.Pace, min(time.Duration(p.workers)*crowdPace, x.o.MostPace)), x.o.MostPace)
		wait = max(pace*3/4+rand.N(pace/2+1), x.work.quiet(now))
	}
	if !p.due.IsZero() {
		wait = min(wait, max(p.due.Sub(now), time.Millisecond))
	}
	return wait
}

// crowded records how many workers a queue has.
func (x *index) crowded(queue string, workers int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.page(queue).workers = workers
}

// crowd is the interval in which a worker of a queue uses a key that all of them use.
func (x *index) crowd(queue string) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return min(time.Duration(x.page(queue).workers)*crowdPace, x.o.MostPace)
}

// rest is how long a wake-up is delayed, to limit the share of time that listing takes.
func (x *index) rest(queue string) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.page(queue).pauses.until.Sub(x.o.Now())
}
