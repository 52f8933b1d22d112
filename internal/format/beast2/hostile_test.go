package beast2_test

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"e3/internal/format/beast2"
)

// file returns the magic followed by the parts.
func file(parts ...[]byte) []byte {
	return append([]byte(beast2.Magic), bytes.Join(parts, nil)...)
}

func varint(n uint64) []byte { return beast2.AppendVarint(nil, n) }

// doublingSchema is a schema of the given depth in which each field list refers to the previous one twice.
func doublingSchema(depth int) []byte {
	// Struct [a: Struct [a: ... , b: backreference], b: backreference]
	var open, shut []byte
	open = append(open, 0x0F)
	for range depth {
		open = append(open, 0, 2, 1, 'a', 0x0F)
	}
	open = append(open, 0, 1, 1, 'a', 0x0A)
	for i := range depth {
		shut = append(shut, 1, 'b', 0x0F)
		content := 5*(depth-i) + 2 // of the list of the a before
		shut = append(shut, varint(uint64(len(open)+len(shut)-content))...)
	}
	return append(open, shut...)
}

func TestHostile(t *testing.T) {
	const million = 1_000_000
	tests := map[string]struct {
		data []byte
		want string
	}{
		"schema of a million arrays": {file(bytes.Repeat([]byte{0}, million)), "nests deeper"},
		"value of a million arrays":  {file([]byte{0, 0x0B, 2}, bytes.Repeat([]byte{0, 1}, million)), "nests deeper"},
		"value of a million refs":    {file([]byte{0x0C, 0x0B, 2}, bytes.Repeat([]byte{0}, million)), "nests deeper"},
		"struct of itself":           {file([]byte{0x0F, 0, 1, 1, 'a', 0x0B, 2}), "nests deeper"},
		"struct of itself twice":     {file([]byte{0x0F, 0, 2, 1, 'a', 0x0B, 2, 1, 'b', 0x0B, 2}), "nests deeper"},
		"nulls":                      {file([]byte{0, 0x0A, 0}, varint(1<<50)), "count"},
		"empty structs":              {file([]byte{0, 0x0F, 0, 0, 0}, varint(1<<17)), "count"},
		"dict of nulls":              {file([]byte{5, 0x0A, 0x0A, 0}, varint(2)), "same"},
		"structs that double":        {file(doublingSchema(60)), "expands to more than"},
		"arrays of nulls":            {file([]byte{0, 0, 0x0A, 0, 2, 0}, varint(60000), []byte{0}, varint(60000)), "count"},
		"huge count":                 {file([]byte{0, 3, 0}, varint(1<<40)), "beyond the end"},
		"count above 2^53":           {file([]byte{0, 0x0A, 0}, varint(1<<60)), "out of range"},
		"schema within itself":       {file([]byte{0x0F, 0, 1, 1, 'a', 0x0F, 4}), "contains itself"},
		"inputs as fields":           {file([]byte{0x0F, 0, 2, 1, 'a', 7, 0, 0, 0x0A, 1, 'b', 0x0F, 5}), "backreference to input list"},
		"schema backreference astray": {
			file([]byte{0x0F, 9}), "hits no container",
		},
		"set key recursion":  {file([]byte{0x0D, 0x0B, 2}), "recursion through a set key"},
		"shared open fields": {file([]byte{0x0F, 0, 2, 1, 'a', 0, 0x0F, 0, 1, 1, 'r', 0x0B, 6, 1, 'b', 0x0F, 8}), "points outside"},
		"shared key":         {file([]byte{0x0D, 0, 8, 0, 2, 0, 0, 1}), "inside a key"},
		"negative recursion": {file([]byte{0, 0x0B, 1}), "recursion number -1"},
		"text":               {[]byte("hello"), "not beast2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := beast2.Decode(test.data)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Decode: %v, want an error with %q", err, test.want)
			}
			wantSyntaxError(t, test.data, err)
		})
	}
}

// A schema with shared lists keeps them if their expansion stays small.
func TestSchemaAliases(t *testing.T) {
	for name, data := range map[string][]byte{
		"doubling a little":  file(doublingSchema(6)),
		"struct and variant": file([]byte{0x0F, 0, 2, 1, 'a', 0x0F, 0, 1, 1, 'x', 3, 1, 'b', 0x10, 7}, []byte{1, 0, 0}),
		"inputs":             file([]byte{0, 0x0F, 0, 2, 1, 'a', 7, 0, 1, 3, 8, 1, 'b', 1, 6, 8}, []byte{0, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			roundTrip(t, data)
			if doc, err := beast2.ToJSON(data); err != nil || !bytes.Contains(doc, []byte(`{"$use":"t0"}`)) {
				t.Errorf("ToJSON: %v, want a $use of t0 in %s", err, doc)
			}
		})
	}
}

// Whatever a small file claims, its decoding takes little memory.
func TestMemoryIsBounded(t *testing.T) {
	wide := []byte{0x0F, 0}
	wide = append(wide, varint(5001)...)
	wide = append(wide, 1, 'n', 0x10, 0, 2, 1, '0', 0x0A, 1, '1', 0x0B, 4) // Variant{0: Null, 1: Recursive 2}
	for i := range 5000 {
		wide = append(wide, 2, byte('a'+i%26), byte(0x20+i/26%95))
		if i >= 26*95 {
			wide[len(wide)-3] = 3
			wide = append(wide, byte('a'+i/(26*95)))
		}
		wide = append(wide, 3)
	}
	tests := map[string][]byte{
		"wide structs, first field nested": file(wide, bytes.Repeat([]byte{1}, 12000)),
		"nested promises":                  file([]byte{0, 0x0B, 2}, bytes.Repeat(append([]byte{0}, varint(5000)...), 10000)),
		"nulls":                            file([]byte{0, 0x0A, 0}, varint(65000)),
		"nested empty structs":             file([]byte{0, 0x0F, 0, 1, 1, 'a', 0x0F, 0, 0, 0}, varint(32000)),
		"empty arrays":                     file([]byte{0, 0, 3, 0}, varint(50000), bytes.Repeat([]byte{0, 0}, 50000)),
		"options":                          file([]byte{0, 0x10, 0, 2, 1, 'n', 0x0A, 1, 's', 0x0A, 0}, varint(50000), bytes.Repeat([]byte{0}, 50000)),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := beast2.Decode(data)
			runtime.ReadMemStats(&after)
			got := after.TotalAlloc - before.TotalAlloc
			if limit := uint64(8<<20 + 500*len(data)); got > limit {
				t.Errorf("%d bytes took %d, want at most %d (%v)", len(data), got, limit, err)
			}
			t.Logf("%d bytes took %d: %v", len(data), got, err)
		})
	}
}

// Encode and JSON also handle the deepest value that Decode accepts.
func TestDepthLimit(t *testing.T) {
	typ := beast2.Ref(beast2.Option(beast2.Recursive(2)))
	nest := func(levels int) beast2.Value {
		var v beast2.Value = &beast2.Cell{Value: beast2.Case{}}
		for range levels/2 - 1 {
			v = &beast2.Cell{Value: beast2.Case{Tag: 1, Value: v}}
		}
		return v
	}
	data, err := beast2.Encode(typ, nest(beast2.MaxDepth))
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, data)
	if _, err := beast2.Encode(typ, nest(beast2.MaxDepth+2)); err == nil || !strings.Contains(err.Error(), "nests deeper") {
		t.Errorf("Encode: %v, want an error about depth", err)
	}
	if _, err := beast2.FromJSON(bytes.Repeat([]byte(`[`), 1_000_000)); err == nil || !strings.Contains(err.Error(), "nests deeper") {
		t.Errorf("FromJSON: %v, want an error about depth", err)
	}
	schema := file(bytes.Repeat([]byte{0}, beast2.MaxDepth), []byte{3, 0, 0})
	roundTrip(t, schema)
}

func TestFunctionValue(t *testing.T) {
	var body []byte
	for name, data := range goldenObjects(t) {
		typ, v, err := beast2.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if c, ok := v.(beast2.Case); ok && typ.Equal(beast2.IR()) && typ.Fields()[c.Tag].Name == "Function" {
			body = data[len(beast2.Header(typ)):]
		}
	}
	if body == nil {
		t.Fatal("golden.zip has no IR of a function")
	}
	function := beast2.Function([]beast2.Type{beast2.Array(beast2.String), beast2.String}, beast2.Array(beast2.String))
	roundTrip(t, append(beast2.Header(function), body...))
	pair := append(beast2.Header(beast2.Array(function)), 0, 2)
	roundTrip(t, append(append(pair, body...), body...))

	async := beast2.AsyncFunction([]beast2.Type{beast2.Array(beast2.String), beast2.String}, beast2.Array(beast2.String))
	data := append(beast2.Header(async), body...)
	_, _, err := beast2.Decode(data)
	if err == nil || !strings.Contains(err.Error(), "is of case Function, not AsyncFunction") {
		t.Errorf("Decode of a Function as AsyncFunction: %v", err)
	}
}

func TestNaN(t *testing.T) {
	negative := []byte{0, 0, 0, 0, 0, 0, 0xF8, 0xFF}
	roundTrip(t, file([]byte{6}, negative))
	got, err := beast2.Encode(beast2.Float, math.NaN())
	if want := file([]byte{6, 0, 0, 0, 0, 0, 0, 0xF8, 0x7F}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Encode(NaN) = %x, %v, want %x", got, err, want)
	}
}

func TestWTF8(t *testing.T) {
	tests := map[string]int{
		"": -1, "aé日😀": -1, "a\xED\xB0\x80b": -1, "a\xED\xBF\xBF": -1,
		"\xFF": 0, "a\xED\xA0\x80": 1, "é\xED\xB0": 2, "\xED\xB0\x80\xC0": 3, "\xF4\x90\x80\x80": 0,
	}
	for s, want := range tests {
		if got := beast2.CheckWTF8([]byte(s)); got != want {
			t.Errorf("%q: first bad byte %d, want %d", s, got, want)
		}
	}
}
