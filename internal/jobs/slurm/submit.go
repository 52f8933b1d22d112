package slurm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/backoff"
)

// submitAll submits waiting jobs until the submitter is closed.
func (s *Submitter) submitAll() {
	for {
		select {
		case <-s.wakeSubmit:
		case <-s.ctx.Done():
			return
		}
		if backoff.Wait(s.ctx, gather) != nil {
			return
		}
		s.mu.Lock()
		subs, refused := s.o.groups(s.waiting, s.array)
		s.waiting = nil
		for j, err := range refused {
			s.end(j, executions.ReasonStart, err.Error())
		}
		for _, x := range subs {
			s.submissions[x.token] = x
		}
		s.mu.Unlock()
		for len(subs) > 0 && s.ctx.Err() == nil {
			x := subs[0]
			subs = subs[1:]
			if !s.submit(x) {
				first, second := s.split(x)
				subs = append([]*submission{first, second}, subs...)
			}
		}
	}
}

// split halves a submission that Slurm has not accepted.
func (s *Submitter) split(x *submission) (first, second *submission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.submissions, x.token)
	first, second = x.split()
	s.submissions[first.token], s.submissions[second.token] = first, second
	return first, second
}

// prepare returns sbatch's arguments and script for the jobs of a submission that were not cancelled; nil if there are
// none.
func (s *Submitter) prepare(x *submission) (args []string, script string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := x.jobs
	x.jobs, x.unfinished = nil, 0
	for _, j := range jobs {
		if j.cancelled {
			j.of = nil
			s.end(j, "", "")
		} else {
			x.add(j)
		}
	}
	if x.unfinished == 0 {
		delete(s.submissions, x.token)
		return nil, ""
	}
	x.named = x.name()
	return x.sbatch(&s.o), x.script(&s.o, s.logs)
}

// submit makes a submission, however long Slurm does not answer. It returns false if the submission has too many jobs.
func (s *Submitter) submit(x *submission) bool {
	args, script := s.prepare(x)
	if args == nil {
		return true
	}
	doubt := false // an earlier call may have taken effect
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		var err error
		id := ""
		if doubt {
			id, err = s.find(x)
		}
		if id == "" && err == nil {
			id, err = s.sbatch(args, script)
			doubt = true
		}
		switch {
		case err == nil:
			s.answers("sbatch")
			s.submitted(x, id)
			return true
		case isTemporary(err):
			s.fails("sbatch", "Slurm does not answer, trying again", err)
		case isLimit(err) && len(x.jobs) > 1:
			return false
		case isLimit(err) && s.othersSubmitted(x):
			s.fails("sbatch", "Slurm takes no more jobs for now", err) // until some of them have ended
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

// sbatch submits. Closing the submitter does not interrupt a call at once, since its outcome would be in doubt.
func (s *Submitter) sbatch(args []string, script string) (id string, err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	defer cancel()
	defer context.AfterFunc(s.ctx, func() { time.AfterFunc(closeTimeout, cancel) })()
	out, err := s.c.run(ctx, script, "sbatch", args...)
	if err != nil {
		return "", err
	}
	id, ok := parseSubmitted(out)
	if !ok {
		// It may have taken effect, as after a lost answer.
		return "", &commandError{command: "sbatch", text: fmt.Sprintf("Unexpected message received: %.200q instead of a job's id", out), err: errAnswer}
	}
	return id, nil
}

// find looks for a submission whose answer was lost; "" if it was not made.
func (s *Submitter) find(x *submission) (id string, err error) {
	err = s.list(s.ctx, func(l listed) {
		if l.token == x.token && (id == "" || len(l.array) < len(id) || len(l.array) == len(id) && l.array < id) {
			id = l.array
		}
	})
	return id, err
}

// submitted records Slurm's id, and cancels the jobs that were cancelled meanwhile.
func (s *Submitter) submitted(x *submission, id string) {
	s.mu.Lock()
	x.id, x.since = id, time.Now()
	targets := x.cancelled()
	s.mu.Unlock()
	signal(s.wakeFollow)
	if len(targets) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), closeTimeout)
	defer cancel()
	if err := s.scancel(ctx, targets); err != nil {
		s.o.Warn(fmt.Sprintf("Slurm's jobs %s go on: %v", strings.Join(targets, ", "), err))
	}
}

// othersSubmitted tells whether there are other submitted jobs, whose end makes room.
func (s *Submitter) othersSubmitted(x *submission) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.submissions {
		if o != x && o.id != "" {
			return true
		}
	}
	return false
}

// refused ends the jobs of a submission that Slurm refuses.
func (s *Submitter) refused(x *submission, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.submissions, x.token)
	for _, j := range x.jobs {
		if j != nil {
			s.end(j, executions.ReasonStart, fmt.Sprintf("Slurm refuses the job: %v (asked for: %s)", err, strings.Join(append(x.args, s.o.Args...), " ")))
		}
	}
}
