// Package queue keeps jobs: executions that runs want made, for whatever worker takes them, on whichever machine. It is made of
// compare-and-swap alone, so that every [refstore.Store] can hold it (doc/design.md §16).
//
// # Jobs and indexes
//
// A job that is not finished is one record, the truth. Beside it there is an entry of an index while it can be claimed, which has the whole job and
// the version of its record, so that a claim is one write. Entries are derived: they are written after the job, and a claim from one that is not true any more fails.
// Whoever finds that, and [Queue.Repair], compares entry and job. A job that has ended is copied to the finished ones and
// then removed; its ending is the change of its record, and whoever meets one that has ended but is still there moves it.
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
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
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

// Queue is the queues of a repository, as one process uses them. It is safe for concurrent use. Create it with [New].
type Queue struct {
	store   refstore.Store
	watcher refstore.Watcher // nil if there is none, or it is not to be used
	members Members
	o       Options

	entering sync.Mutex
	mu       sync.Mutex
	entered  map[refstore.Key]time.Time // records that say that there are others, and when they were put
	pages    map[string]*page
	leases   map[string]*Lease // of this process, by Job.Ref
	claims   claims
	making   map[string]int       // jobs that this process is about to put into the index, by Job.Ref
	orphans  map[string]time.Time // when an orphan was seen first, by Job.Ref and token
	turns    map[refstore.Key]sighting
	progress uint64 // counts what shows that there is work
	offers   uint64 // counts entries that this process has put
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
	q := &Queue{
		store: store, members: members, o: o,
		entered: make(map[refstore.Key]time.Time),
		pages:   make(map[string]*page),
		leases:  make(map[string]*Lease),
		making:  make(map[string]int),
		claims:  claims{underWay: make(map[string]int), doubtful: make(map[string]refstore.Version)},
		orphans: make(map[string]time.Time),
		turns:   make(map[refstore.Key]sighting),
	}
	if w, ok := store.(refstore.Watcher); ok && !o.Polled {
		q.watcher = w
	}
	return q
}

// now is the time as records have it.
func (q *Queue) now() time.Time { return moment(nanos(q.o.Now())) }

// firstSeen is when this process first saw an orphan, which name says as it then stood. It needs q.mu.
func (q *Queue) firstSeen(name string, now time.Time) time.Time {
	first, ok := q.orphans[name]
	if !ok {
		if len(q.orphans) >= maxRemembered {
			clear(q.orphans)
		}
		first = now
		q.orphans[name] = now
	}
	return first
}

// due is when a queued job may be claimed, by the clock of this process. That of whoever wrote it may be hours ahead: the job waits no longer than
// he wanted it to from when this process saw it first.
func (q *Queue) due(j *Job, v refstore.Version) time.Time {
	now := q.o.Now()
	if !j.AvailableAt.After(now) {
		return j.AvailableAt
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	at := q.firstSeen(fmt.Sprintf("%s@%s", j.Ref(), v), now).Add(max(j.AvailableAt.Sub(j.Updated), 0))
	if at.Before(j.AvailableAt) {
		return at
	}
	return j.AvailableAt
}

// maxRemembered bounds what a process remembers of things that others make.
const maxRemembered = 1 << 14

// remembered is how long it is remembered that a record was put which says that there are others.
const remembered = time.Hour

// enter puts a record that says that there are others, unless it is there or this process has put it lately.
func (q *Queue) enter(ctx context.Context, key refstore.Key, value []byte) error {
	now := q.o.Now()
	known := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		at, ok := q.entered[key]
		return ok && now.Sub(at) < remembered
	}
	if known() {
		return nil
	}
	q.entering.Lock() // of many that come at once, one puts it
	defer q.entering.Unlock()
	if known() {
		return nil
	}
	if _, err := q.store.Put(ctx, refstore.Record{Key: key, Value: value}); err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entered) >= maxRemembered {
		clear(q.entered)
	}
	q.entered[key] = now
	return nil
}

// stored is a job as it is in the store.
type stored struct {
	Job
	version refstore.Version
	value   []byte
	unmoved bool // it was read from among those that are not finished
}

// load reads a job that is not finished, or has not been moved yet. ErrNotFound.
func (q *Queue) load(ctx context.Context, queue, id string) (stored, error) {
	r, err := q.store.Get(ctx, jobKey(queue, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return stored{}, fmt.Errorf("job %s/%s: %w", queue, id, ErrNotFound)
	}
	if err != nil {
		return stored{}, err
	}
	j, err := decodeJob(r)
	return stored{j, r.Version, r.Value, true}, err
}

// loadFinished reads a job that was moved to the finished ones. ErrNotFound.
func (q *Queue) loadFinished(ctx context.Context, queue, id string) (stored, error) {
	r, err := q.store.Get(ctx, finishedKey(queue, id))
	if errors.Is(err, refstore.ErrNotFound) {
		return stored{}, fmt.Errorf("job %s/%s: %w", queue, id, ErrNotFound)
	}
	if err != nil {
		return stored{}, err
	}
	j, err := decodeJob(r)
	return stored{j, r.Version, r.Value, false}, err
}

// swap writes a job over the one of a version. refstore.ErrConflict says that it is not that one any more, and that this did not change it; after any other error
// it is as it was when that was looked for.
func (q *Queue) swap(ctx context.Context, over refstore.Version, j *Job) (stored, error) {
	j.Updated = q.now()
	s := stored{Job: *j, value: j.encode(), unmoved: true}
	if len(s.value) > maxRecord/2 {
		return stored{}, fmt.Errorf("job %s: %w: its record has %d bytes", j.Ref(), refstore.ErrInvalid, len(s.value))
	}
	key := jobKey(j.Queue, j.ID)
	var err error
	if s.version, err = q.store.Put(ctx, refstore.Record{Key: key, Value: s.value, Version: over}); err == nil || errors.Is(err, refstore.ErrConflict) {
		return s, err
	}
	there, getErr := q.store.Get(ctx, key)
	switch {
	case getErr == nil && bytes.Equal(there.Value, s.value): // it took effect
		s.version = there.Version
		return s, nil
	case getErr == nil && there.Version != over, errors.Is(getErr, refstore.ErrNotFound) && over != refstore.Absent:
		return stored{}, fmt.Errorf("%w: %w", refstore.ErrConflict, err)
	}
	return stored{}, err
}

// index puts the entry of a job that can be claimed, and returns it; nil if there is one for this version already, or the job cannot be claimed any more.
func (q *Queue) index(ctx context.Context, s stored) (*candidate, error) {
	const tries = 5
	var over refstore.Version
	for try := 0; ; try++ {
		key, ok := s.indexKey()
		if !ok {
			return nil, nil
		}
		e := entry{s.Job, s.version}
		v, err := q.store.Put(ctx, refstore.Record{Key: key, Value: e.encode(s.value), Version: over})
		if err == nil {
			c := newCandidate(key, v, e)
			q.offer(c)
			return c, nil
		}
		if !errors.Is(err, refstore.ErrConflict) || try == tries {
			return nil, err
		}
		// Something is there: of this version, which is well, or of an earlier one. What is the latest is in the job.
		r, err := q.store.Get(ctx, key)
		if over = r.Version; err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return nil, err
		}
		if there, err := decodeEntry(r); err == nil && there.version == s.version {
			return nil, nil
		}
		if s, err = q.load(ctx, s.Queue, s.ID); isNotFound(err) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		if now, ok := s.indexKey(); ok && now != key {
			over = refstore.Absent
		}
	}
}

// drop removes an entry of a version.
func (q *Queue) drop(ctx context.Context, key refstore.Key, v refstore.Version) error {
	err := q.store.Delete(ctx, key, v)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
		return nil // somebody else has removed it, or the job can be claimed again
	}
	return err
}

// unindex removes the entry of a job as it was before it changed.
func (q *Queue) unindex(ctx context.Context, was stored) error {
	key, ok := was.indexKey()
	if !ok {
		return nil
	}
	q.withdraw(key)
	r, err := q.store.Get(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if e, err := decodeEntry(r); err == nil && e.version != was.version {
		return nil // it can be claimed again
	}
	return q.drop(ctx, key, r.Version)
}

// move copies a job that has ended to the finished ones, and removes it. It can be done again, by anybody.
func (q *Queue) move(ctx context.Context, s stored) error {
	r := refstore.Record{Key: finishedKey(s.Queue, s.ID), Value: s.value}
	for {
		_, err := q.store.Put(ctx, r)
		if err == nil {
			break
		}
		if !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
		// It was moved before, or it was finished before somebody asked for it again.
		before, err := q.loadFinished(ctx, s.Queue, s.ID)
		if err == nil && before.Retried >= s.Retried {
			break
		}
		if err != nil && !isNotFound(err) {
			return err
		}
		r.Version = before.version
	}
	if s.isDead() {
		if _, err := q.store.Put(ctx, refstore.Record{Key: deadKey(s.Queue, s.ID), Value: []byte("{}")}); err != nil && !errors.Is(err, refstore.ErrConflict) && !errors.Is(err, refstore.ErrInDoubt) {
			return err
		}
	}
	return q.drop(ctx, jobKey(s.Queue, s.ID), s.version)
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
	err := q.enter(ctx, refstore.Key{Partition: namesPartition, Sort: want.Queue}, []byte("{}"))
	if err == nil {
		err = q.enter(ctx, refstore.Key{Partition: partition(want.Queue, "finished"), Sort: want.Run}, encode(turnRecord{At: nanos(want.Created)}))
	}
	if err != nil {
		return Job{}, err
	}
	before, err := q.loadFinished(ctx, want.Queue, want.ID)
	if !isNotFound(err) {
		return before.Job, err
	}
	defer q.makes(want.Ref())()
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
	_, err = q.index(ctx, s)
	return s.Job, err
}

// makes has the Repair of this process leave a job alone until made is called.
func (q *Queue) makes(ref string) (made func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.making[ref]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.making[ref]--; q.making[ref] == 0 {
			delete(q.making, ref)
		}
	}
}

func (q *Queue) isMaking(ref string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.making[ref] > 0
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
	claimable, err := q.mend(ctx, there)
	if err == nil && !claimable && there.Status == Queued { // it was finished before
		there, err = q.find(ctx, want.Queue, want.ID)
	}
	return there.Job, err
}

// mend makes good what a crash after a change of a job has left undone: its entry, or its place among the finished. It tells whether the job can be
// claimed.
func (q *Queue) mend(ctx context.Context, s stored) (claimable bool, err error) {
	if s.Status.Terminal() {
		return false, q.move(ctx, s)
	}
	key, ok := s.indexKey()
	if !ok {
		return false, nil
	}
	// An entry that is there is taken for right: a claim finds out if it is not.
	if _, err := q.store.Get(ctx, key); !errors.Is(err, refstore.ErrNotFound) {
		return true, err
	}
	// Who enqueues something that had been finished removes it again, unless he dies.
	before, err := q.loadFinished(ctx, s.Queue, s.ID)
	switch {
	case err == nil && before.Retried >= s.Retried:
		return false, q.drop(ctx, jobKey(s.Queue, s.ID), s.version)
	case err == nil:
		if err := q.forget(ctx, before); err != nil {
			return false, err
		}
	case !isNotFound(err):
		return false, err
	}
	_, err = q.index(ctx, s)
	return true, err
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

// find reads a job, finished or not. ErrNotFound.
func (q *Queue) find(ctx context.Context, queue, id string) (stored, error) {
	if err := errors.Join(ValidName(queue), validID(id)); err != nil {
		return stored{}, fmt.Errorf("job %.100s/%.200s: %w: %w", queue, id, ErrNotFound, err)
	}
	for try := 0; ; try++ {
		s, err := q.load(ctx, queue, id)
		if isNotFound(err) {
			s, err = q.loadFinished(ctx, queue, id)
		}
		// It may be asked for again between the two looks.
		if !isNotFound(err) || try > 0 {
			return s, err
		}
	}
}
