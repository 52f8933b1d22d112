package beast2

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Magic opens every beast2 file: 0x89, "East", CR LF, format version 1.
const Magic = "\x89East\r\n\x01"

// maxLength bounds lengths, counts, tags and distances: the reference refuses
// numbers that a JavaScript double cannot hold exactly.
const maxLength = 1<<53 - 1

// The canonical NaN, the only NaN that a writer emits; the reader also accepts its negative.
const (
	nanBits    = 0x7FF8000000000000
	negNaNBits = 0xFFF8000000000000
)

// SyntaxError says why bytes are not beast2, and at which offset. Offset counts bytes from the start of the file, magic
// included.
type SyntaxError struct {
	Offset int
	Msg    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("beast2: %s at offset %d", e.Msg, e.Offset)
}

// AppendVarint appends v as unsigned LEB128 in its shortest form.
func AppendVarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendInteger appends an Integer, or the milliseconds of a DateTime, as zigzag LEB128.
func AppendInteger(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// AppendString appends a String: its length in bytes, then its UTF-8.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// AppendBlob appends a Blob: its length, then its bytes.
func AppendBlob(b, blob []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(blob))), blob...)
}

// AppendBoolean appends one byte, 0 or 1.
func AppendBoolean(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendFloat appends the IEEE 754 bits, little-endian, with every NaN made canonical.
func AppendFloat(b []byte, f float64) []byte {
	bits := math.Float64bits(f)
	if f != f {
		bits = nanBits
	}
	return binary.LittleEndian.AppendUint64(b, bits)
}

// AppendInline opens an Array, Set, Dict or Ref that is written in place: the marker that means "not a backreference".
// A count follows, except for a Ref.
func AppendInline(b []byte) []byte { return append(b, 0) }

// A Reader reads wire values from a byte string, one after the other. It keeps the first fault: every later read
// returns a zero value, and Err returns the fault with its offset. Blobs that it returns share the input's memory;
// strings are copies.
type Reader struct {
	data []byte
	off  int
	err  error
}

// NewReader reads data from offset off, so that errors count from the start of the file.
func NewReader(data []byte, off int) *Reader { return &Reader{data: data, off: off} }

// Err returns the first fault, a *SyntaxError, or nil.
func (r *Reader) Err() error { return r.err }

// Offset returns the position of the next byte.
func (r *Reader) Offset() int { return r.off }

// Remaining returns the number of bytes left, 0 after a fault.
func (r *Reader) Remaining() int {
	if r.err != nil {
		return 0
	}
	return len(r.data) - r.off
}

// Failf records a fault at offset off unless there is one already.
func (r *Reader) Failf(off int, format string, args ...any) {
	if r.err == nil {
		r.err = &SyntaxError{Offset: off, Msg: fmt.Sprintf(format, args...)}
	}
}

// varint reads LEB128 and refuses all but the shortest form, so that decoded bytes encode to the same bytes again.
func (r *Reader) varint(what string) uint64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Uvarint(r.data[r.off:])
	switch {
	case n == 0:
		r.Failf(r.off, "input ends inside %s", what)
		return 0
	case n < 0:
		r.Failf(r.off, "%s does not fit 64 bits", what)
		return 0
	case n > 1 && r.data[r.off+n-1] == 0:
		r.Failf(r.off, "%s is padded", what)
		return 0
	}
	r.off += n
	return v
}

// Integer reads an Integer, or the milliseconds of a DateTime.
func (r *Reader) Integer() int64 {
	u := r.varint("integer")
	return int64(u>>1) ^ -int64(u&1)
}

// length reads a number that a JavaScript double holds exactly.
func (r *Reader) length(what string) uint64 {
	at := r.off
	v := r.varint(what)
	if v > maxLength {
		r.Failf(at, "%s %d is out of range", what, v)
		return 0
	}
	return v
}

// Blob reads a Blob without copying it.
func (r *Reader) Blob() []byte {
	at := r.off
	n := r.length("length")
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.data)-r.off) {
		r.Failf(at, "length %d is beyond the end of the input", n)
		return nil
	}
	b := r.data[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return b
}

// String reads a String and checks its encoding.
func (r *Reader) String() string {
	at := r.off
	b := r.Blob()
	if i := invalidUTF8(b); i >= 0 {
		r.Failf(at, "string is not UTF-8 at its byte %d", i)
		return ""
	}
	return string(b)
}

// Boolean reads one byte that must be 0 or 1.
func (r *Reader) Boolean() bool {
	if r.err == nil && r.off >= len(r.data) {
		r.Failf(r.off, "input ends inside boolean")
	}
	if r.err != nil {
		return false
	}
	c := r.data[r.off]
	if c > 1 {
		r.Failf(r.off, "boolean is %d, not 0 or 1", c)
		return false
	}
	r.off++
	return c == 1
}

// Float reads eight bytes. It accepts only the canonical NaN and its negative.
func (r *Reader) Float() float64 {
	if r.err == nil && len(r.data)-r.off < 8 {
		r.Failf(r.off, "input ends inside float")
	}
	if r.err != nil {
		return 0
	}
	bits := binary.LittleEndian.Uint64(r.data[r.off:])
	f := math.Float64frombits(bits)
	if f != f && bits != nanBits && bits != negNaNBits {
		r.Failf(r.off, "NaN %#x is not canonical", bits)
		return 0
	}
	r.off += 8
	return f
}

// Tag reads the case index of a Variant with n cases.
func (r *Reader) Tag(n int) int {
	at := r.off
	v := r.length("variant tag")
	if r.err == nil && v >= uint64(n) {
		r.Failf(at, "variant tag %d is not below %d", v, n)
		return 0
	}
	return int(v)
}

// Count reads the element count of a container whose elements take at least width bytes each, so that a count can be
// trusted for allocation. With a width of 0 the count cannot be trusted.
func (r *Reader) Count(width int) int {
	at := r.off
	n := r.length("count")
	if r.err == nil && (n > math.MaxInt || width > 0 && n > uint64(len(r.data)-r.off)/uint64(width)) {
		r.Failf(at, "count %d is beyond the end of the input", n)
		return 0
	}
	return int(n)
}

// Inline reads the marker of a container that must be written in place: records
// of fixed shape never share containers.
func (r *Reader) Inline() {
	at := r.off
	if d := r.length("backreference"); r.err == nil && d != 0 {
		r.Failf(at, "unexpected backreference to %d bytes before", d)
	}
}

// Done checks that nothing follows and returns the first fault.
func (r *Reader) Done() error {
	if r.err == nil && r.off != len(r.data) {
		r.Failf(r.off, "%d bytes follow the value", len(r.data)-r.off)
	}
	return r.err
}

// invalidUTF8 returns the index of the first byte that no writer emits, or -1. Unpaired low
// surrogates pass, in three bytes: the reference writes them (formats: String).
func invalidUTF8(b []byte) int { return checkWTF8(b) }

// SkipString skips a String after the same checks as String, without a copy.
func (r *Reader) SkipString() {
	at := r.off
	if i := invalidUTF8(r.Blob()); i >= 0 {
		r.Failf(at, "string is not UTF-8 at its byte %d", i)
	}
}
