package record

import (
	"time"

	"e3/internal/format/codec"
)

// Rejection is rejected.beast2 beside an execution: the execution was rejected, or its rejection was withdrawn. A
// rejected success is never a hit; its record, logs and output stay.
type Rejection struct {
	Rejected bool // false: an earlier rejection was withdrawn
	By       string
	At       time.Time
	Reason   string
}

var rejectionCodec = codec.New[Rejection]("rejection")

// Encode returns the bytes of rejected.beast2.
func (m *Rejection) Encode() []byte { return rejectionCodec.Encode(m, 96) }

// DecodeRejection reads rejected.beast2.
func DecodeRejection(data []byte) (*Rejection, error) { return rejectionCodec.Decode(data) }

// Tombstones are the remains of a task's pruned executions, in the order of their removal. They explain why a result is
// missing. They also name the objects that a collector must spare, for processes that found the result before.
type Tombstones []Tombstone

// Tombstone is one execution that was pruned.
type Tombstone struct {
	InputsHash  string
	ExecutionID string
	OutputHash  string `beast2:",option"` // of a success; "" of a failure
	PrunedAt    time.Time
	By          string
	Reason      string // the rule, as "older than 30d"
}

var tombstonesCodec = codec.New[Tombstones]("tombstones")

// Encode returns the bytes of the record.
func (t Tombstones) Encode() []byte { return tombstonesCodec.Encode(&t, 200*len(t)) }

// DecodeTombstones reads the record.
func DecodeTombstones(data []byte) (Tombstones, error) {
	t, err := tombstonesCodec.Decode(data)
	if t == nil {
		return nil, err
	}
	return *t, err
}

// Pin keeps an execution from being pruned. The record's name is the execution's id.
type Pin struct {
	Task   string // hash of the task object
	Inputs string // inputs hash
	By     string
	At     time.Time
	Note   string
}

var pinCodec = codec.New[Pin]("pin")

// Encode returns the bytes of the record.
func (p *Pin) Encode() []byte { return pinCodec.Encode(p, 200) }

// DecodePin reads the record.
func DecodePin(data []byte) (*Pin, error) { return pinCodec.Decode(data) }

// Cancellation asks the process that runs a workspace to stop. It names one hold of the workspace's lock, by its
// LockState, and one run within it, so it can never stop a later run. The record's name is the name of the workspace.
type Cancellation struct {
	Run    string    `beast2:",option"` // its id; "" if the run had none yet
	Holder string    // LockState.Holder of the hold
	Since  time.Time // LockState.AcquiredAt
	By     string    // user@host
	At     time.Time
	Reason string // "" where none was given
}

var cancellationCodec = codec.New[Cancellation]("cancellation")

// Encode returns the bytes of the record.
func (c *Cancellation) Encode() []byte {
	return cancellationCodec.Encode(c, 200+len(c.Holder)+len(c.Reason))
}

// DecodeCancellation reads the record.
func DecodeCancellation(data []byte) (*Cancellation, error) { return cancellationCodec.Decode(data) }
