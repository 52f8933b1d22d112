package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"e3/refstore"
)

// Inbox tells a run of its jobs.
type Inbox struct {
	q          *Queue
	queue, run string
	ctx        context.Context // ends the inbox
	more       chan struct{}   // receives when there is more to look for

	mu       sync.Mutex
	expected map[string]seen
	fresh    []string // expected since the last look

	// Of Next.
	begun  bool
	ended  <-chan struct{} // told of the finished ones; nil if the store does not tell
	looked time.Time       // when all that is expected was looked at last
	pace   time.Duration   // of looks where the store does not tell
	until  time.Time       // nothing is looked at before: looking takes a part of the time only
	listed int             // how many had finished when that was listed last
	missed map[string]bool // not found by the last look at all
}

// seen is what a run was told of a job.
type seen struct {
	token   uint64
	lost    int
	started bool
	runs    bool
	orphan  bool
}

// Inbox returns the inbox of a run in a queue, which looks until ctx ends. Next is called by one goroutine at a time.
func (q *Queue) Inbox(ctx context.Context, queue, run string) *Inbox {
	return &Inbox{q: q, queue: queue, run: run, ctx: ctx, more: make(chan struct{}, 1), expected: make(map[string]seen), pace: q.o.Pace}
}

// Expect has the inbox tell of a job from now on. It may be called while Next waits.
func (b *Inbox) Expect(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.expected[id]; ok {
		return
	}
	b.expected[id] = seen{}
	b.fresh = append(b.fresh, id)
	signal(b.more)
}

// Forget has the inbox tell of a job no more. One that has finished is forgotten once Next has told of it.
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

// putBack has the next look at what is fresh begin with these.
func (b *Inbox) putBack(ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh = append(ids, b.fresh...)
	signal(b.more)
}

const (
	// lookPace is how often a run looks at jobs that are not finished where it is told of those that are.
	lookPace = time.Second
	// maxRest bounds how long a run looks at nothing because looking takes long, and where it is told of what is finished: there a look
	// takes long only on a machine that is busy, maybe with the workers that wait for more to do.
	maxRest     = 10 * time.Second
	maxRestTold = 500 * time.Millisecond
)

// Next waits for expected jobs to change, and returns them as they stand: those that have finished as soon as can be, those that were claimed, have started, were
// lost, or given back, within a second or so. One that is nowhere to be found, or cannot be read, is returned without a status: whoever needs it enqueues it again.
// It returns the context's error when that of Next, or that of the inbox, ends.
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
		if b.ended, err = b.q.notified(b.ctx, finishedPartition(b.queue, b.run)); err != nil {
			return nil, err
		}
		b.begun = true
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
		most := maxRest
		if b.ended != nil {
			most = maxRestTold
		}
		b.until = now.Add(min(restraint*now.Sub(began), most))
		if len(jobs) > 0 { // also after an error, which the next look meets again: one that has finished is looked for no more
			b.pace = b.q.o.Pace
			return jobs, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Looks return what they have found also where they fail.

// await waits until there is something to look at, and returns how; nil when it was woken by the end of a context.
func (b *Inbox) await(ctx context.Context) (look func(context.Context) ([]Job, error)) {
	wait := lookPace
	if b.ended == nil {
		wait = b.pace
	}
	t := time.NewTimer(b.looked.Add(wait).Sub(b.q.o.Now()))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-b.ctx.Done():
		return nil
	case <-b.more:
		return b.lookFresh
	case <-b.ended:
		look = b.lookEnded
	case <-t.C:
		look = b.lookAll
		b.pace = min(b.pace*3/2, b.q.o.MostPace)
	}
	if rest := b.until.Sub(b.q.o.Now()); rest > 0 && !pause(ctx, rest) {
		return nil
	}
	return look
}

// lookFresh looks at what is expected since a moment ago.
func (b *Inbox) lookFresh(ctx context.Context) (jobs []Job, err error) {
	fresh := b.takeFresh()
	for i, id := range fresh {
		s, err := b.q.load(ctx, b.queue, id)
		if isNotFound(err) {
			s, err = b.q.loadFinished(ctx, b.queue, id)
		}
		if err == nil {
			jobs, err = b.tell(ctx, jobs, s)
		}
		if err != nil && !isNotFound(err) && !errors.Is(err, ErrMalformed) { // the look at all misses it
			b.putBack(fresh[i:])
			return jobs, err
		}
	}
	return jobs, nil
}

// lookEnded looks for what has finished: for each job, or by a listing where that is cheaper.
func (b *Inbox) lookEnded(ctx context.Context) (jobs []Job, err error) {
	const names = 16 // in a listing cost as much as a look
	ids := b.ids()
	if b.listed < names*len(ids) {
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
			jobs, err = b.tell(ctx, jobs, s)
		}
		if err != nil && !errors.Is(err, ErrMalformed) { // the look at all misses it
			return jobs, err
		}
	}
	return jobs, nil
}

// lookAll looks at all that is expected: one listing for those that are not finished. It moves those that have ended and were left, and tells of
// those that it misses for the second time: the first time one may just be between two places. What cannot be read is missed; Repair tells of it.
func (b *Inbox) lookAll(ctx context.Context) (jobs []Job, err error) {
	defer func() { b.looked = b.q.o.Now() }()
	ids := b.ids()
	if len(ids) == 0 {
		return nil, nil
	}
	there := make(map[string]bool)
	for s, err := range b.q.jobs(ctx, b.queue, b.run+".") {
		if err == nil {
			there[s.ID] = true
			jobs, err = b.tell(ctx, jobs, s)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			return jobs, err
		}
	}
	missed := make(map[string]bool)
	for _, id := range ids {
		if there[id] {
			continue
		}
		s, err := b.q.loadFinished(ctx, b.queue, id)
		switch {
		case err == nil:
			if jobs, err = b.tell(ctx, jobs, s); err != nil {
				return jobs, err
			}
		case !isNotFound(err) && !errors.Is(err, ErrMalformed):
			return jobs, err
		case b.missed[id]:
			jobs = append(jobs, Job{ID: id, Queue: b.queue, Run: b.run})
		default:
			missed[id] = true
		}
	}
	b.missed = missed
	return jobs, nil
}

// tell adds a job to what the run is told if it does not know this of it. One that has ended is told also where it cannot be moved now: Repair does that.
func (b *Inbox) tell(ctx context.Context, jobs []Job, s stored) ([]Job, error) {
	b.mu.Lock()
	was, ok := b.expected[s.ID]
	b.mu.Unlock()
	if !ok {
		return jobs, nil
	}
	if s.Status.Terminal() {
		var err error
		if s.unmoved {
			err = b.q.move(ctx, s)
		}
		b.Forget(s.ID)
		return append(jobs, s.Job), err
	}
	now := seen{s.Token, len(s.Lost), !s.Started.IsZero(), s.Status == Running, s.Orphaned()}
	if now == was {
		return jobs, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.expected[s.ID]; ok {
		b.expected[s.ID] = now
	}
	return append(jobs, s.Job), nil
}
