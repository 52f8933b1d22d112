package history

import (
	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/insight/runview"
)

// An Entry is an execution as commands show it to programs. The first line of an execution's logs lacks the fields that
// history alone knows.
type Entry struct {
	Type         string             `json:"type,omitempty"` // of a line before logs: execution
	Execution    string             `json:"execution"`      // "" if it could not start
	Key          string             `json:"key"`            // "" if unknown
	State        string             `json:"state"`
	StartedAt    moment.Time        `json:"startedAt"`
	CompletedAt  moment.Time        `json:"completedAt"`
	ExitCode     int64              `json:"exitCode,omitempty"`
	Message      string             `json:"message,omitempty"`
	Output       string             `json:"output,omitempty"`  // hash, of a success
	Attempt      int64              `json:"attempt,omitempty"` // from 1
	Run          string             `json:"run,omitempty"`     // that made it
	Worker       string             `json:"worker,omitempty"`  // user@host
	Current      bool               `json:"current,omitempty"` // it counts now
	Batch        runview.Batch      `json:"batch,omitzero"`
	Duration     *moment.Millis     `json:"ms,omitempty"` // until now while it runs
	Reason       string             `json:"reason,omitempty"`
	PeakRSS      int64              `json:"peakRss,omitempty"`  // of its largest process; with limits, of all together
	Runs         []string           `json:"runs,omitempty"`     // that used it, earliest first
	Answered     int                `json:"answered,omitempty"` // how many of them found it in the cache
	Pruned       *runview.Rejection `json:"pruned,omitempty"`   // removal of its record
	Fault        string             `json:"fault,omitempty"`    // why its record is missing
	Rejected     *runview.Rejection `json:"rejected,omitempty"`
	ImportedFrom []runview.Step     `json:"importedFrom,omitempty"`
	SignedBy     string             `json:"signedBy,omitempty"` // public key
}

// EntryOf describes an execution by its record alone.
func EntryOf(e *executions.Execution) Entry {
	entry := Entry{
		Execution: e.ExecutionID, Key: e.Key.String(), State: e.State.String(), StartedAt: moment.At(e.StartedAt), CompletedAt: moment.At(e.CompletedAt),
		ExitCode: e.ExitCode, Message: e.Message, Output: e.OutputHash,
		Rejected: runview.RejectionOf(e.Rejection), ImportedFrom: runview.Steps(e.Provenance), SignedBy: e.SignedBy(),
	}
	if d := e.Detail; d != nil {
		entry.Attempt, entry.Run, entry.Worker, entry.Batch = d.Attempt, d.RunID, d.Worker, runview.BatchOf(d.Batch)
	}
	return entry
}

// Entry describes an attempt.
func (a *Attempt) Entry() Entry {
	entry := Entry{
		Execution: a.ExecutionID, Key: a.Key.String(), StartedAt: moment.At(a.At()), ExitCode: a.ExitCode, Message: a.Message, Output: a.Output,
	}
	if a.Timed {
		entry.CompletedAt = moment.At(a.At().Add(a.Duration))
	}
	if e := a.Execution; e != nil {
		entry = EntryOf(e)
		entry.PeakRSS = a.Peak()
	} else if a.Err != nil {
		entry.Fault = a.Err.Error()
	}
	if a.Key.Task.IsZero() {
		entry.Key = ""
	}
	entry.State, entry.Attempt, entry.Run, entry.Worker, entry.Reason = string(a.Status), a.Number, a.MadeBy, a.Worker, a.Reason
	entry.Runs, entry.Answered = a.Runs, len(a.Answered())
	if a.Timed || a.Status == runview.TaskRunning {
		ms := moment.Millis(a.Duration)
		entry.Duration = &ms
	}
	if gone := a.Pruned(); gone != nil {
		entry.Pruned = &runview.Rejection{By: gone.By, At: moment.At(gone.PrunedAt), Reason: gone.Reason}
	}
	return entry
}
