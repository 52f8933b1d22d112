// Package codec encodes, decodes and describes records. A record is a Go struct. Its fields, in their order, are the
// fields of a beast2 Struct. The tag of a field says what the field's Go type does not:
//
//	Timeout time.Duration `beast2:"timeoutMs"`          // its name there; else that of Go: retryOn, runId
//	Suspend int64         `beast2:",min=0,max=255"`     // the range of a number
//	File    string        `beast2:",option"`            // none if it is zero; so is each pointer that is nil
//	Inputs  []Input       `beast2:",dict"`              // a Dict: the first field of an element is its key
//	Steps   []Step        `beast2:",most=1024"`         // the greatest length
//	CPU     time.Duration `beast2:"userCpuUs,us"`       // in microseconds; else in milliseconds
//	Env     []string      `beast2:",sorted"`            // texts in key order, each once
//	Known   bool          `beast2:",present"`           // decides whether an option of this struct is there
//	Passed  []string      `beast2:"-"`                  // no field of the record
//	Own     []string      `beast2:"*"`                  // the struct is this field alone, and no Struct
//
// An enumeration implements Cases; max is its last case in a field. Several fields can form a Variant, in two ways. In
// the first, one field holds the case, and the tags of the following fields list the cases that have them:
//
//	State RunState `beast2:"status,case"`               // "*,case": the struct is the Variant, with all fields after it
//	Task  string   `beast2:",in=failed"`                // of several cases: in=error|failed
//
// A case is a Struct of its fields; with bare, a case without fields is Null, and a case with one field is that field.
// In the second way each field is a case, and the value is the first field that is not zero, else the last:
//
//	Argv  []string `beast2:",of=command"`
//	Shell string   `beast2:",of=command"`
//
// A type that such tags cannot describe implements Custom. If a struct has a method Check, this checks the struct after
// it was read.
//
// Decoding is strict: a header that differs in one byte, a value that would not encode to the same bytes, and bytes after
// the value are errors.
package codec

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"e3/internal/format/beast2"
)

// ErrType is in the error of Decode if the bytes are beast2 of another type.
var ErrType = errors.New("record has another type")

// A Codec encodes and decodes one type of records. Its plan is made on first use, so that a command pays only for the
// records that it uses.
type Codec[T any] struct {
	name string // for messages
	plan func() *plan
}

type plan struct {
	coder
	header []byte
}

// New returns the codec of T, which is called name in messages.
func New[T any](name string) Codec[T] {
	return Codec[T]{name, sync.OnceValue(func() *plan {
		c := coderOf(reflect.TypeFor[T](), options{})
		return &plan{c, beast2.Header(c.typ)}
	})}
}

// Optional returns the codec of an Option: none stands for the zero value.
func Optional[T any](name string) Codec[T] {
	return Codec[T]{name, sync.OnceValue(func() *plan {
		t := reflect.TypeFor[T]()
		c := coderOf(t, options{}).optional(t, name)
		return &plan{c, beast2.Header(c.typ)}
	})}
}

// Type returns the type of the records.
func (c *Codec[T]) Type() beast2.Type { return c.plan().typ }

// Header returns a copy of what precedes the value of every record.
func (c *Codec[T]) Header() []byte { return bytes.Clone(c.plan().header) }

// Encode returns the bytes of a record. room is the approximate length of its value.
func (c *Codec[T]) Encode(v *T, room int) []byte {
	h := c.plan().header
	return c.Append(append(make([]byte, 0, len(h)+room), h...), v)
}

// Append appends the value without a header, as a part of another record.
func (c *Codec[T]) Append(b []byte, v *T) []byte { return c.plan().append(b, unsafe.Pointer(v)) }

// Decode reads a record.
func (c *Codec[T]) Decode(data []byte) (*T, error) { return c.DecodeWithin(data, nil) }

// DecodeWithin reads an untrusted record. Its lists may take at most the given amount of memory.
func (c *Codec[T]) DecodeWithin(data []byte, m *Memory) (*T, error) {
	r, err := c.Open(data)
	if err != nil {
		return nil, err
	}
	r.Memory = m
	v := new(T)
	c.Read(r, v)
	return v, c.Done(r)
}

// Open checks the header and returns a reader at the value.
func (c *Codec[T]) Open(data []byte) (*Reader, error) {
	p := c.plan()
	if !bytes.HasPrefix(data, p.header) {
		if len(data) < len(p.header) && bytes.HasPrefix(p.header, data) {
			return nil, fmt.Errorf("%s: %w", c.name, &beast2.SyntaxError{Offset: len(data), Msg: "input ends inside the header"})
		}
		return nil, fmt.Errorf("%s: %w", c.name, ErrType)
	}
	return &Reader{Reader: *beast2.NewReader(data, len(p.header)), Data: data}, nil
}

// Done ends the reading of a record. It fails if bytes are left.
func (c *Codec[T]) Done(r *Reader) error {
	if err := r.Done(); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// Read reads the value without a header.
func (c *Codec[T]) Read(r *Reader, v *T) { c.plan().read(r, unsafe.Pointer(v)) }

// A Reader reads the value of a record. It keeps the first fault.
type Reader struct {
	beast2.Reader
	Data   []byte  // the reader of the bytes
	Memory *Memory // bound for lists; nil: no bound
}

// Memory bounds the memory of the lists of an untrusted record, which can take forty times its bytes.
type Memory struct{ all, left int64 }

// NewMemory returns a bound of the given number of bytes.
func NewMemory(bytes int64) *Memory { return &Memory{bytes, bytes} }

// Length reads the number of elements of a list. Each element takes at least width bytes of the input, and size bytes
// of memory.
func (r *Reader) Length(width int, size uintptr) int {
	at := r.Offset()
	n := r.Count(width)
	r.spend(at, int64(n)*int64(size))
	if r.Err() != nil {
		return 0
	}
	return n
}

func (r *Reader) spend(at int, size int64) {
	if m := r.Memory; m != nil {
		if m.left -= size; m.left < 0 {
			r.Failf(at, "its lists take more than %d bytes of memory", m.all)
		}
	}
}
