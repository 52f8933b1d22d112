package record_test

import (
	"archive/zip"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"e3/internal/format/record"
)

// The files that the reference implementation wrote are kept with the codec.
const reference = "../beast2/testdata/"

// recode decodes a record and encodes it again.
type recode func(data []byte) ([]byte, error)

func recoder[T interface{ Encode() []byte }](decode func([]byte) (T, error)) recode {
	return func(data []byte) ([]byte, error) {
		v, err := decode(data)
		if err != nil {
			return nil, err
		}
		return v.Encode(), nil
	}
}

// shared are the records that the reference has too, by its names for them, with a record that shows the header of our
// encoding.
var shared = map[string]struct {
	sample interface{ Encode() []byte }
	recode recode
}{
	"ExecutionStatus": {&record.Status{}, recoder(record.DecodeStatus)},
	"DataflowRun":     {&record.Run{}, recoder(record.DecodeRun)},
	"WorkspaceState":  {&record.WorkspaceState{}, recoder(record.DecodeWorkspaceState)},
	"LockState":       {&record.LockState{}, recoder(record.DecodeLockState)},
}

func load[T any](t testing.TB, name string) T {
	t.Helper()
	data, err := os.ReadFile(reference + name)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReferenceHeaders(t *testing.T) {
	types := load[map[string]struct {
		HeaderHex string `json:"header_hex"`
	}](t, "record-types.json")
	for name, r := range shared {
		want := unhex(t, types[name].HeaderHex)
		if len(want) < 10 {
			t.Fatalf("%s: record-types.json has no header of it", name)
		}
		if got := r.sample.Encode(); !bytes.HasPrefix(got, want) {
			t.Errorf("%s: header differs\ngot  %x\nwant %x", name, got[:min(len(got), len(want))], want)
		}
	}
}

// TestReferenceVectors reads what the reference encodes and writes it back.
func TestReferenceVectors(t *testing.T) {
	vectors := load[[]struct{ Name, Hex string }](t, "vectors.json")
	seen := map[string]int{}
	for _, v := range vectors {
		name, _, _ := strings.Cut(strings.TrimPrefix(v.Name, "record/"), "/")
		r, ok := shared[name]
		if !ok {
			continue
		}
		seen[name]++
		t.Run(v.Name, func(t *testing.T) { compareRecoded(t, r.recode, unhex(t, v.Hex)) })
	}
	for name := range shared {
		if seen[name] == 0 {
			t.Errorf("there is no vector of %s", name)
		}
	}
}

// TestReferenceExport does the same with the records of a run that the reference exported.
func TestReferenceExport(t *testing.T) {
	z, err := zip.OpenReader(reference + "golden.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	seen := map[string]int{}
	for _, f := range z.File {
		name := ""
		switch {
		case path.Base(f.Name) == "status.beast2":
			name = "ExecutionStatus"
		case strings.HasPrefix(f.Name, "dataflows/"):
			name = "DataflowRun"
		default:
			continue
		}
		seen[name]++
		t.Run(f.Name, func(t *testing.T) {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			compareRecoded(t, shared[name].recode, data)
		})
	}
	if seen["ExecutionStatus"] == 0 || seen["DataflowRun"] == 0 {
		t.Errorf("records in the export: %v, want some of both kinds", seen)
	}
}

func compareRecoded(t *testing.T, r recode, want []byte) {
	t.Helper()
	got, err := r(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("decoded and encoded again\ngot  %x\nwant %x", got, want)
	}
}
