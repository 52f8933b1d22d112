package refstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"e3/refstore"
)

func TestKeyValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		key  refstore.Key
		ok   bool
	}{
		{"kind only", refstore.Key{Partition: "TASKS", Sort: "a"}, true},
		{"segments", refstore.Key{Partition: "INDEX/a//b/", Sort: "a/b"}, true},
		{"any text", refstore.Key{Partition: "INDEX/\x00 é", Sort: "\n"}, true},
		{"longest", refstore.Key{Partition: "P/" + strings.Repeat("a", refstore.MaxPartition-2), Sort: strings.Repeat("a", refstore.MaxSort)}, true},
		{"nothing", refstore.Key{}, false},
		{"no sort key", refstore.Key{Partition: "TASKS"}, false},
		{"no kind", refstore.Key{Partition: "/a", Sort: "a"}, false},
		{"lower-case kind", refstore.Key{Partition: "tasks", Sort: "a"}, false},
		{"kind with a dot", refstore.Key{Partition: "..", Sort: "a"}, false},
		{"partition too long", refstore.Key{Partition: "P/" + strings.Repeat("a", refstore.MaxPartition-1), Sort: "a"}, false},
		{"sort key too long", refstore.Key{Partition: "P", Sort: strings.Repeat("a", refstore.MaxSort+1)}, false},
		{"sort key not UTF-8", refstore.Key{Partition: "P", Sort: "\xff"}, false},
		{"partition not UTF-8", refstore.Key{Partition: "P/\xff", Sort: "a"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.key.Validate(); (err == nil) != c.ok || err != nil && !errors.Is(err, refstore.ErrInvalid) {
				t.Errorf("got %v, want valid: %v", err, c.ok)
			}
		})
	}
}

func TestQuerySelect(t *testing.T) {
	for _, c := range []struct {
		name string
		q    refstore.Query
		want []string
	}{
		{"all", refstore.Query{}, []string{"a", "ab", "b", "é"}},
		{"descending", refstore.Query{Descending: true}, []string{"é", "b", "ab", "a"}},
		{"prefix", refstore.Query{Prefix: "a"}, []string{"a", "ab"}},
		{"after", refstore.Query{After: "ab"}, []string{"b", "é"}},
		{"after, descending", refstore.Query{After: "ab", Descending: true}, []string{"a"}},
		{"after what is not there", refstore.Query{After: "aa"}, []string{"ab", "b", "é"}},
		{"the limit is the caller's", refstore.Query{Limit: 1, Prefix: "a"}, []string{"a", "ab"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.q.Select([]string{"b", "é", "ab", "a"}); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func ExampleRecord_Field() {
	r := refstore.Record{Fields: []refstore.Field{{Name: "output", Value: []byte("hash")}}}
	output, ok := r.Field("output")
	fmt.Printf("%s %v\n", output, ok)
	// Output: hash true
}
