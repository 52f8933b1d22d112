package record

import (
	"time"

	"e3/internal/format/beast2"
)

// Rejection is rejected.beast2 beside an execution: the execution was rejected, or its rejection was withdrawn. A
// rejected success is never a hit; its record, logs and output stay.
type Rejection struct {
	Rejected bool // false: an earlier rejection was withdrawn
	By       string
	At       time.Time
	Reason   string
}

var rejectionSchema = newSchema("rejection", func() beast2.Type {
	return beast2.Struct(beast2.F("rejected", beast2.Boolean), beast2.F("by", beast2.String),
		beast2.F("at", beast2.DateTime), beast2.F("reason", beast2.String))
})

// Encode returns the bytes of rejected.beast2.
func (m *Rejection) Encode() []byte {
	b := beast2.AppendString(beast2.AppendBoolean(rejectionSchema.begin(96), m.Rejected), m.By)
	return beast2.AppendString(appendTime(b, m.At), m.Reason)
}

// DecodeRejection reads rejected.beast2.
func DecodeRejection(data []byte) (*Rejection, error) {
	r, err := rejectionSchema.open(data)
	if err != nil {
		return nil, err
	}
	m := &Rejection{Rejected: r.Boolean(), By: r.String(), At: readTime(r), Reason: r.String()}
	return m, rejectionSchema.done(r)
}

// Tombstones are the remains of a task's pruned executions, in the order of their removal. They explain why a result is
// missing. They also name the objects that a collector must spare, for processes that found the result before.
type Tombstones []Tombstone

// Tombstone is one execution that was pruned.
type Tombstone struct {
	InputsHash  string
	ExecutionID string
	OutputHash  string // of a success; "" of a failure
	PrunedAt    time.Time
	By          string
	Reason      string // the rule, as "older than 30d"
}

var tombstonesSchema = newSchema("tombstones", func() beast2.Type {
	return beast2.Array(beast2.Struct(
		beast2.F("inputsHash", beast2.String), beast2.F("executionId", beast2.String),
		beast2.F("outputHash", beast2.Option(beast2.String)), beast2.F("prunedAt", beast2.DateTime),
		beast2.F("by", beast2.String), beast2.F("reason", beast2.String)))
})

// Encode returns the bytes of the record.
func (t Tombstones) Encode() []byte {
	b := beast2.AppendVarint(beast2.AppendInline(tombstonesSchema.begin(200*len(t))), uint64(len(t)))
	for i := range t {
		s := &t[i]
		b = appendOptString(beast2.AppendString(beast2.AppendString(b, s.InputsHash), s.ExecutionID), s.OutputHash)
		b = beast2.AppendString(beast2.AppendString(appendTime(b, s.PrunedAt), s.By), s.Reason)
	}
	return b
}

// DecodeTombstones reads the record.
func DecodeTombstones(data []byte) (Tombstones, error) {
	r, err := tombstonesSchema.open(data)
	if err != nil {
		return nil, err
	}
	r.Inline()
	var t Tombstones
	if n := r.Count(6); n > 0 {
		t = make(Tombstones, n)
	}
	for i := range t {
		t[i] = Tombstone{
			InputsHash: r.String(), ExecutionID: r.String(), OutputHash: readOptString(r), PrunedAt: readTime(r),
			By: r.String(), Reason: r.String(),
		}
	}
	return t, tombstonesSchema.done(r)
}

// Pin keeps an execution from being pruned. Its name is the execution's id.
type Pin struct {
	Task   string // hash of the task object
	Inputs string // inputs hash
	By     string
	At     time.Time
	Note   string
}

var pinSchema = newSchema("pin", func() beast2.Type {
	return beast2.Struct(beast2.F("task", beast2.String), beast2.F("inputs", beast2.String),
		beast2.F("by", beast2.String), beast2.F("at", beast2.DateTime), beast2.F("note", beast2.String))
})

// Encode returns the bytes of the record.
func (p *Pin) Encode() []byte {
	b := beast2.AppendString(beast2.AppendString(beast2.AppendString(pinSchema.begin(200), p.Task), p.Inputs), p.By)
	return beast2.AppendString(appendTime(b, p.At), p.Note)
}

// DecodePin reads the record.
func DecodePin(data []byte) (*Pin, error) {
	r, err := pinSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &Pin{Task: r.String(), Inputs: r.String(), By: r.String(), At: readTime(r), Note: r.String()}
	return p, pinSchema.done(r)
}

// Cancellation asks the process that runs a workspace to stop. It names one hold of the workspace's lock, by its
// LockState, and one run within it, so it can never stop a later run. Its name is the workspace's.
type Cancellation struct {
	Run    string    // its id; "" if the run had none yet
	Holder string    // LockState.Holder of that hold
	Since  time.Time // LockState.AcquiredAt
	By     string    // user@host
	At     time.Time
	Reason string // "" where none was given
}

var cancellationSchema = newSchema("cancellation", func() beast2.Type {
	return beast2.Struct(beast2.F("run", beast2.Option(beast2.String)), beast2.F("holder", beast2.String), beast2.F("since", beast2.DateTime),
		beast2.F("by", beast2.String), beast2.F("at", beast2.DateTime), beast2.F("reason", beast2.String))
})

// Encode returns the bytes of the record.
func (c *Cancellation) Encode() []byte {
	b := appendOptString(cancellationSchema.begin(200+len(c.Holder)+len(c.Reason)), c.Run)
	b = beast2.AppendString(appendTime(beast2.AppendString(b, c.Holder), c.Since), c.By)
	return beast2.AppendString(appendTime(b, c.At), c.Reason)
}

// DecodeCancellation reads the record.
func DecodeCancellation(data []byte) (*Cancellation, error) {
	r, err := cancellationSchema.open(data)
	if err != nil {
		return nil, err
	}
	c := &Cancellation{Run: readOptString(r), Holder: r.String(), Since: readTime(r), By: r.String(), At: readTime(r), Reason: r.String()}
	return c, cancellationSchema.done(r)
}
