package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/mem"
)

// TestModel compares the results of several processes with a model of the jobs. Calls fail before and after they take
// effect, and processes are killed.
func TestModel(t *testing.T) {
	for name, way := range map[string]func(*world){
		"at once":    func(*world) {},
		"in batches": func(w *world) { w.batches = true },
		"in moves":   func(w *world) { w.moves = true },
		"in aliases": func(w *world) { w.moves, w.aliases = true, true },
		"in shards":  func(w *world) { w.store, w.hurried = spreading{mem.New()}, true },
		"in shards and batches": func(w *world) {
			w.store, w.hurried, w.batches = spreading{mem.New()}, true, true
		},
	} {
		t.Run(name, func(t *testing.T) { testModel(t, way) })
	}
}

func testModel(t *testing.T, way func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			m := &model{t: t, w: newWorld(t), jobs: make(map[string]*modelJob)}
			way(m.w)
			for range 3 {
				m.start()
			}
			m.front = m.w.on("front")
			defer func() {
				for _, p := range append(m.holders, m.front) {
					p.wire.hook(nil)
					p.leases.Close()
				}
			}()
			rt.Repeat(rapid.StateMachineActions(m))
		})
	})
}

type model struct {
	t       *testing.T
	w       *world
	front   *peer
	holders []*peer
	jobs    map[string]*modelJob
	torn    bool // a call has failed, so a repair may be needed
	raced   bool // and a worker may have been too late, so it takes any job of the first one's rank
}

// modelJob is the model of a job.
type modelJob struct {
	queue.Job
	by    *peer // its holder
	lease *queue.Lease
}

func (m *model) start() { m.holders = append(m.holders, m.w.on("back")) }

// job draws one of the jobs.
func (m *model) job(t *rapid.T) *modelJob {
	if len(m.jobs) == 0 {
		t.Skip("there is no job")
	}
	var ids []string
	for id := range m.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return m.jobs[rapid.SampledFrom(ids).Draw(t, "job")]
}

// held draws one of the held jobs.
func (m *model) held(t *rapid.T) *modelJob {
	j := m.job(t)
	if j.by == nil {
		t.Skip("it is not held")
	}
	return j
}

// faulty runs an operation of a process in which a call may fail before or after it takes effect; the next call, which
// would reveal the effect, may fail too. It tells whether a call failed.
func (m *model) faulty(t *rapid.T, p *peer, do func() error) (failed bool, err error) {
	at := rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2, 3, 4, 5, 6}).Draw(t, "fails at")
	late := rapid.Bool().Draw(t, "after it took effect")
	next := rapid.Bool().Draw(t, "and the next")
	if at > 0 {
		p.wire.hook(func(n int, after bool, op string) error {
			if (n == at && after == late || next && failed && n == at+1) && op[:4] != "list" {
				failed = true
				return errFault
			}
			return nil
		})
	}
	err = do()
	p.wire.hook(nil)
	m.torn, m.raced = m.torn || failed, m.raced || failed
	return failed, err
}

var errFault = errors.New("the store failed")

// learn reads from the store whether an operation took effect on a job: the job must be in its old or its new state.
func (m *model) learn(t *rapid.T, id string, was queue.Job, become func(*queue.Job) bool) {
	now, err := m.front.Job(m.t.Context(), queue.DefaultQueue, id)
	if err != nil {
		t.Fatalf("job %s: %v", id, err)
	}
	if now.Token == was.Token && now.Status == was.Status && now.LockedBy == was.LockedBy && len(now.Lost) == len(was.Lost) && now.Priority == was.Priority && now.Retried == was.Retried {
		m.jobs[id].Job = now
		return
	}
	if !become(&now) {
		t.Fatalf("job %s has become %+v of %+v", id, now, was)
	}
	m.jobs[id].Job = now
	if now.LockedBy == "" {
		m.jobs[id].by, m.jobs[id].lease = nil, nil
	}
}

func (m *model) Enqueue(t *rapid.T) {
	n := rapid.IntRange(0, 12).Draw(t, "job")
	j := job(n, priority(rapid.Int64Range(-1, 1).Draw(t, "priority")))
	time.Sleep(time.Millisecond)
	id := queue.Identity(j)
	known := m.jobs[id]
	var got queue.Job
	failed, err := m.faulty(t, m.front, func() (err error) { got, err = m.front.Enqueue(m.t.Context(), j); return err })
	switch {
	case failed && err != nil:
		now, getErr := m.front.Job(m.t.Context(), queue.DefaultQueue, id)
		if errors.Is(getErr, queue.ErrNotFound) && known == nil {
			return
		}
		if getErr != nil {
			t.Fatal(getErr)
		}
		got = now
	case err != nil:
		t.Fatal(err)
	}
	if known == nil {
		if got.Status != queue.Queued {
			t.Fatalf("a new job is %s", got.Status)
		}
		m.jobs[id] = &modelJob{Job: got}
	} else if got.Status != known.Status || got.Token != known.Token {
		t.Fatalf("enqueued again: got a job that is %s with token %d, want %s and %d", got.Status, got.Token, known.Status, known.Token)
	}
}

// claimable returns the jobs that can be claimed now, the first first.
func (m *model) claimable() []*modelJob {
	var jobs []*modelJob
	for _, j := range m.jobs {
		if j.Orphaned() || j.Status == queue.Queued && !j.AvailableAt.Time().After(m.w.now()) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *modelJob) int {
		switch {
		case a.Orphaned() != b.Orphaned():
			if a.Orphaned() {
				return -1
			}
			return 1
		case a.Priority != b.Priority:
			return int(b.Priority - a.Priority)
		}
		return cmp.Compare(a.Created, b.Created)
	})
	return jobs
}

func (m *model) Claim(t *rapid.T) {
	p := rapid.SampledFrom(m.holders).Draw(t, "worker")
	time.Sleep(3 * time.Second / 2) // delayed jobs are looked for each second
	claimable := m.claimable()
	var l *queue.Lease
	failed, err := m.faulty(t, p, func() (err error) { l, err = p.Claim(m.t.Context(), p.want()); return err })
	if err != nil {
		if !failed {
			t.Fatal(err)
		}
		// It may have claimed any of them without knowing it: until it notices, or its session ends, no other worker
		// has the job.
		for _, j := range append(claimable, m.astray(p)...) {
			was := j.Job
			m.learn(t, was.ID, was, func(now *queue.Job) bool {
				return now.Status == queue.Running && now.Token == was.Token+1 || now.Orphaned() && now.Token == was.Token
			})
			if j.LockedBy != "" {
				j.by = p
			}
		}
		return
	}
	for _, j := range m.astray(p) { // it may have got one of these
		was := j.Job
		if l != nil && was.ID == l.Job().ID {
			j.LockedBy, j.by = "", nil
			claimable = append([]*modelJob{j}, claimable...)
			continue
		}
		m.found(t, j)
	}
	if l == nil {
		if len(claimable) > 0 && !m.torn {
			t.Fatalf("got nothing, want job %s", claimable[0].Task)
		}
		return
	}
	got := l.Job()
	j := m.jobs[got.ID]
	if !slices.Contains(claimable, j) {
		t.Fatalf("got job %s, which cannot be claimed: %+v", got.Task, j.Job)
	}
	first := claimable[0]
	if equal := j.Orphaned() == first.Orphaned() && j.Priority == first.Priority; j != first && !m.torn && !(m.raced && equal) {
		t.Fatalf("got job %s, want %s", got.Task, first.Task)
	}
	attempts, execution := j.Attempts+1, got.Execution
	if j.Orphaned() {
		attempts, execution = j.Attempts, j.Execution
	}
	if got.Token != j.Token+1 || l.Adopted() != j.Orphaned() || got.Attempts != attempts || got.Execution != execution || execution == "" {
		t.Fatalf("got %+v of %+v", got, j.Job)
	}
	j.Job, j.by, j.lease = got, p, l
}

// astray returns the jobs that a worker has claimed without knowing it.
func (m *model) astray(p *peer) (jobs []*modelJob) {
	for _, j := range m.jobs {
		if j.by == p && j.lease == nil {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// found updates the model of a job that its worker may have learned of.
func (m *model) found(t *rapid.T, j *modelJob) {
	was := j.Job
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return now.Orphaned() && now.Token == was.Token })
}

// Resolve lets a worker find the jobs that it has claimed without knowing it.
func (m *model) Resolve(t *rapid.T) {
	p := rapid.SampledFrom(m.holders).Draw(t, "worker")
	p.reap(m.t)
	for _, j := range m.astray(p) {
		if m.found(t, j); j.by != nil {
			t.Fatalf("job %s is still that of a worker that does not work on it", j.Task)
		}
	}
}

func (m *model) Finish(t *rapid.T) {
	j := m.held(t)
	if j.lease == nil {
		t.Skip("it does not know")
	}
	was := j.Job
	state := rapid.SampledFrom([]queue.Status{queue.Succeeded, queue.Failed, queue.TimedOut, queue.Cancelled}).Draw(t, "state")
	finish := func() error {
		return j.lease.Finish(m.t.Context(), queue.Outcome{State: state, ExecutionID: was.Execution})
	}
	failed, err := m.faulty(t, j.by, finish)
	if failed && err != nil {
		err = finish() // after all writes have arrived
	}
	if err != nil {
		t.Fatal(err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return now.Status == state })
	if m.jobs[was.ID].Status != state {
		t.Fatalf("finished as %s, and is %s", state, m.jobs[was.ID].Status)
	}
}

func (m *model) Started(t *rapid.T) {
	j := m.held(t)
	if j.lease == nil {
		t.Skip("it does not know")
	}
	if failed, err := m.faulty(t, j.by, func() error { return j.lease.Started(m.t.Context(), time.Now()) }); err != nil && !failed {
		t.Fatal(err)
	}
}

func (m *model) Again(t *rapid.T) {
	j := m.held(t)
	if j.lease == nil {
		t.Skip("it does not know")
	}
	was := j.Job
	backoff := rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(t, "backoff")
	again := func() error { _, err := j.lease.Again(m.t.Context(), "lost", backoff); return err }
	failed, err := m.faulty(t, j.by, again)
	if failed && err != nil {
		err = again()
	}
	if err != nil {
		t.Fatal(err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool {
		return now.Status == queue.Queued && was.Attempts < was.MaxAttempts || now.Status == queue.Failed && was.Attempts >= was.MaxAttempts
	})
}

func (m *model) Release(t *rapid.T) {
	j := m.held(t)
	if j.lease == nil {
		t.Skip("it does not know")
	}
	was, adopted := j.Job, j.lease.Adopted()
	failed, err := m.faulty(t, j.by, func() error { return j.lease.Release(m.t.Context()) })
	if failed && err != nil {
		err = j.lease.Release(m.t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return now.Orphaned() && adopted || now.Status == queue.Queued && !adopted })
}

// Kill kills a holder and starts another.
func (m *model) Kill(t *rapid.T) {
	i := rapid.IntRange(0, len(m.holders)-1).Draw(t, "worker")
	gone := m.holders[i]
	m.w.kill(gone)
	m.holders[i] = m.w.on("back")
	m.front.reap(m.t)
	for _, j := range m.jobs {
		if j.by == gone {
			was := j.Job
			m.learn(t, j.ID, was, func(now *queue.Job) bool { return now.Orphaned() })
			if !j.Orphaned() {
				t.Fatalf("job %s of a worker that is gone is %+v", j.Task, j.Job)
			}
			j.by, j.lease = nil, nil
		}
	}
}

func (m *model) Cancel(t *rapid.T) {
	j := m.job(t)
	was := j.Job
	failed, err := m.faulty(t, m.front, func() error { _, err := m.front.Cancel(m.t.Context(), was.Queue, was.ID, "me", ""); return err })
	var transition *queue.TransitionError
	switch {
	case j.by != nil:
		if err != nil && !failed {
			t.Fatal(err)
		}
		m.repair() // so that a later Release does not see it
		m.uncancel(t, was.ID)
		return
	case was.Status.Terminal() && was.Status != queue.Cancelled:
		if !failed && !errors.As(err, &transition) {
			t.Fatalf("cancel a job that is %s: got %v", was.Status, err)
		}
	case err != nil && !failed:
		t.Fatal(err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return now.Status == queue.Cancelled })
	if !failed && !was.Status.Terminal() && m.jobs[was.ID].Status != queue.Cancelled {
		t.Fatalf("cancelled, and is %s", m.jobs[was.ID].Status)
	}
	if failed && m.jobs[was.ID].Status != queue.Cancelled { // of an orphan a request is on record before it is ended
		m.uncancel(t, was.ID)
	}
}

// uncancel withdraws a request to cancel a job that has not ended by it, since the model has no such state: the next
// holder of the job may end it, or give it back for Repair to end it.
func (m *model) uncancel(t *rapid.T, id string) {
	key := refstore.Key{Partition: "QUEUE/default/cancel", Sort: id}
	r, err := m.w.store.Get(m.t.Context(), key)
	if err == nil {
		err = m.w.store.Delete(m.t.Context(), key, r.Version)
	}
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		t.Fatal(err)
	}
}

func (m *model) Retry(t *rapid.T) {
	j := m.job(t)
	was := j.Job
	failed, err := m.faulty(t, m.front, func() error { _, err := m.front.Retry(m.t.Context(), was.Queue, was.ID); return err })
	may := was.Status == queue.Failed || was.Status == queue.TimedOut
	var transition *queue.TransitionError
	if !failed && (may && err != nil || !may && !errors.As(err, &transition)) {
		t.Fatalf("retry a job that is %s: got %v", was.Status, err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return may && now.Status == queue.Queued && now.Retried == was.Retried+1 })
}

func (m *model) Reprioritise(t *rapid.T) {
	j := m.job(t)
	was := j.Job
	priority := rapid.Int64Range(-1, 1).Draw(t, "priority")
	failed, err := m.faulty(t, m.front, func() error {
		_, err := m.front.Reprioritise(m.t.Context(), was.Queue, was.ID, priority)
		return err
	})
	may := was.Status == queue.Queued || was.Orphaned()
	var transition *queue.TransitionError
	if !failed && (may && err != nil || !may && !errors.As(err, &transition)) {
		t.Fatalf("change the priority of a job that is %s: got %v", was.Status, err)
	}
	m.learn(t, was.ID, was, func(now *queue.Job) bool { return may && now.Priority == priority && now.Status == was.Status })
}

func (m *model) repair() {
	m.front.reap(m.t)
	m.front.repair(m.t)
	m.torn = false
}

// Repair completes what failed calls have interrupted; afterwards everything is sound.
func (m *model) Repair(t *rapid.T) {
	m.repair()
	if _, err := m.front.Clean(m.t.Context(), m.w.start); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	sound := &faults{TB: m.t}
	m.w.soundly(sound, false)
	if len(sound.found) > 0 {
		t.Fatalf("it is not sound: %s", strings.Join(sound.found, "; "))
	}
}

// faults keeps what is wrong for the one run of the model in which it was found: rapid goes on with others, to find a
// shorter one.
type faults struct {
	testing.TB
	found []string
}

func (f *faults) Errorf(format string, args ...any) {
	f.found = append(f.found, fmt.Sprintf(format, args...))
}

// Check finds no job that the model does not know, and none that has changed by itself.
func (m *model) Check(t *rapid.T) {
	there := m.w.all(m.t)
	for id, j := range m.jobs {
		if now := there[id]; now.Status != j.Status || now.Token != j.Token || now.LockedBy != j.LockedBy {
			t.Fatalf("job %s is %s, token %d, by %q; want %s, %d, %q", j.Task, now.Status, now.Token, now.LockedBy, j.Status, j.Token, j.LockedBy)
		}
	}
	for id, j := range there {
		if m.jobs[id] == nil {
			t.Fatal(fmt.Sprint("it was not enqueued: job ", j.Task))
		}
	}
}
