package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/internal/backoff"
	"e3/internal/host/modes"
	"e3/internal/human"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/queue"
)

const (
	defaultPatience = 5 * time.Minute
	checkPoll       = time.Second
	checkLate       = 10 * time.Second // a scheduler may list and explain a job as late
	// checkedCode is the exit code of the first job: how a job failed is to be read from it.
	checkedCode = 3
)

// A checkedExecutor is the answer of e3 executor check.
type checkedExecutor struct {
	Profile string        `json:"profile"`
	Steps   []checkedCall `json:"steps"`
	Mend    []string      `json:"mend"`  // what must be mended
	Notes   []string      `json:"notes"` // what may be as it is
}

// A checkedCall is a command of the profile, as it was filled in.
type checkedCall struct {
	Command string `json:"command"`
	Input   string `json:"input,omitempty"`
	Answer  string `json:"answer,omitempty"`
	Error   string `json:"error,omitempty"`
	Read    string `json:"read,omitempty"` // how e3 has read the answer
}

// executorCheck tries a profile.
type executorCheck struct {
	*app
	patience  time.Duration
	scheduler cluster.Scheduler
	logs      string
	said      checkedExecutor
}

func (c *executorCheck) run(ctx context.Context, named *namedProfile, o *runsOptions) error {
	c.said = checkedExecutor{Profile: named.name, Steps: []checkedCall{}, Mend: []string{}, Notes: []string{}}
	var err error
	if c.scheduler, err = newScheduler(named, o, o.queue, c.told); err != nil {
		return err
	}
	program, err := o.programThere()
	if err != nil {
		return err
	}
	dir, remove, err := openJobLogs(cachedLogs(c.app), modes.Modes{}, time.Now())
	if err != nil {
		return err
	}
	defer remove()
	c.logs = dir
	c.first(ctx, program)
	if len(c.said.Mend) == 0 && ctx.Err() == nil {
		c.second(ctx)
	}
	if ctx.Err() != nil {
		c.note("the check was interrupted")
	}
	if err := c.Reply(c.said, c.write); err != nil {
		return err
	}
	if len(c.said.Mend) > 0 {
		return &exitError{1}
	}
	return nil
}

func (c *executorCheck) mend(format string, args ...any) {
	c.said.Mend = append(c.said.Mend, fmt.Sprintf(format, args...))
}

func (c *executorCheck) note(format string, args ...any) {
	c.said.Notes = append(c.said.Notes, fmt.Sprintf(format, args...))
}

// told takes a command down.
func (c *executorCheck) told(words []string, input, answer string, err error) {
	call := checkedCall{Input: input, Answer: answer}
	for _, word := range words {
		call.Command = strings.TrimSpace(call.Command + " " + human.Quoted(word))
	}
	if err != nil {
		call.Error = err.Error()
	}
	c.said.Steps = append(c.said.Steps, call)
}

// read says how the last answer was read. The same call with the same reading stands there once.
func (c *executorCheck) read(format string, args ...any) {
	last := len(c.said.Steps) - 1
	if last < 0 {
		return
	}
	c.said.Steps[last].Read = fmt.Sprintf(format, args...)
	if last > 0 && c.said.Steps[last-1].Command == c.said.Steps[last].Command && c.said.Steps[last-1].Read == c.said.Steps[last].Read {
		c.said.Steps = c.said.Steps[:last]
	}
}

// submit submits a job with a script of these lines; end cancels it, if it is there.
func (c *executorCheck) submit(ctx context.Context, lines ...string) (b *cluster.Batch, id string, end func()) {
	job := queue.Job{ID: "check", Queue: "check", Workspace: "check", Task: "executor"}
	job.Policy.Memory, job.Policy.Timeout = 256<<20, 10*time.Minute // so that the words for them are tried
	b = &cluster.Batch{Token: cluster.NewToken(), Name: "e3:check.executor", Jobs: []queue.Job{job}, Logs: c.logs}
	b.Script = "#!/bin/sh\nset -u\n"
	b.Script += fmt.Sprintf("if [ -d %s ]; then exec >%s 2>&1; fi\n", cluster.Quote(c.logs), cluster.Quote(filepath.Join(c.logs, "said")))
	b.Script += strings.Join(lines, "\n") + "\n"
	var err error
	if b.Demands, err = c.scheduler.Demands(&job); err == nil {
		id, err = c.scheduler.Submit(ctx, b)
	}
	end = func() {
		if id != "" {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
			defer cancel()
			steps := c.said.Steps
			c.scheduler.Cancel(ctx, []string{id})
			c.said.Steps = steps
		}
	}
	failed := (*cluster.CommandError)(nil)
	switch {
	case err == nil:
		c.read("the job's id is %s", id)
	case errors.Is(err, cluster.ErrTemporary) && !errors.As(err, &failed):
		c.mend("submitted does not find the id of the job in the answer of submit, and a start would submit it again and again")
	case errors.Is(err, cluster.ErrTemporary):
		c.mend("submit fails in a way that may pass, and a start would try it again: %v", err)
	case errors.Is(err, cluster.ErrLimit):
		c.mend("submit says that there are too many jobs, and a start would wait for others to end: %v", err)
	default:
		c.mend("submit is refused, and a task would fail with: %v", err)
	}
	return b, id, end
}

// seen is the job in an answer of status; nil if it is not there.
func (c *executorCheck) seen(ctx context.Context, b *cluster.Batch, id string) (found *cluster.Listed, err error) {
	n := 0
	err = c.scheduler.List(ctx, func(l cluster.Listed) {
		if n++; l.Token == b.Token {
			found = &l
		}
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		c.read("%s of e3's, this one is not among them", human.Count(n, "job"))
	case found.ID != id:
		c.read("the job has the id %s", found.ID)
		c.mend("submitted reads the id %s, and listed reads %s: e3 would take it for a double of the job, and cancel it", id, found.ID)
		return nil, errors.New("another id")
	default:
		c.read("%s", c.words(found))
	}
	return found, nil
}

// words say how a job was read.
func (c *executorCheck) words(l *cluster.Listed) string {
	kind := ""
	if k, ok := c.scheduler.(interface{ Kind(said string) string }); ok {
		kind = k.Kind(l.Said)
	}
	on := ""
	if l.Node != "" {
		on = " on " + l.Node
	}
	switch {
	case l.State >= cluster.Failed && kind == "":
		return "the job" + on + " " + l.How
	case l.State >= cluster.Failed:
		return fmt.Sprintf("state %q is %s: the job%s %s", l.Said, kind, on, l.How)
	case kind == "" && l.Said != "":
		if note := fmt.Sprintf("state %q is none of states: a job in it is taken to wait or run", l.Said); !slices.Contains(c.said.Notes, note) {
			c.note("%s", note)
		}
		return fmt.Sprintf("state %q is none of states%s", l.Said, on)
	case kind == "":
		return "the job waits or runs" + on
	}
	return fmt.Sprintf("state %q is %s%s", l.Said, kind, on)
}

// follow asks for the state until it is as wanted, with nil if the job is not listed. It returns false if that took too
// long, or an answer must be mended.
func (c *executorCheck) follow(ctx context.Context, b *cluster.Batch, id string, patience time.Duration, wanted func(*cluster.Listed) bool) bool {
	for deadline := c.Now().Add(patience); c.Now().Before(deadline); {
		l, err := c.seen(ctx, b, id)
		if err != nil && len(c.said.Mend) == 0 {
			c.mend("status fails: %v", err)
		}
		if err != nil {
			return false
		}
		if l != nil && l.Held != "" {
			c.mend("the job does not start without help: %s", l.Held)
			return false
		}
		if wanted(l) {
			return true
		}
		if backoff.Wait(ctx, checkPoll) != nil {
			return false
		}
	}
	return false
}

// first follows a job that ends with checkedCode.
func (c *executorCheck) first(ctx context.Context, program string) {
	b, id, end := c.submit(ctx, fmt.Sprintf("code=%d", checkedCode), cluster.Quote(program)+" version || code=127", "sleep 3", "exit $code")
	defer end()
	if id == "" {
		return
	}
	late := checkLate
	listed := func(l *cluster.Listed) bool { return l != nil }
	if !c.follow(ctx, b, id, late, listed) {
		if len(c.said.Mend) == 0 && ctx.Err() == nil {
			c.mend("the job is not found by its token, %s, in %v: listed must read it from the job's name, as a whole, or from what else status prints", b.Token, late)
		}
		return
	}
	if c.alive(ctx, b, id); len(c.said.Mend) > 0 {
		return
	}
	c.Notef("Job %s is followed to its end", id)
	var last *cluster.Listed
	ended := c.follow(ctx, b, id, c.patience, func(l *cluster.Listed) bool {
		last = l
		return l == nil || l.State >= cluster.Failed
	})
	switch {
	case len(c.said.Mend) > 0 || ctx.Err() != nil:
		return
	case !ended:
		c.note("the job has not ended in %v, so its end was not checked: give it longer with --wait", c.patience)
		return
	}
	if last == nil || last.State == cluster.Failed {
		last = c.explain(ctx, b, id, late, last)
	}
	said, _ := os.ReadFile(filepath.Join(c.logs, "said"))
	code := fmt.Sprintf("code %d", checkedCode)
	switch {
	case len(c.said.Mend) > 0:
	case last == nil:
		c.note("the scheduler does not say how the job has ended: a job whose worker has failed is submitted again")
	case strings.Contains(last.How, code) || last.How == "has failed" || last.How == "has ended before its task":
		if !strings.Contains(last.How, code) {
			c.note("the job ended with exit code %d, which is not read: a group (?P<exit>…) would", checkedCode)
		}
	case strings.Contains(last.How, "could not start e3"):
		c.mend("the node does not find %s: say where it is there with --executor-program; the script said: %s", program, strings.TrimSpace(string(said)))
	default:
		c.mend("the job ended with exit code %d, and it is read as one that %s: see states", checkedCode, last.How)
	}
}

// alive asks about a job that waits or runs: of such a one, explain must not say that it has ended.
func (c *executorCheck) alive(ctx context.Context, b *cluster.Batch, id string) {
	calls, said := len(c.said.Steps), []string{}
	err := c.scheduler.Explain(ctx, id, b.Token, func(l cluster.Listed) {
		if l.Held != "" && l.Said == "" {
			said = append(said, fmt.Sprintf("where status says that it is held, the reason is %q", l.Held))
		} else {
			said = append(said, c.words(&l))
		}
		if l.State == cluster.Ended {
			c.mend("explain is read to say that the job %s, but it has just been started: see explained and states", l.How)
		}
	})
	switch {
	case len(c.said.Steps) == calls: // it cannot be asked
	case errors.Is(err, cluster.ErrUnknown):
		c.read("the job is not known")
	case err != nil:
		c.mend("explain fails: %v; if that is how it says that a job is not known, write it to messages, unknown", err)
	case len(said) == 0:
		c.read("nothing of the job: explained does not match")
	default:
		c.read("%s", strings.Join(said, "; "))
	}
}

// explain asks how a job has ended, until it is known.
func (c *executorCheck) explain(ctx context.Context, b *cluster.Batch, id string, patience time.Duration, last *cluster.Listed) *cluster.Listed {
	for deadline := c.Now().Add(patience); ; {
		calls := len(c.said.Steps)
		err := c.scheduler.Explain(ctx, id, b.Token, func(l cluster.Listed) { last = &l })
		switch {
		case errors.Is(err, cluster.ErrUnknown) && len(c.said.Steps) == calls: // it cannot be asked
			return last
		case errors.Is(err, cluster.ErrUnknown):
			c.read("the job is not known")
		case err != nil:
			c.mend("explain fails: %v; if that is how it says that a job is not known, write it to messages, unknown", err)
			return last
		case last != nil && last.State >= cluster.Failed:
			c.read("%s", c.words(last))
			return last
		default:
			c.read("it does not say that the job has ended")
		}
		if !c.Now().Before(deadline) || backoff.Wait(ctx, checkPoll) != nil {
			return last
		}
	}
}

// second cancels a job.
func (c *executorCheck) second(ctx context.Context) {
	b, id, end := c.submit(ctx, "exec sleep 600")
	defer end()
	if id == "" {
		return
	}
	if !c.follow(ctx, b, id, c.patience, func(l *cluster.Listed) bool { return l != nil }) {
		return
	}
	for _, when := range []string{"", " of a job that has ended"} {
		if err := c.scheduler.Cancel(ctx, []string{id}); err != nil {
			c.mend("cancel%s fails: %v; if that is how it says that a job is not known any more, write it to messages, unknown", when, err)
			return
		}
		c.read("the job is cancelled, or has ended")
		gone := func(l *cluster.Listed) bool { return l == nil || l.State >= cluster.Failed }
		if when == "" && !c.follow(ctx, b, id, time.Minute, gone) && len(c.said.Mend) == 0 && ctx.Err() == nil {
			c.mend("a minute after cancel, the job is not read as ended")
			return
		}
	}
}

// write prints the answer.
func (c *executorCheck) write(w *render.Sheet) {
	for _, s := range c.said.Steps {
		w.Ink(0, w.Style.Bold, "$ %s", s.Command)
		excerpt(w, "< ", s.Input)
		excerpt(w, "  ", s.Answer)
		if s.Error != "" {
			w.Line("  fails: %s", s.Error)
		}
		if s.Read != "" {
			w.Line("  read: %s", s.Read)
		}
	}
	for _, text := range c.said.Notes {
		w.Line("Note: %s", text)
	}
	for _, text := range c.said.Mend {
		w.Line("To mend: %s", text)
	}
	if len(c.said.Mend) == 0 {
		w.Line("Nothing has to be mended.")
	}
}

// shownLines are the lines of a text that are printed.
const shownLines = 40

// excerpt prints the beginning of a text.
func excerpt(w *render.Sheet, before, text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if text == "" {
		return
	}
	for i, line := range lines {
		if i == shownLines {
			w.Line("%s… and %d lines more", before, len(lines)-i)
			return
		}
		w.Line("%s%s", before, line)
	}
}
