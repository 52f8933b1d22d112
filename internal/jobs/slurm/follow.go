package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"e3/executions"
	"e3/internal/backoff"
)

// errAnswer reports an unparsable answer.
var errAnswer = errors.New("an answer that cannot be read")

// follow polls the states of the jobs until the submitter is closed.
func (s *Submitter) follow() {
	wait := minPoll
	for {
		s.mu.Lock()
		n := 0
		for _, x := range s.submissions {
			if x.id != "" {
				n += x.unfinished
			}
		}
		s.mu.Unlock()
		if n == 0 {
			select {
			case <-s.wakeFollow:
			case <-s.ctx.Done():
				return
			}
		}
		if backoff.Wait(s.ctx, max(wait, min(minPoll+time.Duration(n/jobsPerPoll)*time.Second, maxPoll))) != nil {
			return
		}
		if err := s.poll(s.ctx); err == nil {
			wait = minPoll
			s.answers("squeue")
		} else if s.ctx.Err() == nil {
			wait = min(2*wait, maxRetry)
			s.fails("squeue", "Slurm does not answer, trying again", err)
		}
	}
}

// list visits the submissions of this user's submitters in squeue, including recently ended ones.
func (s *Submitter) list(ctx context.Context, visit func(listed)) error {
	lines := &lines{visit: func(line string) {
		if l, ok := parseListed(line); ok {
			visit(l)
		}
	}}
	err := s.c.stream(ctx, lines, "", "squeue", "--all", "--noheader", "--array", "--states=all", "--user="+strconv.Itoa(os.Getuid()), "--format="+squeueFormat)
	lines.end()
	return err
}

// maxLine bounds the lines of a command's output.
const maxLine = 64 << 10

// lines splits its input into lines, and truncates lines that are too long.
type lines struct {
	visit func(string)
	rest  []byte
}

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, ok := bytes.Cut(p, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), maxLine-len(l.rest))]...)
		if !ok {
			return n, nil
		}
		l.end()
		p = rest
	}
}

func (l *lines) end() {
	if len(l.rest) > 0 {
		l.visit(string(l.rest))
	}
	l.rest = l.rest[:0]
}

// poll compares Slurm's state with the followed jobs.
func (s *Submitter) poll(ctx context.Context) error {
	began := time.Now()
	seen := make(map[*job]listed)
	var doubles []string
	err := s.list(ctx, func(l listed) {
		s.mu.Lock()
		defer s.mu.Unlock()
		x := s.submissions[l.token]
		if x == nil || x.id == "" {
			return
		}
		if l.array != x.id { // submitted twice, because the first submission could not be found in time
			if reason, _ := ended(l.state); reason == "" && !x.doubles[l.array] {
				if x.doubles == nil {
					x.doubles = make(map[string]bool)
				}
				x.doubles[l.array] = true
				doubles = append(doubles, l.array)
			}
			return
		}
		if l.index < len(x.jobs) && x.jobs[l.index] != nil {
			seen[x.jobs[l.index]] = l
		}
	})
	if err != nil {
		return err
	}
	if err := s.scancel(ctx, doubles); err != nil {
		return err
	}
	unclear := make(map[*submission][]*job) // scontrol tells their state
	var cancel []string
	s.mu.Lock()
	for _, x := range s.submissions {
		if x.id == "" || !x.since.Before(began) {
			continue
		}
		cancelled := false
		for _, j := range x.jobs {
			if j == nil {
				continue
			}
			l, ok := seen[j]
			if !ok {
				unclear[x] = append(unclear[x], j)
				continue
			}
			j.missing = false
			reason, how := ended(l.state)
			switch {
			case l.state == "FAILED":
				unclear[x] = append(unclear[x], j)
			case reason != "":
				s.endWith(j, reason, how, l.nodes)
			case j.cancelled:
				cancelled = cancelled || l.state != "COMPLETING" // it was not cancelled after all
			case l.state == "PENDING" && neverRuns(l.reason) && x.warned != l.reason:
				x.warned = l.reason
				defer s.o.Warn(fmt.Sprintf("Slurm's job %s (%s) does not start without help: %s (see: scontrol show job %s)",
					j.target(), x.named, l.reason, x.id))
			}
		}
		if cancelled {
			cancel = append(cancel, x.cancelled()...)
		}
	}
	s.mu.Unlock()
	for x, jobs := range unclear {
		if err := s.explain(ctx, x, jobs); err != nil {
			return err
		}
	}
	return s.scancel(ctx, cancel)
}

// endWith ends a job that Slurm has ended. The caller holds the lock.
func (s *Submitter) endWith(j *job, reason executions.Reason, how, node string) {
	where := ""
	if node != "" && node != "(null)" && node != "n/a" {
		where = " on " + node
	}
	message := fmt.Sprintf("Slurm's job %s%s %s", j.target(), where, how)
	if text := s.logs.read(j.of.token, j.index); text != "" && reason != executions.ReasonCancelled {
		message += ": " + text
	}
	s.logs.drop(j.of.token, j.index)
	s.end(j, reason, message)
}

// explain asks scontrol about failed jobs of a submission, and about jobs that the last poll did not list: one call for
// all of them in each poll.
func (s *Submitter) explain(ctx context.Context, x *submission, jobs []*job) error {
	s.mu.Lock()
	id, most := x.id, len(x.jobs)
	s.mu.Unlock()
	known := make(map[int]shown)
	lines := &lines{visit: func(line string) {
		if show, ok := parseShown(line); ok {
			for _, i := range show.indexes(most) {
				known[i] = show
			}
		}
	}}
	err := s.c.stream(ctx, lines, "", "scontrol", "--all", "--oneliner", "show", "job", id)
	lines.end()
	if err != nil && !isInvalidJob(err) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		if x.jobs[j.index] != j {
			continue // it has ended meanwhile
		}
		show, ok := known[j.index]
		switch reason, how := ended(show.state); {
		case !ok && !j.missing:
			j.missing = true // scontrol may name only some of many pending jobs: the next poll decides
		case !ok:
			s.endWith(j, executions.ReasonLost, "is not known to Slurm any more", "")
		case show.state == "FAILED":
			if reason, how = failure(show.exit); show.reason == "BadConstraints" {
				reason, how = executions.ReasonStart, "was refused: BadConstraints"
			}
			s.endWith(j, reason, how, show.node)
		case reason != "":
			s.endWith(j, reason, how, show.node)
		default:
			j.missing = false
		}
	}
	return nil
}
