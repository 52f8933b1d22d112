package record

import (
	"fmt"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// State is the state of an execution. The values are the case tags on disk.
type State int

// The states of an execution. Running is the only one that changes.
const (
	Error   State = iota // ended without an exit code of its own: signal, timeout, cancelled, crash, bad output
	Failed               // the command's own non-zero exit
	Running              // started, not known to have ended
	Success              // exit 0 and the declared output was stored
)

func (s State) String() string {
	switch s {
	case Error:
		return "error"
	case Failed:
		return "failed"
	case Running:
		return "running"
	case Success:
		return "success"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// Status is the ExecutionStatus record: one attempt of one task on given inputs.
// Fields after the first four are set in the states named beside them.
type Status struct {
	State       State
	ExecutionID string
	InputHashes []string
	StartedAt   time.Time

	CompletedAt time.Time // error, failed, success
	Message     string    // error
	ExitCode    int64     // failed
	OutputHash  string    // success

	PID          int64  // running: the process, if it is known
	PIDStartTime int64  // running: clock ticks since boot, field 22 of /proc/<pid>/stat
	BootID       string // running
}

var statusCodec = codec.New[Status]("execution status")

// Encode returns the bytes of status.beast2.
func (s *Status) Encode() []byte {
	return statusCodec.Encode(s, 128+66*len(s.InputHashes)+len(s.Message))
}

// DecodeStatus reads status.beast2.
func DecodeStatus(data []byte) (*Status, error) { return statusCodec.Decode(data) }

// BeastType, AppendBeast and ReadBeast make a Status a record: a case with its fields for each state.
func (s *Status) BeastType() beast2.Type {
	id, inputs := beast2.F("executionId", beast2.String), beast2.F("inputHashes", beast2.Array(beast2.String))
	started, completed := beast2.F("startedAt", beast2.DateTime), beast2.F("completedAt", beast2.DateTime)
	return beast2.Variant(
		beast2.F("error", beast2.Struct(id, inputs, started, completed, beast2.F("message", beast2.String))),
		beast2.F("failed", beast2.Struct(id, inputs, started, completed, beast2.F("exitCode", beast2.Integer))),
		beast2.F("running", beast2.Struct(id, inputs, started,
			beast2.F("pid", beast2.Integer), beast2.F("pidStartTime", beast2.Integer), beast2.F("bootId", beast2.String))),
		beast2.F("success", beast2.Struct(id, inputs, beast2.F("outputHash", beast2.String), started, completed)),
	)
}

func (s *Status) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(b, uint64(s.State))
	b = texts.Append(beast2.AppendString(b, s.ExecutionID), &s.InputHashes)
	if s.State == Success {
		b = beast2.AppendString(b, s.OutputHash)
	}
	b = codec.AppendTime(b, s.StartedAt)
	if s.State == Running {
		b = beast2.AppendInteger(b, s.PID)
		b = beast2.AppendInteger(b, s.PIDStartTime)
		return beast2.AppendString(b, s.BootID)
	}
	b = codec.AppendTime(b, s.CompletedAt)
	switch s.State {
	case Error:
		b = beast2.AppendString(b, s.Message)
	case Failed:
		b = beast2.AppendInteger(b, s.ExitCode)
	}
	return b
}

func (s *Status) ReadBeast(r *codec.Reader) {
	s.State, s.ExecutionID = State(r.Tag(4)), r.String()
	if texts.Read(r, &s.InputHashes); s.State == Success {
		s.OutputHash = r.String()
	}
	s.StartedAt = r.Time()
	if s.State == Running {
		s.PID, s.PIDStartTime, s.BootID = r.Integer(), r.Integer(), r.String()
		return
	}
	s.CompletedAt = r.Time()
	switch s.State {
	case Error:
		s.Message = r.String()
	case Failed:
		s.ExitCode = r.Integer()
	}
}
