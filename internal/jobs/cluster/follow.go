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

// follow polls the states of the jobs until the submitter is closed.
func (s *Submitter) follow() {
	for wait := minPoll; ; {
		n := s.submittedJobs()
		if backoff.Wait(s.ctx, max(wait, min(minPoll+time.Duration(n/jobsPerPoll)*time.Second, maxPoll))) != nil {
			return
		}
		if n == 0 {
			continue
		}
		err := s.poll(s.ctx)
		if wait = min(2*wait, maxRetry); err == nil {
			wait = minPoll
		}
		s.says("list", "does not answer, trying again", err)
	}
}

// poll compares the scheduler's state with the followed jobs.
func (s *Submitter) poll(ctx context.Context) error {
	began := time.Now()
	seen := make(map[*job]Listed)
	cancel := make(map[string]bool)
	err := s.scheduler.List(ctx, func(l Listed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		x := s.submissions[l.Token]
		switch {
		case x == nil || x.id == "":
		case l.ID != x.id: // submitted twice, because the first submission could not be found in time
			if l.State == Alive {
				cancel[l.ID] = true
			}
		case l.Index < len(x.jobs) && x.jobs[l.Index] != nil:
			seen[x.jobs[l.Index]] = l
		}
	})
	if err != nil {
		return err
	}
	unclear, held := make(map[*submission][]*job), make(map[*job]string)
	s.mu.Lock()
	for _, x := range s.submissions {
		if x.id == "" || !x.since.Before(began) {
			continue
		}
		if jobs := s.compare(x, seen, cancel, held); len(jobs) > 0 {
			unclear[x] = jobs
		}
	}
	s.mu.Unlock()
	asked := slices.Collect(maps.Keys(unclear))
	err = parallel.AtMost(ctx, atOnce, len(asked), func(ctx context.Context, k int) error {
		return s.explain(ctx, asked[k], unclear[asked[k]], seen, began)
	})
	if err != nil {
		return err
	}
	for j, why := range held {
		s.help(ctx, j, why)
	}
	return s.cancel(ctx, slices.Sorted(maps.Keys(cancel)))
}

// help warns of a job that does not start without help, with what the scheduler says of it when it is asked.
func (s *Submitter) help(ctx context.Context, j *job, why string) {
	_ = s.scheduler.Explain(ctx, j.of.id, j.of.Token, func(l Listed) {
		if l.Index == j.index && l.Held != "" && l.Held != why {
			why += ": " + l.Held
		}
	})
	s.says("held "+why, fmt.Sprintf("does not start its job %s (%s) without help", j.target(), j.of.Name), errors.New(why))
}

// compare takes in what a poll says of a submission. It adds what must be cancelled, and a job for each reason by which jobs that
// ask for the same are held, and returns the jobs that are not listed or have failed. The caller holds the lock.
func (s *Submitter) compare(x *submission, seen map[*job]Listed, cancel map[string]bool, held map[*job]string) (unclear []*job) {
	for _, j := range x.jobs {
		if j == nil {
			continue
		}
		l, ok := seen[j]
		if !ok || l.State == Failed {
			unclear = append(unclear, j)
			continue
		}
		j.missed = time.Time{}
		switch {
		case l.State == Ended:
			s.endWith(j, l)
		case j.cancelled && l.State == Alive: // it was not cancelled after all
			cancel[j.target()] = true
		case l.Held != "":
			if asks := strings.Join(x.Demands, " ") + " " + l.Held; !s.failing[asks] {
				s.failing[asks], held[j] = true, l.Held
			}
		}
	}
	return unclear
}

// endWith ends a job that the scheduler has ended. The caller holds the lock.
func (s *Submitter) endWith(j *job, l Listed) {
	message := fmt.Sprintf("%s's job %s", s.traits.Name, j.target())
	if l.Node != "" {
		message += " on " + l.Node
	}
	message += " " + l.How
	if text := s.o.readLog(j.of.Token, j.index); text != "" && l.Reason != executions.ReasonCancelled {
		message += ": " + text
	}
	s.end(j, l.Reason, message)
}

// explain asks about jobs of a submission that have failed, or that the poll which began then did not list. A job is
// given up if the scheduler does not know it, or how it has failed, in two polls, however sure it is of itself: it may tell late.
func (s *Submitter) explain(ctx context.Context, x *submission, jobs []*job, seen map[*job]Listed, began time.Time) error {
	known, gone := make(map[int]Listed), Listed{Reason: executions.ReasonLost, How: "is not known to " + s.traits.Name + " any more"}
	err := s.scheduler.Explain(ctx, x.id, x.Token, func(l Listed) { known[l.Index] = l })
	if errors.Is(err, ErrTemporary) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		if x.jobs[j.index] != j {
			continue // it has ended meanwhile
		}
		l, ok := known[j.index]
		listed := cmp.Or(seen[j], gone)
		switch {
		case l.State >= Failed:
			s.endWith(j, l)
		case ok && l.Said != "" && listed == gone:
			j.missed = time.Time{}
		case j.missed.IsZero():
			j.missed = began // the scheduler may name only some of many pending jobs: the next poll decides
		case began.Sub(j.missed) >= unseen:
			s.endWith(j, listed)
		}
	}
	return nil
}
