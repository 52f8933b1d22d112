package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/format/pattern"
	"e3/internal/jobs/queue"
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
	parallel.AtMost(s.ctx, atOnce, len(subs), func(_ context.Context, k int) error {
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
		case errors.Is(err, ErrLimit) && len(x.jobs) == 1 && s.submittedJobs() > 0: // their end makes room
			s.says("submit", "takes no more jobs for now", err)
			doubt = false
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			if errors.Is(err, ErrLimit) && len(x.jobs) > 1 {
				delete(s.submissions, x.Token)
				return false
			}
			for _, j := range x.jobs {
				s.end(j, executions.ReasonStart, fmt.Sprintf("%s refuses the job: %v (asked by: %s)", s.traits.Name, err, strings.Join(x.Demands, " ")))
			}
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

// submittedJobs counts the jobs that the scheduler has.
func (s *Submitter) submittedJobs() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.submissions {
		if x.id != "" {
			n += x.unfinished
		}
	}
	return n
}

// A Batch is what a scheduler starts as one: a job, or an array of them.
type Batch struct {
	Token   string      // its own, of a-z and 2-7: finds it in the scheduler's list
	Name    string      // for display: e3:<workspace>.<task>, printable and without spaces
	Jobs    []queue.Job // in the order of their indexes; not empty
	Demands []string    // of each of its jobs ([Scheduler.Demands])
	Script  string      // of /bin/sh; no scheduler reads options from it
	Logs    string      // a folder that nodes may share; "": none
}

// NewToken returns the token of another batch. With "e3-" it is as long as PBS allows a name to be.
func NewToken() string { return strings.ToLower(rand.Text()[:12]) }

// batches groups jobs, in their order, by workspace and demands. It ends those that cannot be submitted. The caller holds the
// lock.
func (s *Submitter) batches(jobs []*job, most int) (subs []*submission) {
	open := make(map[string]*submission)
	for _, j := range jobs {
		demands, err := s.scheduler.Demands(&j.Job)
		if err != nil {
			s.end(j, executions.ReasonStart, err.Error())
			continue
		}
		key := j.Workspace + "\x00" + strings.Join(demands, "\x00")
		x := open[key]
		if x == nil || len(x.jobs) == most {
			x = &submission{Batch: Batch{Token: NewToken(), Demands: demands}}
			open[key], s.submissions[x.Token] = x, x
			subs = append(subs, x)
		}
		x.add(j)
	}
	return subs
}

// add puts a job into the submission.
func (x *submission) add(j *job) {
	j.of, j.index = x, len(x.jobs)
	x.jobs, x.Jobs = append(x.jobs, j), append(x.Jobs, j.Job)
	x.unfinished++
}

// unsafe are characters that other programs parse, and that Slurm expands in file names.
var unsafe = pattern.Of(`[^!-~]|[=|%\\"']`)

// name is e3:<workspace>.<task>, or the common prefix of several.
func (b *Batch) name() string {
	name := ""
	for i := range b.Jobs {
		own := "e3:" + b.Jobs[i].Workspace + "." + b.Jobs[i].Task
		if i == 0 {
			name = own
		}
		for !strings.HasPrefix(own, name) {
			name = name[:len(name)-1]
		}
	}
	name = unsafe().ReplaceAllString(name, "_")
	return cmp.Or(name[:min(len(name), maxName)], "e3")
}

// script returns the script. It has no line from which a scheduler reads options: those end at the first command.
func (b *Batch) script(o *Options, index string) string {
	var s strings.Builder
	s.WriteString("#!/bin/sh\nset -u\nindex=0\n")
	if index != "" {
		fmt.Fprintf(&s, "index=${%s:-0}\n", index)
	}
	s.WriteString("case $index in\n")
	for i := range b.Jobs {
		fmt.Fprintf(&s, "%d) job=%s ;;\n", i, Quote(b.Jobs[i].Ref()))
	}
	s.WriteString("*) exit 64 ;;\nesac\n")
	if o.Logs != "" {
		fmt.Fprintf(&s, "if [ -d %s ]; then exec >>%s.\"$index\" 2>&1; fi\n", Quote(o.Logs), Quote(filepath.Join(o.Logs, b.Token)))
	}
	fmt.Fprintf(&s, "exec %s worker %s --job \"$job\"", Quote(o.Program), Quote(o.Repo))
	for _, arg := range o.Worker {
		s.WriteString(" " + Quote(arg))
	}
	s.WriteString("\n")
	return s.String()
}

// Quote quotes a word for the shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ScriptFile is where a scheduler that wants a file finds the script of a batch, in the folder of its logs.
func ScriptFile(logs, token string) string { return filepath.Join(logs, token+".sh") }

// log is the file for what the script of a job says.
func (o *Options) log(token string, index int) string {
	return filepath.Join(o.Logs, fmt.Sprintf("%s.%d", token, index))
}

// readLog returns the end of what a script has said, as one line; "" if that is nothing.
func (o *Options) readLog(token string, index int) string {
	text, _ := os.ReadFile(o.log(token, index))
	text = text[max(0, len(text)-maxTail):]
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(text), "\uFFFD"), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[max(0, len(lines)-tailLen):], "; ")
}

// dropLog removes what is kept of a job.
func (o *Options) dropLog(token string, index int) {
	if o.Logs != "" {
		os.Remove(o.log(token, index))
		os.Remove(ScriptFile(o.Logs, token))
	}
}
