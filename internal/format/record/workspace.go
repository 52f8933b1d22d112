package record

import (
	"fmt"
	"time"

	"e3/internal/format/codec"
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
	CurrentRunID   string `beast2:",option"` // latest finished run, "" before the first
}

var workspaceCodec = codec.New[WorkspaceState]("workspace state")

// Encode returns the bytes of the state; empty for a nil state, of a workspace that is not deployed.
func (w *WorkspaceState) Encode() []byte {
	if w == nil {
		return nil
	}
	return workspaceCodec.Encode(w, 320)
}

// DecodeWorkspaceState reads a state. An empty input, a workspace with no deployment, gives nil.
func DecodeWorkspaceState(data []byte) (*WorkspaceState, error) {
	if len(data) == 0 {
		return nil, nil
	}
	return workspaceCodec.Decode(data)
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

// Cases are the operations' names.
func (o Operation) Cases() []string {
	return []string{"dataflow", "dataset_write", "deployment", "removal"}
}

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

// LockState describes the holder of a workspace's lock. It only informs other processes; the kernel or a session holds
// the lock itself.
type LockState struct {
	Operation  Operation
	Holder     string // East text: .process (pid=1, bootId="…", startTime=2, command="…")
	AcquiredAt time.Time
	ExpiresAt  time.Time `beast2:",option"` // zero: held until released
}

var lockCodec = codec.New[LockState]("lock state")

// Encode returns the bytes that a lock file holds while it is locked.
func (l *LockState) Encode() []byte { return lockCodec.Encode(l, 160+len(l.Holder)) }

// DecodeLockState reads a LockState.
func DecodeLockState(data []byte) (*LockState, error) { return lockCodec.Decode(data) }
