package value_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/format/value"
)

func TestParseJSON(t *testing.T) {
	for _, test := range []struct {
		in   string
		want any
	}{
		{"null", nil},
		{" true\n", true},
		{"-0", int64(0)},
		{"9223372036854775807", int64(math.MaxInt64)},
		{"1.0", 1.0},
		{"1e3", 1000.0},
		{`"a\u00e9"`, "aé"},
		{"[]", []any{}},
		{`[1,[2.5,"x"],{}]`, []any{int64(1), []any{2.5, "x"}, manifest.Object{}}},
		{`{"b":1,"a":{"":null}}`, manifest.Object{{Name: "b", Value: int64(1)}, {Name: "a", Value: manifest.Object{{Name: "", Value: nil}}}}},
	} {
		got, err := value.ParseJSON([]byte(test.in))
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("ParseJSON(%s): %v (-want +got):\n%s", test.in, err, diff)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"nothing": "", "word": "nope", "two values": "1 2", "cut list": "[1", "cut object": `{"a":`, "stray bracket": "]",
		"large integer": "9223372036854775808", "large float": "1e999", "repeated name": `{"a":1,"a":2}`, "no UTF-8": "\"\xff\"",
		"deep": strings.Repeat("[", 100_000), "leading zero": "007", "comma": "[1,]",
	} {
		if v, err := value.ParseJSON([]byte(in)); err == nil {
			t.Errorf("%s: ParseJSON gives %v", name, v)
		}
	}
}

// Parsed values can be encoded, and have the same JSON afterwards.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{"null", `[1,2.5,"x",{"a":[]}]`, `{"b":1,"a":-0.0}`, "[[],[1],[\"\"]]", "1e400", `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := value.ParseJSON(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is not JSON", data)
		}
		encoded, err := value.Encode(v)
		if err != nil {
			return // East types have limits that JSON lacks
		}
		decoded, err := value.Decode(encoded)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		shown, err := decoded.JSON()
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if want := manifest.AppendJSON(nil, v); string(shown) != string(want) {
			t.Fatalf("%q is shown as %s, want %s", data, shown, want)
		}
	})
}
