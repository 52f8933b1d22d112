package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/internal/backoff"
	"e3/internal/parallel"
	"e3/refstore"
)

// Inbox reports the changes of a run's jobs.
type Inbox struct {
	q          *Queue
	queue, run string
	ctx        context.Context // ends the inbox
	more       chan struct{}   // signals that there is more to read

	mu       sync.Mutex
	expected map[string]seen
	fresh    []string // expected since the last look
	notifies bool     // the store notifies of finished jobs from now on

	// State of Next.
	begun  bool
	ended  notice          // of finished jobs
	looked time.Time       // last look at all expected jobs
	asked  time.Time       // last look at what workers tell
	cost   time.Duration   // duration of that look
	news   news            // signs of expected or changed jobs
	pauses pauses          // bound the part of the time that looks take
	listed int             // number of finished jobs in the last listing
	turn   int             // where the next look begins among the shards
	parts  int             // how many looks read all shards of expected jobs
	missed map[string]bool // not found by the last look at their shard
}

// pauses follow looks at the store, so that looks take a bounded part of the time. Pauses that were not needed, up to saved,
// are made up for: what the store tells is not seen late because one look was slow, or because two jobs ended soon after each
// other.
type pauses struct {
	until time.Time // no look before then
}

const saved = 200 * time.Millisecond

// add makes a pause after a look that ended now.
func (p *pauses) add(now time.Time, pause time.Duration) {
	if since := now.Add(-saved); p.until.Before(since) {
		p.until = since
	}
	p.until = p.until.Add(pause)
}

// notice is how the store tells of records.
type notice struct {
	c     <-chan struct{} // nil if it does not
	which func() (sorts []string, all bool)
	lost  bool // the last notifications were not processed
}

// seen is the last reported state of a job.
type seen struct {
	token   uint64
	lost    int
	started bool
	runs    bool
	orphan  bool
}

// Inbox returns the inbox of a run in a queue. It is open until ctx ends. Next is called by one goroutine at a time.
func (q *Queue) Inbox(ctx context.Context, queue, run string) *Inbox {
	return &Inbox{q: q, queue: queue, run: run, ctx: ctx, more: make(chan struct{}, 1), expected: make(map[string]seen), parts: 1}
}

// Expect adds a job to those that Next reports. It may be called while Next waits.
func (b *Inbox) Expect(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.expected[id]; ok {
		return
	}
	b.expected[id] = seen{}
	b.news.note(b.q.o.Now())
	if b.q.watcher != nil { // notifications of earlier changes do not come again
		b.fresh = append(b.fresh, id)
	}
	signal(b.more)
}

// ExpectFirst is Expect for a job that is about to be enqueued for the first time. If the store notifies of finished
// jobs, a notification will tell its end, and the job is not looked for. Otherwise ExpectFirst does nothing.
func (b *Inbox) ExpectFirst(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.expected[id]; ok || !b.notifies {
		return
	}
	b.expected[id] = seen{}
	b.news.note(b.q.o.Now())
}

// Forget removes a job from those that Next reports. A finished job is forgotten once Next has reported it.
func (b *Inbox) Forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.expected, id)
}

func (b *Inbox) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.expected))
}

func (b *Inbox) takeFresh() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := b.fresh
	b.fresh = nil
	return fresh
}

// putBack returns jobs to the front of the fresh ones.
func (b *Inbox) putBack(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh = append(ids, b.fresh...)
	signal(b.more)
}

const (
	// lookPace is the interval of looks at unfinished jobs while the store notifies of finished ones. It grows up to
	// mostLookPace so that these looks take a fiftieth of the time.
	lookPace     = time.Second
	mostLookPace = 5 * time.Second
	// maxRest bounds the pause after a slow look.
	maxRest = 10 * time.Second
	// If the store notifies of finished jobs, looks take a fifth of the time: after one come pauses of restraintTold times
	// its duration, at most maxRestTold.
	restraintTold = 4
	maxRestTold   = 500 * time.Millisecond
	// lookShards is how many shards a look reads: each is a request.
	lookShards = 8
	// toldShards is the number of shards with expected jobs from which the waiter asks what workers tell, and looks at the
	// jobs themselves at the pace of lookPace. toldPace is the least interval: workers gather what they tell for as long.
	toldShards = 3
	toldPace   = entryWait
)

// Next waits for expected jobs to change, and returns their present state: finished ones as soon as possible;
// claimed, started, lost or returned ones within about a second, or within five if there are many. A job that is missing or cannot be read comes
// without a status; a caller that needs it enqueues it again. Next returns the context's error when its own or the
// inbox's ends.
func (b *Inbox) Next(ctx context.Context) ([]Job, error) {
	jobs, err := b.next(ctx)
	if err != nil {
		return nil, fmt.Errorf("jobs of run %s: %w", b.run, err)
	}
	return jobs, nil
}

func (b *Inbox) next(ctx context.Context) ([]Job, error) {
	if !b.begun {
		var err error
		if b.ended.c, b.ended.which, err = b.q.notifiedOf(b.ctx, finishedPartition(b.queue, b.run)); err != nil {
			return nil, err
		}
		b.begun = true
		b.mu.Lock()
		b.notifies = b.ended.c != nil
		b.mu.Unlock()
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := b.ctx.Err(); err != nil {
			return nil, err
		}
		look := b.await(ctx)
		if look == nil {
			continue
		}
		began := b.q.o.Now()
		jobs, err := look(ctx)
		now := b.q.o.Now()
		if b.ended.c == nil {
			b.pauses.until = now.Add(min(now.Sub(began), maxRest) / time.Duration(b.parts)) // mostly network time; await bounds the cost
		} else {
			b.pauses.add(now, min(restraintTold*now.Sub(began), maxRestTold))
		}
		if len(jobs) > 0 { // also after an error, which recurs; a reported finished job is not read again
			b.news.came(now)
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// A look returns the jobs that it has found even if it fails.

// await waits until there is something to look at, and returns how; nil if a context has ended.
func (b *Inbox) await(ctx context.Context) (look func(context.Context) ([]Job, error)) {
	wait, now := min(max(lookPace, ageing*b.cost), mostLookPace), b.q.o.Now()
	var told <-chan time.Time
	if b.ended.c == nil {
		of, ids := b.nextLook()
		least := max(b.q.o.Pace, time.Duration(len(ids))*outPace)
		if b.q.tells() && len(of) >= toldShards {
			least = lookPace
			t := time.NewTimer(max(b.asked.Add(eager(b.news.age(now), toldPace, b.q.o.MostPace)).Sub(now), b.news.quiet(now)))
			defer t.Stop()
			told = t.C
		}
		wait = eager(b.news.age(now), min(least, b.q.o.MostPace), b.q.o.MostPace)
	}
	wait = b.looked.Add(wait).Sub(now)
	if b.ended.c == nil {
		wait = max(wait, b.news.quiet(now))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-b.ctx.Done():
		return nil
	case <-b.more:
		if b.ended.c == nil {
			return nil // and then look sooner
		}
		return b.lookFresh
	case <-b.ended.c:
		look = b.lookEnded
	case <-told:
		look = b.lookTold
	case <-t.C:
		look = b.lookAll
	}
	if rest := b.pauses.until.Sub(b.q.o.Now()); rest > 0 && backoff.Wait(ctx, rest) != nil {
		return nil
	}
	return look
}

// lookFresh checks whether newly expected jobs have finished before they were expected.
func (b *Inbox) lookFresh(ctx context.Context) (jobs []Job, err error) {
	fresh := b.takeFresh()
	for i, id := range fresh {
		s, err := b.q.loadFinished(ctx, b.queue, id)
		if err == nil {
			jobs = b.tell(jobs, s)
		}
		if err != nil && !isNotFound(err) && !errors.Is(err, ErrMalformed) { // lookAll reports missing and malformed ones
			b.putBack(fresh[i:])
			return jobs, err
		}
	}
	return jobs, nil
}

// lookEnded looks for finished jobs: for jobs that the store tells of, or else for all, by a listing if that is
// cheaper.
func (b *Inbox) lookEnded(ctx context.Context) (jobs []Job, err error) {
	const names = 16 // names in a listing that cost as much as one read
	ids, all := b.ended.which()
	if all = all || b.ended.lost; all {
		ids = b.ids()
	} else {
		ids = b.expects(ids)
	}
	b.ended.lost = true // unless this look succeeds
	if all && b.listed < names*len(ids) {
		finished := make(map[string]bool)
		for r, err := range b.q.store.List(ctx, refstore.Query{Partition: finishedPartition(b.queue, b.run), KeysOnly: true}) {
			if err != nil {
				return jobs, err
			}
			finished[r.Key.Sort] = true
		}
		b.listed = len(finished)
		ids = slices.DeleteFunc(ids, func(id string) bool { return !finished[id] })
	}
	for _, id := range ids {
		s, err := b.q.loadFinished(ctx, b.queue, id)
		if isNotFound(err) {
			continue
		}
		if err == nil {
			jobs = b.tell(jobs, s)
		}
		if err != nil && !errors.Is(err, ErrMalformed) { // lookAll reports malformed ones
			return jobs, err
		}
	}
	b.ended.lost = false
	return jobs, nil
}

// lookTold reads the jobs that workers tell to have ended.
func (b *Inbox) lookTold(ctx context.Context) (jobs []Job, err error) {
	defer func() { b.asked = b.q.o.Now() }()
	told := make(map[string]bool)
	for r, err := range b.q.store.List(ctx, refstore.Query{Partition: toldPartition(b.queue, b.run)}) {
		var rec toldRecord
		if errors.Is(err, refstore.ErrDamaged) {
			continue // it is a hint
		}
		if err != nil {
			return nil, err
		}
		if decode(r.Value, &rec) == nil {
			for _, digits := range rec.Ended {
				told[digits] = true
			}
		}
	}
	ids := slices.DeleteFunc(b.ids(), func(id string) bool {
		_, hash, _ := strings.Cut(id, ".")
		return !told[hash[:min(toldDigits, len(hash))]]
	})
	found, err := b.q.loadMoved(ctx, b.queue, ids)
	for _, s := range found {
		jobs = b.tell(jobs, s)
	}
	return jobs, err
}

// expects returns the expected jobs among some jobs.
func (b *Inbox) expects(ids []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool {
		_, ok := b.expected[id]
		return !ok
	})
}

// nextLook returns the shards that the next look reads, and the expected jobs there: a few shards with expected jobs
// at a time, in turn; all jobs if the queue has no shards.
func (b *Inbox) nextLook() (of string, ids []string) {
	ids = b.ids()
	if !b.q.store.sharded {
		return shards, ids
	}
	some := make(map[string]bool)
	for _, id := range ids {
		some[shardOf(id)] = true
	}
	b.parts = max((len(some)+lookShards-1)/lookShards, 1)
	for i := 0; i < len(shards) && len(of) < min(lookShards, len(some)); i++ {
		if at := (b.turn + i) % len(shards); some[shards[at:at+1]] {
			of += shards[at : at+1]
		}
	}
	return of, slices.DeleteFunc(ids, func(id string) bool { return !strings.Contains(of, shardOf(id)) })
}

// lookAll reads the expected jobs of some shards, with one listing of each for the unfinished ones. It reports a job that
// is missing for the second time, since a job may once be between two places. An unreadable job counts as missing;
// Repair reports it.
func (b *Inbox) lookAll(ctx context.Context) (jobs []Job, err error) {
	began := b.q.o.Now()
	defer func() {
		b.looked = b.q.o.Now()
		b.cost = b.looked.Sub(began)
	}()
	of, ids := b.nextLook()
	if len(ids) == 0 {
		return nil, nil
	}
	if len(of) < len(shards) {
		b.turn = strings.Index(shards, of[len(of)-1:]) + 1
	}
	there, err := b.lookUnfinished(ctx, of, &jobs)
	if err != nil {
		return jobs, err
	}
	missed := make(map[string]bool)
	for id := range b.missed {
		if !strings.Contains(of, shardOf(id)) {
			missed[id] = true
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return there[id] })
	found, err := b.q.loadMoved(ctx, b.queue, ids)
	for _, id := range ids {
		switch s, moved := found[id]; {
		case moved:
			jobs = b.tell(jobs, s)
		case err != nil:
		case b.missed[id]:
			jobs = append(jobs, Job{ID: id, Queue: b.queue, Run: b.run})
		default:
			missed[id] = true
		}
	}
	if err == nil {
		b.missed = missed
	}
	return jobs, err
}

// lookUnfinished appends to jobs the changed unfinished jobs of some shards, and returns the ids of all unfinished
// jobs there.
func (b *Inbox) lookUnfinished(ctx context.Context, of string, jobs *[]Job) (there map[string]bool, err error) {
	parts := []string{of}
	if len(of) < len(shards) { // each is a request
		parts = strings.Split(of, "")
	}
	lists := make([][]stored, len(parts))
	err = parallel.AtMost(ctx, lookShards, len(parts), func(ctx context.Context, k int) error {
		for s, err := range b.q.jobsIn(ctx, b.queue, b.run+".", parts[k]) {
			if err != nil && !errors.Is(err, ErrMalformed) {
				return err
			}
			if err == nil {
				lists[k] = append(lists[k], s)
			}
		}
		return nil
	})
	there = make(map[string]bool)
	for _, list := range lists {
		for _, s := range list {
			there[s.ID] = true
			*jobs = b.tell(*jobs, s)
		}
	}
	return there, err
}

// tell appends a job whose state was not reported yet. It leaves moving a finished job to the worker, or to Repair.
func (b *Inbox) tell(jobs []Job, s stored) []Job {
	b.mu.Lock()
	was, ok := b.expected[s.ID]
	b.mu.Unlock()
	if !ok {
		return jobs
	}
	if s.Status.Terminal() {
		b.Forget(s.ID)
		return append(jobs, s.Job)
	}
	now := seen{s.Token, len(s.Lost), !s.Started.IsZero(), s.Status == Running, s.Orphaned()}
	if now == was {
		return jobs
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.expected[s.ID]; ok {
		b.expected[s.ID] = now
	}
	return append(jobs, s.Job)
}
