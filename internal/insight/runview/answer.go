package runview

import (
	"slices"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
)

// A Run is a run as commands show it to programs.
type Run struct {
	Run            string          `json:"run"`
	Workspace      string          `json:"workspace"`
	Package        string          `json:"package"` // name@version
	Status         string          `json:"status"`
	Heard          moment.Time     `json:"heard,omitzero"` // last sign of life on another host, by that host's clock
	StartedAt      moment.Time     `json:"startedAt"`
	CompletedAt    moment.Time     `json:"completedAt"`
	FailedTask     string          `json:"failedTask,omitempty"` // the first
	Error          string          `json:"error,omitempty"`
	InputSnapshot  string          `json:"inputSnapshot"`
	OutputSnapshot string          `json:"outputSnapshot,omitempty"`
	Summary        events.Summary  `json:"summary"`
	Queued         int             `json:"queued,omitempty"` // tasks that wait for a worker
	User           string          `json:"user,omitempty"`
	Host           string          `json:"host,omitempty"`
	Git            *events.Git     `json:"git,omitempty"`      // the commit of its project
	Filter         string          `json:"filter,omitempty"`   // the selected tasks
	Set            events.Settings `json:"set,omitempty"`      // inputs for this run alone, or with From for the workspace
	From           string          `json:"from,omitempty"`     // the workspace from which start --as made this one
	Warnings       []string        `json:"warnings,omitempty"` // about its package file and its inputs
	CancelledBy    string          `json:"cancelledBy,omitempty"`
	CancelReason   string          `json:"cancelReason,omitempty"`
	ImportedFrom   []Step          `json:"importedFrom,omitempty"`
	Unnamed        int64           `json:"unnamed,omitempty"` // cached tasks of unknown names
	Damaged        string          `json:"damaged,omitempty"` // in the events
	Now            *Now            `json:"now,omitempty"`     // of a run at work
	Spent          *Spent          `json:"spent,omitempty"`   // absent: nothing ran
	Tasks          []TaskReport    `json:"tasks,omitempty"`
}

// TaskQueued is, in an answer, the state of a task that waits for a worker.
const TaskQueued TaskState = "queued"

// Answer is the report with its tasks as programs see it. Tasks that wait for a worker are among its tasks.
func (r *Report) Answer() Run {
	a := Run{
		Run: r.RunID, Workspace: r.WorkspaceName, Package: r.PackageRef, Status: r.Status(), Heard: moment.At(r.Heard.At),
		StartedAt: moment.At(r.StartedAt), CompletedAt: moment.At(r.CompletedAt), FailedTask: r.FailedTask, Error: r.Error,
		InputSnapshot: r.InputSnapshot, OutputSnapshot: r.OutputSnapshot, Summary: events.Summary(r.Summary), Queued: len(r.Queued),
		Git: r.Git, Filter: r.Filter, Set: r.Set, From: r.From, Warnings: r.Warnings, CancelledBy: r.By, CancelReason: r.Why, ImportedFrom: Steps(r.Provenance), Unnamed: r.Unnamed,
		Tasks: slices.Clone(r.Tasks),
	}
	if r.Process != nil {
		a.User, a.Host = r.Process.User, r.Process.Host
	}
	if r.Damage != nil {
		a.Damaged = r.Damage.Error()
	}
	for i := range a.Tasks {
		t := &a.Tasks[i]
		if t.Cached = t.State == TaskCached; t.State != TaskDeferred {
			t.Since = moment.Time{}
		}
	}
	for _, q := range r.Queued {
		if q.Lost { // its command goes on
			continue
		}
		i := slices.IndexFunc(a.Tasks, func(t TaskReport) bool { return t.Task == q.Task })
		if i < 0 {
			i = len(a.Tasks)
			a.Tasks = append(a.Tasks, TaskReport{Task: q.Task})
		}
		a.Tasks[i].State, a.Tasks[i].Since = TaskQueued, moment.At(q.Since)
	}
	return a
}

// A Past is a run in a list.
type Past struct {
	Run
	Duration *moment.Millis `json:"ms,omitempty"` // until now while it runs; absent if it was interrupted
	By       string         `json:"by,omitempty"` // user@host
}

// Past is the report as a run in a list, without its tasks.
func (r *Report) Past(now time.Time) Past {
	p := Past{Run: r.Answer(), By: r.Process.Who()}
	p.Tasks = nil
	if r.State != record.RunRunning || r.Live {
		ms := moment.Millis(r.RanFor(now))
		p.Duration = &ms
	}
	return p
}
