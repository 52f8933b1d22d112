package beast2_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"e3/internal/format/beast2"
)

// The seeds are in testdata/fuzz: small vectors and earlier findings.

// Decoded values encode to the same bytes, by Encode and by JSON; other input is a SyntaxError.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, _, err := beast2.Decode(data); err == nil {
			roundTrip(t, data)
		} else {
			wantSyntaxError(t, data, err)
		}
	})
}

// The result of FromJSON can be decoded.
func FuzzFromJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, doc []byte) {
		data, err := beast2.FromJSON(doc)
		if err == nil {
			roundTrip(t, data)
			return
		}
		var syntax *beast2.SyntaxError
		var value *beast2.ValueError
		if !errors.As(err, &syntax) && !errors.As(err, &value) {
			t.Errorf("error is a %T: %v", err, err)
		}
	})
}

// The first input selects the reads from the second: the Append functions write what a Reader has read.
func FuzzReader(f *testing.F) {
	f.Fuzz(func(t *testing.T, program, data []byte) {
		r := beast2.NewReader(data, 0)
		var again []byte
		for _, op := range program {
			before := r.Offset()
			again = readOne(r, op, again)
			if r.Offset() < before || r.Offset() > len(data) {
				t.Fatalf("offset went from %d to %d of %d", before, r.Offset(), len(data))
			}
		}
		if err := r.Err(); err != nil {
			wantSyntaxError(t, data, err)
			if r.Remaining() != 0 {
				t.Errorf("%d bytes remain after a fault", r.Remaining())
			}
			return
		}
		if !bytes.Equal(again, data[:r.Offset()]) {
			t.Errorf("read and written again:\ngot  %x\nwant %x", again, data[:r.Offset()])
		}
		if err := r.Done(); (err == nil) != (r.Offset() == len(data)) {
			t.Errorf("Done: %v at offset %d of %d", err, r.Offset(), len(data))
		}
	})
}

// readOne reads one value and, on success, appends it to b.
func readOne(r *beast2.Reader, op byte, b []byte) []byte {
	var next []byte
	switch op {
	case 'i':
		next = beast2.AppendInteger(b, r.Integer())
	case 's':
		next = beast2.AppendString(b, r.String())
	case 'B':
		next = beast2.AppendBlob(b, r.Blob())
	case 'o':
		next = beast2.AppendBoolean(b, r.Boolean())
	case 'f':
		v := r.Float()
		next = beast2.AppendFloat(b, v)
		if v != v && math.Signbit(v) {
			next[len(next)-1] |= 0x80 // records write the positive NaN only
		}
	case 'n':
		r.Inline()
		next = beast2.AppendInline(b)
	case 'c':
		next = beast2.AppendVarint(b, uint64(r.Count(1)))
	case 't':
		next = beast2.AppendVarint(b, uint64(r.Tag(5)))
	default:
		return b
	}
	if r.Err() != nil {
		return b
	}
	return next
}
