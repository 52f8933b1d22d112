// Package record defines the structured records of a repository and their bytes. Every record is a beast2 file: a
// header with the type, then one value (doc/format.md).
//
// ExecutionStatus, DataflowRun, WorkspaceState, LockState and ExecutionMetadata have the bytes of the TypeScript
// reference, so that each program reads the other's records. Only e3 has the other types.
//
// Package codec encodes and decodes records, by the tags of their fields. Decoding is strict. A header that differs in
// one byte, a value that would not encode to the same bytes, and bytes after the value are errors. The caller decides
// whether such an error means a miss or a fault.
package record

import (
	"fmt"

	"e3/internal/format/codec"
)

// Limits, in bytes, of objects that are read into memory completely.
const (
	MaxTask    = 16 << 20
	MaxPackage = 1 << 30
	MaxNode    = 1 << 30 // a node of a workspace's tree of datasets
)

// ErrType is in the error of every Decode function if the bytes are beast2 of another type.
var ErrType = codec.ErrType

// texts is the codec of a list of texts.
var texts = codec.New[[]string]("texts")

// caseName is the name of a value of an enumeration, for people.
func caseName[E interface {
	~int
	codec.Cases
}](e E) string {
	if names := e.Cases(); e >= 0 && int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%T(%d)", e, int(e))
}
