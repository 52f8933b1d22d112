package value_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/value"
)

// file is the beast2 file of a value that no package file can express.
func file(t *testing.T, typ beast2.Type, v beast2.Value) []byte {
	t.Helper()
	data, err := beast2.Encode(typ, v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestForeignValues(t *testing.T) {
	ms := time.Date(2026, 11, 20, 12, 0, 0, 7_000_000, time.UTC).UnixMilli()
	option := beast2.Option(beast2.Integer)
	shape := beast2.Variant(beast2.F("circle", beast2.Float), beast2.F("point", beast2.Null))
	tree := beast2.Struct(beast2.F("name", beast2.String), beast2.F("kids", beast2.Array(beast2.Recursive(2))))
	chain := beast2.Variant(beast2.F("cons", beast2.Struct(beast2.F("head", beast2.Integer), beast2.F("tail", beast2.Recursive(2)))), beast2.F("nil", beast2.Null))
	leaf := func(name string) beast2.Record { return beast2.Record{name, &beast2.List{}} }
	for _, test := range []struct {
		name string
		typ  beast2.Type
		v    beast2.Value
		want string
	}{
		{"not a number", beast2.Float, math.NaN(), "null"},
		{"infinite", beast2.Array(beast2.Float), &beast2.List{Items: []beast2.Value{math.Inf(1), math.Inf(-1), 1.5}}, "[null,null,1.5]"},
		{"date", beast2.DateTime, ms, `"2026-11-20T12:00:00.007Z"`},
		{"date before 1970", beast2.DateTime, int64(-1), `"1969-12-31T23:59:59.999Z"`},
		{"blob", beast2.Blob, []byte{0, 255}, `"AP8="`},
		{"set", beast2.Set(beast2.Integer), &beast2.List{Items: []beast2.Value{int64(3), int64(1)}}, "[3,1]"},
		{"dict by text", beast2.Dict(beast2.String, beast2.Boolean), &beast2.Map{Entries: []beast2.Entry{{Key: "b", Value: true}, {Key: `"`, Value: false}}}, `{"b":true,"\"":false}`},
		{"dict by number", beast2.Dict(beast2.Integer, beast2.String), &beast2.Map{Entries: []beast2.Entry{{Key: int64(2), Value: "x"}, {Key: int64(1), Value: "y"}}}, `[[2,"x"],[1,"y"]]`},
		{"empty dict by number", beast2.Dict(beast2.Integer, beast2.String), &beast2.Map{}, `[]`},
		{"ref", beast2.Ref(beast2.Integer), &beast2.Cell{Value: int64(4)}, "4"},
		{"none", option, beast2.Case{Tag: 0}, "null"},
		{"some", option, beast2.Case{Tag: 1, Value: int64(5)}, "5"},
		{"case with a payload", shape, beast2.Case{Tag: 0, Value: 2.5}, `{"case":"circle","value":2.5}`},
		{"case without", shape, beast2.Case{Tag: 1}, `{"case":"point","value":null}`},
		{"case without a name", beast2.Variant(beast2.F("", beast2.Null)), beast2.Case{}, `{"case":"","value":null}`},
		{"tree", tree, beast2.Record{"root", &beast2.List{Items: []beast2.Value{leaf("a"), leaf("b")}}},
			`{"name":"root","kids":[{"name":"a","kids":[]},{"name":"b","kids":[]}]}`},
		{"list of its own", chain, beast2.Case{Tag: 0, Value: beast2.Record{int64(1), beast2.Case{Tag: 1}}},
			`{"case":"cons","value":{"head":1,"tail":{"case":"nil","value":null}}}`},
		{"empty struct", beast2.Struct(), beast2.Record{}, "{}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := show(t, file(t, test.typ, test.v)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestForeignScalars(t *testing.T) {
	for _, test := range []struct {
		name string
		typ  beast2.Type
		v    beast2.Value
		want string
		ok   bool
	}{
		{"date", beast2.DateTime, int64(0), "1970-01-01T00:00:00.000Z", true},
		{"not a number", beast2.Float, math.NaN(), "NaN", true},
		{"infinite", beast2.Float, math.Inf(-1), "-Inf", true},
		{"blob", beast2.Blob, []byte("x"), "", false},
		{"option", beast2.Option(beast2.String), beast2.Case{Tag: 1, Value: "x"}, "", false},
		{"ref", beast2.Ref(beast2.String), &beast2.Cell{Value: "x"}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := decode(t, file(t, test.typ, test.v)).Scalar(); got != test.want || ok != test.ok {
				t.Errorf("got %q, %v, want %q, %v", got, ok, test.want, test.ok)
			}
		})
	}
}

// A value that contains itself has no JSON.
func TestCyclicValue(t *testing.T) {
	typ := beast2.Array(beast2.Recursive(1))
	loop := &beast2.List{}
	loop.Items = []beast2.Value{loop}
	if _, err := decode(t, file(t, typ, loop)).JSON(); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("error is %v, want one that says why", err)
	}
}

// Deeply nested lists, deeper than any stack, without cycles.
func TestDeepValue(t *testing.T) {
	typ := beast2.Array(beast2.Recursive(1))
	v := &beast2.List{}
	for range 20_000 {
		v = &beast2.List{Items: []beast2.Value{v}}
	}
	if _, err := decode(t, file(t, typ, v)).JSON(); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("error is %v, want one that says why", err)
	}
}

// A small file may share its parts so often that its text would fill the memory.
func TestSharedValue(t *testing.T) {
	typ := beast2.Array(beast2.Recursive(1))
	v := &beast2.List{}
	for range 60 {
		v = &beast2.List{Items: []beast2.Value{v, v}}
	}
	data := file(t, typ, v)
	if len(data) > 1000 {
		t.Fatalf("the file has %d bytes", len(data))
	}
	if _, err := value.JSONWithin(decode(t, data), 1<<20); err == nil || !strings.Contains(err.Error(), "longer") {
		t.Errorf("2^60 lists: error is %v, want one that says why", err)
	}
}

func TestFunctionHasNoJSON(t *testing.T) {
	for _, typ := range []beast2.Type{beast2.Array(beast2.Function(nil, beast2.Integer)), beast2.Array(beast2.Never)} {
		if got := show(t, file(t, typ, &beast2.List{})); got != "[]" {
			t.Errorf("an empty list of %s is %s", typ, got)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	whole := file(t, beast2.Integer, int64(5))
	for name, data := range map[string][]byte{"nothing": nil, "text": []byte("12"), "cut short": whole[:len(whole)-1], "more": append(whole[:len(whole):len(whole)], 0)} {
		if _, err := value.Decode(data); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A decoded value has a valid JSON text, or gives an error.
func FuzzJSON(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := value.Decode(data)
		if err != nil {
			return
		}
		v.Scalar()
		if text, err := value.JSONWithin(v, 1<<20); err == nil && !json.Valid(text) {
			t.Errorf("not JSON: %s", text)
		}
	})
}
