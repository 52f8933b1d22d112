package manifest_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
)

const withParams = `e3: 1
name: p
inputs:
  params: {params: params.yaml, export: false}
tasks:
  fit:
    in: [params.train.rate, params.train, params]
    out: a.txt
    run: echo "$rate" > "$out"
  again:
    matrix: {k: [1, 2]}
    in: {r: params.train.rate}
    out: b.txt
    run: echo "$r" > "$out"
`

func parsed(t *testing.T, text string) *manifest.Definition {
	t.Helper()
	def, err := manifest.Parse("e3.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

func value(t *testing.T, text string) any {
	t.Helper()
	v, err := manifest.ParseValue("params.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParamsAreInputsOfTheirOwn(t *testing.T) {
	def := parsed(t, withParams)
	v := value(t, "train:\n  rate: 0.1\n  depth: 4\nother: true\n")
	if err := def.SetParams(func(string) any { return v }); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, in := range def.Inputs {
		names = append(names, in.Name+"="+string(manifest.AppendJSON(nil, in.Value)))
		if in.Path != "params.yaml" || !in.NoExport {
			t.Errorf("input %s: path %q, not exported %v", in.Name, in.Path, in.NoExport)
		}
	}
	want := []string{`params={"train":{"rate":0.1,"depth":4},"other":true}`, "params.train.rate=0.1", `params.train={"rate":0.1,"depth":4}`}
	if !slices.Equal(names, want) {
		t.Errorf("inputs %q, want %q", names, want)
	}
	var kinds []string
	for _, task := range def.Tasks {
		for _, in := range task.Inputs {
			kind := map[manifest.Kind]string{manifest.Scalar: "scalar", manifest.JSON: "json"}[in.Kind]
			kinds = append(kinds, task.Name+" "+in.Name+" "+kind+" "+in.Path)
		}
	}
	want = []string{
		"fit rate scalar ", "fit train json .e3-values/train.json", "fit params json .e3-values/params.json",
		"again[1] r scalar ", "again[2] r scalar ",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("kinds %q, want %q", kinds, want)
	}
}

func TestMissingParams(t *testing.T) {
	for file, want := range map[string]string{
		"train: {rat: 1}":         `e3.yaml:7:10: params.yaml has no value "train.rate" (did you mean "train.rat"?)`,
		"model: {rate: 1}":        `e3.yaml:7:10: params.yaml has no value "train.rate" (did you mean "model.rate"?)`,
		"xs: 1\nys: {qq: 2}":      `e3.yaml:7:10: params.yaml has no value "train.rate" (it has xs, ys, ys.qq)`,
		"- 1":                     `e3.yaml:7:10: params.yaml has no value "train.rate" (the file holds no named values)`,
		`{"train": {"rate": {}}}`: "",
	} {
		def, v := parsed(t, withParams), value(t, file)
		err := def.SetParams(func(string) any { return v })
		if got := first(err); got != want {
			t.Errorf("%q:\n got %s\nwant %s", file, got, want)
		}
	}
}

func first(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func TestReferencesToParams(t *testing.T) {
	for source, want := range map[string]string{
		"params[4]":       `an input has no entries, and only a folder`,
		"params[4].x":     `an input has no entries, and only a folder`,
		"params..rate":    `does not end in .output`,
		"params.a b":      `does not end in .output`,
		"value.rate":      `an input has no entries, and only a folder`,
		"parms.rate":      `there is no input or task "parms" (did you mean "params"?)`,
		"other.some.path": `has a single output and no entry "some.path"`,
	} {
		_, err := manifest.Parse("e3.yaml", []byte(`e3: 1
name: p
inputs:
  params: {params: params.yaml}
  value: {value: {rate: 1}}
tasks:
  other: {out: o.txt, run: 'date > "$out"'}
  fit: {in: {r: "`+source+`"}, out: a.txt, run: 'echo "$r" > "$out"'}
`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
}

func TestParseValue(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x, 2.5, null]": `{"a":1,"b":["x",2.5,null]}`,
		"{\"a\":\t{\"b\": 1}}":    `{"a":{"b":1}}`,
		"\ufeffa: yes":            `{"a":"yes"}`,
		"3":                       `3`,
		"":                        `params.yaml:1:1: the file is empty`,
		"a: 1\n---\nb: 2":         `params.yaml:2:1: a second YAML document begins here (one file holds one document)`,
		"a: 1\na: 2":              `params.yaml:2:1: value: key "a" is here for the second time, first at line 1`,
		"{\"a\": tru}x":           `params.yaml:1:7: JSON: invalid character '}' in literal true`,
		"a: \xff":                 `params.yaml:1:4: byte 0xff is not UTF-8 (the file must`,
	} {
		v, err := manifest.ParseValue("params.yaml", []byte(text))
		got := first(err)
		if err == nil {
			got = string(manifest.AppendJSON(nil, v))
		}
		if got != want && !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestWithValue(t *testing.T) {
	whole := value(t, "a: {b: 1, c: 2}\nd: 3\n")
	for path, want := range map[string]string{
		"a.b": `{"a":{"b":9,"c":2},"d":3}`, "a": `{"a":9,"d":3}`, "x.y": `{"a":{"b":1,"c":2},"d":3,"x":{"y":9}}`, "d.e": "false",
	} {
		v, ok := manifest.WithValue(whole, path, int64(9))
		if got := string(manifest.AppendJSON(nil, v)); ok && got != want || !ok && want != "false" {
			t.Errorf("%s: %s %v, want %s", path, got, ok, want)
		}
		if got, there := manifest.ValueAt(v, path); ok && (!there || got != int64(9)) {
			t.Errorf("%s: %v", path, got)
		}
	}
	if got := string(manifest.AppendJSON(nil, whole)); got != `{"a":{"b":1,"c":2},"d":3}` {
		t.Errorf("the value itself changed: %s", got)
	}
}

func FuzzParseValue(f *testing.F) {
	for _, text := range []string{"a: {b: 1}\n", `{"a": [1, 2.5, "x", null, true]}`, "- &x {a: 1}\n- *x\n", "a: 1\na: 2", "{\"a\":\t1}", "\ufeff1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := manifest.ParseValue("f", data)
		if err != nil {
			return
		}
		text := manifest.AppendJSON(nil, v)
		again, err := manifest.ParseValue("f", text)
		if err != nil {
			t.Fatalf("%q became %q: %v", data, text, err)
		}
		if got := manifest.AppendJSON(nil, again); string(got) != string(text) {
			t.Fatalf("%q became %q, then %q", data, text, got)
		}
	})
}

// Items, constants and variables keep the text of their author; versions too.
func TestWrittenText(t *testing.T) {
	d := parseFile(t, "written.yaml")
	var names []string
	for i := range d.Tasks {
		names = append(names, d.Tasks[i].Name)
	}
	want := []string{
		"py[py=3.9,seed=007,flag=True]", "py[py=3.9,seed=007,flag=yes]", "py[py=3.9,seed=0x1F,flag=True]", "py[py=3.9,seed=0x1F,flag=yes]",
		"py[py=3.10,seed=0x1F,flag=True]", "py[py=3.10,seed=0x1F,flag=yes]",
	}
	if !slices.Equal(names, want) {
		t.Errorf("tasks\n got %q\nwant %q", names, want)
	}
	if env := d.Tasks[0].Spec.Env.Set; !slices.Equal(env, []record.EnvVar{{Name: "VERSION", Value: "1.20"}, {Name: "DEBUG", Value: "False"}, {Name: "N", Value: "2"}}) {
		t.Errorf("variables %q", env)
	}
	if d.Version != "1.10" || d.Tasks[0].Spec.Version != "1.50" {
		t.Errorf("versions %q and %q, want 1.10 and 1.50", d.Version, d.Tasks[0].Spec.Version)
	}
}

// A definition that is stored as JSON makes the same tasks as its file.
func TestDefinitionKeepsText(t *testing.T) {
	file := `e3: 1
name: p
inputs: {list: {file: list.csv}, n: {value: 007}}
tasks:
  a:
    matrix: {id: list, py: [3.10, 007, .5, 0x1F, True], seed: [1.]}
    env: {A: +1, B: True, C: 010}
    version: 1.
    in: [n]
    out: o
    run: [x]
`
	d, err := manifest.Parse("e3.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"py":[3.10,"007",".5","0x1F","True"]`, `"seed":["1."]`, `{"A":"+1","B":"True","C":"010"}`, `"version":"1."`, `"n":{"value":7}`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the definition lacks %s:\n%s", want, data)
		}
	}
	again, err := manifest.DecodeDefinition(data)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := again.Encode(); err != nil || !bytes.Equal(same, data) {
		t.Errorf("another definition after decoding, %v:\n%s\n%s", err, data, same)
	}
}
