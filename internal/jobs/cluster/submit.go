package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/parallel"
)

// submitAll submits waiting jobs until the submitter is closed, those together that have come within a while.
func (s *Submitter) submitAll() {
	for backoff.Wait(s.ctx, gather) == nil {
		s.mu.Lock()
		waiting := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		s.submitIn(waiting, max(s.traits.Array, 1))
	}
}

// submitIn submits jobs in batches of at most so many, and in smaller ones if the scheduler does not take those.
func (s *Submitter) submitIn(jobs []*job, most int) {
	s.mu.Lock()
	subs := s.batches(jobs, most)
	s.mu.Unlock()
	parallel.AtMost(s.ctx, max(s.traits.AtOnce, 1), len(subs), func(_ context.Context, k int) error {
		if x := subs[k]; !s.submit(x) {
			s.submitIn(x.jobs, (len(x.jobs)+1)/2)
		}
		return nil
	})
}

// prepare makes the batch of the jobs that were not cancelled; false if there are none.
func (s *Submitter) prepare(x *submission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := x.jobs
	x.jobs, x.Jobs, x.unfinished = nil, nil, 0
	for _, j := range jobs {
		if j.cancelled {
			j.of = nil
			s.end(j, "", "")
		} else {
			x.add(j)
		}
	}
	if x.unfinished == 0 {
		delete(s.submissions, x.Token)
		return false
	}
	x.Name, x.Script, x.Logs = x.name(), x.script(&s.o, s.traits.Index), s.o.Logs
	return true
}

// submit makes a submission, however long the scheduler does not answer. It returns false if the batch is too large.
func (s *Submitter) submit(x *submission) bool {
	if !s.prepare(x) {
		return true
	}
	doubt := false // an earlier call may have taken effect
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		var err error
		id, asked := "", false
		if doubt {
			id, err = s.find(x)
		}
		if id == "" && err == nil {
			call, done := lasting(s.ctx) // an interrupted call would be in doubt
			id, err = s.scheduler.Submit(call, &x.Batch)
			done()
			doubt, asked = true, true
		}
		switch {
		case err == nil:
			s.says("submit", "", nil)
			s.submitted(x, id)
			return true
		case !asked || errors.Is(err, ErrTemporary):
			s.says("submit", "does not answer, trying again", err)
		case errors.Is(err, ErrLimit) && len(x.jobs) > 1:
			s.mu.Lock()
			delete(s.submissions, x.Token)
			s.mu.Unlock()
			return false
		case errors.Is(err, ErrLimit) && s.others(x):
			s.says("submit", "takes no more jobs for now", err) // until some of them have ended
			doubt = false
		default:
			s.refused(x, err)
			return true
		}
		if backoff.Wait(s.ctx, wait) != nil {
			return true
		}
	}
}

// find looks for a submission whose answer was lost; "" if it was not made.
func (s *Submitter) find(x *submission) (id string, err error) {
	err = s.scheduler.List(s.ctx, func(l Listed) {
		if l.Token == x.Token && (id == "" || cmp.Or(cmp.Compare(len(l.ID), len(id)), cmp.Compare(l.ID, id)) < 0) {
			id = l.ID
		}
	})
	return id, err
}

// submitted records the scheduler's id, and cancels the jobs that were cancelled meanwhile.
func (s *Submitter) submitted(x *submission, id string) {
	var targets []string
	s.mu.Lock()
	x.id, x.since = id, time.Now()
	for _, j := range x.jobs {
		if j.cancelled {
			targets = append(targets, j.target())
		}
	}
	s.mu.Unlock()
	if err := s.cancel(s.ctx, targets); err != nil {
		s.o.Warn(fmt.Sprintf("%s's jobs %s go on: %v", s.traits.Name, strings.Join(targets, ", "), err))
	}
}

// others tells whether there are other submitted jobs, whose end makes room.
func (s *Submitter) others(x *submission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(s.submissions)), func(o *submission) bool { return o != x && o.id != "" })
}

// refused ends the jobs of a submission that the scheduler refuses.
func (s *Submitter) refused(x *submission, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range x.jobs {
		s.end(j, executions.ReasonStart, fmt.Sprintf("%s refuses the job: %v (asked by: %s)", s.traits.Name, err, strings.Join(x.Demands, " ")))
	}
}
