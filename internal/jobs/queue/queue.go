// Package queue keeps jobs: executions that runs want made, for whatever worker takes them, on whichever machine. It is made of
// compare-and-swap alone, so that every [refstore.Store] can hold it (doc/design.md §16).
//
// # Jobs and indexes
//
// A job that is not finished is one record, the truth. Beside it there is an entry of an index while it can be claimed, which has the whole job and
// the version of its record, so that a claim is one write. Entries are derived: they are written after the job, and a claim from one that is not true any more fails.
// A reader that finds that, and [Keeper.Repair], compares entry and job. A job that has ended is copied to the finished ones and
// then removed; its ending is the change of its record, and a process that meets one that has ended but is still there moves it.
//
// # Holders
//
// A job that is running names the session of its worker. A session that is over ([Members]) makes its jobs orphans: nobody's, but
// running. A claim prefers them, keeps their execution and says so ([Lease.Adopted]). Each claim changes the job's record, and so
// a worker that has lost a job can write nothing into it any more. A job that names a session which lives, but does not work on it because
// the answer to its claim was lost, is made an orphan by the process whose session that is.
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
// To enqueue a job costs two writes and two reads, to claim it a write and a deletion, and a listing for many, to finish it two writes and a deletion.
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

// ErrMalformed is wrapped where a record cannot be read.
var ErrMalformed = errors.New("not what this version of e3 writes")

// A TransitionError says that a job is in a state from which it cannot go where somebody wanted it.
type TransitionError struct {
	Op  string // "cancel", "retry"…
	Job Job    // as it stands
}

func (e *TransitionError) Error() string {
	state := string(e.Job.Status)
	switch {
	case e.Job.Status == Running && e.Job.Worker != "":
		state += ", by " + clip(e.Job.Worker)
	case e.Job.isSuspended():
		state = ReasonSuspended
	}
	return fmt.Sprintf("%s job %s (task %s): it is %s", e.Op, e.Job.Ref(), clip(e.Job.Task), state)
}

// Members tell who is at work. [*lease.Leases] are members.
type Members interface {
	// Session returns the id of this process's session, and begins it if need be.
	Session(ctx context.Context) (id string, err error)
	// Over tells whether what a session holds is free, and if not, how long it may still take until that is known of one that
	// has not been heard of lately.
	Over(ctx context.Context, id string) (over bool, pending time.Duration, err error)
	// Heard tells when a session of another host was last heard of, for people.
	Heard(ctx context.Context, id string) (refstore.Heard, error)
	// Lost is closed once what this process holds may be another's.
	Lost() <-chan struct{}
	// Confirm asks the store whether what this process holds is its own. refstore.ErrLost.
	Confirm(ctx context.Context) error
}

// Keep is for how long finished jobs are kept.
const Keep = 7 * 24 * time.Hour

// Options say how queues are used. Now is required.
type Options struct {
	Now func() time.Time
	// Polled says that the store's notifications are looks of its own, which cost requests: then the queue looks at its own pace.
	Polled bool
	// Pace is how long somebody who waits, and is not told of changes, lets pass between two looks, at first and at most. 0 is 100 ms and 2 s.
	Pace, MostPace time.Duration
	// Keep is how long Tend leaves finished jobs. 0 is [Keep].
	Keep time.Duration
	// Patience is how long the execution of a lost worker is left to others who may take it up, before Working says that it is nobody's. 0 is a minute.
	Patience time.Duration
}

// Queue is the queues of a repository, as one process uses them: it submits, claims and changes jobs. Its [Reader] only reads, its [Keeper]
// repairs. It is safe for concurrent use. Create it with [New].
type Queue struct {
	*records
	*Reader
	*Keeper
	held  *held
	index *index
}

// New returns the queues of a repository.
func New(store refstore.Store, members Members, o Options) *Queue {
	if o.Pace <= 0 {
		o.Pace = 100 * time.Millisecond
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
	r := &records{store: refstore.Unreadable{Store: store}, o: o}
	if w, ok := store.(refstore.Watcher); ok && !o.Polled {
		r.watcher = w
	}
	h := &held{
		records: r, members: members,
		entered: make(map[refstore.Key]time.Time),
		leases:  make(map[string]*Lease),
		making:  make(map[string]int),
		claims:  claims{underWay: make(map[string]int), doubtful: make(map[string]refstore.Version)},
	}
	x := &index{records: r, held: h, pages: make(map[string]*page), orphans: make(map[string]time.Time)}
	return &Queue{
		records: r, held: h, index: x,
		Reader: &Reader{records: r, held: h, index: x},
		Keeper: &Keeper{records: r, held: h, index: x, turns: make(map[refstore.Key]sighting)},
	}
}

// maxRemembered bounds what a process remembers of things that others make.
const maxRemembered = 1 << 14

// remembered is how long it is remembered that a record was put which says that there are others.
const remembered = time.Hour

// stored is a job as it is in the store.
type stored struct {
	Job
	version refstore.Version
	value   []byte
	unmoved bool // it was read from among those that are not finished
}

// Enqueue makes a job of the identity of j, and of Host, Policy, Labels, Priority, Force, InputBytes, AvailableAt and MaxAttempts, and returns it. Doing it again
// changes nothing: the job is returned as it stands, finished or not. After an error it may be there, and can be enqueued again.
func (q *Queue) Enqueue(ctx context.Context, j *Job) (Job, error) {
	want := Job{
		Queue: j.Queue, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, Attempt: j.Attempt, TaskHash: j.TaskHash, Inputs: j.Inputs,
		InputBytes: j.InputBytes, Policy: j.Policy, Labels: j.Labels, Priority: j.Priority, Force: j.Force, Host: j.Host,
		Status: Queued, MaxAttempts: max(j.MaxAttempts, 1), AvailableAt: moment(nanos(j.AvailableAt)), Created: q.now(),
	}
	if want.Queue == "" {
		want.Queue = DefaultQueue
	}
	want.ID = Identity(&want)
	got, err := q.enqueue(ctx, &want)
	if err != nil {
		return Job{}, fmt.Errorf("enqueue task %s: %w", clip(j.Task), err)
	}
	return got, nil
}

func (q *Queue) enqueue(ctx context.Context, want *Job) (Job, error) {
	if err := errors.Join(want.validate(), want.validNumbers()); err != nil {
		return Job{}, fmt.Errorf("%w: %w", refstore.ErrInvalid, err)
	}
	err := q.held.enter(ctx, refstore.Key{Partition: Names, Sort: want.Queue}, []byte("{}"))
	if err == nil {
		err = q.held.enter(ctx, refstore.Key{Partition: partition(want.Queue, "finished"), Sort: want.Run}, encode(turnRecord{At: nanos(want.Created)}))
	}
	if err != nil {
		return Job{}, err
	}
	before, err := q.loadFinished(ctx, want.Queue, want.ID)
	if !isNotFound(err) {
		return before.Job, err
	}
	defer q.held.makes(want.Ref())()
	s, err := q.swap(ctx, refstore.Absent, want)
	if errors.Is(err, refstore.ErrConflict) {
		return q.enqueued(ctx, want)
	}
	if err != nil {
		return Job{}, err
	}
	// One that was finished in between is there by now: it is put before the job is removed.
	before, err = q.loadFinished(ctx, want.Queue, want.ID)
	if err == nil {
		return before.Job, q.drop(ctx, jobKey(want.Queue, want.ID), s.version)
	}
	if !isNotFound(err) {
		return Job{}, err
	}
	_, err = q.index.put(ctx, s)
	return s.Job, err
}

// enqueued returns a job that somebody has enqueued before, and makes good what he may not have got to.
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

// validNumbers says which number of a policy no record can hold.
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

// Job returns a job, finished or not. ErrNotFound.
func (q *Queue) Job(ctx context.Context, queue, id string) (Job, error) {
	s, err := q.find(ctx, queue, id)
	return s.Job, err
}
