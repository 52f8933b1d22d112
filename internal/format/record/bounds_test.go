package record_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
)

// grown repeats a piece of an encoded list of one element.
func grown(t *testing.T, whole []byte, element string, n int) []byte {
	t.Helper()
	i := bytes.Index(whole, []byte(element))
	if i < 0 || whole[i-1] != 1 {
		t.Fatalf("no list of one %q in %q", element, whole)
	}
	b := binary.AppendUvarint(bytes.Clone(whole[:i-1]), uint64(n))
	return append(append(b, strings.Repeat(element, n)...), whole[i+len(element):]...)
}

// Lists of a package count against the memory that it may take.
func TestDecodePackageWithin(t *testing.T) {
	pkg := &record.Package{Name: "p", Version: "1", Inputs: []record.PackageInput{{Name: "in", Default: record.Leaf{Kind: record.LeafUnassigned}}},
		Tasks: []record.PackageTask{{Name: "t", Task: strings.Repeat("0", 64), Wiring: []record.Wire{{Kind: record.WireInput, Name: "in"}, {Items: []record.FanItem{{Label: "l", Task: "t"}}}},
			Policy: record.Policy{Labels: []string{"wxyz"}}}}}
	data := pkg.Encode()
	got, err := record.DecodePackageWithin(data, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pkg, got); diff != "" {
		t.Error(diff)
	}
	const refused = "bytes of memory"
	if _, err := record.DecodePackageWithin(data, 100); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("within 100 bytes: %v", err)
	}
	for name, data := range map[string][]byte{
		"labels": grown(t, data, "\x04wxyz", 10_000),
		"fan-in": grown(t, data, "\x01l\x01t\x00\x00", 10_000),
	} {
		if _, err := record.DecodePackage(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := record.DecodePackageWithin(data, 10_000); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("%s within 10,000 bytes: %v", name, err)
		}
	}
}

// A task has no more parts than a command line can hold.
func TestTaskParts(t *testing.T) {
	task := &record.Task{Argv: []string{"abcd"}, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}}}
	const most = 1 << 17
	got, err := record.DecodeTask(grown(t, task.Encode(), "\x04abcd", most))
	if err != nil || len(got.Argv) != most {
		t.Errorf("%d arguments: %v", most, err)
	}
	if _, err := record.DecodeTask(grown(t, task.Encode(), "\x04abcd", most+1)); err == nil || !strings.Contains(err.Error(), "argv: 131073 are more than 131072") {
		t.Errorf("one more: %v", err)
	}
}

// EachEntry sees what DecodeNode returns, up to a fault.
func TestEachEntry(t *testing.T) {
	node := record.Node{{Name: "a", Leaf: record.Leaf{Kind: record.LeafUnassigned}}, {Name: "b", Leaf: record.Leaf{Kind: record.LeafFile, Hash: strings.Repeat("1", 64), Size: 3}}}
	var got record.Node
	visit := func(e *record.NodeEntry) { got = append(got, *e) }
	if err := record.EachEntry(node.Encode(), visit); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(node, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	data := node.Encode()
	if err := record.EachEntry(data[:len(data)-1], visit); err == nil || len(got) != 1 {
		t.Errorf("cut off: %d entries, %v", len(got), err)
	}
	if _, err := record.DecodeNode(data[:len(data)-1]); err == nil {
		t.Error("DecodeNode takes what is cut off")
	}
}
