package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// OfRun returns the jobs of a run of a workspace, in any queue, finished or not, except unreadable ones. Finished jobs
// are kept for a week.
func (rd *Reader) OfRun(ctx context.Context, workspace, run string) ([]Job, error) {
	queues, err := rd.names(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]Job{} // a job that moves meanwhile is found twice, or only among the finished ones, which are listed last
	for _, queue := range queues {
		for _, list := range []func() error{
			func() error { return collect(rd.jobs(ctx, queue, run+"."), workspace, found) },
			func() error { return collect(rd.finished(ctx, queue, run), workspace, found) },
		} {
			if err := list(); err != nil {
				return nil, fmt.Errorf("jobs of run %s: %w", run, err)
			}
		}
	}
	jobs := make([]Job, 0, len(found))
	for _, j := range found {
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// WaitingOf returns the jobs of a run of a workspace, in any queue, that wait for a worker: for their first, or for
// another after theirs was lost. It reads the run's unfinished jobs.
func (rd *Reader) WaitingOf(ctx context.Context, workspace, run string) (waiting []Job, err error) {
	queues, err := rd.names(ctx)
	for _, queue := range queues {
		for s, err := range rd.jobs(ctx, queue, run+".") {
			switch {
			case errors.Is(err, ErrMalformed):
			case err != nil:
				return nil, fmt.Errorf("jobs of run %s: %w", run, err)
			case s.Workspace == workspace && (s.Status == Queued || s.Orphaned()):
				waiting = append(waiting, s.Job)
			}
		}
	}
	return waiting, err
}

func collect(list func(yield func(stored, error) bool), workspace string, found map[string]Job) error {
	for s, err := range list {
		switch {
		case errors.Is(err, ErrMalformed):
		case err != nil:
			return err
		case s.Workspace == workspace:
			found[s.Ref()] = s.Job
		}
	}
	return nil
}

// An Attempt is an execution that was begun for a job, as the job's record says. Unknown times are zero.
type Attempt struct {
	Number    int64  // of the command in its run
	Execution string // its id
	Worker    string // the worker that began it
	Adopter   string // the worker that adopted it, "" if none has
	Claimed   time.Time
	Adopted   time.Time
	Started   time.Time
	Lost      bool   // its worker was lost, and the execution was given up
	Left      string // Outcome.Left
	Message   string
	At        time.Time // when it was given up
}

// History returns the executions that were begun for a job, in order.
func (j *Job) History() []Attempt {
	var list []Attempt
	for i, l := range j.Lost {
		list = append(list, Attempt{
			Number: j.Attempt + int64(i), Execution: l.Execution, Worker: l.Worker, Adopter: l.Adopter,
			Claimed: l.Claimed.Time(), Adopted: l.Adopted.Time(), Started: l.Started.Time(), Lost: true, Message: l.Message, At: l.At.Time(),
		})
	}
	a := j.present()
	if a.Execution == "" || j.Status == Queued || slices.ContainsFunc(j.Lost, func(l LostAttempt) bool { return l.Execution == a.Execution }) {
		return list
	}
	return append(list, a)
}

// present is the job's present or last execution.
func (j *Job) present() Attempt {
	made, claimed := j.Made.Time(), j.Claimed.Time()
	a := Attempt{Number: j.Attempt + int64(len(j.Lost)), Execution: j.Execution, Worker: j.Maker, Claimed: made, Started: j.Started.Time()}
	if o := j.Outcome; o != nil {
		if a.Execution, a.Left = o.ExecutionID, o.Left; a.Started.IsZero() && o.Duration > 0 {
			a.Started = o.EndedAt.Add(-o.Duration)
		}
	}
	resumed := !a.Started.IsZero() && made.Sub(a.Started) > sameClaim // the command was begun under another execution
	if resumed {
		a.Claimed = a.Started
	}
	if resumed || !claimed.Equal(made) {
		a.Adopter, a.Adopted = j.Worker, claimed
	}
	return a
}

// sameClaim is how much later than its command's start a claim may seem to be, because records round times.
const sameClaim = 10 * time.Millisecond
