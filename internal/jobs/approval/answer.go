package approval

import "e3/internal/format/moment"

// Waiting is a task that waits for approval.
type Waiting struct {
	Task      string      `json:"task"`
	Type      Type        `json:"type"`
	Block     string      `json:"block"`
	Run       string      `json:"run"`                 // the latest run that asked
	Step      string      `json:"step,omitempty"`      // the stopped step
	Execution string      `json:"execution,omitempty"` // the execution that suspended itself
	Since     moment.Time `json:"since"`
}

// WaitingOf describes blocks that are pending.
func WaitingOf(list []Block) []Waiting {
	var answer []Waiting
	for i := range list {
		b := &list[i]
		answer = append(answer, Waiting{b.Task, b.Type, b.ID, b.Run, b.Step, b.Execution, moment.At(b.Created)})
	}
	return answer
}

// Standing is a decision about a task on which no run has acted yet.
type Standing struct {
	Task   string      `json:"task"`
	Block  string      `json:"block"`
	Status Status      `json:"status"`       // approved or rejected
	By     string      `json:"by,omitempty"` // user@host
	At     moment.Time `json:"at"`
	Note   string      `json:"note,omitempty"`
}

// StandingOf describes blocks that are decided.
func StandingOf(list []Block) []Standing {
	var answer []Standing
	for i := range list {
		b := &list[i]
		answer = append(answer, Standing{b.Task, b.ID, b.Status, b.By, moment.At(b.At), b.Note})
	}
	return answer
}
