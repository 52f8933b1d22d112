package record_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
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

var update = flag.Bool("update", false, "write seeds of the present form in place of those of another one")

// A corpus that has gone missing would leave the fuzz targets with nothing to start from. With -update, one of another
// form is written anew.
func TestFuzzCorpusIsThere(t *testing.T) {
	for _, target := range fuzzTargets {
		dir := "testdata/fuzz/" + target.fuzz
		seeds := readSeeds(t, dir)
		c := codecs[slices.IndexFunc(codecs, func(c codec) bool { return c.name == target.codec })]
		whole := slices.ContainsFunc(seeds, func(data []byte) bool {
			_, err := c.decode(data)
			return err == nil
		})
		if !whole && *update {
			text := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", c.sample())
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755), os.WriteFile(dir+"/full", []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		} else if !whole {
			t.Errorf("%s: none of %d seeds decodes: go test ./internal/format/record -run Corpus -update", target.fuzz, len(seeds))
		}
	}
}
