package dataflow

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// history is what the scheduler remembers of a task with unusual attempts. Most tasks have none.
type history struct {
	uncounted int64          // attempts that do not count as retries: suspended, or lost
	lost      int64          // attempts whose worker was lost
	alone     bool           // a batch with it has failed: its command serves no other item any more
	policy    *record.Policy // of the next attempt; nil: the package's
	step      string         // the step after the last approval; "" before one
	cleared   string         // the key for which a person was asked, if that was needed; the task runs on no other
	after     string         // an execution whose output is lost: neither it nor an earlier one is an answer
}

// policy returns the policy of the next attempt of a task.
func (s *scheduler) policy(i int32) *record.Policy {
	if p := s.states[i].history.policy; p != nil {
		return p
	}
	return &s.g.Package.Tasks[i].Policy
}

// An attempt is one launch of a task. Where executions are made elsewhere, one launch may lead to several attempts:
// each after the first replaces a lost one.
type attempt struct {
	number int64
	ends   bool // the run, if its command ends without success
	mild   bool // the task's failure may be tolerated
	policy *record.Policy
	step   string
	after  string
	force  bool
	waits  bool              // a person may have to be asked first
	clear  string            // the key for which that is done
	place  *executions.Place // in a batch; nil: in none
}

// next counts and describes another attempt of a task.
func (s *scheduler) next(i int32) attempt {
	s.states[i].attempts++
	h := s.states[i].history
	p := s.policy(i)
	number := s.states[i].attempts
	mild := s.tolerable(i)
	ends := s.opts.FailFast && number-h.uncounted > p.Retries && p.Suspend == 0 && !s.mayFail(i) && !mild
	return attempt{number: number, ends: ends, mild: mild, policy: p, step: h.step, after: h.after, force: s.forces(i), waits: s.waits(i), clear: h.cleared}
}

// again decides whether a failed attempt is followed by another, and when.
func (s *scheduler) again(i int32, r *executions.Result) (delay time.Duration, yes bool) {
	h, p := s.states[i].history, s.policy(i)
	switch {
	case s.stopping || r.Reason == executions.ReasonCancelled:
		return 0, false
	case r.Reason == executions.ReasonLost: // h.lost already counts this one
		return backoff(p, h.lost), h.lost <= p.LostAttempts()
	}
	counted := s.states[i].attempts - h.uncounted
	return backoff(p, counted), counted <= p.Retries && worthwhile(p, r)
}

// retryNames are the names of reasons in package files.
var retryNames = map[executions.Reason]string{
	executions.ReasonSignal: "signal", executions.ReasonTimeout: "timeout", executions.ReasonOOM: "oom", executions.ReasonOutput: "output",
	executions.ReasonStart: "start", executions.ReasonLost: "lost",
}

const retryExit = "exit" // a command's own failure, whatever its code

// worthwhile tells whether the policy retries a failure of this reason.
func worthwhile(p *record.Policy, r *executions.Result) bool {
	if len(p.RetryOn) == 0 {
		return true
	}
	if r.State == record.Failed {
		return slices.Contains(p.RetryOn, retryExit) || slices.Contains(p.RetryOn, strconv.FormatInt(r.ExitCode, 10))
	}
	name := retryNames[r.Reason]
	return name != "" && slices.Contains(p.RetryOn, name)
}

// maxMemory bounds a growing demand that has no bound of its own.
const maxMemory = 1 << 60

// escalate raises the memory of the next attempt if the last one ran out of it, and returns the new amount; 0 if it
// stays.
func (s *scheduler) escalate(i int32, r *executions.Result) int64 {
	p := s.policy(i)
	if r.Reason != executions.ReasonOOM || !(p.OOM.Factor > 1) || p.Memory <= 0 {
		return 0
	}
	most := int64(maxMemory)
	if p.OOM.Max > 0 {
		most = min(most, p.OOM.Max)
	}
	wanted := most
	if f := float64(p.Memory) * p.OOM.Factor; f < float64(most) {
		wanted = int64(f)
	}
	if wanted <= p.Memory {
		return 0
	}
	more := *p
	more.Memory = wanted
	s.states[i].history.policy = &more
	return wanted
}

// backoff doubles with every attempt, up to an hour.
func backoff(p *record.Policy, attempts int64) time.Duration {
	d := p.Backoff
	for ; attempts > 1 && d < time.Hour; attempts-- {
		d *= 2
	}
	return min(d, max(time.Hour, p.Backoff))
}

// retryLater schedules another attempt of a task. last is how the previous one ended; memory is the raised demand of
// the next, or 0.
func (s *scheduler) retryLater(i int32, last events.Event, delay time.Duration, memory int64) {
	s.states[i].tried = &last
	s.emit(events.Event{Type: events.TaskRetryScheduled, Task: s.g.Name(i), Data: &events.Data{
		Attempt: s.states[i].attempts + 1, DelayMs: delay.Milliseconds(), Memory: memory}})
	s.retrying[i] = time.AfterFunc(delay, func() {
		select {
		case s.retry <- i:
		case <-s.ctx.Done():
		}
	})
}

// Executor.Do calls the methods below, one call at a time. So nothing else touches the completion before it comes
// back. An event of another machine comes late: it has the time when it happened; zero means now.

// about is what all events of an attempt say.
func (c *completion) about() *events.Data {
	return &events.Data{Key: c.key, Batch: c.batch.ID, Items: c.batch.Items, Attempt: c.attempt, Shared: c.shared}
}

// sharing is called before the task waits for a job of another run, and again once that was no answer: an execution of such a job is
// given up, and another one follows.
func (s *scheduler) sharing(c *completion, yes bool) {
	if !yes && c.begun {
		s.attemptLost(c, c.execution, executions.ReasonLost, "the job of another run has made no result", time.Time{}, time.Time{})
	}
	c.shared = yes
}

// started is called when the command of an execution is about to start.
func (s *scheduler) started(c *completion, id string, at time.Time) {
	c.begun, c.execution = true, id
	s.emit(events.Event{Type: events.TaskStarted, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: c.worker, Data: c.about()})
}

// claimed is called when a worker has taken the task. A worker that continues the begun execution is not announced
// again.
func (s *scheduler) claimed(c *completion, id, worker string, at time.Time) {
	if c.worker = worker; c.begun && id == c.execution {
		return
	}
	if c.begun {
		s.attemptLost(c, c.execution, executions.ReasonLost, "another worker has begun anew", at, time.Time{})
		c.worker = worker
	}
	c.claimed, c.execution = true, id
	s.emit(events.Event{Type: events.TaskClaimed, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: worker, Data: c.about()})
}

// released is called when the task's worker has given it back before it began.
func (s *scheduler) released(c *completion, id string, at time.Time) {
	if id != c.execution || c.begun || !c.claimed {
		return
	}
	s.emit(events.Event{Type: events.TaskReleased, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: c.worker, Data: c.about()})
	c.claimed, c.execution, c.worker = false, "", ""
}

// orphaned is called when the lease of the task's worker has expired. Its command may go on.
func (s *scheduler) orphaned(c *completion, id string, at time.Time) {
	if id == c.execution && (c.begun || c.claimed) {
		s.emit(events.Event{Type: events.TaskOrphaned, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: c.worker, Data: c.about()})
	}
}

// adopted is called when another worker goes on with the task's command.
func (s *scheduler) adopted(c *completion, id, worker string, at time.Time) {
	if id == c.execution && (c.begun || c.claimed) {
		c.worker = worker
		s.emit(events.Event{Type: events.TaskAdopted, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: worker, Data: c.about()})
	}
}

// attemptLost is called when a worker's attempt is given up and another one follows.
func (s *scheduler) attemptLost(c *completion, id string, reason executions.Reason, message string, at, again time.Time) {
	if c.execution != "" {
		id = c.execution
	}
	if message == "" {
		message = "its worker was lost"
	}
	d := c.about()
	d.Reason, d.Message = string(cmp.Or(reason, executions.ReasonLost)), message
	c.last = &events.Event{Type: events.TaskFailed, Time: at, Task: c.view.g.Name(c.task), Execution: id, Worker: c.worker, Data: d}
	d.MayFail, d.Tolerable = c.policy.MayFail && !s.opts.Strict, c.mild
	if s.opts.Emit != nil { // not emit, which belongs to the scheduler's goroutine
		s.opts.Emit(*c.last)
	}
	c.attempt++
	c.lost++
	c.begun, c.claimed, c.execution, c.worker = false, false, "", ""
	delay := time.Duration(0)
	if !again.IsZero() {
		delay = max(0, time.Until(again))
	}
	s.emit(events.Event{Type: events.TaskRetryScheduled, Time: at, Task: c.view.g.Name(c.task), Data: &events.Data{Attempt: c.attempt, DelayMs: delay.Milliseconds()}})
}

// catchUp announces what was not announced while the execution was made. A command that ends at once elsewhere may
// have been seen neither claimed nor started, or after another one that was lost.
func (s *scheduler) catchUp(c *completion) {
	if c.result.Cached || c.result.ExecutionID == "" {
		return
	}
	if c.execution != "" && c.execution != c.result.ExecutionID {
		s.attemptLost(c, c.execution, executions.ReasonLost, "", time.Time{}, time.Time{})
	}
	if !c.begun && c.result.State != record.Error {
		s.started(c, c.result.ExecutionID, beginning(&c.result))
	}
}

// beginning is when an execution began, zero if that is not known.
func beginning(r *executions.Result) time.Time {
	if r.EndedAt.IsZero() {
		return time.Time{}
	}
	return r.EndedAt.Add(-r.Duration)
}
