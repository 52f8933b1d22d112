package manifest_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

// placed prints where the tasks write, and where their inputs from other tasks are staged.
func placed(d *manifest.Definition) []string {
	var list []string
	for i := range d.Tasks {
		t := &d.Tasks[i]
		s := t.Name
		for k := range t.Outputs {
			s += " >" + t.PathOf(&t.Outputs[k])
		}
		for _, in := range t.Inputs {
			if in.Source.Kind == manifest.FromTask {
				s += " <" + in.Path
			}
		}
		list = append(list, s)
	}
	return list
}

const byItem = `e3: 1
name: p
inputs: {sheet: {file: s.csv}}
tasks:
  train:
    matrix: {k: [4, 8.5]}
    out: {model: "models/{k}.pkl", log: "log/{k}/"}
    run: x
  score: {matrix: {k: [4, 8.5]}, in: {model: "train[k].model"}, out: "s/{k}/score", run: x}
  four:  {in: ["train[4].model"], out: four.txt, run: x}
  all:   {in: {models: "train[*].model"}, out: all.txt, run: x}
  sized:
    matrix: {id: {from: sheet, with: [group]}}
    out: "{group}/{id}.txt"
    run: x
  read: {matrix: {id: {from: sheet, with: []}}, in: {one: "sized[id]"}, out: "r-{id}", run: x}
`

// An output with an item in its path lies there for the task itself, and for a task that reads this item. A fan-in has
// labels, as ever.
func TestPathByItem(t *testing.T) {
	sheet := table("id * group", "a,b x", "%2F y")
	d := expand(t, byItem, manifest.Lists{"sheet": sheet})
	want := []string{
		"train[4] >models/4.pkl >log/4", "train[8.5] >models/8.5.pkl >log/8.5",
		"score[4] >s/4/score <models/4.pkl", "score[8.5] >s/8.5/score <models/8.5.pkl",
		"four >four.txt <models/4.pkl",
		"all >all.txt",
		"sized[a%2Cb] >x/a,b.txt", "sized[%252F] >y/%2F.txt",
		"read[a%2Cb] >r-a,b <x/a,b.txt", "read[%252F] >r-%2F <y/%2F.txt",
	}
	if diff := cmp.Diff(want, placed(d)); diff != "" {
		t.Errorf("paths differ (-want +got):\n%s", diff)
	}
	var labels []string
	for _, it := range d.FanIns[0] {
		labels = append(labels, it.Label)
	}
	if diff := cmp.Diff([]string{"4.pkl", "8.5.pkl"}, labels); diff != "" {
		t.Errorf("fan-in differs (-want +got):\n%s", diff)
	}
}

// A path that cannot be one, that two items share, or that another file of the task has, is refused where it stands.
func TestPathByItemRefused(t *testing.T) {
	const head = "e3: 1\nname: p\ninputs: {sheet: {file: s.csv}, raw: {file: raw/a.txt}}\ntasks:\n"
	list := "  t: {matrix: {id: {from: sheet, with: [g]}}, out: \"o/{%}.x\", run: x}\n"
	by := func(values string) string { return strings.ReplaceAll(list, "{%}", values) }
	for _, test := range []struct {
		name, tasks string
		lists       []string // of the sheet
		want        string
	}{
		{"no matrix", "  t: {out: \"m/{k}\", run: x}\n", nil,
			`f:5:12: task t: out "m/{k}": the task has no matrix, so {k} stands for nothing`},
		{"no such value", "  t: {matrix: {k: [1]}, out: {file: \"m/{j}\"}, run: x}\n", nil,
			`f:5:37: task t: out "m/{j}": {j} is no value of the matrix (the values are k)`},
		{"shared", "  t: {matrix: {k: [1], j: [1, 2]}, out: \"m/{k}\", run: x}\n", nil,
			`t[k=1,j=1] and t[k=1,j=2] would both write m/1 (name in braces what tells the items apart: k, j)`},
		{"run together", "  t: {matrix: {k: [1, 11], j: [1, 11]}, out: \"{k}{j}\", run: x}\n", nil,
			`t[k=1,j=11] and t[k=11,j=1] would both write 111`},
		{"dots", "  t: {matrix: {k: [.]}, out: \"m/{k}.\", run: x}\n", nil, `"." cannot be an item`},
		{"of dots", "  t: {matrix: {k: [a, x]}, out: \"m/{k}\", run: x}\n  u: {matrix: {k: [\"...\", e3]}, out: \"m/.{k}/x\", run: x}\n", nil,
			`u[e3] would write m/.e3/x, and .e3 is e3's own (put text around the braces)`},
		{"slash", by("{id}"), []string{"id * g", "../x 1"},
			`task t: out "o/{id}.x": id of t[..%2Fx] is "../x", with a slash, so it cannot be in a path (leave {id} out of the path, or give the items other names)`},
		{"backslash", by("{id}"), []string{"id * g", `a\b 1`}, `id of t[a\b] is "a\\b", with a slash`},
		{"control", by("{id}"), []string{"id * g", "a\x01b 1"}, `with a control character`},
		{"long", by("{g}"), []string{"id * g", "a " + strings.Repeat("x", 260)}, `a name has at most 255 bytes`},
		{"constant", by("{g}"), []string{"id * g", "a 1", "b 1"}, `t[a] and t[b] would both write o/1.x`},
		{"an input", "  t: {matrix: {k: [a, b]}, in: [raw], out: \"raw/{k}.txt\", run: x}\n", nil,
			`f:5:33: task t[a]: input "raw" and output "out" are both at raw/a.txt`},
		{"another output", "  t: {matrix: {k: [b, a], j: [a]}, out: {x: \"{k}/{j}/1\", y: \"{j}/{k}/\"}, run: x}\n", nil,
			`f:5:3: task t[k=a,j=a]: output "x" at a/a/1 lies inside output "y" at a/a`},
		{"two inputs", "  t: {matrix: {k: [a]}, out: \"{k}\", run: x}\n  u: {out: a, run: x}\n  v: {in: {one: \"t[a]\", two: u}, out: o, run: x}\n", nil,
			`task v: input "one" and input "two" are both at a`},
	} {
		d, err := manifest.Parse("f", []byte(head+test.tasks))
		if err == nil && test.lists != nil {
			if d, err = d.Expand(manifest.Lists{"sheet": table(test.lists...)}); err == nil {
				err = d.Faults()
			}
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

// Braces around no name of a value are text, as they always were.
func TestBracesInPath(t *testing.T) {
	d, err := manifest.Parse("f", []byte("e3: 1\nname: p\ntasks: {t: {matrix: {k: [1]}, out: \"{}{K}{k.{k}\", run: x}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := d.Tasks[0].PathOf(&d.Tasks[0].Outputs[0]), "{}{K}{k.1"; got != want {
		t.Errorf("path %q, want %q", got, want)
	}
	if got, want := d.Tasks[0].Outputs[0].Glob(), "{}{K}{k.*"; got != want {
		t.Errorf("glob %q, want %q", got, want)
	}
}

// files is the list of a folder.
func files(names ...string) *manifest.List {
	l := values(names...)
	l.Files = names
	return l
}

// A list in an output by item is read from the item's own path.
func TestListByItem(t *testing.T) {
	d := expand(t, `e3: 1
name: p
tasks:
  split: {matrix: {s: [a, b]}, out: "parts/{s}/", run: x}
  each:
    matrix: {s: [a, b], part: "split[s]"}
    in: {one: "split[s].out[part]"}
    out: "o/{s}-{part}"
    run: x
`, manifest.Lists{"split[a]": files("1.txt", "2.txt"), "split[b]": files("1.txt")})
	want := []string{
		"split[a] >parts/a", "split[b] >parts/b", "each[s=a,part=1.txt] >o/a-1.txt <parts/a/1.txt",
		"each[s=a,part=2.txt] >o/a-2.txt <parts/a/2.txt", "each[s=b,part=1.txt] >o/b-1.txt <parts/b/1.txt",
	}
	if diff := cmp.Diff(want, placed(d)); diff != "" {
		t.Errorf("paths differ (-want +got):\n%s", diff)
	}
	for i := range d.Families {
		for _, s := range d.Families[i].Sources {
			if want := "parts/" + strings.TrimSuffix(strings.TrimPrefix(s.Key, "split["), "]"); s.Path != want {
				t.Errorf("the list %s lies at %q, want %q", s.Key, s.Path, want)
			}
		}
	}
}

func BenchmarkPathByItem(b *testing.B) {
	var text strings.Builder
	text.WriteString("e3: 1\nname: p\ntasks: {t: {matrix: {k: [")
	for i := range 100_000 {
		text.WriteString(strconv.Itoa(i) + ",")
	}
	text.WriteString("0x]}, out: \"m/{k}.pkl\", run: x}}\n")
	for b.Loop() {
		if _, err := manifest.Parse("f", []byte(text.String())); err != nil {
			b.Fatal(err)
		}
	}
}
