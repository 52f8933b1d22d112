// Package slurm lets a Slurm cluster start workers. For each job of a run it submits a batch script that is "e3 worker
// --job", follows its state, and cancels it, with Slurm's own commands (sbatch, squeue, scontrol, scancel).
//
// It decides nothing: the queue's leases settle which worker executes a job. So the following are harmless: a job
// that Slurm requeues while its first copy continues, a job that was submitted twice because an answer was lost, and
// a job for which no run waits any more.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/host/modes"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

// Options say how jobs are submitted.
type Options struct {
	Program string   // e3, as the nodes find it: an absolute path, or a name on their PATH
	Repo    string   // location of the repository, as the nodes reach it
	Worker  []string // further arguments of e3 worker
	Args    []string // further arguments of sbatch, after e3's: partition, account and the like
	// Resources maps names of tasks' resources to Slurm's, such as "gpu" to "gpu:a100"; a resource mapped to "" is not
	// requested. An unmapped resource keeps its name.
	Resources map[string]string
	// Logs is a folder, preferably shared by the nodes, for the output of running scripts, which explains failures; ""
	// keeps nothing.
	Logs  string
	Modes modes.Modes  // of that folder
	Env   []string     // of Slurm's commands and, through sbatch, of the workers; nil: this process's
	Warn  func(string) // receives warnings for the user; nil: they are dropped
}

const (
	gather       = 200 * time.Millisecond // how long a job waits for others to share an array
	maxArray     = 1000                   // jobs in an array, if Slurm allows as many
	maxTargets   = 500                    // arguments of one scancel
	minPoll      = time.Second
	maxPoll      = 5 * time.Second
	jobsPerPoll  = 250 // jobs that lengthen the pause between polls by a second
	firstRetry   = time.Second
	maxRetry     = 30 * time.Second
	closeTimeout = 10 * time.Second // for a submission in progress at the end
)

var _ dispatch.Submitter = (*Submitter)(nil)

// A Submitter submits jobs to Slurm and follows them until [Submitter.Close]. It is safe for concurrent use.
type Submitter struct {
	o     Options
	c     commands
	array int // largest size of an array
	logs  *logs
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu          sync.Mutex
	waiting     []*job          // not submitted yet
	jobs        map[string]*job // all unfinished jobs, by the e3 job's id
	submissions map[string]*submission
	gone        []dispatch.Gone // not yet reported
	failing     map[string]bool // commands

	wakeSubmit, wakeFollow, wakeGone chan struct{} // each holds one signal
}

// A job is a job for which Slurm starts a worker.
type job struct {
	queue.Job
	of        *submission // nil until it is being submitted
	index     int         // in the submission
	cancelled bool
	missing   bool // the last poll did not list it
}

// A submission is one call of sbatch.
type submission struct {
	token      string // in its comment, to find it again
	args       []string
	named      string // its name for display
	jobs       []*job // the array's tasks in order; a single job is no array
	unfinished int    // number of jobs that have not ended
	id         string // Slurm's; "" until known
	since      time.Time
	warned     string          // the reason of the last warning
	doubles    map[string]bool // ids of copies, which a lost answer may cause
}

// target is Slurm's name of a job.
func (j *job) target() string {
	if len(j.of.jobs) == 1 {
		return j.of.id
	}
	return fmt.Sprintf("%s_%d", j.of.id, j.index)
}

// New returns a submitter for the cluster whose commands are on the PATH. The cluster must answer.
func New(ctx context.Context, o Options) (*Submitter, error) {
	if err := validArgs(o.Args); err != nil {
		return nil, err
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	for _, name := range []string{"sbatch", "squeue", "scontrol", "scancel"} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("submit to Slurm: its commands are not on this machine: %w (run e3 start where you would run sbatch)", err)
		}
	}
	s := &Submitter{
		o: o, c: commands{env: cleanEnv(o.Env)}, jobs: make(map[string]*job), submissions: make(map[string]*submission),
		failing: make(map[string]bool), wakeSubmit: make(chan struct{}, 1), wakeFollow: make(chan struct{}, 1), wakeGone: make(chan struct{}, 1),
	}
	config, err := s.c.run(ctx, "", "scontrol", "show", "config")
	if err != nil {
		return nil, fmt.Errorf("submit to Slurm: it does not answer: %w", err)
	}
	if s.array = min(maxArray, maxArraySize(config)); s.array < 2 {
		s.array = 1
	}
	if o.Logs != "" {
		if s.logs, err = openLogs(o.Logs, o.Modes, time.Now()); err != nil {
			o.Warn(fmt.Sprintf("the output of Slurm's scripts is not kept: %v", err))
		}
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(s.submitAll)
	s.done.Go(s.follow)
	return s, nil
}

// Close ends the submitter. Slurm jobs that were not cancelled continue.
func (s *Submitter) Close() error {
	s.stop()
	s.done.Wait()
	return s.logs.remove()
}

// Submit submits jobs soon, jobs with equal requirements in arrays. A job that Slurm refuses is reported as gone
// ([Submitter.Gone]). A submitted job that has not ended is not submitted again.
func (s *Submitter) Submit(_ context.Context, jobs []queue.Job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.New("submit to Slurm: the submitter is closed")
	}
	for _, j := range jobs {
		if there := s.jobs[j.ID]; there != nil && !there.cancelled {
			continue
		}
		submitted := &job{Job: j}
		s.jobs[j.ID] = submitted
		s.waiting = append(s.waiting, submitted)
	}
	signal(s.wakeSubmit)
	return nil
}

// signal wakes a waiter, now or at its next wait.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Gone returns a channel that receives all jobs that Slurm has ended or refused, whether or not their worker had
// finished them: the queue decides that. Cancelled jobs are not received. The channel is closed when the context is
// done. Gone may be called once.
func (s *Submitter) Gone(ctx context.Context) (<-chan dispatch.Gone, error) {
	out := make(chan dispatch.Gone)
	go func() {
		defer close(out)
		for {
			s.mu.Lock()
			batch := s.gone
			s.gone = nil
			s.mu.Unlock()
			for _, g := range batch {
				select {
				case out <- g:
				case <-ctx.Done():
					return
				}
			}
			if len(batch) > 0 {
				continue
			}
			select {
			case <-s.wakeGone:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// end forgets a job that Slurm has ended, and reports it unless it was cancelled here. The caller holds the lock.
func (s *Submitter) end(j *job, reason executions.Reason, message string) {
	if s.jobs[j.ID] == j {
		delete(s.jobs, j.ID)
	}
	if of := j.of; of != nil {
		if of.jobs[j.index] != j {
			return
		}
		of.jobs[j.index] = nil
		if of.unfinished--; of.unfinished == 0 {
			delete(s.submissions, of.token)
		}
	}
	if !j.cancelled {
		s.gone = append(s.gone, dispatch.Gone{ID: j.ID, Reason: string(reason), Message: message})
		signal(s.wakeGone)
	}
}

// Cancel ends jobs in Slurm. It retries until the context is done, but tries at least once.
func (s *Submitter) Cancel(ctx context.Context, ids []string) error {
	s.mu.Lock()
	of := make(map[*submission]bool)
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
			of[j.of] = true
		}
	}
	var targets []string
	for x := range of {
		targets = append(targets, x.cancelled()...)
	}
	s.mu.Unlock()
	slices.Sort(targets)
	return s.scancel(ctx, targets)
}

// cancelled lists the cancelled targets of a submission. The caller holds the lock.
func (x *submission) cancelled() (targets []string) {
	all := true
	for _, j := range x.jobs {
		switch {
		case j == nil:
		case j.cancelled:
			targets = append(targets, j.target())
		default:
			all = false
		}
	}
	if all && len(targets) > 1 {
		return []string{x.id}
	}
	return targets
}

// scancel ends jobs in Slurm, for [Submitter.Cancel]. A job that has already ended is no error.
func (s *Submitter) scancel(ctx context.Context, targets []string) error {
	for batch := range slices.Chunk(targets, maxTargets) {
		for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
			once, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			_, err := s.c.run(once, "", "scancel", append([]string{"--quiet", "--"}, batch...)...)
			cancel()
			if err == nil || isInvalidJob(err) {
				s.answers("scancel")
				break
			}
			if !isTemporary(err) {
				return fmt.Errorf("cancel %s: %w", strings.Join(batch[:min(3, len(batch))], ", "), err)
			}
			s.fails("scancel", "Slurm does not answer, trying again", err)
			if backoff.Wait(ctx, wait) != nil {
				return fmt.Errorf("cancel %s: %w", strings.Join(batch[:min(3, len(batch))], ", "), err)
			}
		}
	}
	return nil
}

// fails warns of a failing command, once until it works again.
func (s *Submitter) fails(command, what string, err error) {
	s.mu.Lock()
	known := s.failing[command]
	s.failing[command] = true
	s.mu.Unlock()
	if !known {
		s.o.Warn(fmt.Sprintf("%s: %v", what, err))
	}
}

// answers records that a command works.
func (s *Submitter) answers(command string) {
	s.mu.Lock()
	delete(s.failing, command)
	s.mu.Unlock()
}
