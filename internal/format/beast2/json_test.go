package beast2_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/beast2"
)

func TestFromJSONErrors(t *testing.T) {
	tests := map[string]struct{ doc, want string }{
		"empty":               {``, "JSON ends where a JSON value belongs at offset 0"},
		"trailing comma":      {`{"type":"Null","value":null,}`, "a name belongs at offset 28"},
		"two documents":       {`{"type":"Null","value":null} {}`, "JSON goes on after its value at offset 29"},
		"not UTF-8":           {"{\"\xff", "JSON is not UTF-8 at offset 2"},
		"control character":   {"\"a\nb\"", "control character 0x0a at offset 2"},
		"bad escape":          {`"\x"`, "no escape"},
		"half a \\u":          {`"\u12"`, "four hexadecimal digits"},
		"open string":         {`"abc`, "ends inside a string at offset 4"},
		"leading zero":        {`[01]`, "a comma or the end belongs at offset 2"},
		"no value":            {`{"type":"Null"}`, `$: "value" is missing`},
		"unknown name":        {`{"type":"Null","value":null,"x":1}`, `$: unknown name "x", want type and value`},
		"repeated name":       {`{"type":"Null","type":"Null","value":null}`, `$: name "type" is there twice`},
		"no such type":        {`{"type":"Int","value":null}`, `$.type: "Int" is not a primitive`},
		"type without arg":    {`{"type":"Array","value":[]}`, `$.type: "Array" is not a primitive`},
		"primitive with arg":  {`{"type":{"Null":1},"value":[]}`, `$.type: "Null" is not a type with parameters`},
		"dict of one":         {`{"type":{"Dict":["Null"]},"value":[]}`, `$.type.Dict: want [key type, value type], got an array of 1`},
		"field without type":  {`{"type":{"Struct":[["a"]]},"value":{}}`, `$.type.Struct[0]: want [name, type]`},
		"repeated field":      {`{"type":{"Struct":[["a","Null"],["a","Null"]]},"value":{}}`, `$.type.Struct: name "a" is there twice`},
		"unsorted cases":      {`{"type":{"Variant":[["b","Null"],["a","Null"]]},"value":{}}`, `$.type.Variant: variant case "a" must come before "b"`},
		"open recursion":      {`{"type":{"Array":{"Recursive":2}},"value":[]}`, `$.type.Array.Recursive: recursion number 2 is not in 1 to 1`},
		"recursion of float":  {`{"type":{"Array":{"Recursive":1.0}},"value":[]}`, `recursion number 1.0`},
		"set key recursion":   {`{"type":{"Set":{"Recursive":1}},"value":[]}`, `$.type.Set: recursion through a set key`},
		"list in itself":      {`{"type":{"Struct":{"$def":"t","v":[["a",{"Struct":{"$use":"t"}}]]}},"value":{}}`, `the list "t" contains itself`},
		"list without def":    {`{"type":{"Struct":{"$use":"t"}},"value":{}}`, `$use of "t", which no $def before it has`},
		"inputs as fields":    {`{"type":{"Struct":[["f",{"Function":{"inputs":{"$def":"t","v":[]},"output":"Null"}}],["s",{"Struct":{"$use":"t"}}]]},"value":{}}`, `"t" is of another kind: input list, used as field list`},
		"integer as number":   {`{"type":"Integer","value":1}`, `$.value: want a string, got a number`},
		"integer with sign":   {`{"type":"Integer","value":"+1"}`, `want a 64-bit integer in decimal, got "+1"`},
		"minus zero":          {`{"type":"Integer","value":"-0"}`, `want a 64-bit integer`},
		"integer too large":   {`{"type":"DateTime","value":"9223372036854775808"}`, `want a 64-bit integer`},
		"float in two ways":   {`{"type":"Float","value":{"f":"1","bits":"0000000000000000"}}`, `different numbers`},
		"float too large":     {`{"type":"Float","value":{"f":"1e999"}}`, `"f" of a Float cannot be "1e999"`},
		"float in hex":        {`{"type":"Float","value":{"f":"0x10"}}`, `"f" of a Float cannot be "0x10"`},
		"NaN payload":         {`{"type":"Float","value":{"bits":"7ff8000000000001"}}`, `"bits" of a Float cannot be`},
		"odd hex":             {`{"type":"Blob","value":{"hex":"0"}}`, `$.value: hex of a Blob`},
		"boolean as string":   {`{"type":"Boolean","value":"true"}`, `want a boolean, got a string`},
		"never":               {`{"type":"Never","value":null}`, `no value of type Never`},
		"missing field":       {`{"type":{"Struct":[["a","Null"]]},"value":{}}`, `$.value: field "a" is missing`},
		"unknown field":       {`{"type":{"Struct":[["a","Null"]]},"value":{"a":null,"b":null}}`, `$.value: unknown field "b"`},
		"field twice":         {`{"type":{"Struct":[["a","Null"],["b","Null"]]},"value":{"a":null,"a":null}}`, `$.value: field "a" is there twice`},
		"unknown case":        {`{"type":{"Option":"Null"},"value":{"case":"maybe","value":null}}`, `$.value: unknown case "maybe"`},
		"deep":                {`{"type":{"Array":{"Struct":[["a b",{"Dict":["String",{"Option":"Integer"}]}]]}},"value":[{"a b":[["k",{"case":"some","value":true}]]}]}`, `$.value[0]["a b"][0][1].value: want a string, got a boolean`},
		"duplicate key":       {`{"type":{"Dict":["String","Null"]},"value":[["b",null],["a",null],["b",null]]}`, `$.value: keys 0 and 2 are the same`},
		"same after dropping": {`{"type":{"Set":"String"},"value":["","\ud800"]}`, `$.value: keys 0 and 1 are the same`},
		"use before def":      {`{"type":{"Array":{"Array":"Null"}},"value":[{"$use":"a"},{"$def":"a","v":[]}]}`, `$.value[0]: $use of "a"`},
		"def twice":           {`{"type":{"Array":{"Array":"Null"}},"value":[{"$def":"a","v":[]},{"$def":"a","v":[]}]}`, `$.value[1]: $def of "a" is there twice`},
		"use as other type":   {`{"type":{"Struct":[["a",{"Array":"Null"}],["s",{"Set":"Null"}]]},"value":{"a":{"$def":"a","v":[]},"s":{"$use":"a"}}}`, `$.value.s: "a" is of type Array<Null>, used as Set<Null>`},
		"ref of itself":       {`{"type":{"Ref":{"Recursive":1}},"value":{"$def":"a","v":{"ref":{"$use":"a"}}}}`, `a Ref is its own content`},
		"function of data":    {`{"type":{"Function":{"inputs":[],"output":"Null"}},"value":{"case":"Nothing","value":null}}`, `unknown case "Nothing"`},
		"too many nulls": {
			`{"type":{"Array":"Null"},"value":[` + strings.Repeat("null,", 70000) + `null]}`, `70001 values without bytes`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := beast2.FromJSON([]byte(test.doc))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("FromJSON: %x, %v, want an error with %q", out, err, test.want)
			}
			var syntax *beast2.SyntaxError
			var value *beast2.ValueError
			if !errors.As(err, &syntax) && !errors.As(err, &value) {
				t.Errorf("error is a %T", err)
			}
		})
	}
}

// Forms that are allowed in input but not written by ToJSON.
func TestFromJSONLenient(t *testing.T) {
	tests := map[string]struct{ doc, like string }{
		"order and space": {
			" { \"value\" : { \"b\" : \"2\" , \"a\" : \"1\" } ,\n\t\"type\" : {\"Struct\":[[\"a\",\"Integer\"],[\"b\",\"Integer\"]]}\r\n}",
			`{"type":{"Struct":[["a","Integer"],["b","Integer"]]},"value":{"a":"1","b":"2"}}`,
		},
		"option": {
			`{"type":{"Option":"Null"},"value":{"value":null,"case":"none"}}`,
			`{"type":{"Variant":[["none","Null"],["some","Null"]]},"value":{"case":"none","value":null}}`,
		},
		"float text": {`{"type":"Float","value":{"f":"-0.0"}}`, `{"type":"Float","value":{"f":"-0","bits":"8000000000000000"}}`},
		"float bits": {`{"type":"Float","value":{"bits":"7FF0000000000000"}}`, `{"type":"Float","value":{"f":"Infinity","bits":"7ff0000000000000"}}`},
		"escapes":    {`{"type":"String","value":"\u0041\/\ud83d\ude00\b\f\u00e9"}`, `{"type":"String","value":"A/😀\u0008\u000cé"}`},
		"unused def": {`{"type":{"Array":"Null"},"value":{"v":[null],"$def":"x"}}`, `{"type":{"Array":"Null"},"value":[null]}`},
		"high surrogates": {
			`{"type":"String","value":"\ud800\ud83d\ude00\udbff"}`, `{"type":"String","value":"😀"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := beast2.FromJSON([]byte(test.doc))
			if err != nil {
				t.Fatal(err)
			}
			got, err := beast2.ToJSON(data)
			if err != nil {
				t.Fatal(err)
			}
			if want := test.like + "\n"; string(got) != want {
				t.Errorf("got  %swant %s", got, want)
			}
		})
	}
}

func TestFloatText(t *testing.T) {
	for _, want := range []string{"0", "-0", "1e-7", "0.000001", "1.5e-7", "123456789012345680000", "1e+21", "-1.7976931348623157e+308", "5e-324", "0.1"} {
		data, err := beast2.FromJSON(fmt.Appendf(nil, `{"type":"Float","value":{"f":%q}}`, want))
		if err != nil {
			t.Fatal(err)
		}
		got, err := beast2.ToJSON(data)
		if err != nil || !bytes.Contains(got, []byte(`"f":"`+want+`"`)) {
			t.Errorf("%s came back in %s", want, got)
		}
	}
}
