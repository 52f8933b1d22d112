package dataflow

import (
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
	alone     bool           // a batch with it has failed: its command now serves it alone
	policy    *record.Policy // of the next attempt; nil: the package's
	step      string         // the step after the last approval; "" before one
	cleared   string         // the only key on which the task may run: a person was asked about it; "": no bound
	after     string         // an execution whose output is lost: it and earlier ones are no answers
}

// policy returns the policy of the next attempt of a task.
func (s *scheduler) policy(i int32) *record.Policy {
	if p := s.states[i].history.policy; p != nil {
		return p
	}
	return &s.g.Package.Tasks[i].Policy
}

// An attempt is one launch of a task. Where executions are made elsewhere, one launch may lead to several attempts:
// each attempt after the first replaces a lost attempt.
type attempt struct {
	number int64
	ends   bool // a failure of its command ends the run
	mild   bool // the task's failure may be tolerated
	policy *record.Policy
	step   string
	after  string
	force  bool
	waits  bool              // a person may have to be asked before it runs
	clear  string            // the key that a person was asked about
	place  *executions.Place // in its batch; nil: no batch
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

// maxMemory bounds a growing demand for memory whose policy sets no bound.
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

// retryLater schedules another attempt of a task. last is the end of the previous attempt; memory is the raised
// demand of the next one, or 0.
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
