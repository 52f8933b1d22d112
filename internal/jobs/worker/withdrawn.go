package worker

import (
	"errors"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"e3/internal/jobs/dispatch"
	"e3/internal/jobs/queue"
)

// A run withdraws a queued job that a dead run has left, and enqueues its own for the same execution. If a lost
// worker had begun the withdrawn job on this host, its command may still run here, or its end may be kept. That
// command answers the new job: keys are content.

// withdrawn is an adopted command whose job was withdrawn before another attempt began.
type withdrawn struct {
	o     *runner.Orphan
	key   string
	until time.Time  // when it is dropped
	heir  *queue.Job // a queued job for the same execution; nil: none was seen
}

// withdrawnFor is how long such a command is kept: a run enqueues its own job soon after it has withdrawn another one.
const withdrawnFor = time.Minute

// wasWithdrawn tells whether a claim failed because the job was withdrawn after this attempt was given up, and before
// another began.
func wasWithdrawn(err error, attempt int64) bool {
	var moved *queue.TransitionError
	if !errors.As(err, &moved) {
		return false
	}
	j := &moved.Job
	return j.Status == queue.Cancelled && j.Attempts == attempt && len(j.Lost) > 0 && j.Outcome != nil && j.Outcome.ExecutionID == ""
}

// keepWithdrawn keeps a command for a job that asks for the same.
func (l *loop) keepWithdrawn(o *runner.Orphan) {
	key, _, ok := executions.HandedOver(o.State)
	if !ok {
		o.Release()
		return
	}
	l.w.withdrawn = append(l.w.withdrawn, &withdrawn{o: o, key: key.String(), until: l.w.o.Now().Add(withdrawnFor)})
}

// forgetWithdrawn drops the commands for which no job has come.
func (l *loop) forgetWithdrawn() {
	w := l.w
	now := w.o.Now()
	w.withdrawn = slices.DeleteFunc(w.withdrawn, func(c *withdrawn) bool {
		if now.Before(c.until) {
			return false
		}
		c.o.Release()
		return true
	})
}

// inherits tells whether a queued job asks for an execution whose command is kept here, and notes that.
func (l *loop) inherits(j *queue.Job) bool {
	if len(l.w.withdrawn) == 0 || j.Force || j.Status != queue.Queued {
		return false
	}
	req, err := dispatch.Request(j)
	if err != nil {
		return false
	}
	key := executions.NewKey(req.Task, req.Inputs).String()
	i := slices.IndexFunc(l.w.withdrawn, func(c *withdrawn) bool { return c.key == key })
	if i < 0 {
		return false
	}
	heir := *j
	l.w.withdrawn[i].heir = &heir
	return true
}

// bequeath claims the jobs that inherit a command. It returns false if no job has changed.
func (l *loop) bequeath() (changed bool) {
	w := l.w
	for _, c := range slices.Clone(w.withdrawn) {
		heir := c.heir
		if heir == nil {
			continue
		}
		c.heir = nil
		want := l.want(nil)
		want.Until = nil // the command runs, and needs no turn
		_, want.Began, _ = executions.HandedOver(c.o.State)
		lease, err := w.s.Queue.Only(l.held, heir.Queue, heir.ID, want)
		switch {
		case isOver(err): // another worker was faster
			changed = true
		case err != nil:
			l.fault(err)
			return false
		case lease == nil:
		case lease.Adopted():
			changed = true
			if err := w.insist(l.held, lease.Release); err != nil {
				l.fault(err)
			}
		default:
			changed = true
			w.withdrawn = slices.DeleteFunc(w.withdrawn, func(other *withdrawn) bool { return other == c })
			l.begin(lease, c.o)
		}
	}
	return changed
}
