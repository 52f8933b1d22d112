// Package cluster has a cluster's scheduler start workers. For each job of a run it submits a script that is "e3 worker --job",
// follows its state, and cancels it. What knows one scheduler is a [Scheduler]; all else is here.
//
// It decides nothing: the queue's leases settle which worker executes a job. So these are harmless: a job that is started
// again while its first copy continues, one that was submitted twice, and one for which no run waits any more.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

// Options say how jobs are submitted.
type Options struct {
	Program string   // e3, as the nodes find it: an absolute path, or a name on their PATH
	Repo    string   // location of the repository, as the nodes reach it
	Worker  []string // further arguments of e3 worker
	// Logs is a folder of this submitter's own, preferably shared by the nodes, for the output of running scripts, which
	// explains failures; "" keeps nothing.
	Logs string
	Warn func(string) // receives warnings for the user
}

const (
	gather       = 200 * time.Millisecond // how long a job waits for others to share a batch
	maxTargets   = 500                    // jobs in one cancellation
	maxName      = 100                    // bytes
	maxTail      = 2 << 10                // bytes of a log in a message
	tailLen      = 5                      // lines
	atOnce       = 4                      // submissions
	unseen       = 10 * time.Second       // how long it may take to list what was submitted; a job is missed for two polls, too
	minPoll      = time.Second
	maxPoll      = 5 * time.Second
	jobsPerPoll  = 250 // jobs that lengthen the pause between polls by a second
	firstRetry   = time.Second
	maxRetry     = 30 * time.Second
	closeTimeout = 10 * time.Second // for a command in progress at the end
)

var _ dispatch.Submitter = (*Submitter)(nil)

// A Submitter submits jobs to a scheduler and follows them until [Submitter.Close]. It is safe for concurrent use.
type Submitter struct {
	scheduler Scheduler
	traits    Traits
	o         Options
	ctx       context.Context
	stop      context.CancelFunc
	done      sync.WaitGroup

	mu          sync.Mutex
	waiting     []*job          // not submitted yet
	jobs        map[string]*job // all unfinished jobs, by the e3 job's id
	submissions map[string]*submission
	report      func(dispatch.Gone)
	failing     map[string]bool // what was warned of: calls of the scheduler, and reasons for which it holds jobs
}

// A job is a job for which the scheduler starts a worker.
type job struct {
	queue.Job
	of        *submission // nil until it is being submitted
	index     int         // in the submission
	cancelled bool
	missed    time.Time // by the first of the polls that did not list it; zero: the last one did
}

// A submission is a batch, and what became of it.
type submission struct {
	Batch
	jobs       []*job // the batch's; nil where one has ended
	unfinished int    // number of jobs that have not ended
	id         string // the scheduler's; "" until known
	since      time.Time
}

// target is the scheduler's name of a job.
func (j *job) target() string {
	if len(j.of.jobs) == 1 {
		return j.of.id
	}
	return fmt.Sprintf("%s_%d", j.of.id, j.index)
}

// New returns a submitter for a scheduler.
func New(scheduler Scheduler, o Options) *Submitter {
	s := &Submitter{scheduler: scheduler, traits: scheduler.Traits(), o: o, jobs: map[string]*job{}, submissions: map[string]*submission{}, failing: map[string]bool{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.done.Go(s.submitAll)
	s.done.Go(s.follow)
	return s
}

// Close ends the submitter. Jobs of the scheduler that were not cancelled continue.
func (s *Submitter) Close() {
	s.stop()
	s.done.Wait()
}

// Submit submits jobs soon, jobs with equal demands in batches. A job that the scheduler refuses is reported as gone
// ([Submitter.Gone]). A submitted job that has not ended is not submitted again.
func (s *Submitter) Submit(_ context.Context, jobs []queue.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		if there := s.jobs[j.ID]; there == nil || there.cancelled {
			s.jobs[j.ID] = &job{Job: j}
			s.waiting = append(s.waiting, s.jobs[j.ID])
		}
	}
	return nil
}

// Gone has all jobs reported that the scheduler has ended or refused, whether or not their worker had finished them: the
// queue decides that. Cancelled jobs are not reported. Gone is called before the first Submit.
func (s *Submitter) Gone(report func(dispatch.Gone)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report = report
}

// end forgets a job that has ended, and reports it unless it was cancelled here. The caller holds the lock.
func (s *Submitter) end(j *job, reason executions.Reason, message string) {
	if s.forget(j) && !j.cancelled {
		s.report(dispatch.Gone{ID: j.ID, Reason: string(reason), Message: message})
	}
}

// forget forgets a job, with its log. It returns false if it has been forgotten. The caller holds the lock.
func (s *Submitter) forget(j *job) bool {
	if s.jobs[j.ID] == j {
		delete(s.jobs, j.ID)
	}
	x := j.of
	if x == nil || x.jobs[j.index] != j {
		return x == nil
	}
	s.o.dropLog(x.Token, j.index)
	x.jobs[j.index] = nil
	if x.unfinished--; x.unfinished == 0 {
		delete(s.submissions, x.Token)
	}
	return true
}

// Finished forgets a job that is finished: its worker ends by itself.
func (s *Submitter) Finished(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.jobs[id]; j != nil && !j.cancelled && j.of != nil && j.of.id != "" {
		s.forget(j)
	}
}

// Cancel ends jobs. It retries until the context is done, but tries at least once.
func (s *Submitter) Cancel(ctx context.Context, ids []string) error {
	var targets []string
	s.mu.Lock()
	for _, id := range ids {
		j := s.jobs[id]
		if j == nil || j.cancelled {
			continue
		}
		j.cancelled = true
		if j.of == nil {
			s.waiting = slices.DeleteFunc(s.waiting, func(w *job) bool { return w == j })
			s.end(j, "", "")
		} else if j.of.id != "" { // otherwise the submission cancels it
			targets = append(targets, j.target())
		}
	}
	s.mu.Unlock()
	return s.cancel(ctx, targets)
}

// lasting is a context for a call whose outcome is wanted: it ends some time after ctx.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeTimeout, cancel) })
	return call, func() { stop(); cancel() }
}

// cancel ends what the scheduler calls by these ids.
func (s *Submitter) cancel(ctx context.Context, targets []string) error {
	for batch := range slices.Chunk(targets, maxTargets) {
		for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
			call, done := lasting(ctx)
			err := s.scheduler.Cancel(call, batch)
			done()
			temporary := errors.Is(err, ErrTemporary)
			if err == nil || temporary {
				s.says("cancel", "does not answer, trying again", err)
			}
			if err == nil {
				break
			}
			if !temporary || backoff.Wait(ctx, wait) != nil {
				return fmt.Errorf("cancel %s: %w", strings.Join(batch[:min(3, len(batch))], ", "), err)
			}
		}
	}
	return nil
}

// says warns of a call that fails, once until it works again.
func (s *Submitter) says(call, what string, err error) {
	s.mu.Lock()
	known := s.failing[call]
	s.failing[call] = err != nil
	s.mu.Unlock()
	if err != nil && !known && s.ctx.Err() == nil {
		s.o.Warn(fmt.Sprintf("%s %s: %v", s.traits.Name, what, err))
	}
}
