package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/parallel"
	"e3/refstore"
)

// Want says which jobs a worker takes.
type Want struct {
	Queues []string // their names
	Worker string   // its name, for display
	// Host is where its commands run and can be taken over: the machine, user and folder. Grace is how long an orphan begun
	// on another host is reserved for workers of that host, until its command has certainly ended; it counts from this process's first sight of the orphan.
	Host  string
	Grace time.Duration
	// Beside says that another worker of Host may continue commands that were begun there: for Grace their orphans
	// are reserved for that worker too.
	Beside bool
	// Early is the number of the attempt whose command is at hand. If it was the job's last attempt and was given up,
	// Only does not wait for the backoff, which is for another start of the command. 0: no command is at hand.
	Early int64
	// Began is when the command at hand began. The claim puts it on record, unless the job says it already.
	Began time.Time
	// Fits, if set, tells whether a job can be taken. It neither keeps nor changes the job, and may be called
	// concurrently.
	Fits func(*Job) bool
	// Chosen, if set, is told of each job that Claim or ClaimSome is about to claim, and tells whether another one may fit;
	// Missed is told of each of these that it has not got. They are called by the caller's goroutine.
	Chosen func(*Job) (more bool)
	Missed func(*Job)
	// Until, if set, is the last job, in order, that Claim may take. Claim reads no further than this job and the last
	// orphan.
	Until *Job
	// NewExecution returns a new execution id for a job that is not adopted, greater than after, which may be "".
	NewExecution func(after string) (string, error)
}

// orphansEnd sorts after the order of each orphan, and before that of any other job.
const orphansEnd = "1."

// bound is the last order that may be taken; "" for no bound.
func (w *Want) bound() string {
	if w.Until == nil {
		return ""
	}
	return w.Until.order()
}

// horizon is the last order to read. All orphans precede it, because Fits may need to see them.
func (w *Want) horizon() string {
	if w.Until == nil {
		return ""
	}
	return max(w.bound(), orphansEnd)
}

func (w *Want) validate() error {
	for _, queue := range w.Queues {
		if err := ValidName(queue); err != nil {
			return fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
		}
	}
	return nil
}

func (w *Want) miss(c *candidate) {
	if w.Missed != nil {
		w.Missed(&c.job)
	}
}

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// Claim takes the next job: orphans first, then by priority, then the oldest. It may miss very recent jobs if listing
// the queue is slow, or other workers take jobs from it. It returns nil if nothing can be claimed now.
func (q *Queue) Claim(ctx context.Context, want Want) (*Lease, error) {
	leases, err := q.ClaimSome(ctx, want, 1)
	if len(leases) == 0 {
		return nil, err
	}
	return leases[0], nil
}

// ClaimSome takes the next jobs, at most so many, in the order of Claim. Where a claim is a request they are claimed at the
// same time. It returns those that it has claimed even if others fail.
func (q *Queue) ClaimSome(ctx context.Context, want Want, most int) (leases []*Lease, err error) {
	if err := want.validate(); err != nil {
		return nil, fmt.Errorf("claim a job: %w", err)
	}
	for {
		chosen, err := q.index.pick(ctx, &want, most)
		if err != nil {
			return nil, fmt.Errorf("claim a job: %w", err)
		}
		if len(chosen) == 0 {
			return nil, nil
		}
		got, errs := make([]*Lease, len(chosen)), make([]error, len(chosen))
		claim := func(ctx context.Context, i int) error {
			got[i], errs[i] = q.tryClaim(ctx, chosen[i], &want)
			return nil
		}
		if q.files != nil || len(chosen) == 1 {
			for i := range chosen {
				_ = claim(ctx, i)
			}
		} else {
			_ = parallel.AtMost(ctx, mostClaiming, len(chosen), claim)
		}
		var fault error
		for i, c := range chosen {
			if got[i] != nil {
				leases = append(leases, got[i])
				continue
			}
			want.miss(c)
			if !errors.Is(errs[i], refstore.ErrConflict) && fault == nil {
				q.index.wake(c.job.Queue)
				fault = fmt.Errorf("claim job %s: %w", c.job.Ref(), cmp.Or(errs[i], ctx.Err()))
			}
		}
		if fault != nil || len(leases) > 0 {
			return leases, fault
		}
	}
}

// mostClaiming bounds the claims of a process at a time.
const mostClaiming = 32

// tryClaim claims the job of an entry. refstore.ErrConflict says that another process was faster.
func (q *Queue) tryClaim(ctx context.Context, c *candidate, want *Want) (*Lease, error) {
	if q.files == nil && !q.batch.batches(0) && q.index.raced(c.job.Queue) { // a read is cheaper than a failing write
		r, err := q.store.Get(ctx, c.key)
		if errors.Is(err, refstore.ErrNotFound) {
			return nil, refstore.ErrConflict
		}
		if err != nil {
			return nil, err
		}
		if r.Version != c.version {
			if c.entry, err = decodeEntry(r); err != nil {
				return nil, refstore.ErrConflict
			}
			c.version = r.Version
		}
	}
	l, err := q.take(ctx, stored{Job: c.job, version: c.entry.version}, want)
	q.index.tried(c, err)
	if err != nil {
		return nil, err
	}
	q.index.claimed(ctx, c, l)
	return l, nil
}

// take claims a version of a claimable job.
func (q *Queue) take(ctx context.Context, s stored, want *Want) (*Lease, error) {
	session, err := q.held.members.Session(ctx)
	if err != nil {
		return nil, err
	}
	q.held.claiming(session, s.Ref())
	l, doubtful, err := q.lock(ctx, s, session, want)
	q.held.claimed(s.Ref(), l, s.version, doubtful)
	if l != nil && l.adopted { // its command runs while the next look for requests is due
		if r, err := q.store.Get(ctx, cancelKey(s.Queue, s.ID)); err == nil {
			_ = q.Keeper.follow(ctx, s.Queue, r)
		}
	}
	if l != nil {
		q.index.work.came(q.o.Now())
	}
	return l, err
}

// lock is take under a session. doubtful says that the job may be locked despite the error, now or later.
func (q *Queue) lock(ctx context.Context, s stored, session string, want *Want) (l *Lease, doubtful bool, err error) {
	now := q.now()
	err = q.held.enter(ctx, holderKey(s.Queue, session), encode(holderRecord{Worker: Truncate(want.Worker), Since: TimeOf(now)}))
	if err != nil {
		return nil, false, err
	}
	j, adopted := s.Job, s.Orphaned()
	j.Status, j.LockedBy, j.Worker, j.Claimed, j.AvailableAt = Running, session, Truncate(want.Worker), TimeOf(now), 0
	j.Token++
	j.Shard = 0 // orphans are put back one by one, and are sought in the first shard
	j.Object = nil
	if !adopted {
		after := max(j.After, j.Execution)
		for _, l := range j.Lost { // a lost execution's clock may have been ahead
			after = max(after, l.Execution)
		}
		if j.Execution, err = want.NewExecution(after); err != nil {
			return nil, false, fmt.Errorf("draw an execution's id: %w", err)
		}
		j.Attempts++
		j.Maker, j.MakerHost, j.Made, j.Started = j.Worker, Truncate(want.Host), TimeOf(now), 0
	}
	if j.Started.IsZero() { // so no reader meets an adoption before the start of the execution
		j.Started = TimeOf(want.Began)
	}
	next, gone, err := q.claimSwap(ctx, &s, &j)
	if err != nil {
		return nil, !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInvalid), err
	}
	return &Lease{q: q, object: s.Object, adopted: adopted, session: session, waiting: s.WaitingSince(), unlisted: gone, is: next, cancelled: make(chan struct{})}, false, nil
}

// Only takes this job, even if others precede it. It returns nil while the job cannot be claimed: its worker is alive,
// it is delayed (see Want.Early), or it does not fit. Errors are ErrNotFound, and *TransitionError if it is finished.
func (q *Queue) Only(ctx context.Context, queue, id string, want Want) (*Lease, error) {
	fail := func(err error) (*Lease, error) {
		return nil, fmt.Errorf("claim job %.100s/%.200s: %w", queue, id, err)
	}
	for {
		s, err := q.find(ctx, queue, id)
		if err == nil && s.Status == Running && s.LockedBy != "" {
			s, err = q.index.expire(ctx, s)
		}
		switch {
		case errors.Is(err, refstore.ErrConflict):
			continue
		case err != nil:
			return fail(err)
		case s.Status.Terminal():
			return nil, &TransitionError{Op: "claim", Job: s.Job}
		}
		early := want.Early > 0 && want.Early == s.Attempts && len(s.Lost) > 0
		if _, ok := s.indexKey(); !ok || !early && q.index.due(&s.Job, s.version).After(q.now()) || !q.index.fits(&candidate{entry: entry{s.Job, s.version}}, &want) {
			return nil, nil
		}
		l, err := q.take(ctx, s, &want)
		if errors.Is(err, refstore.ErrConflict) {
			continue
		}
		if err != nil {
			return fail(err)
		}
		if !l.unlisted {
			_ = q.index.remove(ctx, s)
		}
		return l, nil
	}
}
