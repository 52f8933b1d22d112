package figures_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"e3/internal/insight/figures"
)

// flat is a document in a line: keys and values as JSON, or what is wrong.
func flat(name, text string, whole bool) string {
	d, err := figures.Read(name, []byte(text))
	if err != nil {
		return "error: " + err.Error()
	}
	values, err := d.Values(whole)
	if err != nil {
		return "error: " + err.Error()
	}
	var list []string
	for _, v := range values {
		if v.List != nil {
			list = append(list, fmt.Sprintf("%s=%s", v.Key, v.List))
			continue
		}
		list = append(list, v.Key+"="+string(v.JSON))
	}
	return strings.Join(list, " ")
}

// TestValues: the same metrics in all formats.
func TestValues(t *testing.T) {
	const want = `loss="NaN" train.acc=0.5 train.worst="-Infinity" best="Infinity" name="x" ok=true steps[0]=1 steps[1]=2`
	for name, text := range map[string]string{
		"m.json": `{"loss": NaN, "train": {"acc": 0.5, "worst": -Infinity}, "best": Infinity, "name": "x", "ok": true, "steps": [1, 2]}`,
		"m.JSON": `{"loss": "NaN", "train": {"acc": 0.5, "worst": "-Infinity"}, "best": "Infinity", "name": "x", "ok": true, "steps": [1, 2]}`,
		"m.txt":  "\ufeff" + `{"loss":NaN,"train":{"acc":0.5,"worst":-Infinity},"best":Infinity,"name":"x","ok":true,"steps":[1,2]}`,
		"m.yaml": "loss: .nan\ntrain: {acc: 0.5, worst: -.inf}\nbest: .inf\nname: x\nok: true\nsteps: [1, 2]\n",
		"m.yml":  `{"loss": NaN, "train": {"acc": 0.5, "worst": -Infinity}, "best": Infinity, "name": "x", "ok": true, "steps": [1, 2]}`,
		"m":      "loss: nan\ntrain:\n  acc: 0.5\n  worst: -inf\nbest: inf\nname: x\nok: true\nsteps:\n- 1\n- 2\n",
		"m.toml": "loss = nan\ntrain = {acc = 0.5, worst = -inf}\nbest = inf\nname = 'x'\nok = true\nsteps = [1, 2]\n",
	} {
		if got := flat(name, text, false); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
	for _, tt := range []struct{ name, text, want string }{
		{"m.json", `{"a": {"b": [1, {"c": true}], "": null}, "x.y": "z", "e": [], "o": {}, "s": "12"}`,
			`a.b[0]=1 a.b[1].c=true a[""]=null ["x.y"]="z" e=[] o={} s="12"`},
		{"m.json", `{"a": 1, "b": 2, "a": 3}`, "a=3 b=2"},
		{"m.json", `{"why": "NaN and \"Infinity\"", "NaN": -Infinity, "InfinityX": 1}`, `why="NaN and \"Infinity\"" NaN="-Infinity" InfinityX=1`},
		{"m.json", `[1, 2.50]`, "[0]=1 [1]=2.50"},
		{"m.yaml", "a: &x {b: 1_000, c: 0x10, d: +1.5, e: 1.50, f: yes}\ng: *x\n",
			`a.b=1000 a.c=16 a.d=1.5 a.e=1.50 a.f="yes" g.b=1000 g.c=16 g.d=1.5 g.e=1.50 g.f="yes"`},
		{"m.toml", "z = 1\n[b]\ny = 1979-05-27\nx = 0x10\n[[a.list]]\nk = 1e3\n", `z=1 b.y="1979-05-27T00:00:00Z" b.x=16 a.list[0].k=1000`},
		{"one.csv", "rmse,label\n1.50,x\n", `rmse=1.50 label="x"`},
		{"one.tsv", "rmse\tlabel\nnan\t-inf\n", `rmse="NaN" label="-Infinity"`},
		{"two.csv", "metric,value\nacc,0.9\nloss,.5\n", "acc=0.9 loss=0.5"},
		{"rows.csv", "class,precision,recall\ncat,1,2\ndog.x,3\n", `cat.precision=1 cat.recall=2 ["dog.x"].precision=3`},
		{"same.csv", "class,n\ncat,1\ncat,2\n", `[0].class="cat" [0].n=1 [1].class="cat" [1].n=2`},
		{"head.csv", "a,b\n", ""},
		{"m.json", "", "error: it is empty"},
		{"m.json", " ", "error: it is empty"},
		{"m.json", `{"a": 1`, "error: it is not JSON: unexpected EOF"},
		{"m.json", `{"a": nan}`, "error: it is not JSON: invalid character 'a' in literal null (expecting 'u')"},
		{"m.json", `{} x`, "error: it is not JSON: more follows after its end"},
		{"m.json", `1 2`, "error: it is not JSON: more follows after its end"},
		{"m.yaml", "a: 1\n---\nb: 2\n", "error: it is more than one document of YAML"},
		{"m.csv", "a\n1,2\n", "error: it is no table: row 1 has 2 cells, and the head has 1"},
		{"m", "accuracy is fine", `="accuracy is fine"`},
		{"m", "\xff", "error: it is not text in UTF-8"},
	} {
		if got := flat(tt.name, tt.text, false); got != tt.want {
			t.Errorf("%s %q\n got %s\nwant %s", tt.name, tt.text, got, tt.want)
		}
	}
	if got, want := flat("m.json", `{"l": [1, {"a": [2]}, NaN], "e": []}`, true), `l=[1  "NaN"] e=[]`; got != want {
		t.Errorf("whole lists are %s, want %s", got, want)
	}
}

// TestHostile: what nests, grows or names itself without end is an error, soon.
func TestHostile(t *testing.T) {
	deep := strings.Repeat(`{"`+strings.Repeat("k", 100)+`":`, 60) + `{}` + strings.Repeat("}", 60)
	wide := "[" + strings.Repeat(deep+",", 300) + "0]"
	bomb := "a0: &a0 [1, 1]\n"
	for i := range 30 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"deep.json", strings.Repeat("[", 1<<20), "nests deeper"},
		{"deep.json", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100), "nests deeper"},
		{"deep.yaml", strings.Repeat("[", 1<<16), "nests deeper"},
		{"deep.yaml", strings.Repeat("[", 100) + strings.Repeat("]", 100), "nests deeper"},
		{"deep.toml", "a = " + strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000), "nests deeper"},
		{"deep.toml", strings.Repeat("a.", 30_000) + "a = 1", "nests deeper"},
		{"deep.toml", "[" + strings.Repeat("a.", 30_000) + "a]", "nests deeper"},
		{"deep.toml", "x = {" + strings.Repeat("a.", 30_000) + "a = 1}", "nests deeper"},
		{"large.toml", strings.Repeat("#", 1<<17), "larger than the 64 KiB"},
		{"keys.json", "[" + strings.Repeat(wide+",", 10) + "0]", "too large"},
		{"bomb.yaml", bomb, "aliases stand for more than"},
		{"own.yaml", "a: &a [*a]", ""},
	} {
		if got := flat(tt.name, tt.text, false); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, tt.want) {
			t.Errorf("%s %.40q: got %.200s, want an error with %q", tt.name, tt.text, got, tt.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]float64{
		"1": 1, "-1.5e3": -1500, figures.NaN: math.NaN(), figures.Infinity: math.Inf(1), figures.Negative: math.Inf(-1),
	} {
		if f, ok := figures.Number(json.RawMessage(text)); !ok || f != want && !(math.IsNaN(f) && math.IsNaN(want)) {
			t.Errorf("%s is %g, %t, want %g", text, f, ok, want)
		}
	}
	for _, text := range []string{"", "null", "true", `"1"`, `"x"`, "[]", "1e999"} {
		if f, ok := figures.Number(json.RawMessage(text)); ok {
			t.Errorf("%s is %g, want no number", text, f)
		}
	}
}

// TestTables: each list of objects is a table, however deep.
func TestTables(t *testing.T) {
	d, err := figures.Read("roc.json", []byte(`{"auc": 1, "roc": [{"fpr": 0, "tpr": NaN}, {"tpr": 1, "note": null, "deep": {"a": 1}}], "x": {"y": [[1], [{"z": "s"}]]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{[fpr tpr note deep] [[0 NaN] [ 1  {…}]]} {[z] [[s]]}`
	var got []string
	for _, tab := range d.Tables() {
		got = append(got, fmt.Sprint(*tab))
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

// FuzzRead: whatever a file holds, the result is an error or values that are JSON.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"m.json", "m.yaml", "m.toml", "m.csv", "m"} {
		f.Add(name, []byte("a = {b = nan}\n"))
		f.Add(name, []byte(`{"a": [1, NaN, {"b": "-Infinity"}]}`))
		f.Add(name, []byte("a: &x [.nan, 0x10]\nb: *x\n"))
		f.Add(name, []byte("a,b\n1,\"2\n3\"\n"))
	}
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		d, err := figures.Read(name, data)
		if err != nil {
			return
		}
		d.Tables()
		values, err := d.Values(false)
		if err != nil {
			return
		}
		for _, v := range values {
			if !json.Valid(v.JSON) {
				t.Errorf("%q is %q, which is no JSON", v.Key, v.JSON)
			}
		}
	})
}
