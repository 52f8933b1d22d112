package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// A dead run's job that waits for a worker may still be begun after the run was closed: a worker held it when the other
// ones were withdrawn, and gave it back; or a person has queued it again, which withdraws none. Such a job is noted, as
// an execution that goes on is.

// mostWithdrawals bounds how often the jobs of a dead run are withdrawn: what workers have given back meanwhile is
// withdrawn too.
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

// followed notes the jobs that have not ended, although their latest execution is told of: its worker may record that
// the job has ended too, or may be about to give it up, and then another execution follows. An execution of which the
// log cannot tell, since its task has its answer, is noted as well.
func (c *closing) followed(ctx context.Context) error {
	for i := range c.attempts {
		a := &c.attempts[i]
		told := c.said.end(a.Execution)
		last := a.Open && following(c.attempts, a.Task, a.Execution, a.Number) == nil
		if a.queued() || c.late[a.Execution] || told && !last {
			continue
		}
		c.late[a.Execution] = true
		err := c.w.states.noteLate(ctx, c.ws, &lateExecution{
			Run: c.run, Task: a.Task, Key: a.Key, Execution: a.Execution, Attempt: a.Number, Worker: a.Worker,
			Started: told || c.said.start(a.Execution), Told: told,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// awaited notes the jobs that wait: an execution that a worker begins for one is told of later.
func (c *closing) awaited(ctx context.Context) error {
	for i := range c.attempts {
		a := &c.attempts[i]
		if !a.queued() {
			continue
		}
		after := noExecution // the latest execution of the task that is told of
		for _, other := range c.attempts {
			if other.Task == a.Task && !other.queued() {
				after = other.Execution
			}
		}
		if c.late[after] && !c.shared[after] {
			continue // its note is for what follows, too
		}
		if t := c.f.Find(a.Task); after == noExecution && t != nil && t.ExecutionID != "" {
			after = t.ExecutionID
		}
		sum := sha256.Sum256([]byte(c.run + "\x00" + a.Task))
		id := after + "." + hex.EncodeToString(sum[:8])
		c.late[id] = true
		err := c.w.states.noteLate(ctx, c.ws, &lateExecution{
			Run: c.run, Task: a.Task, Key: a.Key, Execution: id, Attempt: a.Number, Started: true, Told: true, Awaited: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noExecution precedes the ids of all executions.
const noExecution = "0"

// isDue tells whether a job of a task has not ended: what follows is still to be told.
func isDue(attempts []JobAttempt, task string) bool {
	return slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Task == task && a.Open })
}

// isGivenBack tells whether a worker that had claimed an execution gave its job back without beginning it: the job is
// there, and names others.
func isGivenBack(attempts []JobAttempt, l *lateExecution) bool {
	return !l.Started && (isDue(attempts, l.Task) || following(attempts, l.Task, l.Execution, l.Attempt) != nil) &&
		!slices.ContainsFunc(attempts, func(a JobAttempt) bool { return a.Execution == l.Execution })
}
