package worker

import (
	"cmp"

	"e3/internal/format/moment"
)

// A Line is an event of a worker in the form for programs.
type Line struct {
	Type    EventType   `json:"type"`
	Time    moment.Time `json:"time"`
	Queues  []string    `json:"queues,omitempty"`
	Labels  []string    `json:"labels,omitempty"`
	Cores   int         `json:"cores,omitempty"`
	Address string      `json:"address,omitempty"` // of the metrics, host:port
	Running int         `json:"running,omitempty"` // tasks
	Message string      `json:"message,omitempty"`

	Job       string        `json:"job,omitempty"` // <queue>/<id>
	Run       string        `json:"run,omitempty"`
	Workspace string        `json:"workspace,omitempty"`
	Task      string        `json:"task,omitempty"`
	Step      string        `json:"step,omitempty"`
	Attempt   int64         `json:"attempt,omitempty"` // of the command in its run
	Claim     int64         `json:"claim,omitempty"`   // more than 1: workers were lost
	Execution string        `json:"execution,omitempty"`
	State     string        `json:"state,omitempty"` // of the execution
	Reason    string        `json:"reason,omitempty"`
	ExitCode  int64         `json:"exitCode,omitempty"`
	Took      moment.Millis `json:"ms,omitempty"`
	Again     moment.Time   `json:"again,omitzero"` // of the next attempt, at the earliest
}

// LineOf is the line of an event.
func LineOf(e *Event) Line {
	l := Line{Type: e.Type, Time: moment.At(e.Time), Message: e.Message, Running: e.Running, Again: moment.At(e.Again)}
	if j := &e.Job; j.ID != "" {
		l.Job, l.Run, l.Workspace, l.Task, l.Step = j.Ref(), j.Run, j.Workspace, j.Task, j.Step
		l.Attempt, l.Claim, l.Execution = j.Attempt, j.Attempts, j.Execution
	}
	if e.Type == JobEnded {
		l.State, l.Reason, l.ExitCode, l.Took = e.Result.State.String(), string(e.Result.Reason), e.Result.ExitCode, moment.Millis(e.Result.Duration)
		l.Message = cmp.Or(l.Message, e.Result.Message)
	}
	return l
}
