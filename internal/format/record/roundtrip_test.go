package record_test

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/internal/format/record"
)

var sameRecord = []cmp.Option{cmpopts.EquateEmpty(), cmp.AllowUnexported(record.RunTasks{})}

// codec is one record type with its encoder and decoder.
type codec struct {
	name   string
	check  func(*testing.T)
	decode func([]byte) ([]byte, error) // and encode again
	sample func() []byte
}

func newCodec[T any](name string, gen *rapid.Generator[T], encode func(T) []byte, decode func([]byte) (T, error)) codec {
	return codec{
		name: name,
		check: func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkRoundTrip(t, gen.Draw(t, "record"), encode, decode) })
		},
		decode: func(data []byte) ([]byte, error) {
			v, err := decode(data)
			if err != nil {
				return nil, err
			}
			return encode(v), nil
		},
		sample: func() []byte { return encode(gen.Example(7)) },
	}
}

func encodeDurations(d record.Durations) []byte { return d.Encode(slices.Sorted(maps.Keys(d))) }

var durationMaps = rapid.Custom(func(t *rapid.T) record.Durations { return durations.Draw(t, "durations") })

var codecs = []codec{
	newCodec("status", statuses, (*record.Status).Encode, record.DecodeStatus),
	newCodec("metadata", metadata, (*record.Metadata).Encode, record.DecodeMetadata),
	newCodec("detail", details, (*record.Detail).Encode, record.DecodeDetail),
	newCodec("run", runs, (*record.Run).Encode, record.DecodeRun),
	newCodec("workspace state", workspaceStates, (*record.WorkspaceState).Encode, record.DecodeWorkspaceState),
	newCodec("workspace deployment", workspaceDeployments, (*record.WorkspaceDeployment).Encode, record.DecodeWorkspaceDeployment),
	newCodec("lock state", lockStates, (*record.LockState).Encode, record.DecodeLockState),
	newCodec("task", tasks, (*record.Task).Encode, record.DecodeTask),
	newCodec("node", nodes, record.Node.Encode, record.DecodeNode),
	newCodec("package", packages, (*record.Package).Encode, record.DecodePackage),
	newCodec("link", links, (*record.Link).Encode, record.DecodeLink),
	newCodec("results plan", resultsPlans, (*record.ResultsPlan).Encode, record.DecodeResultsPlan),
	newCodec("results", resultLists, (*record.Results).Encode, record.DecodeResults),
	newCodec("proof", proofs, (*record.Proof).Encode, record.DecodeProof),
	newCodec("durations", durationMaps, encodeDurations, record.DecodeDurations),
	newCodec("provenance", provenances, (*record.Provenance).Encode, record.DecodeProvenance),
	newCodec("export provenance", exports, (*record.Export).Encode, record.DecodeExport),
	newCodec("rejection", rejections, (*record.Rejection).Encode, record.DecodeRejection),
	newCodec("signature", signatures, (*record.Signature).Encode, record.DecodeSignature),
	newCodec("tombstones", tombstoneLists, record.Tombstones.Encode, record.DecodeTombstones),
	newCodec("pin", pins, (*record.Pin).Encode, record.DecodePin),
	newCodec("cancellation", cancellations, (*record.Cancellation).Encode, record.DecodeCancellation),
}

func TestRecordsRoundTrip(t *testing.T) {
	for _, c := range codecs {
		t.Run(c.name, c.check)
	}
}

func checkRoundTrip[T any](t *rapid.T, want T, encode func(T) []byte, decode func([]byte) (T, error)) {
	data := encode(want)
	got, err := decode(data)
	if err != nil {
		t.Fatalf("decode what was encoded: %v", err)
	}
	if diff := cmp.Diff(want, got, sameRecord...); diff != "" {
		t.Fatalf("decoded record differs (-want +got):\n%s", diff)
	}
	if again := encode(got); !bytes.Equal(again, data) {
		t.Fatalf("encoded again:\ngot  %x\nwant %x", again, data)
	}
	if len(data) == 0 { // a workspace without a package
		return
	}
	cut := rapid.IntRange(1, len(data)-1).Draw(t, "cut")
	_, err = decode(data[:cut])
	wantFault(t, err, cut)
	_, err = decode(append(slices.Clone(data), 0))
	wantFault(t, err, len(data))
}

// wantFault checks for an error that names an offset within the input.
func wantFault(t *rapid.T, err error, size int) {
	t.Helper()
	var syntax *beast2.SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatalf("error is %v, want a *beast2.SyntaxError", err)
	}
	if syntax.Offset < 0 || syntax.Offset > size {
		t.Fatalf("offset %d of the error lies outside the %d bytes: %v", syntax.Offset, size, err)
	}
}

// Each type of record is distinguished from all others by its header.
func TestDecodeOtherType(t *testing.T) {
	samples := map[string][]byte{
		"status":          (&record.Status{State: record.Failed}).Encode(),
		"metadata":        (&record.Metadata{}).Encode(),
		"detail":          (&record.Detail{}).Encode(),
		"run":             (&record.Run{}).Encode(),
		"workspace state": (&record.WorkspaceState{}).Encode(),
		"lock state":      (&record.LockState{}).Encode(),

		"workspace deployment": (&record.WorkspaceDeployment{}).Encode(),

		"task":      (&record.Task{Shell: "true", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "x"}}}}).Encode(),
		"node":      record.Node{}.Encode(),
		"package":   (&record.Package{}).Encode(),
		"link":      (&record.Link{}).Encode(),
		"proof":     (&record.Proof{}).Encode(),
		"durations": record.Durations{}.Encode(nil),

		"results plan": (&record.ResultsPlan{}).Encode(),
		"results":      (&record.Results{}).Encode(),

		"provenance":        (&record.Provenance{}).Encode(),
		"export provenance": (&record.Export{}).Encode(),
		"rejection":         (&record.Rejection{}).Encode(),
		"signature":         (&record.Signature{}).Encode(),
		"tombstones":        record.Tombstones{}.Encode(),
		"pin":               (&record.Pin{}).Encode(),
		"cancellation":      (&record.Cancellation{}).Encode(),

		"not beast2": []byte("#!/bin/sh\n"),
	}
	for _, c := range codecs {
		for name, data := range samples {
			_, err := c.decode(data)
			switch {
			case name == c.name && err != nil:
				t.Errorf("%s as %s: %v", name, c.name, err)
			case name != c.name && !errors.Is(err, record.ErrType):
				t.Errorf("%s as %s: error is %v, want ErrType", name, c.name, err)
			}
		}
	}
}

func TestNotDeployedIsEmpty(t *testing.T) {
	var state *record.WorkspaceState
	if data := state.Encode(); len(data) != 0 {
		t.Errorf("a workspace without a package has %d bytes, want none", len(data))
	}
	if got, err := record.DecodeWorkspaceState(nil); got != nil || err != nil {
		t.Errorf("empty state: got %v, %v, want nil", got, err)
	}
}

// Bytes that would encode differently, or hold forbidden values, are refused.
func TestDecodeRefuses(t *testing.T) {
	replace := func(data []byte, old, new string) []byte {
		if bytes.Count(data, []byte(old)) != 1 {
			t.Fatalf("%q is not there exactly once in %x", old, data)
		}
		return bytes.Replace(data, []byte(old), []byte(new), 1)
	}
	at := time.UnixMilli(1).UTC()
	task := func() *record.Task {
		return &record.Task{Shell: "true", Version: "v7", Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o"}}}}
	}
	withPolicy := func(p record.Policy) []byte {
		return (&record.Package{Tasks: []record.PackageTask{{Name: "t", Policy: p}}}).Encode()
	}
	most, nine := "\x01"+strings.Repeat("\x00", 8), string(beast2.AppendInteger(nil, 9)) // growth without a factor
	zeroTime := string(beast2.AppendInteger([]byte{1}, time.Time{}.UnixMilli()))
	oneMilli := string(beast2.AppendInteger([]byte{1}, 1))
	lock := (&record.LockState{AcquiredAt: time.UnixMilli(5), ExpiresAt: at}).Encode()
	two := func(a, b string) []byte {
		return record.Node{{Name: a, Leaf: record.Leaf{Kind: record.LeafUnassigned}}, {Name: b, Leaf: record.Leaf{Kind: record.LeafUnassigned}}}.Encode()
	}
	for _, test := range []struct {
		name   string
		decode func([]byte) error
		data   []byte
	}{
		{"empty optional string", decodeTask, replace(task().Encode(), "\x01\x02v7", "\x01\x00")},
		{"optional time that reads as none", decodeLock, append(lock[:len(lock)-len(oneMilli)], zeroTime...)},
		{"empty argv", decodeTask, replace(task().Encode(), "\x01\x04true", "\x00\x00\x00")},
		{"no output", decodeTask, (&record.Task{Shell: "true"}).Encode()},
		{"two outputs that are one", decodeTask, (&record.Task{Shell: "true", Output: record.Output{Entries: make([]record.OutputEntry, 2)}}).Encode()},
		{"image of the open room", decodeTask, (&record.Task{Shell: "true", Output: task().Output, Image: strings.Repeat("a", 64)}).Encode()},
		{"name twice in a node", decodeNode, two("a", "a")},
		{"node out of order", decodeNode, two("b", "a")},
		{"node in order of bytes instead of UTF-16", decodeNode, two("\uff5e", "\U0001f600")},
		{"leaf without a hash", decodeNode, record.Node{{Name: "a", Leaf: record.Leaf{Kind: record.LeafDir, Hash: "abc"}}}.Encode()},
		{"upper-case hash", decodeNode, record.Node{{Name: "a", Leaf: record.Leaf{Kind: record.LeafDir, Hash: string(bytes.Repeat([]byte("A"), 64))}}}.Encode()},
		{"policy that says nothing", decodePackage, replace(withPolicy(record.Policy{Description: "x9"}), "\x01\x02x9", "\x01\x00")},
		{"growth that says nothing", decodePackage, replace(withPolicy(record.Policy{OOM: record.Escalation{Max: 9}}), most+nine, most+"\x00")},
		{"negative timeout", decodePackage, withPolicy(record.Policy{Timeout: -time.Second})},
		{"import without a source", decodeMetadata, replace((&record.Metadata{Origin: record.Origin{SourceRepo: "src", ImportedAt: at}}).Encode(), "\x01\x03src", "\x01\x00")},
		{"signer without a key", errOnly(record.DecodeProvenance), replace(
			(&record.Provenance{Steps: []record.Step{{Signer: record.Signer{Key: "k7"}}}}).Encode(), "\x01\x02k7", "\x01\x00")},
		{"tombstone with an empty output", errOnly(record.DecodeTombstones), replace(
			record.Tombstones{{OutputHash: "o5"}}.Encode(), "\x01\x02o5", "\x01\x00")},
		{"more steps than there is room for", errOnly(record.DecodeProvenance), append(
			bytes.TrimSuffix((&record.Provenance{}).Encode(), []byte{0}), 0xff, 0xff, 0xff, 0xff, 0x0f)},
		{"deployment with inputs out of order", errOnly(record.DecodeWorkspaceDeployment), (&record.WorkspaceDeployment{Set: []string{"b", "a"}}).Encode()},
		{"deployment with an input twice", errOnly(record.DecodeWorkspaceDeployment), (&record.WorkspaceDeployment{Set: []string{"a", "a"}}).Encode()},
		{"deployment from a file without a name", errOnly(record.DecodeWorkspaceDeployment), replace(
			(&record.WorkspaceDeployment{File: "f5"}).Encode(), "\x01\x02f5", "\x01\x00")},
		{"negative CPU time", decodeDetail, (&record.Detail{UserCPU: -time.Second}).Encode()},
		{"begun under no id", decodeDetail, (&record.Detail{Begun: "x"}).Encode()},
		{"batch of no id", decodeDetail, (&record.Detail{Batch: record.Batched{ID: "x", Items: 2}}).Encode()},
		{"batch without items", decodeDetail, (&record.Detail{Batch: record.Batched{ID: strings.Repeat("0", 8) + "-0000-0000-0000-" + strings.Repeat("0", 12)}}).Encode()},
		{"log of a negative size", decodeDetail, (&record.Detail{Logs: record.Logs{Known: true, Stdout: record.LogSum{Size: -1}}}).Encode()},
	} {
		t.Run(test.name, func(t *testing.T) {
			var syntax *beast2.SyntaxError
			if err := test.decode(test.data); !errors.As(err, &syntax) {
				t.Errorf("got %v, want a *beast2.SyntaxError", err)
			}
		})
	}
}

func errOnly[T any](decode func([]byte) (T, error)) func([]byte) error {
	return func(data []byte) error {
		_, err := decode(data)
		return err
	}
}

var (
	decodeTask     = errOnly(record.DecodeTask)
	decodeLock     = errOnly(record.DecodeLockState)
	decodeNode     = errOnly(record.DecodeNode)
	decodePackage  = errOnly(record.DecodePackage)
	decodeMetadata = errOnly(record.DecodeMetadata)
	decodeDetail   = errOnly(record.DecodeDetail)
)

// An invalid amount would spoil every sum that it enters.
func TestDecodeRefusesAmounts(t *testing.T) {
	nan := func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("\xcd\xcc\xcc\xcc\xcc\xcc\xf4\x3f"), []byte("\x00\x00\x00\x00\x00\x00\xf8\xff"))
	}
	with := func(cpu, gpu float64) []byte {
		return (&record.Package{Tasks: []record.PackageTask{{Name: "t", Policy: record.Policy{
			CPU: cpu, Resources: []record.Amount{{Name: "gpu", Value: gpu}}}}}}).Encode()
	}
	inf := math.Inf(1)
	for name, data := range map[string][]byte{
		"negative cpu": with(-1, 1), "infinite cpu": with(inf, 1), "negative resource": with(1, -1), "infinite resource": with(1, inf),
		"negative NaN cpu": nan(with(1.3, 1)), "NaN resource": nan(with(1, 1.3)),
	} {
		if err := decodePackage(data); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := decodePackage(with(1.3, 1.3)); err != nil {
		t.Errorf("a fraction is refused: %v", err)
	}
}
