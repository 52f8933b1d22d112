package record

import (
	"fmt"
	"time"

	"e3/internal/format/beast2"
)

// WorkspaceState is workspaces/<ws>.beast2: the deployed package and the root of the tree. A workspace without a
// package has an empty file instead (DecodeWorkspaceState: nil).
type WorkspaceState struct {
	PackageName    string
	PackageVersion string
	PackageHash    string
	DeployedAt     time.Time
	RootHash       string
	RootUpdatedAt  time.Time
	CurrentRunID   string // latest finished run, "" before the first
}

var workspaceSchema = newSchema("workspace state", func() beast2.Type {
	return beast2.Struct(
		beast2.F("packageName", beast2.String),
		beast2.F("packageVersion", beast2.String),
		beast2.F("packageHash", beast2.String),
		beast2.F("deployedAt", beast2.DateTime),
		beast2.F("rootHash", beast2.String),
		beast2.F("rootUpdatedAt", beast2.DateTime),
		beast2.F("currentRunId", beast2.Option(beast2.String)),
	)
})

// Encode returns the bytes of the state; a nil state, created but not deployed, is empty.
func (w *WorkspaceState) Encode() []byte {
	if w == nil {
		return nil
	}
	b := workspaceSchema.begin(320)
	b = beast2.AppendString(b, w.PackageName)
	b = beast2.AppendString(b, w.PackageVersion)
	b = beast2.AppendString(b, w.PackageHash)
	b = appendTime(b, w.DeployedAt)
	b = beast2.AppendString(b, w.RootHash)
	b = appendTime(b, w.RootUpdatedAt)
	return appendOptString(b, w.CurrentRunID)
}

// DecodeWorkspaceState reads a state. An empty input, a workspace with no deployment, gives nil.
func DecodeWorkspaceState(data []byte) (*WorkspaceState, error) {
	if len(data) == 0 {
		return nil, nil
	}
	r, err := workspaceSchema.open(data)
	if err != nil {
		return nil, err
	}
	w := &WorkspaceState{
		PackageName:    r.String(),
		PackageVersion: r.String(),
		PackageHash:    r.String(),
		DeployedAt:     readTime(r),
		RootHash:       r.String(),
		RootUpdatedAt:  readTime(r),
		CurrentRunID:   readOptString(r),
	}
	return w, workspaceSchema.done(r)
}

// Operation is the reason for a workspace's lock. The values are the case tags on disk.
type Operation int

// The operations that lock a workspace.
const (
	Dataflow Operation = iota
	DatasetWrite
	Deployment
	Removal
)

func (o Operation) String() string {
	switch o {
	case Dataflow:
		return "running"
	case DatasetWrite:
		return "writing a dataset"
	case Deployment:
		return "deploying"
	case Removal:
		return "being removed"
	}
	return fmt.Sprintf("operation(%d)", int(o))
}

// LockState describes the holder of a workspace's lock. It is information for other processes; the lock itself is the
// kernel's or a session's.
type LockState struct {
	Operation  Operation
	Holder     string // East text: .process (pid=1, bootId="…", startTime=2, command="…")
	AcquiredAt time.Time
	ExpiresAt  time.Time // zero: held until released
}

var lockSchema = newSchema("lock state", func() beast2.Type {
	return beast2.Struct(
		beast2.F("operation", beast2.Variant(
			beast2.F("dataflow", beast2.Null), beast2.F("dataset_write", beast2.Null),
			beast2.F("deployment", beast2.Null), beast2.F("removal", beast2.Null))),
		beast2.F("holder", beast2.String),
		beast2.F("acquiredAt", beast2.DateTime),
		beast2.F("expiresAt", beast2.Option(beast2.DateTime)),
	)
})

// Encode returns the bytes that a lock file holds while it is locked.
func (l *LockState) Encode() []byte {
	b := lockSchema.begin(160 + len(l.Holder))
	b = beast2.AppendVarint(b, uint64(l.Operation))
	b = beast2.AppendString(b, l.Holder)
	b = appendTime(b, l.AcquiredAt)
	return appendOptTime(b, l.ExpiresAt)
}

// DecodeLockState reads a LockState.
func DecodeLockState(data []byte) (*LockState, error) {
	r, err := lockSchema.open(data)
	if err != nil {
		return nil, err
	}
	l := &LockState{Operation: Operation(r.Tag(4)), Holder: r.String(), AcquiredAt: readTime(r), ExpiresAt: readOptTime(r)}
	return l, lockSchema.done(r)
}
