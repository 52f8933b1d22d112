package value_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/internal/format/manifest"
	"e3/internal/format/value"
)

// plain generates plain values that nest up to depth.
func plain(depth int) *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Just[any](nil),
		rapid.Bool().AsAny(),
		rapid.Int64().AsAny(),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).AsAny(),
		rapid.StringN(0, 8, -1).AsAny(),
	)
	if depth == 0 {
		return scalar
	}
	return rapid.OneOf(scalar, scalar, rapid.Custom(func(t *rapid.T) any {
		return rapid.SliceOfN(plain(depth-1), 0, 4).Draw(t, "list")
	}), rapid.Custom(func(t *rapid.T) any {
		o := manifest.Object{}
		for _, name := range rapid.SliceOfNDistinct(rapid.StringN(0, 4, -1), 0, 3, rapid.ID).Draw(t, "names") {
			o = append(o, manifest.Member{Name: name, Value: plain(depth-1).Draw(t, "member")})
		}
		return o
	}))
}

// The JSON of a plain value is the same as that of package manifest.
func TestPlainRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := plain(4).Draw(t, "value")
		got := show(t, encode(t, v))
		if want := string(manifest.AppendJSON(nil, v)); got != want {
			t.Fatalf("%#v is shown as %s, want %s", v, got, want)
		}
	})
}

func TestEncodeDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := plain(3).Draw(t, "value")
		if a, b := encode(t, v), encode(t, v); !slices.Equal(a, b) {
			t.Fatalf("%#v has two encodings:\n%x\n%x", v, a, b)
		}
	})
}

func TestScalar(t *testing.T) {
	for _, test := range []struct {
		name string
		v    any
		text string
	}{
		{"null", nil, "null"},
		{"true", true, "true"},
		{"false", false, "false"},
		{"integer", int64(-12), "-12"},
		{"least integer", int64(math.MinInt64), "-9223372036854775808"},
		{"whole float", 3.0, "3.0"},
		{"fraction", 0.1, "0.1"},
		{"string", "a b\n", "a b\n"},
		{"empty string", "", ""},
		{"string that looks like a number", "12", "12"},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, ok := decode(t, encode(t, test.v)).Scalar()
			if !ok || text != test.text {
				t.Errorf("got %q, %v, want %q", text, ok, test.text)
			}
		})
	}
	for name, v := range map[string]any{"list": []any{}, "mapping": manifest.Object{}} {
		if text, ok := decode(t, encode(t, v)).Scalar(); ok {
			t.Errorf("a %s is the scalar %q", name, text)
		}
	}
}

// A scalar's text must be the same as that of package manifest, because one is hashed and the other is staged.
func TestScalarAgreesWithManifest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := plain(0).Draw(t, "value")
		got, ok := decode(t, encode(t, v)).Scalar()
		want, _ := manifest.ScalarText(v)
		if !ok || got != want {
			t.Fatalf("got %q, %v, want %q", got, ok, want)
		}
	})
}

func TestTypes(t *testing.T) {
	for _, test := range []struct {
		name, json string
		v          any
		want       beast2.Type
	}{
		{"empty list", `[]`, []any{}, beast2.Array(beast2.Never)},
		{"equal types", `[1,2]`, []any{int64(1), int64(2)}, beast2.Array(beast2.Integer)},
		{"two types", `[1,"a",2]`, []any{int64(1), "a", int64(2)},
			beast2.Array(beast2.Variant(beast2.F(":Integer", beast2.Integer), beast2.F(":String", beast2.String)))},
		{"integer and float", `[1,1.0]`, []any{int64(1), 1.0},
			beast2.Array(beast2.Variant(beast2.F(":Integer", beast2.Integer), beast2.F(":Float", beast2.Float)))},
		{"with null", `[null,true]`, []any{nil, true},
			beast2.Array(beast2.Variant(beast2.F(":Null", beast2.Null), beast2.F(":Boolean", beast2.Boolean)))},
		{"mapping in its own order", `{"b":1,"a":"x"}`, manifest.Object{{Name: "b", Value: int64(1)}, {Name: "a", Value: "x"}},
			beast2.Struct(beast2.F("b", beast2.Integer), beast2.F("a", beast2.String))},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := decode(t, encode(t, test.v))
			if !v.Type().Equal(test.want) {
				t.Errorf("type is %s, want %s", v.Type(), test.want)
			}
			if got := show(t, encode(t, test.v)); got != test.json {
				t.Errorf("shown as %s, want %s", got, test.json)
			}
		})
	}
}

// Lists of several types within lists of several types: names and types must not grow with
// a power of the depth.
func TestNestedLists(t *testing.T) {
	for _, depth := range []int{1, 10, 60, 200} {
		var v any = []any{int64(1)}
		for range depth {
			v = []any{int64(1), v}
		}
		data := encode(t, v)
		if max := 4_000 + 400*depth*depth; len(data) > max {
			t.Errorf("%d lists in each other take %d bytes", depth, len(data))
		}
		want := strings.Repeat("[1,", depth) + "[1]" + strings.Repeat("]", depth)
		if got := show(t, data); got != want {
			t.Errorf("depth %d: shown as %.80s", depth, got)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	deep := any(int64(1))
	for range 5000 {
		deep = []any{deep}
	}
	for _, test := range []struct {
		name string
		v    any
		want string
	}{
		{"too deep", deep, "deep"},
		{"int", 1, "int"},
		{"Go map", map[string]any{}, "map"},
		{"inside a list", []any{int64(1), struct{}{}}, "struct"},
		{"inside a mapping", manifest.Object{{Name: "a", Value: uint8(1)}}, "uint8"},
		{"a name twice", manifest.Object{{Name: "a", Value: nil}, {Name: "a", Value: nil}}, `"a"`},
		{"a name that is not text", manifest.Object{{Name: "\xff", Value: nil}}, "UTF-8"},
		{"a string that is not text", "\xff", "UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := value.Encode(test.v)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one about %q", err, test.want)
			}
		})
	}
}

// The deepest plain value that can be encoded can also be shown, within a few milliseconds.
func TestDepth(t *testing.T) {
	for name, wrap := range map[string]func(any) any{
		"list":         func(v any) any { return []any{v} },
		"mixed list":   func(v any) any { return []any{nil, v} },
		"mapping":      func(v any) any { return manifest.Object{{Name: "a", Value: v}} },
		"mixed branch": func(v any) any { return []any{v, []any{v}} },
	} {
		t.Run(name, func(t *testing.T) {
			deepest := 0
			v := any(int64(1))
			for depth := 1; depth <= 1000; depth++ {
				if v = wrap(v); depth != 10 && depth != 1000 || name == "mixed branch" && depth > 10 {
					continue
				}
				show(t, encode(t, v))
				deepest = depth
			}
			if deepest < 10 {
				t.Error("nothing was tried")
			}
		})
	}
}

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func encode(t failer, v any) []byte {
	t.Helper()
	data, err := value.Encode(v)
	if err != nil {
		t.Fatalf("encode %#v: %v", v, err)
	}
	return data
}

func decode(t failer, data []byte) *value.Value {
	t.Helper()
	v, err := value.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// show returns a value as JSON after checking that it is.
func show(t failer, data []byte) string {
	t.Helper()
	text, err := decode(t, data).JSON()
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(text) {
		t.Fatalf("not JSON: %s", text)
	}
	return string(text)
}
