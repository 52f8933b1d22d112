package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"
)

// A dead run's job that waits for a worker may still begin after the run was closed. A worker held the job when the
// others were withdrawn, and gave it back later; or a person has queued it again, and then nothing withdraws it. Such
// a job is noted, like an execution that goes on.

// A JobAttempt is an execution that a worker has begun for a run, or the next execution of a job that waits for a
// worker. Unknown times are zero.
type JobAttempt struct {
	Task, Key string
	Number    int64  // of the attempt in its run
	Execution string // its id; "": the job waits
	Worker    string // the worker that began it
	Adopter   string // the worker that has adopted it; "": none
	Claimed   time.Time
	Adopted   time.Time
	Started   time.Time
	Lost      bool   // its worker was lost, and the execution was given up
	Left      string // the lost worker under whose supervisor its command may run on, after it was cancelled
	Open      bool   // the job has not ended: if this attempt is lost, another may follow
	Retried   int64  // how often a person has queued the job again
}

// queued tells whether no worker has begun the attempt.
func (a *JobAttempt) queued() bool { return a.Execution == "" }

// attempts is Stores.Attempts, ordered by task and attempt.
func (w *States) attempts(ctx context.Context, ws, run string) ([]JobAttempt, error) {
	if w.Attempts == nil {
		return nil, nil
	}
	list, err := w.Attempts(ctx, ws, run)
	slices.SortFunc(list, func(a, b JobAttempt) int {
		return cmp.Or(strings.Compare(a.Task, b.Task), cmp.Compare(a.Number, b.Number), strings.Compare(a.Execution, b.Execution))
	})
	return list, err
}

// withdrawLeft is Stores.Withdraw.
func (w *States) withdrawLeft(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error) {
	if w.Withdraw == nil {
		return 0, nil
	}
	return w.Withdraw(ctx, ws, run, dead)
}

// mostWithdrawals bounds the repeats of withdrawing a dead run's jobs. A repeat withdraws the jobs that workers have
// given back meanwhile.
const mostWithdrawals = 3

// withdrawn withdraws the jobs of a dead run that no worker has begun, and returns the attempts at the others.
func withdrawn(ctx context.Context, w *States, ws, run string) ([]JobAttempt, error) {
	for try := 1; ; try++ {
		if _, err := w.withdrawLeft(ctx, ws, run, nil); err != nil {
			return nil, err
		}
		attempts, err := w.attempts(ctx, ws, run)
		if err != nil || try == mostWithdrawals || !slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.queued() }) {
			return attempts, err
		}
	}
}

// noteJobs notes the jobs of the run whose end its log cannot tell.
func (c *closing) noteJobs(ctx context.Context) error {
	return errors.Join(c.noteOpen(ctx), c.noteWaiting(ctx))
}

// noteOpen notes the jobs that have not ended although the log tells the end of their latest execution. The worker
// may be about to record the end of the job too, or to give the job up, and then another execution follows. noteOpen
// also notes executions that the log cannot tell of because their task already has its answer.
func (c *closing) noteOpen(ctx context.Context) error {
	for i := range c.attempts {
		a := &c.attempts[i]
		told := c.said.end(a.Execution)
		last := a.Open && following(c.attempts, a.Task, a.Execution, a.Number) == nil
		if a.queued() || c.late[a.Execution] || told && !last {
			continue
		}
		err := c.note(ctx, &lateExecution{
			Task: a.Task, Key: a.Key, Execution: a.Execution, Attempt: a.Number, Worker: a.Worker,
			Started: told || c.said.start(a.Execution), Told: told,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noteWaiting notes the jobs that wait, so that an execution which a worker begins for such a job is told later.
func (c *closing) noteWaiting(ctx context.Context) error {
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.queued() {
			continue
		}
		after := noExecution // the task's latest execution in the log
		for _, other := range c.attempts {
			if other.Task == a.Task && !other.queued() {
				after = other.Execution
			}
		}
		if c.late[after] && !c.shared[after] {
			continue // its note also covers what follows
		}
		if t := c.f.Find(a.Task); after == noExecution && t != nil && t.ExecutionID != "" {
			after = t.ExecutionID
		}
		sum := sha256.Sum256([]byte(c.run + "\x00" + a.Task))
		id := after + "." + hex.EncodeToString(sum[:8])
		err := c.note(ctx, &lateExecution{
			Task: a.Task, Key: a.Key, Execution: id, Attempt: a.Number, Started: true, Told: true, Awaited: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noExecution precedes the ids of all executions.
const noExecution = "0"

// isDue tells whether a job of a task has not ended, so that more is to be told.
func isDue(attempts []JobAttempt, task string) bool {
	return slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Task == task && a.Open })
}

// isGivenBack tells whether a worker that had claimed an execution gave its job back without beginning it: the job
// exists, and names other executions.
func isGivenBack(attempts []JobAttempt, l *lateExecution) bool {
	return !l.Started && (isDue(attempts, l.Task) || following(attempts, l.Task, l.Execution, l.Attempt) != nil) &&
		!slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Execution == l.Execution })
}

// noteLeft withdraws and notes the jobs of a run that ends before all of its requests have results, so that the
// journal tells what the log does not. As for a dead run, the jobs themselves are listed. The requests cannot name
// them: a request whose answer was lost may have made a job, and a worker may have begun the job since.
func (r *run) noteLeft(ctx context.Context) error {
	c := newClosing(r.w, r.ws, r.rec.RunID)
	var err error
	if c.attempts, err = withdrawn(ctx, r.w.states, r.ws, c.run); err != nil || len(c.attempts) == 0 {
		return err
	}
	if err := readEvents(ctx, r.w.states, r.ws, c.run, c.readEvent); err != nil {
		return err
	}
	if err := c.noteJobs(ctx); err != nil {
		return err
	}
	r.late += len(c.late)
	return nil
}
