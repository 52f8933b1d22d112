package beast2_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"e3/internal/format/beast2"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestCompare(t *testing.T) {
	pair := beast2.Struct(beast2.F("a", beast2.Integer), beast2.F("b", beast2.String))
	choice := beast2.Variant(beast2.F("a", beast2.Integer), beast2.F("b", beast2.Null))
	list := func(items ...beast2.Value) *beast2.List { return &beast2.List{Items: items} }
	tests := map[string]struct {
		typ    beast2.Type
		sorted []beast2.Value
	}{
		"Boolean": {beast2.Boolean, []beast2.Value{false, true}},
		"Integer": {beast2.Integer, []beast2.Value{int64(math.MinInt64), int64(-1), int64(0), int64(9), int64(10)}},
		"Float":   {beast2.Float, []beast2.Value{math.Inf(-1), -1.5, math.Copysign(0, -1), 0.0, 1.0, math.Inf(1), math.NaN()}},
		"String":  {beast2.String, []beast2.Value{"", "10", "9", "B", "a", "aa", "é", "😀", "😁", "\xED\xB0\x80", "\ue000", "～"}},
		"Blob":    {beast2.Blob, []beast2.Value{[]byte{}, []byte{1}, []byte{1, 0}, []byte{2}, []byte{255}}},
		"Struct": {pair, []beast2.Value{
			beast2.Record{int64(1), "a"}, beast2.Record{int64(1), "z"}, beast2.Record{int64(2), ""},
		}},
		"Variant": {choice, []beast2.Value{beast2.Case{Tag: 0, Value: int64(-1)}, beast2.Case{Tag: 0, Value: int64(2)}, beast2.Case{Tag: 1}}},
		"Array": {beast2.Array(beast2.Integer), []beast2.Value{
			list(), list(int64(1)), list(int64(1), int64(0)), list(int64(2)),
		}},
		"Dict": {beast2.Dict(beast2.Integer, beast2.Boolean), []beast2.Value{
			&beast2.Map{}, &beast2.Map{Entries: []beast2.Entry{{Key: int64(1), Value: false}}},
			&beast2.Map{Entries: []beast2.Entry{{Key: int64(1), Value: true}}},
		}},
		"Ref": {beast2.Ref(beast2.Integer), []beast2.Value{&beast2.Cell{Value: int64(1)}, &beast2.Cell{Value: int64(2)}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for i, a := range test.sorted {
				for j, b := range test.sorted {
					if got, want := sign(beast2.Compare(test.typ, a, b)), sign(i-j); got != want {
						t.Errorf("%#v to %#v: got %d, want %d", a, b, got, want)
					}
				}
			}
			items := slices.Clone(test.sorted)
			slices.Reverse(items)
			set := list(items...)
			beast2.SortKeys(beast2.Set(test.typ), set)
			if _, err := beast2.Encode(beast2.Set(test.typ), set); err != nil {
				t.Error(err)
			}
			for i := range set.Items {
				if beast2.Compare(test.typ, set.Items[i], test.sorted[i]) != 0 {
					t.Errorf("SortKeys: element %d is %v, want %v", i, set.Items[i], test.sorted[i])
				}
			}
		})
	}
}

func sign(n int) int { return min(1, max(-1, n)) }

func TestSortKeysOfDict(t *testing.T) {
	m := &beast2.Map{Entries: []beast2.Entry{{Key: "～", Value: nil}, {Key: "😀", Value: nil}, {Key: "a", Value: nil}}}
	beast2.SortKeys(beast2.Dict(beast2.String, beast2.Null), m)
	want := []beast2.Entry{{Key: "a"}, {Key: "😀"}, {Key: "～"}}
	if diff := cmp.Diff(want, m.Entries); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompareStringsIsUTF16(t *testing.T) {
	chars := rapid.SampledFrom([]rune{'a', 'b', 'é', '日', 0xD7FF, 0xE000, 0xFFFF, 0x10000, '😀', '😁', 0x10FFFF})
	text := rapid.StringOfN(chars, 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		want := slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := sign(beast2.CompareStrings(a, b)); got != want {
			t.Fatalf("%q to %q: got %d, want %d", a, b, got, want)
		}
	})
}

func TestEncodeErrors(t *testing.T) {
	selfRef := &beast2.Cell{}
	selfRef.Value = selfRef
	shared := &beast2.List{}
	loop := &beast2.List{}
	loop.Items = []beast2.Value{loop}
	tests := map[string]struct {
		typ   beast2.Type
		value beast2.Value
		want  string
	}{
		"open type":       {beast2.Recursive(1), nil, "not complete"},
		"never":           {beast2.Never, nil, "no value of type Never"},
		"int":             {beast2.Integer, 1, "$: want Integer, got int"},
		"nil list":        {beast2.Array(beast2.Null), (*beast2.List)(nil), "want Array"},
		"nil":             {beast2.Boolean, nil, "want Boolean, got <nil>"},
		"map as list":     {beast2.Set(beast2.Null), &beast2.Map{}, "want Set, got *beast2.Map"},
		"string":          {beast2.String, "a\xff", "not UTF-8 at its byte 1"},
		"short struct":    {beast2.Struct(beast2.F("a", beast2.Null)), beast2.Record{}, "want 1 fields, got 0"},
		"tag":             {beast2.Option(beast2.Null), beast2.Case{Tag: 2}, "variant tag 2 is not in 0 to 1"},
		"path":            {beast2.Array(beast2.Option(beast2.Ref(beast2.Null))), &beast2.List{Items: []beast2.Value{beast2.Case{Tag: 1, Value: &beast2.Cell{Value: 1}}}}, "$[0].value.ref: want Null, got int"},
		"ref of itself":   {beast2.Ref(beast2.Recursive(1)), selfRef, "a Ref is its own content"},
		"duplicates":      {beast2.Set(beast2.Boolean), &beast2.List{Items: []beast2.Value{true, false, true}}, "keys 0 and 2 are the same"},
		"shared in a key": {beast2.Set(beast2.Array(beast2.Null)), &beast2.List{Items: []beast2.Value{shared, shared}}, "a key shares a container"},
		"two types": {
			beast2.Struct(beast2.F("a", beast2.Array(beast2.Null)), beast2.F("s", beast2.Array(beast2.Integer))),
			beast2.Record{shared, shared}, "a container of type Array<Null> is used as Array<Integer>",
		},
		"function": {beast2.Function(nil, beast2.Null), beast2.Case{Tag: 0}, "want the IR case Function"},
		"loop under another type": {
			beast2.Array(beast2.Array(beast2.Integer)), loop, "is used as Array<Integer>",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if b, err := beast2.Encode(test.typ, test.value); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %x, %v, want an error with %q", b, err, test.want)
			}
		})
	}
}

// Equal types at two places are one type; packages share paths and type values this way.
func TestAliasAcrossEqualTypes(t *testing.T) {
	path := func() beast2.Type { return beast2.Array(beast2.Variant(beast2.F("field", beast2.String))) }
	typ := beast2.Struct(beast2.F("inputs", beast2.Array(path())), beast2.F("output", path()))
	shared := &beast2.List{Items: []beast2.Value{beast2.Case{Tag: 0, Value: "x"}}}
	data, err := beast2.Encode(typ, beast2.Record{&beast2.List{Items: []beast2.Value{shared, shared}}, shared})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, data)
	v, err := beast2.DecodeAs(data, typ)
	if err != nil {
		t.Fatal(err)
	}
	r := v.(beast2.Record)
	if items := r[0].(*beast2.List).Items; items[0] != items[1] || items[0] != r[1] {
		t.Error("the shared list came back as several")
	}

	// A recursion with one level expanded is still the same type.
	once := beast2.Array(beast2.Recursive(1))
	typ = beast2.Struct(beast2.F("a", once), beast2.F("b", beast2.Array(once)))
	empty := &beast2.List{}
	if data, err = beast2.Encode(typ, beast2.Record{empty, empty}); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, data)
}
