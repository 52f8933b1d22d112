package record_test

import (
	"slices"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"e3/internal/format/record"
)

// Set and Get against a map; the order is that of UTF-16 code units.
func TestNodeModel(t *testing.T) {
	// Few names, among them some that UTF-8 and UTF-16 order differently.
	name := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "B", "a.b", "\uff5e", "\U0001f600", "\ue000", "é"}), texts)
	rapid.Check(t, func(t *rapid.T) {
		var node record.Node
		model := map[string]record.Leaf{}
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			n, leaf := name.Draw(t, "name"), leaves.Draw(t, "leaf")
			node = node.Set(n, leaf)
			model[n] = leaf
		}
		if len(node) != len(model) {
			t.Fatalf("the node has %d names, want %d", len(node), len(model))
		}
		for n, want := range model {
			if got, ok := node.Get(n); !ok || got != want {
				t.Fatalf("Get(%q) is %v, %v, want %v", n, got, ok, want)
			}
		}
		absent := name.Draw(t, "absent")
		if _, want := model[absent]; !want {
			if got, ok := node.Get(absent); ok {
				t.Fatalf("Get(%q) finds %v", absent, got)
			}
		}
		if !slices.IsSortedFunc(node, byUTF16) {
			t.Fatalf("not in order: %v", node)
		}
		shuffled := record.Node(rapid.Permutation(slices.Clone(node)).Draw(t, "shuffled"))
		shuffled.Sort()
		if !slices.Equal(shuffled, node) {
			t.Fatalf("Sort gives %v, want %v", shuffled, node)
		}
	})
}

func byUTF16(a, b record.NodeEntry) int {
	return slices.Compare(utf16.Encode([]rune(a.Name)), utf16.Encode([]rune(b.Name)))
}

func TestNodeOrder(t *testing.T) {
	var node record.Node
	// U+1F600 is D83D DE00 in UTF-16, below U+FF5E; in UTF-8 it is above.
	for _, name := range []string{"\uff5e", "b", "\U0001f600", "a", "B"} {
		node = node.Set(name, record.Leaf{Kind: record.LeafUnassigned})
	}
	var got []string
	for _, e := range node {
		got = append(got, e.Name)
	}
	if want := []string{"B", "a", "b", "\U0001f600", "\uff5e"}; !slices.Equal(got, want) {
		t.Errorf("order is %q, want %q", got, want)
	}
}

func TestNodeSetReplaces(t *testing.T) {
	one, two := record.Leaf{Kind: record.LeafUnassigned}, record.Leaf{Kind: record.LeafDir, Hash: "x"}
	node := record.Node(nil).Set("a", one).Set("b", one).Set("a", two)
	if len(node) != 2 || node[0].Leaf != two || node[1].Leaf != one {
		t.Errorf("got %v", node)
	}
}
