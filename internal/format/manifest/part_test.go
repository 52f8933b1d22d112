package manifest_test

import (
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// A part has the chosen values as they are written, without comments, anchors and merge keys.
func TestPartOf(t *testing.T) {
	for _, test := range []struct{ name, file, only, want string }{
		{"params.yaml", "a: 1 # x\nb: 2\n", "a", "a: 1\n"},
		{"params.yaml", "b: {d: 1, c: 2}\na: 3\n", "b.c,a", "b:\n  c: 2\na: 3\n"},
		{"params.yaml", "a: 2020-01-01\nb: '2020-01-01'\nc: yes\nd: 1e-3\ne: 0x1F\nf: 1:30\ng: .inf\nh: ~\ni: 1_000\n", "a,b,c,d,e,f,g,h,i",
			"a: 2020-01-01\nb: \"2020-01-01\"\nc: yes\nd: 1e-3\ne: 0x1F\nf: 1:30\ng: .inf\nh: null\ni: 1_000\n"},
		{"params.yaml", "a: |\n  two\n  lines\nb: 'x: y # z'\nc: [a, 'b, c', {d: 1}, [], [2]]\n", "a,b,c",
			"a: \"two\\nlines\\n\"\nb: \"x: y # z\"\nc:\n  - a\n  - \"b, c\"\n  -\n    d: 1\n  - []\n  -\n    - 2\n"},
		{"params.yaml", "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}\nz: {<<: [{a: 4, c: 5}, *x]}\n", "y,z",
			"y:\n  a: 1\n  b: 3\nz:\n  a: 4\n  c: 5\n  b: 2\n"},
		{"params.yaml", "a: {0: cat, 1: dog}\n'b c': 1\n\"d\": 2\n", "a,b c,d", "a:\n  0: cat\n  1: dog\n\"b c\": 1\n\"d\": 2\n"},
		{"params", "a: 99999999999999999999\nb: {}\n", "a,b", "a: 99999999999999999999\nb: {}\n"},
		{"p.json", `{"a": 1.50, "b": {"c": "é\u0041", "d": [NaN, true, null]}}`, "b.c,b.d,a", "{\"a\": 1.50, \"b\": {\"c\": \"éA\", \"d\": [NaN, true, null]}}\n"},
		{"p.toml", "a = 1\n[b]\nc = 07:32:00\nd = {\"e f\" = -inf}\n[[g]]\nh = 1979-05-27T07:32:00Z\n", "a,b,g",
			"a = 1\nb = {c = 07:32:00, d = {\"e f\" = -inf}}\ng = [{h = 1979-05-27T07:32:00Z}]\n"},
		{"p.yaml", "a: {b: 1}\n", "a.c", `error: p.yaml has no value "a.c" (did you mean "a.b"?)`},
		{"p.yaml", "a: 1\n", "a.b", `error: p.yaml has no value "a.b" (it has a)`},
		{"p.yaml", "a: {<<: 1}\n", "a", "error: p.yaml:1:9: a merge key (<<) takes mappings, and this is an integer (give it a mapping)"},
		{"p.yaml", "a: 1\na: 2\n", "a", `error: p.yaml:2:1: value: key "a" is here for the second time, first at line 1`},
		{"p.toml", "a = 1\nb\n", "a", "error: p.toml:2:2: TOML: "},
	} {
		text, err := manifest.PartOf(test.name, []byte(test.file), strings.Split(test.only, ","))
		got := string(text)
		if err != nil {
			got = "error: " + first(err)
		}
		if got != test.want && !(err != nil && strings.HasPrefix(got, test.want)) {
			t.Errorf("%s of %q:\n got %q\nwant %q", test.only, test.file, got, test.want)
		}
	}
}

// A part with other values keeps what is the same as it is written.
func TestRepart(t *testing.T) {
	for _, test := range []struct{ name, text, whole, want string }{
		{"p.yaml", "a: 1e-3\nb:\n  when: 2020-01-01\n  n: 007\n", "a: 0.001\nb: {n: 8, when: 2020-01-01}\nother: 1\n", "a: 1e-3\nb:\n  when: 2020-01-01\n  n: 8\n"},
		{"p.yaml", "a: x\nb: [1, 2.50]\n", "a: 'yes'\nb: [1, 2.5]\n", "a: \"yes\"\nb:\n  - 1\n  - 2.50\n"},
		{"p.yaml", "a: 1\nb:\n  c: 1\n  d: 2\n", "a: null\nb: {c: 1, e: {f: 1.0}}\n", "a: null\nb:\n  c: 1\n  \"e\":\n    \"f\": 1.0\n"},
		{"p.json", `{"a": 1, "b": 1.50}`, "a: 2\nb: 1.5\n", "{\"a\": 2, \"b\": 1.50}\n"},
		{"p.toml", "a = 1\nb = 07:32:00\n", "a: 2\nb: '07:32:00'\n", "a = 2\nb = 07:32:00\n"},
		{"p.toml", "a = 1\nb = 2\n", "a: null\nb: 2\n", "error: p.toml: a is null, which TOML cannot say"},
		{"p.yaml", "a: 1\nb: 2\n", "b: 2\n", `error: p.yaml has no value "a" (it has b)`},
	} {
		text, err := manifest.Repart(test.name, []byte(test.text), []string{"a", "b"}, value(t, test.whole))
		got := string(text)
		if err != nil {
			got = "error: " + first(err)
		}
		if got != test.want {
			t.Errorf("%q with %q:\n got %q\nwant %q", test.text, test.whole, got, test.want)
		}
	}
}

// The entries of a fan-in lie at the paths of their outputs, below a folder.
func TestFanInAtPaths(t *testing.T) {
	const text = `e3: 1
name: p
inputs: {params: {params: p.yaml}}
tasks:
  fit: {matrix: {k: [4, 8], j: [1]}, out: {a: "m/{k}/{j}.pkl", b: "n/{k}-{j}"}, run: 'true'}
  one: {out: o, run: 'true'}
  all: {in: {x: %s}, out: r, run: 'true'}
`
	for source, want := range map[string]string{
		`{from: "fit[*].a", at: m}`:               `m: 4/1.pkl 8/1.pkl`,
		`{from: params, only: [a], at: q/}`:       `error: e3.yaml:7:43: task all: at: q is a folder (name a file in it)`,
		`{from: "fit[*].b", at: m}`:               `error: e3.yaml:7:24: fit[*].b: fit[k=4,j=1] does not write in m (give at a folder that is around all of them, and the item to the path)`,
		`{from: "fit[*]", at: m}`:                 `error: e3.yaml:7:34: task all: at belongs to a fan-in of one output, or to a file of parameters (leave it out)`,
		`{from: one, at: m}`:                      `error: e3.yaml:7:29: task all: at belongs to a fan-in of one output, or to a file of parameters (leave it out)`,
		`{from: one, only: [a]}`:                  `error: e3.yaml:7:29: task all: only and at belong to a file of parameters, and one is none (declare {params: PATH} under inputs, and name it in from)`,
		`{from: params, at: q.yaml}`:              `error: e3.yaml:7:32: task all: at needs only (choose values by only, or declare {file: p.yaml} for the whole file)`,
		`{from: params, only: [a], at: q.json}`:   `error: e3.yaml:7:43: task all: q.json has another form than p.yaml (give it the ending of p.yaml)`,
		`{from: params.a, only: [a]}`:             `error: e3.yaml:7:34: task all: "params.a" is no file (write from: params)`,
		`{from: params, only: [a..b]}`:            `error: e3.yaml:7:39: task all: in: x: only: "a..b" is not the path of a value (write names joined by dots)`,
		`{from: params, only: [a.b, a]}`:          `p.yaml: params.{a}`,
		`{from: params, only: a.b, at: q/r.yaml}`: `q/r.yaml: params.{a.b}`,
	} {
		def, err := manifest.Parse("e3.yaml", []byte(strings.Replace(text, "%s", source, 1)))
		got := ""
		if err != nil {
			got = "error: " + first(err)
		} else {
			in := def.Tasks[len(def.Tasks)-1].Inputs[0]
			got = in.Path + ":"
			if in.Source.Kind == manifest.FromInput {
				got += " " + def.Inputs[in.Source.Index].Name
			} else {
				for _, it := range def.FanIns[in.Source.Index] {
					got += " " + it.Label
				}
			}
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", source, got, want)
		}
	}
}

// The assignments of a Python file are read without running it.
func TestPythonValues(t *testing.T) {
	for text, want := range map[string]string{
		"A = 1\nB: float = -2.5e-3\nC = 'x' \"y\"\nD = None\nE = True # c\n":                                                                           `{"A":1,"B":-0.0025,"C":"xy","D":null,"E":true}`,
		"L = [1, (2,), (3), {'a': 1, \"b\": [\n  2,\n]}, {1, 2}]\nT = 1, 2\n":                                                                          `{"L":[1,[2],3,{"a":1,"b":[2]},[1,2]],"T":[1,2]}`,
		"import os\nX = os.environ['A']\nY = 1_000 ; Z = 0x1F\nf(x=1)\nW == 2\n":                                                                       `{"Y":1000,"Z":31}`,
		"class T:\n    LR: float = 0.1\n    def __init__(self):\n        self.k = 5\n        self.f()\n    def g(self):\n        self.no = 1\nA = 2\n": `{"T":{"LR":0.1,"k":5},"A":2}`,
		"\"\"\"doc\nA = 1\n\"\"\"\nS = r'\\d' '\\n\\x41\\u00e9'\nB = b'x'\nF = f'{S}'\n":                                                               `{"S":"\\d\nAé"}`,
		"if True:\n    A = 1\nfor i in x:\n    B = 2\nC = 3\nC = 4\n":                                                                                  `{"C":4}`,
		"D: Dict[str, int] = {'a': 1}\nE = (1 +\n     2)\nG = \\\n  7\n":                                                                               `{"D":{"a":1},"G":7}`,
		"A = 'never ends\nB = 2\n": `{"B":2}`,
		"A = [1, 2\n":              `{}`,
	} {
		v, err := manifest.ParseValue("params.py", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := string(manifest.AppendJSON(nil, v)); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
}

// The values of a part are those of the file.
func FuzzPartOf(f *testing.F) {
	for _, text := range []string{
		"a: 1\nb: {c: [x, 2.5, null], d: 2020-01-01}\n", "x: &x {a: 1}\ny: {<<: *x, b: 'q'}\n", `{"a": [1, NaN], "b": {"c": "\u00e9"}}`,
		"a = 1\n[b]\nc = 07:32:00\n", "A = [1, 'x']\nclass B:\n  c = 2\n", "? a\n: - - b\n  - {}\n", "a: \"\\x7f \\u2028\"\n",
	} {
		for form := range byte(4) {
			f.Add(form, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, form byte, data []byte) {
		name := "p" + []string{".yaml", ".json", ".toml", ".py"}[form%4]
		v, err := manifest.ParseValue(name, data)
		if err != nil || form%4 == 3 {
			return
		}
		object, _ := v.(manifest.Object)
		var only []string
		for _, m := range object {
			if m.Name != "" && !strings.Contains(m.Name, ".") {
				only = append(only, m.Name)
			}
		}
		if only == nil {
			return
		}
		text, err := manifest.PartOf(name, data, only)
		if err != nil {
			t.Fatalf("part of %q: %v", data, err)
		}
		part, err := manifest.ParseValue(name, text)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		for _, p := range only {
			was, _ := manifest.ValueAt(v, p)
			is, _ := manifest.ValueAt(part, p)
			if a, b := manifest.AppendJSON(nil, was), manifest.AppendJSON(nil, is); string(a) != string(b) {
				t.Fatalf("%q became %q: %s is %s, want %s", data, text, p, b, a)
			}
		}
		again, err := manifest.Repart(name, text, only, v)
		if err != nil || string(again) != string(text) {
			t.Fatalf("%q became %q with its own values: %v", text, again, err)
		}
	})
}
