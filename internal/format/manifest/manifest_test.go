package manifest_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
)

func parseFile(t *testing.T, name string) *manifest.Definition {
	t.Helper()
	d, err := manifest.ParseFile(filepath.Join("testdata", "valid", name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wiring prints the inputs of every task: name@path = source.
func wiring(d *manifest.Definition) map[string][]string {
	kinds := map[manifest.Kind]string{manifest.File: "file", manifest.Dir: "dir", manifest.Scalar: "scalar", manifest.JSON: "json"}
	all := map[string][]string{}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		all[t.Name] = []string{}
		for _, in := range t.Inputs {
			source := ""
			switch in.Source.Kind {
			case manifest.FromInput:
				source = "input " + d.Inputs[in.Source.Index].Name
			case manifest.FromTask:
				source = "task " + d.Tasks[in.Source.Index].Name
			case manifest.FromFanIn:
				var parts []string
				for _, item := range d.FanIns[in.Source.Index] {
					parts = append(parts, item.Label+": "+d.Tasks[item.Task].Name)
				}
				source = "fan-in {" + strings.Join(parts, "; ") + "}"
			}
			if entry := d.Entry(in.Source); entry != "" {
				source += " ." + entry
			}
			all[t.Name] = append(all[t.Name], fmt.Sprintf("%s %s at %q = %s", kinds[in.Kind], in.Name, in.Path, source))
		}
	}
	return all
}

func TestDesignExample(t *testing.T) {
	d := parseFile(t, "design.yaml")
	train := []string{
		`file table at "clean.csv" = task clean`, `dir src at "src" = input src`, `scalar horizon at "" = input horizon`,
	}
	want := map[string][]string{
		"clean":    {`file sales at "data/sales.csv" = input sales`, `dir src at "src" = input src`},
		"train[4]": train,
		"train[8]": train,
		"report": {
			`dir metrics at "metrics" = fan-in {4.json: train[4]; 8.json: train[8]} .metrics`, `dir src at "src" = input src`,
		},
	}
	if diff := cmp.Diff(want, wiring(d)); diff != "" {
		t.Errorf("wiring differs (-want +got):\n%s", diff)
	}
	task := &d.Tasks[2]
	wantPolicy := &record.Policy{Timeout: 30 * time.Minute, Retries: 2, Backoff: 5 * time.Second, CPU: 2, Memory: 2 << 30}
	if diff := cmp.Diff(wantPolicy, task.Policy); diff != "" {
		t.Errorf("policy of %s differs (-want +got):\n%s", task.Name, diff)
	}
	if task.Name != "train[8]" || task.Label() != "8" || !slices.Equal(task.Items, []record.EnvVar{{Name: "depth", Value: "8"}}) {
		t.Errorf("third task is %q with label %q and items %v", task.Name, task.Label(), task.Items)
	}
	if task.Spec != d.Tasks[1].Spec {
		t.Error("the items of a matrix do not share what they have in common")
	}
	if warnings := manifest.Lint(d); len(warnings) != 1 || warnings[0].Msg != "no task reads the input images" {
		t.Errorf("Lint = %v, want one warning about images", warnings)
	}
}

func TestExportMark(t *testing.T) {
	got := map[string]bool{}
	for _, in := range parseFile(t, "policy.yaml").Inputs {
		got[in.Name] = in.NoExport
	}
	if diff := cmp.Diff(map[string]bool{"tool": false, "private": true, "public": false}, got); diff != "" {
		t.Errorf("marks of the inputs differ (-want +got):\n%s", diff)
	}
}

func TestMatrixReferences(t *testing.T) {
	got := wiring(parseFile(t, "matrix.yaml"))
	want := map[string][]string{
		"per_region[region=us,seed=2]": {
			`dir feats at "feats" = task features[us] .feats`,
			`dir all at "all" = fan-in {eu: features[eu]; us: features[us]}`,
		},
		"train[depth=8,lr=1e-5,final=true]": {`dir feats at "feats" = task features[eu] .feats`},
		"score[seed=2,area=eu]": {
			`file same at "o.txt" = task per_region[region=eu,seed=2]`,
			`dir seeds at "seeds" = fan-in {region=eu,seed=1.txt: per_region[region=eu,seed=1]; region=eu,seed=2.txt: per_region[region=eu,seed=2]}`,
			`file one at "metrics.json" = task train[depth=4,lr=1e-5,final=true] .metrics`,
			`dir some at "some" = fan-in {depth=4,lr=0.1,final=true.json: train[depth=4,lr=0.1,final=true]; depth=8,lr=0.1,final=true.json: train[depth=8,lr=0.1,final=true]} .metrics`,
		},
	}
	for name, inputs := range want {
		if diff := cmp.Diff(inputs, got[name]); diff != "" {
			t.Errorf("inputs of %s differ (-want +got):\n%s", name, diff)
		}
	}
	var names []string
	for _, task := range parseFile(t, "matrix.yaml").Tasks {
		if task.Base == "per_region" {
			names = append(names, task.Label())
		}
	}
	if want := []string{"region=us,seed=1", "region=us,seed=2", "region=eu,seed=1", "region=eu,seed=2"}; !slices.Equal(names, want) {
		t.Errorf("items of per_region: %q, want %q", names, want)
	}
}

func TestOutputs(t *testing.T) {
	d := parseFile(t, "outputs.yaml")
	want := map[string][]manifest.Output{
		"build": {{Name: "out", Path: "bin/prog", Executable: true}},
		"docs":  {{Name: "out", Path: "site", Kind: manifest.Dir}},
		"pages": {{Name: "out", Path: "pages", Kind: manifest.Dir}},
		"train": {
			{Name: "model", Path: "model.pkl"}, {Name: "plots", Path: "plots", Kind: manifest.Dir},
			{Name: "metrics", Path: "metrics.json"}, {Name: "html", Path: "report.html"},
		},
		"evaluate": {{Name: "out", Path: "eval", Kind: manifest.Dir}},
		"curves":   {{Name: "roc", Path: "out/roc.json"}, {Name: "log", Path: "log.csv"}},
		"whole":    {{Name: "out", Path: "copy", Kind: manifest.Dir}},
	}
	roc := record.Plot{X: "fpr", Y: []string{"tpr"}, Title: "ROC", XLabel: "false", YLabel: "true", Template: "scatter"}
	wantViews := map[string][]record.View{
		"pages": {{Kind: record.ViewPlot}},
		"train": {{Entry: "metrics", Path: "metrics.json", Kind: record.ViewMetrics}, {Entry: "html", Path: "report.html", Kind: record.ViewReport}},
		"evaluate": {
			{Path: "metrics.json", Kind: record.ViewMetrics}, {Path: "live/*.json", Kind: record.ViewMetrics}, {Path: "plots", Kind: record.ViewPlot},
			{Path: "roc.json", Kind: record.ViewPlot, Plot: roc}, {Kind: record.ViewPlot, Path: "deep/**/*.csv"}, {Path: "r.html", Kind: record.ViewReport},
		},
		"curves": {
			{Entry: "roc", Path: "roc.json", Kind: record.ViewPlot, Plot: roc},
			{Entry: "log", Path: "log.csv", Kind: record.ViewPlot, Plot: record.Plot{Y: []string{"loss", "val_loss"}}},
			{Entry: "log", Path: "log.csv", Kind: record.ViewPlot, Plot: record.Plot{X: "epoch", Y: []string{"acc"}}},
		},
	}
	got := map[string][]manifest.Output{}
	for _, task := range d.Tasks {
		got[task.Name] = task.Outputs
		if diff := cmp.Diff(wantViews[task.Name], task.Policy.Views); diff != "" {
			t.Errorf("views of %s differ (-want +got):\n%s", task.Name, diff)
		}
		if several := task.Name == "train" || task.Name == "curves"; task.Several != several {
			t.Errorf("%s: Several = %v, want %v", task.Name, task.Several, several)
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(manifest.Output{}, "Pos")); diff != "" {
		t.Errorf("outputs differ (-want +got):\n%s", diff)
	}
	wantWhole := []string{`dir train at "train" = task train`, `file metrics at "metrics.json" = task train .metrics`}
	if diff := cmp.Diff(wantWhole, wiring(d)["whole"]); diff != "" {
		t.Errorf("inputs of whole differ (-want +got):\n%s", diff)
	}
}

func TestValues(t *testing.T) {
	d := parseFile(t, "scalars.yaml")
	want := map[string]any{
		"no": "no", "on": "on", "time": "1:30", "date": "2001-01-01", "padded": int64(10), "hex": int64(31),
		"big": int64(9223372036854775807), "float": 1000.0, "tenth": 0.1, "yes_": true, "none": nil, "text": "12",
		"config": manifest.Object{
			{Name: "zeta", Value: []any{int64(1), 2.0, "3", nil}},
			{Name: "alpha", Value: manifest.Object{{Name: "nested", Value: manifest.Object{{Name: "deeper", Value: "yes"}}}}},
		},
	}
	got := map[string]any{}
	for _, in := range d.Inputs {
		got[in.Name] = in.Value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values differ (-want +got):\n%s", diff)
	}
	if d.Version != "3" {
		t.Errorf("version = %q, want 3", d.Version)
	}
	text := string(manifest.AppendJSON(nil, got["config"]))
	if want := `{"zeta":[1,2.0,"3",null],"alpha":{"nested":{"deeper":"yes"}}}`; text != want {
		t.Errorf("AppendJSON = %s, want %s", text, want)
	}
	if inputs := wiring(d)["show"]; inputs[3] != `json config at ".e3-values/config.json" = input config` {
		t.Errorf("config is wired as %s", inputs[3])
	}
}

func TestResolvePlain(t *testing.T) {
	for _, test := range []struct{ in, kind, text string }{
		{"yes", "a string", "yes"}, {"Off", "a string", "Off"}, {"y", "a string", "y"}, {"1_000", "a string", "1_000"},
		{"0b1", "a string", "0b1"}, {"0777", "an integer", "777"}, {"0o17", "an integer", "15"}, {"-0x1", "a string", "-0x1"},
		{"+12", "an integer", "12"}, {"-0", "an integer", "0"}, {"1.", "a fractional number", "1.0"}, {".5", "a fractional number", "0.5"},
		{"-.5E+2", "a fractional number", "-50.0"}, {"1e5", "a fractional number", "100000.0"}, {".", "a string", "."}, {"-", "a string", "-"},
		{"1e", "a string", "1e"}, {"e3", "a string", "e3"}, {"1.2.3", "a string", "1.2.3"}, {"TRUE", "a boolean", "true"}, {"tRUE", "a string", "tRUE"},
		{"inf", "a string", "inf"}, {"0x", "a string", "0x"}, {"1e-7", "a fractional number", "0.0000001"},
	} {
		kind, text, fault := manifest.ResolvePlain(test.in)
		if kind != test.kind || text != test.text || fault != "" {
			t.Errorf("%q is %s %q (fault %q), want %s %q", test.in, kind, text, fault, test.kind, test.text)
		}
	}
	for _, in := range []string{"9223372036854775808", "0xffffffffffffffffff", "1e400", ".inf", "-.INF", ".NaN"} {
		if _, _, fault := manifest.ResolvePlain(in); fault == "" {
			t.Errorf("%q was accepted", in)
		}
	}
}

func TestErrorsAsAndIs(t *testing.T) {
	_, err := manifest.Parse("x.yaml", []byte("e3: 1\nname: p\nfoo: 1\n"))
	var one *manifest.Error
	if !errors.As(err, &one) || one.Line != 3 || one.Column != 1 || one.File != "x.yaml" {
		t.Errorf("errors.As gives %+v of %v, want the fault at 3:1", one, err)
	}
	if _, err := manifest.ParseFile(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ParseFile of no file: %v, want os.ErrNotExist", err)
	}
}

func TestBadBytes(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"e3: 1\nname: \"a\xffb\"\n", "f:2:9: byte 0xff is not UTF-8"},
		{"e3: 1\nname: é\x01\n", "f:2:8: control character 0x01"},
		{"\x00", "f:1:1: control character 0x00"},
		{"", "f:1:1: the file is empty"},
	} {
		if _, err := manifest.Parse("f", []byte(test.in)); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("Parse(%q): %v, want %s", test.in, err, test.want)
		}
	}
	d, err := manifest.Parse("f", []byte("\ufeffe3: 1\nname: p\n"))
	if err != nil || d.Name != "p" {
		t.Errorf("a byte order mark: %v, want it passed over", err)
	}
}

func TestJSON(t *testing.T) {
	const head = `{"e3": 1, "name": "p"`
	for _, test := range []struct{ name, in, want string }{
		{"unknown key", head + ",\n \"é\": 1, \"taskz\": 2}", "f:2:2: unknown key \"é\"\nf:2:10: unknown key \"taskz\" (did you mean \"tasks\"?)"},
		{"wrong type", head + ", \"tasks\": {\"a\":\n  {\"out\": [], \"run\": \"x\"}}}", "f:2:11: task a: out: want a path or a mapping, not a list"},
		{"duplicate", head + ",\n\"name\": \"q\"}", `f:2:1: key "name" is here for the second time, first at line 1`},
		{"null", head + ", \"tasks\": null}", "f:1:33: tasks: want a mapping, not nothing"},
		{"half a pair", head + `, "description": "\ud800 \ufffd"}`, "f:1:39: text holds half of a surrogate pair"},
		{"too large a number", head + `, "inputs": {"a": {"value": 1e999}}}`, "f:1:50: the number 1e999 is out of range"},
		{"cut off", head + ",\n", "f:2:1: JSON: unexpected end of the file"},
		{"missing colon", head + ",\n \"tasks\" {}}", "f:2:10: JSON: invalid character '{' after object key"},
		{"bad literal", head + ",\n \"tasks\": [nul]]}", "f:2:12: JSON: invalid character ']' in literal null (expecting 'l')"},
		{"more", head + "}\n{}", "f:2:1: JSON: text after the end of the package (one file holds one package)"},
		{"deep", head + `, "inputs": {"a": {"value": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}}}", "f:1:112: nested deeper than 64 levels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := manifest.Parse("f", []byte(test.in))
			if err == nil || err.Error() != test.want {
				t.Errorf("got error\n%v\nwant\n%s\nof %s", err, test.want, test.in)
			}
		})
	}
	if d, err := manifest.Parse("f", []byte(head+`, "description": "\ufffd \ud83d\ude00"}`)); err != nil || d.Description != "\ufffd 😀" {
		t.Errorf("escapes: %v, want them read", err)
	}
	if d, err := manifest.Parse("f", []byte("{e3: 1, name: p, # flow\n}")); err != nil || d.Name != "p" {
		t.Errorf("a YAML flow mapping: %v, want it read", err)
	}
}

// The generators of the benchmark write the same package as YAML and as JSON.
func TestYAMLAndJSONAgree(t *testing.T) {
	fromYAML, err := manifest.Parse("f", largeYAML(300))
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := manifest.Parse("f", largeJSON(300))
	if err != nil {
		t.Fatal(err)
	}
	ignorePos := cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".Pos" || p.Last().String() == ".RunPos"
	}, cmp.Ignore())
	sorted := cmp.Transformer("sort", func(in []manifest.TaskInput) map[string]manifest.TaskInput {
		m := map[string]manifest.TaskInput{}
		for _, i := range in {
			m[i.Name] = i
		}
		return m
	})
	if diff := cmp.Diff(fromYAML, fromJSON, ignorePos, ignoreText, sorted); diff != "" {
		t.Errorf("YAML and JSON differ (-YAML +JSON):\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		what  string
		valid func(string) bool
		yes   []string
		no    []string
	}{
		{"input", manifest.ValidInputName, []string{"a", "_", "aB_9", long + "a"}, []string{"", "A", "9a", "a-b", "a.b", "é"}},
		{"variable", manifest.ValidEnvName, []string{"PATH", "_x", "a9", "E3"}, []string{"", "9", "E3_X", "A-B", "A=B"}},
		{"item", manifest.ValidLabelItem, []string{"4", "0.1", "a b", "é", "a.b", strings.Repeat("x", 128)},
			[]string{"", ".", "..", "*", "a/b", "a,b", "a=b", "[", "]", "a\nb", "\x7f", " a", strings.Repeat("x", 129)}},
	} {
		for _, s := range test.yes {
			if !test.valid(s) {
				t.Errorf("%s %q is refused", test.what, s)
			}
		}
		for _, s := range test.no {
			if test.valid(s) {
				t.Errorf("%s %q is accepted", test.what, s)
			}
		}
	}
}
