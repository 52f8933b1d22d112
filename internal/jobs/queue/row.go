package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"e3/internal/format/moment"
)

// A Row is a job as answers show it.
type Row struct {
	Job *Job `json:"-"`

	ID          string             `json:"id"`
	Queue       string             `json:"queue"`
	Workspace   string             `json:"workspace"`
	Run         string             `json:"run"` // the run that waits for it
	Task        string             `json:"task"`
	Step        string             `json:"step,omitempty"`
	Attempt     int64              `json:"attempt"` // from 1
	Status      Status             `json:"status"`
	Orphaned    bool               `json:"orphaned,omitempty"` // its worker was lost
	Priority    int64              `json:"priority"`           // greater goes first
	Labels      []string           `json:"labels,omitempty"`   // of its worker
	CPU         float64            `json:"cpu,omitempty"`
	Memory      int64              `json:"memory,omitempty"` // bytes
	Resources   map[string]float64 `json:"resources,omitempty"`
	Executions  int64              `json:"executions"` // more than 1: workers were lost
	MaxExecs    int64              `json:"maxExecutions"`
	Worker      string             `json:"worker,omitempty"`
	Execution   string             `json:"execution,omitempty"`
	Reason      string             `json:"reason,omitempty"`  // of its end
	Message     string             `json:"message,omitempty"` // from the command or the last worker
	ExitCode    int64              `json:"exitCode,omitempty"`
	CreatedAt   moment.Time        `json:"createdAt"`
	AvailableAt moment.Time        `json:"availableAt,omitzero"` // not claimed before
	ClaimedAt   moment.Time        `json:"claimedAt,omitzero"`
	StartedAt   moment.Time        `json:"startedAt,omitzero"`
	FinishedAt  moment.Time        `json:"finishedAt,omitzero"`
}

// RowOf is the row of a job.
func RowOf(j *Job) Row {
	r := Row{
		Job: j, ID: j.ID, Queue: j.Queue, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, Attempt: j.Attempt, Status: j.Status,
		Orphaned: j.Orphaned(), Priority: j.Priority, Labels: j.Labels, CPU: j.Policy.CPU, Memory: j.Policy.Memory,
		Executions: j.Attempts, MaxExecs: j.MaxAttempts, Worker: j.Worker, Execution: j.Execution, Message: j.LastError,
		CreatedAt: moment.At(j.Created.Time()), AvailableAt: moment.At(j.AvailableAt.Time()), ClaimedAt: moment.At(j.Claimed.Time()),
		StartedAt: moment.At(j.Started.Time()), FinishedAt: moment.At(j.Finished.Time()),
	}
	if len(j.Policy.Resources) > 0 {
		r.Resources = map[string]float64{}
	}
	for _, a := range j.Policy.Resources {
		r.Resources[a.Name] = a.Value
	}
	if o := j.Outcome; o != nil {
		r.Execution, r.Reason, r.ExitCode = cmp.Or(o.ExecutionID, j.Execution), o.Reason, o.ExitCode
		r.Message = cmp.Or(o.Message, j.LastError)
	}
	return r
}

// Failure says why the job failed.
func (r *Row) Failure() string {
	if r.Job.Outcome == nil {
		return r.Message
	}
	return cmp.Or(r.Job.Outcome.Message, r.Reason, "exit code "+strconv.FormatInt(r.ExitCode, 10))
}

// Rows are jobs in an answer.
type Rows struct {
	Jobs []Row `json:"jobs"`
}

// RowsOf are the rows of jobs.
func RowsOf(jobs []Job) Rows {
	rows := Rows{make([]Row, len(jobs))}
	for i := range jobs {
		rows.Jobs[i] = RowOf(&jobs[i])
	}
	return rows
}

// InTurn lists the unfinished jobs of queues in the order in which workers take them: running, orphans, then by priority
// and age. Faults are of unreadable records: ErrMalformed.
func (rd *Reader) InTurn(ctx context.Context, queues ...string) (rows Rows, faults []error, err error) {
	var jobs []Job
	for _, queue := range queues {
		for j, err := range rd.Jobs(ctx, queue) {
			switch {
			case errors.Is(err, ErrMalformed):
				faults = append(faults, err)
			case err != nil:
				return rows, faults, err
			default:
				jobs = append(jobs, j)
			}
		}
	}
	rank := func(j *Job) int {
		switch {
		case j.Orphaned():
			return 1
		case j.Status == Running:
			return 0
		}
		return 2
	}
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Priority, a.Priority),
			cmp.Compare(a.Created, b.Created), cmp.Compare(a.ID, b.ID))
	})
	return RowsOf(jobs), faults, nil
}

// States are queues in an answer.
type States struct {
	Queues []State `json:"queues"`
}

// A State is a queue as answers show it.
type State struct {
	Queue   string      `json:"queue"`
	Ready   int         `json:"ready"`            // jobs that wait for a worker
	Delayed int         `json:"delayed"`          // jobs that can be claimed later
	Since   moment.Time `json:"since"`            // begin of the longest wait
	Over    []RunJobs   `json:"over,omitempty"`   // ended runs with jobs that wait
	Running []WorkRow   `json:"running"`          // longest first
	Failed  []Row       `json:"failed"`           // in the last week, without a later attempt; latest first
	Faults  []string    `json:"faults,omitempty"` // unreadable records
}

// A WorkRow is a running job with the state of its worker.
type WorkRow struct {
	Row
	Work *Work `json:"-"`

	Lost    bool        `json:"lost"`              // its worker was lost
	Unheard float64     `json:"unheard,omitempty"` // seconds until a silent worker is lost
	Heard   moment.Time `json:"heard,omitzero"`    // last sign of life of another host's worker, by that host's clock
}

// State describes a queue. The function tells which runs have ended.
func (o *Overview) State(ended func(RunJobs) (bool, error)) (State, error) {
	s := State{Queue: o.Queue, Ready: o.Ready, Delayed: o.Delayed, Since: moment.At(o.Waiting), Running: make([]WorkRow, len(o.Running)), Failed: RowsOf(o.Dead).Jobs}
	for _, run := range o.Runs {
		is, err := ended(run)
		if err != nil {
			return s, err
		}
		if is {
			s.Over = append(s.Over, run)
		}
	}
	for i := range o.Running {
		w := &o.Running[i]
		s.Running[i] = WorkRow{RowOf(&w.Job), w, w.Over, w.Pending.Seconds(), moment.At(w.Heard.At)}
	}
	for _, err := range o.Faults {
		s.Faults = append(s.Faults, err.Error())
	}
	return s, nil
}
