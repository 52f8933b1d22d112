package record_test

import (
	"bytes"
	"errors"
	"testing"

	"e3/internal/format/beast2"
	"e3/internal/format/record"
)

// The seeds are in testdata/fuzz: one or more of each shape that a record has.

func FuzzDecodeStatus(f *testing.F)              { fuzzCodec(f, "status") }
func FuzzDecodeMetadata(f *testing.F)            { fuzzCodec(f, "metadata") }
func FuzzDecodeDetail(f *testing.F)              { fuzzCodec(f, "detail") }
func FuzzDecodeRun(f *testing.F)                 { fuzzCodec(f, "run") }
func FuzzDecodeWorkspaceState(f *testing.F)      { fuzzCodec(f, "workspace state") }
func FuzzDecodeWorkspaceDeployment(f *testing.F) { fuzzCodec(f, "workspace deployment") }
func FuzzDecodeLockState(f *testing.F)           { fuzzCodec(f, "lock state") }
func FuzzDecodeTask(f *testing.F)                { fuzzCodec(f, "task") }
func FuzzDecodeNode(f *testing.F)                { fuzzCodec(f, "node") }
func FuzzDecodePackage(f *testing.F)             { fuzzCodec(f, "package") }
func FuzzDecodeLink(f *testing.F)                { fuzzCodec(f, "link") }
func FuzzDecodeProof(f *testing.F)               { fuzzCodec(f, "proof") }
func FuzzDecodeResultsPlan(f *testing.F)         { fuzzCodec(f, "results plan") }
func FuzzDecodeResults(f *testing.F)             { fuzzCodec(f, "results") }
func FuzzDecodeProvenance(f *testing.F)          { fuzzCodec(f, "provenance") }
func FuzzDecodeExport(f *testing.F)              { fuzzCodec(f, "export provenance") }
func FuzzDecodeRejection(f *testing.F)           { fuzzCodec(f, "rejection") }
func FuzzDecodeSignature(f *testing.F)           { fuzzCodec(f, "signature") }
func FuzzDecodeTombstones(f *testing.F)          { fuzzCodec(f, "tombstones") }
func FuzzDecodePin(f *testing.F)                 { fuzzCodec(f, "pin") }
func FuzzDecodeCancellation(f *testing.F)        { fuzzCodec(f, "cancellation") }

// Decoded records encode to the same bytes; other input gives an error with a reason.
func fuzzCodec(f *testing.F, name string) {
	for _, c := range codecs {
		if c.name == name {
			f.Fuzz(func(t *testing.T, data []byte) {
				again, err := c.decode(data)
				if err != nil {
					wantNamed(t, err, len(data))
				} else if !bytes.Equal(again, data) {
					t.Errorf("decoded and encoded again:\ngot  %x\nwant %x", again, data)
				}
			})
		}
	}
}

// Durations are a map: values survive an encoding, but not the order and repetitions of names.
func FuzzDecodeDurations(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := record.DecodeDurations(data)
		if err != nil {
			wantNamed(t, err, len(data))
			return
		}
		again, err := record.DecodeDurations(encodeDurations(d))
		if err != nil {
			t.Fatal(err)
		}
		if len(again) != len(d) {
			t.Errorf("%d durations came back as %d", len(d), len(again))
		}
		for name := range d {
			if again[name] != d[name] {
				t.Errorf("%q: %v came back as %v", name, d[name], again[name])
			}
		}
	})
}

func wantNamed(t *testing.T, err error, size int) {
	t.Helper()
	var syntax *beast2.SyntaxError
	switch {
	case errors.Is(err, record.ErrType):
	case !errors.As(err, &syntax):
		t.Errorf("error is a %T: %v", err, err)
	case syntax.Offset < 0 || syntax.Offset > size:
		t.Errorf("offset %d of the error lies outside the %d bytes: %v", syntax.Offset, size, err)
	}
}

// A corpus that has gone missing would leave the fuzz targets with nothing to start from.
func TestFuzzCorpusIsThere(t *testing.T) {
	for _, target := range fuzzTargets {
		seeds := readSeeds(t, "testdata/fuzz/"+target.fuzz)
		whole := 0
		for _, data := range seeds {
			for _, c := range codecs {
				if c.name != target.codec {
					continue
				}
				if _, err := c.decode(data); err == nil {
					whole++
				}
			}
		}
		if whole == 0 {
			t.Errorf("%s: none of %d seeds decodes: write one of the present form below testdata/fuzz/%s", target.fuzz, len(seeds), target.fuzz)
		}
	}
}
