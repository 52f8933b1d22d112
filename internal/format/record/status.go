package record

import (
	"time"

	"e3/internal/format/codec"
)

// State is the state of an execution. The values are the case tags on disk.
type State int

// The states of an execution. Only Running changes later.
const (
	Error   State = iota // ended without its own exit code: signal, timeout, cancelled, crash, bad output
	Failed               // the command's own non-zero exit
	Running              // started, and not known to have ended
	Success              // exit 0 and the declared output was stored
)

// Cases are the states' names.
func (s State) Cases() []string { return []string{"error", "failed", "running", "success"} }

func (s State) String() string { return caseName(s) }

// Status is the ExecutionStatus record: one attempt of one task on given inputs.
type Status struct {
	State        State `beast2:"*,case"`
	ExecutionID  string
	InputHashes  []string
	OutputHash   string `beast2:",in=success"`
	StartedAt    time.Time
	CompletedAt  time.Time `beast2:",in=error|failed|success"`
	Message      string    `beast2:",in=error"`
	ExitCode     int64     `beast2:",in=failed"`
	PID          int64     `beast2:",in=running"` // the process, if it is known
	PIDStartTime int64     `beast2:",in=running"` // clock ticks since boot, field 22 of /proc/<pid>/stat
	BootID       string    `beast2:",in=running"`
}

var statusCodec = codec.New[Status]("execution status")

// Encode returns the bytes of status.beast2.
func (s *Status) Encode() []byte {
	return statusCodec.Encode(s, 128+66*len(s.InputHashes)+len(s.Message))
}

// DecodeStatus reads status.beast2.
func DecodeStatus(data []byte) (*Status, error) { return statusCodec.Decode(data) }
