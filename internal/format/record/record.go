// Package record defines the structured records of a repository and their bytes. Every record is a beast2 file: a
// header with the type, then one value (doc/format.md).
//
// ExecutionStatus, DataflowRun, WorkspaceState, LockState and ExecutionMetadata have the bytes of the TypeScript
// reference, so that each program reads the other's records. The remaining types are e3's own.
//
// Decoding is strict. A header that differs in one byte, a value that would not encode to the same bytes, and bytes
// after the value are errors. The caller decides whether such an error means a miss or a fault.
package record

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/internal/format/beast2"
)

// Limits, in bytes, of objects that are read into memory completely.
const (
	MaxTask    = 16 << 20
	MaxPackage = 1 << 30
	MaxNode    = 1 << 30 // of a workspace's tree of datasets
)

// ErrType is in the error of every Decode function if the bytes are beast2 of another type.
var ErrType = errors.New("record has another type")

// schema is one record type: its name for messages, and the header of its files. The header is made on first use, so
// that a command pays only for the records that it uses.
type schema struct {
	name   string
	typ    func() beast2.Type
	header func() []byte
}

func newSchema(name string, typ func() beast2.Type) schema {
	return schema{name: name, typ: typ, header: sync.OnceValue(func() []byte { return beast2.Header(typ()) })}
}

// begin returns a buffer with the header and room for size more bytes.
func (s schema) begin(size int) []byte {
	h := s.header()
	return append(make([]byte, 0, len(h)+size), h...)
}

// open checks the header and returns a reader at the value.
func (s schema) open(data []byte) (*beast2.Reader, error) {
	h := s.header()
	if !bytes.HasPrefix(data, h) {
		if len(data) < len(h) && bytes.HasPrefix(h, data) {
			return nil, fmt.Errorf("%s: %w", s.name, &beast2.SyntaxError{Offset: len(data), Msg: "input ends inside the header"})
		}
		return nil, fmt.Errorf("%s: %w", s.name, ErrType)
	}
	return beast2.NewReader(data, len(h)), nil
}

// done ends a decode: it fails if bytes are left.
func (s schema) done(r *beast2.Reader) error {
	if err := r.Done(); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// Times have the precision of a DateTime: milliseconds, in UTC.

func appendTime(b []byte, t time.Time) []byte { return beast2.AppendInteger(b, t.UnixMilli()) }

func readTime(r *beast2.Reader) time.Time { return time.UnixMilli(r.Integer()).UTC() }

// Options are variants with the cases none (0) and some (1).

func appendOptString(b []byte, s string) []byte {
	if s == "" {
		return append(b, 0)
	}
	return beast2.AppendString(append(b, 1), s)
}

// readOptString reads an Option<String>; "" stands for none, so some("") is refused.
func readOptString(r *beast2.Reader) string {
	if r.Tag(2) == 0 {
		return ""
	}
	at := r.Offset()
	s := r.String()
	if s == "" {
		r.Failf(at, "optional string is present but empty")
	}
	return s
}

func appendOptTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return appendTime(append(b, 1), t)
}

// readOptTime reads an Option<DateTime>; the zero time stands for none, so some of it is refused.
func readOptTime(r *beast2.Reader) time.Time {
	if r.Tag(2) == 0 {
		return time.Time{}
	}
	at := r.Offset()
	t := readTime(r)
	if t.IsZero() {
		r.Failf(at, "optional time is present but zero")
	}
	return t
}

func appendStrings(b []byte, list []string) []byte {
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(list)))
	for _, s := range list {
		b = beast2.AppendString(b, s)
	}
	return b
}

func readStrings(r *beast2.Reader) []string {
	r.Inline()
	n := r.Count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = r.String()
	}
	return list
}
