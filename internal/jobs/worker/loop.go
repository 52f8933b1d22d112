package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"e3/internal/jobs/queue"
	"e3/refstore"
)

// loop claims jobs. It is one goroutine; each held job has another.
type loop struct {
	w     *Worker
	jobs  context.Context // context of commands; its cause says why they end
	held  context.Context // context of writes; it ends with the lease
	drain <-chan struct{}

	hands hands

	draining bool
	finished bool  // the worker's only job is settled
	refused  error // the reason why this version of e3 cannot settle it
	renew    bool  // the session should be renewed
	began    time.Time
	busy     time.Time // the last time when the worker was not idle

	undecided map[string]bool // sessions not yet known to be alive or dead, since the first idle look
	again     time.Time       // time of the next look at them
}

// idlePause is the interval of polling without a wake-up.
const idlePause = 2 * time.Second

func (l *loop) run() error {
	w := l.w
	l.began, l.busy = w.o.Now(), w.o.Now()
	l.hands = hands{make(chan func())}
	defer l.hands.dismiss()
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(l.held)
	defer cancel()
	wake, err := w.s.Queue.Watch(ctx, w.o.Queues...)
	if err != nil {
		return fmt.Errorf("watch the queues: %w", err)
	}
	look := w.s.Queue.Tend
	if w.o.Job != "" { // the job's run tends the queue; there may be as many of these workers as jobs
		look = w.s.Queue.FollowCancels
	}
	beside.Go(func() {
		_ = look(ctx, w.o.Queues, func(err error) { l.complain(ctx, err) }) // ends with ctx or the lease
	})
	beside.Go(func() { l.sweep(ctx) })
	if w.o.Job == "" && l.mayClaim() {
		l.takeOver(nil) // adopt commands of dead workers of this host at once
	}
	stopped := l.jobs.Done()
	for {
		l.claim()
		if l.done() {
			l.abandon()
			return l.cause()
		}
		timer := time.NewTimer(l.pause())
		select {
		case h := <-w.done:
			l.ended(h)
		case _, ok := <-wake:
			if !ok { // the lease has ended, and no more jobs may be claimed
				wake = nil
			}
		case <-timer.C:
		case <-l.drain:
			l.drain = nil
			l.stopClaiming()
		case <-stopped:
			stopped = nil
			l.draining = true
		}
		timer.Stop()
	}
}

// cause is why the loop has ended: nil if it was asked to.
func (l *loop) cause() error {
	switch {
	case l.finished:
		return l.refused
	case l.jobs.Err() != nil:
		return context.Cause(l.jobs)
	case l.renew:
		return ErrRenew
	}
	return nil
}

// done tells whether the worker should end.
func (l *loop) done() bool {
	w := l.w
	if l.jobs.Err() != nil {
		l.abandon()
	}
	if len(w.running)+len(w.orphans) > 0 {
		l.occupied()
		return false
	}
	if l.draining || l.finished {
		return true
	}
	if len(w.withdrawn) > 0 {
		l.occupied()
		return false
	}
	now := w.o.Now()
	if w.o.For > 0 && now.Sub(l.began) >= w.o.For || w.o.Idle > 0 && now.Sub(l.busy) >= w.o.Idle && !l.awaited() {
		l.draining = true
	}
	// A worker that ends when idle renews right after work, because a new session starts its idle time anew.
	l.renew = !l.draining && w.o.Renew > 0 && now.Sub(l.began) >= w.o.Renew && (w.o.Idle == 0 || now.Sub(l.busy) < idlePause)
	return l.draining || l.renew
}

// occupied records that the worker is not idle.
func (l *loop) occupied() {
	l.busy, l.undecided, l.again = l.w.o.Now(), nil, time.Time{}
}

// awaited tells whether a session may have been lost whose jobs this worker would take over; then it is not idle yet.
// It reads most sessions for the first time. Only a later look, after a lease at most, tells whether they are alive. So
// the worker looks again until that is known for all sessions that it first found. A session found later was alive when
// the worker had been idle long enough.
func (l *loop) awaited() bool {
	w, now := l.w, l.w.o.Now()
	if now.Before(l.again) {
		return true
	}
	undecided, pending := map[string]bool{}, time.Duration(0)
	for _, name := range w.o.Queues {
		works, err := w.s.Queue.AtWork(l.held, name)
		if err != nil { // an unreadable queue keeps no worker waiting
			l.complain(l.held, err)
			continue
		}
		for i := range works {
			j := &works[i].Job
			switch {
			case !w.has(j.Labels) || w.room.check(&j.Policy) == noResource:
			case works[i].Over:
				l.occupied()
				return true
			case works[i].Pending > 0 && (l.undecided == nil || l.undecided[j.LockedBy]):
				undecided[j.LockedBy] = true
				pending = max(pending, works[i].Pending)
			}
		}
	}
	// A live session renews at least twice in a lease, so two looks must be less than a lease apart.
	l.undecided, l.again = undecided, now.Add(max(pending/2, min(pending, idlePause)))
	return len(undecided) > 0
}

func (l *loop) stopClaiming() {
	if !l.draining {
		l.draining = true
		l.w.report(Event{Type: Draining, Running: len(l.w.running)})
	}
}

// pause is the longest sleep of the loop.
func (l *loop) pause() time.Duration {
	w, d := l.w, idlePause
	now := w.o.Now()
	if w.paused.After(now) {
		d = min(d, w.paused.Sub(now))
	}
	if w.o.For > 0 {
		d = min(d, max(w.o.For-now.Sub(l.began), 0))
	}
	if w.o.Idle > 0 && len(w.running) == 0 {
		d = min(d, max(w.o.Idle-now.Sub(l.busy), l.again.Sub(now), 0))
	}
	return max(d, time.Millisecond)
}

// mayClaim tells whether the worker may take another job now.
func (l *loop) mayClaim() bool {
	w := l.w
	select {
	case <-l.drain:
		l.drain = nil
		l.stopClaiming()
	default:
	}
	if l.draining || l.finished || l.jobs.Err() != nil || w.paused.After(w.o.Now()) {
		return false
	}
	if w.o.For > 0 && w.o.Now().Sub(l.began) >= w.o.For {
		l.stopClaiming()
		return false
	}
	return true
}

// claim takes jobs while there is room, starting with those of dead workers of this host.
func (l *loop) claim() {
	w := l.w
	l.takeUp()
	if w.beside && w.o.Now().Sub(w.looked) >= idlePause || len(w.sought) > maxSought {
		clear(w.sought) // commands of other workers may have become free
	}
	if w.o.Job != "" {
		l.claimOne()
		return
	}
	for l.mayClaim() {
		if w.room.full() {
			l.pollOrphans()
			return
		}
		if err := l.takeTurn(); err != nil {
			l.fault(err)
			return
		}
		toAdopt := orphans{}
		want := l.want(func(j *queue.Job) bool { return !l.mustAdopt(j, toAdopt) && l.takes(j) })
		want.Chosen = func(j *queue.Job) bool {
			w.room.take(&j.Policy)
			w.turn.claimed(j)
			return !w.room.full()
		}
		want.Missed = func(j *queue.Job) { w.room.give(&j.Policy) }
		leases, err := w.s.Queue.ClaimSome(l.held, want, mostClaims)
		for _, lease := range leases {
			l.start(lease, nil)
		}
		if err != nil {
			l.fault(err)
			return
		}
		if len(toAdopt) > 0 {
			l.takeOver(toAdopt)
		} else if !l.bequeath() && len(leases) == 0 {
			return
		}
	}
}

// orphans are jobs whose workers were lost, each in the state of its last holder, with the identities of their commands.
type orphans map[string]string

// maxSought bounds the remembered orphans.
const maxSought = 1 << 12

// mustAdopt tells whether a job must wait for the command that a lost worker began for it on this host: the command was
// already adopted, for this job or for a withdrawn one, or was not searched for yet. In the latter case the job is added
// to toAdopt.
func (l *loop) mustAdopt(j *queue.Job, toAdopt orphans) bool {
	w := l.w
	if own := identity(j); slices.ContainsFunc(w.orphans, func(o *runner.Orphan) bool { return o.Identity == own }) {
		return true
	}
	if j.MakerHost == w.o.Host && (j.Orphaned() || wasGivenUp(j)) {
		if name := fmt.Sprintf("%s#%d", j.Ref(), j.Token); !w.sought[name] {
			toAdopt[name] = identity(j)
			return true
		}
	}
	return !j.Orphaned() && l.inherits(j)
}

// wasGivenUp tells whether a job waits for another start because the worker that its record still names was lost.
func wasGivenUp(j *queue.Job) bool {
	return j.Status == queue.Queued && len(j.Lost) > 0 && j.Lost[len(j.Lost)-1].Worker == j.Maker
}

// pollOrphans periodically looks for jobs of dead workers of this host while there is no room for other jobs: only
// workers of this host can continue them, and only for a while.
func (l *loop) pollOrphans() {
	w := l.w
	now := w.o.Now()
	if now.Sub(w.polled) < idlePause {
		return
	}
	w.polled = now
	jobs, err := w.s.Queue.Orphans(l.held, w.o.Queues...)
	if err != nil {
		l.fault(err)
		return
	}
	toAdopt := orphans{}
	for i := range jobs {
		l.mustAdopt(&jobs[i], toAdopt)
	}
	if len(toAdopt) > 0 {
		l.takeOver(toAdopt)
	}
}

// claimOne takes the worker's only job, or finds that it is settled.
func (l *loop) claimOne() {
	w := l.w
	name, id := w.o.Queues[0], w.o.Job
	if !l.mayClaim() || w.worksOn(name, id) {
		return
	}
	job, err := w.s.Queue.Job(l.held, name, id)
	switch {
	case isOver(err), err == nil && job.Status.Terminal():
		l.settled(err)
		return
	case err != nil:
		l.fault(err)
		return
	}
	for {
		toAdopt := orphans{}
		lease, err := w.s.Queue.Only(l.held, name, id, l.want(func(j *queue.Job) bool { return !l.mustAdopt(j, toAdopt) }))
		switch {
		case isOver(err):
			l.settled(err)
		case err != nil:
			l.fault(err)
		case lease != nil:
			l.begin(lease, nil)
		case len(toAdopt) > 0:
			if l.takeOver(toAdopt); !w.worksOn(name, id) {
				continue
			}
		case l.bequeath() && !w.worksOn(name, id):
			continue
		}
		return
	}
}

// settled ends a worker for one job. A job that this version of e3 cannot read is not settled: the run's e3 may be
// newer.
func (l *loop) settled(err error) {
	l.finished = true
	if errors.Is(err, queue.ErrMalformed) {
		l.refused = fmt.Errorf("%w; is e3 older here than where the run was started?", err)
	}
}

// isOver tells whether an error means that a job is finished, gone, or unreadable for this version of e3.
func isOver(err error) bool {
	var moved *queue.TransitionError
	return errors.As(err, &moved) || errors.Is(err, queue.ErrNotFound) || errors.Is(err, queue.ErrMalformed)
}

func (l *loop) want(fits func(*queue.Job) bool) queue.Want {
	o := &l.w.o
	return queue.Want{
		Queues: o.Queues, Worker: o.Name, Host: o.Host, Grace: o.Patience, Beside: l.w.beside, Fits: fits, Until: l.w.turn.until(),
		NewExecution: executions.NewIDAfter,
	}
}

// takeOver looks for commands on this host whose worker has died, or was lost and holds one of toAdopt, and claims their
// jobs in any queue. They need no room, as they already run. toAdopt are the jobs that need their command.
func (l *loop) takeOver(toAdopt orphans) {
	w := l.w
	found, err := w.s.Supervisor.Adopt(l.jobs, slices.Collect(maps.Values(toAdopt))...)
	if err != nil && !errors.Is(err, runner.ErrAdopted) && l.jobs.Err() == nil {
		w.report(Event{Type: Fault, Message: "look for commands that a dead worker has left here: " + err.Error()})
	}
	// Commands that another worker has, or may have, are reserved for it while it may be claiming their jobs.
	w.beside, w.looked = err != nil, w.o.Now()
	for name := range toAdopt {
		w.sought[name] = true
	}
	w.orphans = append(w.orphans, found...)
	l.takeUp()
}

// takeUp claims the jobs of adopted commands. Commands whose jobs cannot be claimed yet keep running.
func (l *loop) takeUp() {
	w := l.w
	if l.jobs.Err() != nil || w.paused.After(w.o.Now()) {
		return
	}
	var kept []*runner.Orphan
	for i, o := range w.orphans {
		fate, err := l.takeUpOne(o)
		switch {
		case err != nil:
			l.fault(err)
			w.orphans = append(kept, w.orphans[i:]...)
			return
		case fate == undecided:
			kept = append(kept, o)
		case fate == unneeded:
			o.Release()
			select {
			case w.dropped <- struct{}{}:
			default:
			}
		case fate == jobWithdrawn:
			l.keepWithdrawn(o)
		}
	}
	w.orphans = kept
	l.forgetWithdrawn()
}

// abandon stops the adopted commands whose jobs are not held. After the loss of the lease they are already left.
func (l *loop) abandon() {
	w := l.w
	if l.held.Err() == nil {
		for _, o := range w.orphans {
			o.Release()
		}
		for _, c := range w.withdrawn {
			c.o.Release()
		}
	}
	w.orphans, w.withdrawn = nil, nil
}

// Fates of an adopted command.
const (
	unneeded     = iota // no job needs it any more
	undecided           // its worker may still hold the job
	taken               // its job is being worked on
	jobWithdrawn        // its job was given up elsewhere, and withdrawn before another attempt
)

// takeUpOne claims the job of an adopted command. After an error, which is the store's, the fate is unknown.
func (l *loop) takeUpOne(o *runner.Orphan) (fate int, err error) {
	w := l.w
	name, id, attempt, ok := parseIdentity(o.Identity)
	if !ok {
		return unneeded, nil
	}
	want := l.want(nil)
	want.Beside, want.Early = false, attempt // its command runs on this host
	_, want.Began, _ = executions.HandedOver(o.State)
	lease, err := w.s.Queue.Only(l.held, name, id, want)
	var job queue.Job
	if err == nil && lease == nil {
		job, err = w.s.Queue.Job(l.held, name, id)
	}
	switch {
	case wasWithdrawn(err, attempt):
		return jobWithdrawn, nil
	case isOver(err):
		return unneeded, nil
	case err != nil:
		return undecided, err
	case lease == nil && job.Attempts == attempt && (job.Status == queue.Running || job.Status == queue.Queued):
		return undecided, nil // the worker of its job is not known to be gone yet
	case lease == nil:
		return unneeded, nil
	case !lease.Adopted() && lease.Job().Attempts == attempt+1 && !o.Expired(): // given up elsewhere, and not begun again
	case !lease.Adopted() || lease.Job().Attempts != attempt: // begun elsewhere since, or killed; it is claimed like any other job
		if err := w.insist(l.held, lease.Release); err != nil {
			l.fault(err)
		}
		return unneeded, nil
	}
	l.begin(lease, o)
	return taken, nil
}

// mostClaims bounds the jobs that are claimed together, beside the room for them.
const mostClaims = 64

// begin makes room for a claimed job, and starts work on it.
func (l *loop) begin(lease *queue.Lease, o *runner.Orphan) {
	job := lease.Job()
	l.w.room.take(&job.Policy)
	l.start(lease, o)
}

// start starts work on a claimed job that has room.
func (l *loop) start(lease *queue.Lease, o *runner.Orphan) {
	w := l.w
	h := &holding{lease: lease, job: lease.Job()}
	w.running[h] = true
	w.metrics.running.Store(int64(len(w.running)))
	l.hands.do(func() {
		w.work(l, h, o)
		w.done <- h
	})
}

// hands are goroutines that work on jobs. They are used again, since the stack of a new one grows several times.
type hands struct{ free chan func() }

// do calls a function on a goroutine.
func (h *hands) do(f func()) {
	select {
	case h.free <- f:
	default:
		go func() {
			for ok := true; ok; f, ok = <-h.free {
				f()
			}
		}()
	}
}

// dismiss ends the idle goroutines, and the others after their present work.
func (h *hands) dismiss() { close(h.free) }

// ended removes a job from the worker.
func (l *loop) ended(h *holding) {
	w := l.w
	delete(w.running, h)
	w.room.give(&h.job.Policy)
	w.metrics.running.Store(int64(len(w.running)))
	l.busy = w.o.Now()
	if h.foreign {
		w.foreign[h.job.Queue+"/"+h.job.ID] = w.o.Now()
		l.finished = l.finished || w.o.Job != "" // its cluster may have another machine
	}
	if !h.fault {
		w.faults = 0
		return
	}
	l.backOff()
}

// fault reports a fault of the stores, and pauses the loop for a moment.
func (l *loop) fault(err error) {
	if l.held.Err() != nil || errors.Is(err, refstore.ErrLost) {
		return // the end of the lease reports it
	}
	l.w.report(Event{Type: Fault, Message: err.Error()})
	l.backOff()
}

// complain reports a fault of the stores, unless everything is ending.
func (l *loop) complain(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, refstore.ErrLost) {
		l.w.report(Event{Type: Fault, Message: err.Error()})
	}
}

// backOff keeps a machine that cannot execute anything from claiming job after job.
func (l *loop) backOff() {
	w := l.w
	pause := min(250*time.Millisecond<<min(w.faults, 7), 30*time.Second)
	w.faults++
	w.paused = w.o.Now().Add(pause)
}

// sweepSoon is when a sweep follows the end of a command whose execution was given up elsewhere: it hands in the log.
const sweepSoon = 2 * time.Second

// sweep periodically removes leftovers of dead processes until ctx ends. The claiming loop reports faults of the
// stores.
func (l *loop) sweep(ctx context.Context) {
	t := time.NewTicker(l.w.o.Sweep)
	defer t.Stop()
	if l.w.o.Job == "" { // it tells the ends that its predecessor could not tell
		_ = l.w.s.Sweep(ctx)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.w.dropped:
			t.Reset(sweepSoon)
		case <-t.C:
			t.Reset(l.w.o.Sweep)
			_ = l.w.s.Sweep(ctx)
		}
	}
}

// identity names an attempt at a job for supervisors.
func identity(j *queue.Job) string {
	return j.Queue + "/" + j.ID + "#" + strconv.FormatInt(j.Attempts, 10)
}

func parseIdentity(s string) (name, id string, attempt int64, ok bool) {
	ref, n, found := strings.Cut(s, "#")
	i := strings.LastIndexByte(ref, '/')
	attempt, err := strconv.ParseInt(n, 10, 64)
	if !found || i <= 0 || i == len(ref)-1 || err != nil {
		return "", "", 0, false
	}
	return ref[:i], ref[i+1:], attempt, true
}
