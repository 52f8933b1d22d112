// Package slurm has a Slurm cluster start workers: it submits, for each job of a run, a batch script that is "e3 worker --job",
// follows what becomes of it, and cancels it, all by Slurm's own commands (sbatch, squeue, scontrol, scancel).
//
// It decides nothing. Whoever executes a job is settled by the queue's leases, so a job that Slurm requeues while its first copy
// goes on, one that was submitted twice because an answer was lost, and one that nobody waits for any more do no harm.
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
	"e3/internal/host/modes"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

// Options say how jobs are submitted.
type Options struct {
	Program string   // e3, as the nodes find it: an absolute path, or a name on their PATH
	Repo    string   // location of the repository, as the nodes reach it
	Worker  []string // further arguments of e3 worker
	Args    []string // further arguments of sbatch, after our own: partition, account and the like
	// Resources maps names of resources of tasks to what Slurm calls them, as "gpu" to "gpu:a100"; "" is not asked for.
	// One that is missing is called the same.
	Resources map[string]string
	// Logs is a folder, best one that the nodes share, where what the scripts say is kept while they run, so that one that fails can
	// be explained; "" keeps nothing.
	Logs  string
	Modes modes.Modes  // of that folder
	Env   []string     // of Slurm's commands and, through sbatch, of the workers; nil is this process's
	Warn  func(string) // is told what the user should know; nil is nobody
}

const (
	gather       = 200 * time.Millisecond // that a job waits for others, to be submitted in one array
	maxArray     = 1000                   // jobs in an array, where Slurm allows as many
	maxTargets   = 500                    // that one scancel is given
	minPoll      = time.Second
	maxPoll      = 5 * time.Second
	jobsPerPoll  = 250 // jobs that make the pause between polls a second longer
	firstRetry   = time.Second
	maxRetry     = 30 * time.Second
	closeTimeout = 10 * time.Second // that a submission under way may take when all ends
)

var _ dispatch.Submitter = (*Submitter)(nil)

// A Submitter submits jobs to Slurm and follows them until [Submitter.Close]. It is safe for concurrent use.
type Submitter struct {
	o     Options
	c     commands
	array int // jobs in an array at most
	logs  *logs
	ctx   context.Context
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu          sync.Mutex
	waiting     []*job          // not submitted yet
	jobs        map[string]*job // all that have not ended, by the e3 job's id
	submissions map[string]*submission
	gone        []dispatch.Gone // that nobody has been told of yet
	failing     map[string]bool // commands

	wakeSubmit, wakeFollow, wakeGone chan struct{} // each holds one signal
}

// A job is one that Slurm is to start a worker for.
type job struct {
	queue.Job
	of        *submission // nil until it is being submitted
	index     int         // in the submission
	cancelled bool
	missing   bool // the last poll did not list it
}

// A submission is one call of sbatch.
type submission struct {
	token   string // in its comment, by which it is found again
	args    []string
	named   string // as people see it
	jobs    []*job // the array's tasks in order; of one job, no array
	left    int    // jobs that have not ended
	id      string // Slurm's; "" until that is known
	since   time.Time
	warned  string          // the reason that the user has been told of
	doubles map[string]bool // ids of copies, which an answer that was lost can lead to
}

// target is what Slurm calls a job.
func (j *job) target() string {
	if len(j.of.jobs) == 1 {
		return j.of.id
	}
	return fmt.Sprintf("%s_%d", j.of.id, j.index)
}

// New returns a submitter for the cluster whose commands are on the PATH, and which must answer.
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
			o.Warn(fmt.Sprintf("what Slurm's scripts say is not kept: %v", err))
		}
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.done.Go(s.submitAll)
	s.done.Go(s.follow)
	return s, nil
}

// Close ends the submitter. Slurm's jobs that have not been cancelled go on.
func (s *Submitter) Close() error {
	s.stop()
	s.done.Wait()
	return s.logs.remove()
}

// Submit has jobs submitted soon, those that ask for the same in arrays. What Slurm refuses is gone ([Submitter.Gone]). A job that is on its way already is not submitted again.
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

// signal wakes who waits, now or with its next wait.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Gone returns a channel on which all jobs arrive that Slurm has ended, or refused, without regard to whether their worker had finished
// them: the queue knows. Cancelled ones do not. It is closed when the context is done. It is to be called once.
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

// end forgets a job that Slurm has ended, and says so unless it was cancelled here. The caller holds the lock.
func (s *Submitter) end(j *job, reason executions.Reason, message string) {
	if s.jobs[j.ID] == j {
		delete(s.jobs, j.ID)
	}
	if of := j.of; of != nil {
		if of.jobs[j.index] != j {
			return
		}
		of.jobs[j.index] = nil
		if of.left--; of.left == 0 {
			delete(s.submissions, of.token)
		}
	}
	if !j.cancelled {
		s.gone = append(s.gone, dispatch.Gone{ID: j.ID, Reason: string(reason), Message: message})
		signal(s.wakeGone)
	}
}

// Cancel has Slurm end jobs, and tries until the context is done, but once at least.
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
		} else if j.of.id != "" { // else whoever submits it cancels it
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

// cancelled lists what of a submission is to be cancelled. The caller holds the lock.
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

// scancel has Slurm end its jobs, as [Submitter.Cancel] says. One that has ended already is no failure.
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
			if !pause(ctx, wait) {
				return fmt.Errorf("cancel %s: %w", strings.Join(batch[:min(3, len(batch))], ", "), err)
			}
		}
	}
	return nil
}

// fails warns that a command fails, once until it does not.
func (s *Submitter) fails(command, what string, err error) {
	s.mu.Lock()
	known := s.failing[command]
	s.failing[command] = true
	s.mu.Unlock()
	if !known {
		s.o.Warn(fmt.Sprintf("%s: %v", what, err))
	}
}

// answers notes that a command works.
func (s *Submitter) answers(command string) {
	s.mu.Lock()
	delete(s.failing, command)
	s.mu.Unlock()
}

// pause waits, and reports whether the context is not done.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
