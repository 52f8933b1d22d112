package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/internal/events"
	"e3/internal/human"
)

// FullTask is how people name the task of a job: <workspace>.<task>.
func (j *Job) FullTask() string { return j.Workspace + "." + j.Task }

// named tells whether a name means a job: its task, a matrix, a workspace, a run, or a pattern of tasks.
func (j *Job) named(name string) bool {
	task := j.FullTask()
	return name == task || strings.HasPrefix(task, name+"[") || name == j.Workspace || name == j.Run || name == human.Short(j.Run) ||
		events.IsPattern(name) && events.Match(name, task)
}

// shortestID is the shortest prefix that identifies a job: a typing error should not cancel the only job.
const shortestID = 4

// hasID tells whether a text is a prefix of a job's id, with or without its run, or its queue.
func (j *Job) hasID(text string) bool {
	return len(text) >= shortestID && (strings.HasPrefix(j.ID, text) || strings.HasPrefix(j.ID[strings.IndexByte(j.ID, '.')+1:], text)) ||
		strings.HasPrefix(j.Ref(), text) && len(text) >= len(j.Queue+"/")+shortestID
}

// Nameable lists the jobs that [Choose] chooses from: the unfinished jobs or, with dead, the failed jobs, latest
// first in each queue. Unreadable records are left out: the overview reports them.
func (rd *Reader) Nameable(ctx context.Context, dead bool) (jobs []Job, err error) {
	if !dead {
		for j, err := range rd.Unfinished(ctx) {
			switch {
			case errors.Is(err, ErrMalformed):
			case err != nil:
				return nil, err
			default:
				jobs = append(jobs, j)
			}
		}
		return jobs, nil
	}
	queues, err := rd.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range queues {
		o, err := rd.Overview(ctx, name)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, o.Dead...)
	}
	return jobs, nil
}

// A NameError says that a name means no job, or that a prefix matches several ids.
type NameError struct {
	Name    string
	Meaning int // number of jobs whose ids have this prefix
}

// Error implements error.
func (e *NameError) Error() string {
	if e.Meaning > 1 {
		return fmt.Sprintf("%q is the beginning of the ids of %d tasks; give more of it", e.Name, e.Meaning)
	}
	return fmt.Sprintf("no job is called %q", e.Name)
}

// Choose returns the jobs in known that the names mean, each once, ordered by task; without names, all. Of jobs for the
// same work it returns the first: a task that has failed several times is returned once, with its latest attempt. A
// name without a job is a [NameError].
func Choose(known []Job, names []string) ([]Job, error) {
	chosen := make([]bool, len(known))
	for _, name := range names {
		var byName, byID []int
		for i := range known {
			switch {
			case known[i].named(name):
				byName = append(byName, i)
			case known[i].hasID(name):
				byID = append(byID, i)
			}
		}
		if len(byName) == 0 {
			if byName = byID; len(byID) != 1 {
				return nil, &NameError{Name: name, Meaning: len(byID)}
			}
		}
		for _, i := range byName {
			chosen[i] = true
		}
	}
	var jobs []Job
	again := map[string]bool{}
	for i := range known {
		j := &known[i]
		work := strings.Join(append([]string{j.Queue, j.FullTask(), j.TaskHash}, j.Inputs...), " ")
		if len(names) > 0 && !chosen[i] || j.isDead() && again[work] {
			continue
		}
		again[work] = true
		jobs = append(jobs, *j)
	}
	slices.SortStableFunc(jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.FullTask(), b.FullTask()), cmp.Compare(a.Created, b.Created))
	})
	return jobs, nil
}

// Fate counts the states of the jobs that a name means.
type Fate struct {
	Waiting, Running                bool
	Answered                        bool // a failed job needs no other attempt (Options.Answered)
	Cancelled, Suspended, Succeeded int  // in a run
}

// Fate counts the unfinished jobs with the name or, if there are none, the jobs of a run with the name.
func (rd *Reader) Fate(ctx context.Context, name, run string) (f Fate, err error) {
	unfinished, err := rd.Nameable(ctx, false)
	if err != nil {
		return f, err
	}
	for i := range unfinished {
		if j := &unfinished[i]; j.named(name) {
			f.Waiting = true
			f.Running = f.Running || j.Status == Running
		}
	}
	if f.Waiting {
		return f, nil
	}
	queues, err := rd.Queues(ctx)
	if err != nil {
		return f, err
	}
	for _, q := range queues {
		o, err := rd.Overview(ctx, q)
		if err != nil {
			return f, err
		}
		f.Answered = f.Answered || slices.ContainsFunc(o.answered, func(j Job) bool { return j.named(name) })
		if run == "" {
			continue
		}
		for j, err := range rd.Finished(ctx, q, run) {
			switch {
			case err != nil || !j.named(name):
			case j.Status == Cancelled:
				f.Cancelled++
			case j.Status == Succeeded:
				f.Succeeded++
			case j.Outcome != nil && j.Outcome.Reason == ReasonSuspended:
				f.Suspended++
			}
		}
	}
	return f, nil
}
