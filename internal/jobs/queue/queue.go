// Package queue keeps jobs: executions that runs request, to be made by any worker on any machine. It needs only
// compare-and-swap, so every [refstore.Store] can hold it (doc/design.md §16).
//
// # Jobs and indexes
//
// The record of an unfinished job is the truth. While the job can be claimed, an index has an entry for it, with the
// whole job and the version of its record, so that a claim is one write. Entries are derived: they are written after
// the job, and a claim from an outdated entry fails. A reader that meets an outdated entry compares it with the job,
// as [Keeper.Repair] does. The end of a job is a change of its record. The record is then copied to the finished ones
// and removed; any process that meets a finished job that was not moved moves it.
//
// # Holders
//
// A running job names the session of its worker. A session that has ended ([Members]) makes its jobs orphans:
// running, but unlocked. A claim prefers them, keeps their execution and says so ([Lease.Adopted]). Each claim
// changes the job's record, so a worker that has lost a job can no longer write to it. If a claim succeeded but its
// response was lost, the job names a live session that does not work on it; the process of that session makes it an
// orphan.
//
//	(none) ─enqueue→ queued ─claim→ running ─finish→ succeeded, failed, timed_out, cancelled
//	running ─expire→ orphan ─claim→ running            orphan, queued ─cancel→ cancelled
//	running ─release→ queued, or orphan if it was adopted
//	running ─revoke→ queued
//	running ─again→ queued, or failed if its attempts are used up
//	failed, timed_out ─retry→ queued
//
// # Calls
//
// To enqueue a job costs two writes, and two reads if it may have been enqueued before. To claim it costs a write and
// a deletion, and a listing for many claims. To finish it costs two writes and a deletion. With [Store.Batch] the
// writes of entries and of finished jobs, and all deletions, share requests.
package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"e3/refstore"
)

// ErrNotFound reports a job that does not exist.
var ErrNotFound = errors.New("there is no such job")

// ErrMalformed is wrapped if a record cannot be read.
var ErrMalformed = errors.New("not what this version of e3 writes")

// A TransitionError says that an operation is not possible in a job's state.
type TransitionError struct {
	Op       string // "cancel", "retry"…
	Job      Job    // in its present state
	Answered bool   // it failed, and needs no other attempt (Options.Answered)
}

func (e *TransitionError) Error() string {
	state := string(e.Job.Status)
	switch {
	case e.Job.Status == Running && e.Job.Worker != "":
		state += ", by " + Truncate(e.Job.Worker)
	case e.Job.isSuspended():
		state = ReasonSuspended
	case e.Answered:
		state += ", but " + ReasonAnswered
	}
	return fmt.Sprintf("%s job %s (task %s): it is %s", e.Op, e.Job.Ref(), Truncate(e.Job.Task), state)
}

// ReasonAnswered is why a failed job is not queued again (Options.Answered).
const ReasonAnswered = "its task has succeeded since, a run of its workspace is at work, or the workspace is removed"

// Members tells which sessions are alive. [*lease.Leases] implements it.
type Members interface {
	// Session returns the id of this process's session, which it begins if necessary.
	Session(ctx context.Context) (id string, err error)
	// Ended tells whether the locks of a session are free. If not, pending is an upper bound of the time until that is
	// known, for a session that was not heard of lately.
	Ended(ctx context.Context, id string) (ended bool, pending time.Duration, err error)
	// Heard returns when a session on another host was last renewed, for display.
	Heard(ctx context.Context, id string) (refstore.Heard, error)
	// Lost is closed when other processes may hold this process's locks.
	Lost() <-chan struct{}
	// Confirm asks the store whether this process still holds its locks. The error is refstore.ErrLost.
	Confirm(ctx context.Context) error
}

// Keep is how long finished jobs are kept.
const Keep = 7 * 24 * time.Hour

// Options configure queues. Now is required.
type Options struct {
	Now func() time.Time
	// Polled says that the store's notifications cost requests. The queue then polls at its own pace.
	Polled bool
	// Pace and MostPace are the shortest and the longest polling interval without notifications. 0 is 5 ms and 2 s.
	Pace, MostPace time.Duration
	// Keep is how long Tend keeps finished jobs. 0 is [Keep].
	Keep time.Duration
	// Answered, if set, tells whether a failed job needs no other attempt: its key has an answer, or its workspace is gone.
	Answered func(context.Context, *Job) (bool, error)
	// TakeOver, if set, makes a worker take a job whose worker was lost, if the job's command can be taken over here
	// ([Want.Host]). It returns when the job has another state. Before that a request to cancel the job is on record.
	TakeOver func(context.Context, *Job)
	// Patience is how long a lost worker's execution waits for an adopter before Working reports it as abandoned. 0 is
	// a minute.
	Patience time.Duration
}

// Queue is one process's access to the queues of a repository: it submits, claims and changes jobs. Its [Reader] only
// reads, its [Keeper] repairs. It is safe for concurrent use. Create it with [New].
type Queue struct {
	*records
	*Reader
	*Keeper
	held  *held
	index *index
}

// New returns the queues of a repository.
func New(store Store, members Members, o Options) *Queue {
	if o.Pace <= 0 {
		o.Pace = 5 * time.Millisecond
	}
	if o.MostPace <= 0 {
		o.MostPace = max(2*time.Second, o.Pace)
	}
	if o.Keep <= 0 {
		o.Keep = Keep
	}
	if o.Patience <= 0 {
		o.Patience = time.Minute
	}
	r := &records{store: newSpread(store), files: store.Files, o: o, batch: &followUps{}, reads: &gathered{}}
	if store.Batch != nil {
		r.batch.store = r.store
	}
	if w, ok := store.Store.(refstore.Watcher); ok && !o.Polled {
		r.watcher, r.batch.notifies = w, true
	}
	h := &held{
		records: r, members: members,
		entered: make(map[refstore.Key]time.Time),
		leases:  make(map[string]*Lease),
		making:  make(map[string]int),
		claims:  claims{underWay: make(map[string]int), doubtful: make(map[string]refstore.Version)},
	}
	x := &index{records: r, held: h, pages: make(map[string]*page), flows: make(map[string]flow), marks: make(map[refstore.Key]time.Time), orphans: make(map[string]time.Time), taken: make(map[refstore.Key]refstore.Version)}
	return &Queue{
		records: r, held: h, index: x,
		Reader: &Reader{records: r, held: h, index: x},
		Keeper: &Keeper{records: r, held: h, index: x, turns: make(map[refstore.Key]sighting), rosters: make(map[string]roster)},
	}
}

// maxRemembered bounds what a process remembers about other processes' records.
const maxRemembered = 1 << 14

// remembered is how long a process relies on its own put of an announcing record (held.enter).
const remembered = time.Hour

// slowCreation is how long a job's creation takes if its request may have been sent twice: if the first request made
// the job, and a worker has finished it, the second request makes it again. A job that succeeds is not removed in so
// short a time (removalWait).
const slowCreation = 250 * time.Millisecond

// unit is how large a record with a task object becomes: 1 KiB, which is one unit to write, less what a store adds.
const unit = 900

// stored is a job as it is in the store.
type stored struct {
	Job
	version refstore.Version
	value   []byte
	unmoved bool // it was read from the unfinished ones
}

// Enqueue makes a job with the identity of j, and its Host, Policy, Labels, Priority, Force, Mild, InputBytes, AvailableAt
// and MaxAttempts. It is idempotent: an existing job is returned as it is, finished or not. After an error the job
// may exist, and can be enqueued again.
func (q *Queue) Enqueue(ctx context.Context, j *Job) (Job, error) {
	return q.enqueueOne(ctx, j, false)
}

// EnqueueFirst is [Queue.Enqueue] for a job that was never enqueued before: it does not look for the job among the
// finished jobs, which saves two reads. It does look, once, if the request took so long that a worker may have
// finished the job meanwhile.
func (q *Queue) EnqueueFirst(ctx context.Context, j *Job) (Job, error) {
	return q.enqueueOne(ctx, j, true)
}

func (q *Queue) enqueueOne(ctx context.Context, j *Job, first bool) (Job, error) {
	want := Job{
		Queue: j.Queue, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, Attempt: j.Attempt, TaskHash: j.TaskHash, Inputs: j.Inputs,
		InputBytes: j.InputBytes, Policy: j.Policy, Labels: j.Labels, Priority: j.Priority, Force: j.Force, Mild: j.Mild, Host: j.Host,
		Status: Queued, MaxAttempts: max(j.MaxAttempts, 1), AvailableAt: j.AvailableAt, Created: TimeOf(q.now()),
	}
	if want.Queue == "" {
		want.Queue = DefaultQueue
	}
	want.ID = Identity(&want)
	if q.batch.store != nil {
		if want.Object = j.Object; len(want.encode()) > unit {
			want.Object = nil
		}
	}
	got, err := q.enqueue(ctx, &want, first)
	if err != nil {
		return Job{}, fmt.Errorf("enqueue task %s: %w", Truncate(j.Task), err)
	}
	return got, nil
}

func (q *Queue) enqueue(ctx context.Context, want *Job, first bool) (Job, error) {
	if err := errors.Join(want.validate(), want.validNumbers()); err != nil {
		return Job{}, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
	}
	err := q.held.enter(ctx, refstore.Key{Partition: Names, Sort: want.Queue}, []byte(NameRecord))
	if err == nil {
		err = q.held.enter(ctx, refstore.Key{Partition: partition(want.Queue, "finished"), Sort: want.Run}, encode(turnRecord{At: want.Created}))
	}
	if err != nil {
		return Job{}, err
	}
	if !first {
		before, err := q.loadFinished(ctx, want.Queue, want.ID)
		if !isNotFound(err) {
			return before.Job, err
		}
	}
	defer q.held.makes(want.Ref())()
	want.Shard = q.index.shardFor(want)
	began := q.o.Now()
	s, err := q.swap(ctx, refstore.Absent, want)
	if errors.Is(err, refstore.ErrConflict) {
		return q.enqueued(ctx, want)
	}
	if err != nil {
		return Job{}, err
	}
	if !first || q.o.Now().Sub(began) >= slowCreation {
		// If it was finished in between, the finished job exists by now: it is put before the unfinished job is removed.
		before, err := q.loadLate(ctx, want.Queue, want.ID)
		if err == nil {
			return before.Job, q.drop(ctx, jobKey(want.Queue, want.ID), s.version)
		}
		if !isNotFound(err) {
			return Job{}, err
		}
	}
	if first {
		return s.Job, q.index.putFirst(ctx, s)
	}
	_, err = q.index.put(ctx, s)
	return s.Job, err
}

// enqueued returns a job that was enqueued before, and completes the earlier call.
func (q *Queue) enqueued(ctx context.Context, want *Job) (Job, error) {
	there, err := q.load(ctx, want.Queue, want.ID)
	if isNotFound(err) {
		there, err = q.loadFinished(ctx, want.Queue, want.ID)
		return there.Job, err
	}
	if err != nil {
		return Job{}, err
	}
	claimable, err := q.index.mend(ctx, there)
	if err == nil && !claimable && there.Status == Queued { // it was finished before
		there, err = q.find(ctx, want.Queue, want.ID)
	}
	return there.Job, err
}

// validNumbers returns an error if a number of the policy fits no record.
func (j *Job) validNumbers() error {
	numbers := []float64{j.Policy.CPU, j.Policy.OOM.Factor}
	for _, a := range j.Policy.Resources {
		numbers = append(numbers, a.Value)
	}
	for _, n := range numbers {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return fmt.Errorf("a demand of %v", n)
		}
	}
	return nil
}

// Job returns a job, finished or not. The error is ErrNotFound.
func (q *Queue) Job(ctx context.Context, queue, id string) (Job, error) {
	s, err := q.find(ctx, queue, id)
	return s.Job, err
}
