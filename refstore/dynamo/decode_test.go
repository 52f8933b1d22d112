package dynamo

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"e3/refstore"
)

var testTable = &table{o: Options{Table: "table", Repository: "repository"}}

// attribute makes an attribute of a JSON value, so that a fuzzer can reach all types: strings are S, numbers N, true and false BOOL,
// null NULL, objects M, and arrays of one string B.
func attribute(v any) types.AttributeValue {
	switch v := v.(type) {
	case string:
		return &types.AttributeValueMemberS{Value: v}
	case json.Number:
		return &types.AttributeValueMemberN{Value: v.String()}
	case bool:
		return &types.AttributeValueMemberBOOL{Value: v}
	case map[string]any:
		m := attributes{}
		for name, value := range v {
			m[name] = attribute(value)
		}
		return &types.AttributeValueMemberM{Value: m}
	case []any:
		var text string
		if len(v) > 0 {
			text, _ = v[0].(string)
		}
		return &types.AttributeValueMemberB{Value: []byte(text)}
	}
	return &types.AttributeValueMemberNULL{Value: true}
}

// FuzzItems decodes arbitrary items: the result is complete, or an error names the item.
func FuzzItems(f *testing.F) {
	part := strings.Repeat("i", 16) + strings.Repeat(`\u0000`, 7)
	for _, seed := range []string{
		`{}`, `null`, `{"v":"1","d":["x"]}`, `{"v":"1","d":null,"f:output":["hash"]}`,
		`{"v":"1","d":{"n":"v-0","s":5,"h":["0123456789abcdef0123456789abcdef"]}}`,
		`{"v":"1","d":{"n":"../x","s":-5,"h":["0123"]}}`,
		`{"v":"1","i":"1","n":3,"t":["abc"]}`, `{"v":"1","i":"1","n":4,"x":true,"g":1,"c":2,"o":"0","p":["` + part + `\u0004"]}`,
	} {
		f.Add([]byte(seed))
	}
	k := itemKey{"KIND/repository/a", "b"}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		var fields map[string]any
		if d.Decode(&fields) != nil {
			t.Skip("no JSON object")
		}
		item := attribute(fields).(*types.AttributeValueMemberM).Value
		names := func(err error) {
			t.Helper()
			var bad *badItemError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), k.pk) || bad.what == "" {
				t.Errorf("got error %v, want one about the item", err)
			}
		}
		h := testTable.decodeHead(k, item)
		if sum := total(h.parts) + int64(len(h.tail)); sum != h.size {
			t.Errorf("a head of %d bytes has %d", h.size, sum)
		}
		if h.damage != nil {
			names(h.damage)
		} else if again := testTable.decodeHead(k, h.item(k)); !reflect.DeepEqual(again, h) {
			t.Errorf("a head becomes %+v, want %+v", again, h)
		}
		blobs, err := testTable.blobsOf(k, item)
		if err != nil {
			names(err)
		}
		for _, name := range blobs {
			if rest, ok := strings.CutPrefix(name, blobFolder(recordBlobs, k)); !ok || strings.ContainsAny(rest, "./\\") || rest == "" {
				t.Errorf("an item names the blob %q, outside its folder", name)
			}
		}
		if _, err := (&Store{table: testTable}).load(t.Context(), refstore.Key{Partition: "KIND/a", Sort: "b"}, k, []string{"output"}, withoutBlobs(item)); err != nil {
			names(err)
		}
	})
}

// withoutBlobs leaves out the parts that load would read from blobs.
func withoutBlobs(item attributes) attributes {
	out := attributes{}
	for name, a := range item {
		if _, ok := a.(*types.AttributeValueMemberM); !ok {
			out[name] = a
		}
	}
	return out
}

func FuzzBlobHeader(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(blobHeader(itemKey{"KIND/repository", "a"}))
	f.Add([]byte(blobMagic + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if k, ok := parseBlobHeader(data); ok {
			if again, ok := parseBlobHeader(append(blobHeader(k), "data"...)); !ok || again != k {
				t.Errorf("the header of %+v is read as %+v, %v", k, again, ok)
			}
		}
	})
}

// TestBetween compares the condition of queries with the meaning of queries, on invented answers of a server.
func TestBetween(t *testing.T) {
	names := rapid.SampledFrom([]string{"", "a", "ab", "abc", "b", "é", "\xc3", "a\xff", "a\U0010ffff", "\x00", strings.Repeat("a", 1100)})
	rapid.Check(t, func(t *rapid.T) {
		q := refstore.Query{Prefix: names.Draw(t, "prefix"), After: names.Draw(t, "after"), Descending: rapid.Bool().Draw(t, "descending")}
		all := []string{"a", "aa", "ab", "abc", "abd", "a\U0010ffff", "a\U0010ffff0", "b", "ba", "é", "éa", "\x00", "\x00\x00"}
		want := q.Select(slices.Clone(all))
		condition, values, some := between(q.Prefix, q.After, q.Descending)
		bound := ""
		if x, ok := values[":x"].(*types.AttributeValueMemberS); ok {
			bound = x.Value
			if validPrefix(bound) != bound {
				t.Fatalf("the bound %q is no sort key", bound)
			}
		}
		for _, sk := range all {
			through := some
			switch {
			case strings.Contains(condition, ">"):
				through = through && sk > bound
			case strings.Contains(condition, "<"):
				through = through && sk < bound
			case strings.Contains(condition, "begins_with"):
				through = through && strings.HasPrefix(sk, bound)
			}
			if slices.Contains(want, sk) && !through {
				t.Fatalf("%+v: %q does not come through %q, %q", q, sk, condition, bound)
			}
			if slices.Contains(want, sk) && !strings.HasPrefix(sk, q.Prefix) && beyondPrefix(sk, q) {
				t.Fatalf("%+v: %q ends the query", q, sk)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	for partition, want := range map[string]string{
		"WORKSPACE": "WORKSPACE/repository", "EXECUTION/a/b": "EXECUTION/repository/a/b", "INDEX//": "INDEX/repository//", "INDEX/": "INDEX/repository/",
	} {
		for _, prefix := range []string{"", streamPrefix, partitionPrefix} {
			pk := testTable.pk(prefix, partition)
			if pk != prefix+want {
				t.Errorf("%q: got %q, want %q", partition, pk, prefix+want)
			}
			if p, back, ok := testTable.parsePK(pk); !ok || p != prefix || back != partition {
				t.Errorf("%q is read as %q, %q, %v", pk, p, back, ok)
			}
		}
	}
	if _, _, ok := testTable.parsePK("WORKSPACE/other"); ok {
		t.Error("the key of another repository is taken for ours")
	}
	longest := refstore.Key{Partition: "P/" + strings.Repeat("a", refstore.MaxPartition-2), Sort: strings.Repeat("a", refstore.MaxSort)}
	s := table{o: Options{Repository: strings.Repeat("r", 64)}}
	if k := s.streamKey(longest); len(k.pk) > 2048 || len(k.sk) > maxSortKey || len(blobHeader(k)) > maxBlobHeader {
		t.Errorf("the longest key has %d and %d bytes, more than the server takes", len(k.pk), len(k.sk))
	}
	if k := s.partitionItem(longest.Partition); len(k.sk) > maxSortKey {
		t.Errorf("the longest partition's item has a sort key of %d bytes", len(k.sk))
	}
}
