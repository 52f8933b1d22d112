package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

// In place, a path has one owner. Each fault is told at the later of the two places, with the line of the other one.
func TestInPlaceRefused(t *testing.T) {
	for _, test := range []struct{ name, results, inputs, tasks, want string }{
		{"two tasks", ".", "", "a: {out: m/x, run: x}\n  b: {out: {y: {file: m/x}}, run: x}",
			`f:7:23: results in the project: a and b.y are both at m/x; line 6 has the other one (give one of them another path)`},
		{"in a folder", "./", "", "a: {out: m/x, run: x}\n  b: {out: m/, run: x}", `a at m/x lies inside b at m; line 6 has the other one`},
		{"a matrix", ".", "", "fit: {matrix: {k: [1, 2]}, out: o/fit.tar.gz, run: x}",
			`f:6:35: results in the project: the items of fit would all write o/fit.tar.gz (put the item in the path, as o/fit-{k}.tar.gz)`},
		{"a matrix with folders", ".", "", "fit: {matrix: {k: [1, 2], j: [1]}, out: o/, run: x}", `(put the item in the path, as o-{k}-{j}/)`},
		{"a matrix from data", ".", "s: {file: s.csv}", "fit: {matrix: {id: s}, out: o.csv, run: x}",
			`the items of fit would all write o.csv (put the item in the path, as o-{id}.csv)`},
		{"a matrix that is chosen", "{dir: ., of: fit}", "s: {file: s.csv}", "fit: {matrix: {id: s}, out: o, run: x}", `the items of fit would all write o`},
		{"anywhere", ".", "", "fit: {matrix: {k: [a, b]}, out: \"{k}\", run: x}",
			`results in the project: {k} may be any path at its top (put a folder before the braces, as out/{k})`},
		{"git", ".", "", "a: {out: .git/hooks/x, run: x}", `results in the project: .git/hooks/x is git's own`},
		{"a file", ".", "d: {file: m.csv}", "a: {in: [d], out: o, run: x}\n  b: {out: m.csv, run: x}",
			`f:7:12: results in the project: b and the input d are both at m.csv; line 4 has the other one`},
		{"a file in a folder", ".", "d: {file: m/in.csv}", "a: {out: m/, run: x}", `the input d at m/in.csv lies inside a at m`},
		{"parameters", ".", "d: {params: p.yaml}", "a: {in: [d.x], out: p.yaml, run: x}", `a and the input d are both at p.yaml`},
		{"a directory", ".", "d: {dir: m/in}", "a: {out: m/in, run: x}", `both at m/in`},
		{"a pattern", ".", "d: {glob: \"m/in/*\"}", "a: {out: m/, run: x}", `the input d at m/in lies inside a at m`},
		{"below a file", ".", "d: {file: m}", "a: {out: m/x, run: x}", `a at m/x lies inside the input d at m`},
		{"a program", ".", "", "a: {out: bin/x, run: x, tools: [./bin/x]}", `bin/x`},
		{"what waits", ".", "s: {file: s.csv}, d: {file: o}", "b: {matrix: {id: s}, out: \"b/{id}\", run: x}\n  c: {in: [\"b[*]\"], out: o, run: x}", `c and the input d are both at o`},
		{"an item", ".", "d: {file: m/2.x}", "fit: {matrix: {k: [1, 2]}, out: \"m/{k}.x\", run: x}", `fit[2] and the input d are both at m/2.x`},
		{"gitignore elsewhere", "{dir: results, gitignore: true}", "", "a: {out: o, run: x}", `f:3:36: results: gitignore is for dir: . (a folder for results alone`},
		{"nothing", "{dir: ., of: [b]}", "", "a: {out: o, run: x}", `results: no task or output matches "b"`},
	} {
		text := "e3: 1\nname: p\nresults: " + test.results + "\ninputs: {" + test.inputs + "}\ntasks:\n  " + test.tasks + "\n"
		_, err := manifest.Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
	}
}

// The files of an environment are inputs too.
func TestInPlaceEnvironment(t *testing.T) {
	parse := func(out string) (*manifest.Definition, error) {
		return manifest.Parse("f", []byte("e3: 1\nname: p\nresults: .\nenvironments: {py: {from: [uv.lock, \"req/*.txt\"], run: x}}\ntasks:\n  t: {environment: py, out: "+out+", run: x}\n"))
	}
	if _, err := parse("uv.lock"); err == nil || !strings.Contains(err.Error(), "are both at uv.lock") {
		t.Errorf("got %v, want that both are at uv.lock", err)
	}
	d, err := parse("req/made.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/req/made.txt"}, d.Inputs[0].LeftOut); diff != "" {
		t.Errorf("what the environment leaves out differs (-want +got):\n%s", diff)
	}
}

// An output that is not chosen has no place, and inputs leave out what may be there.
func TestInPlace(t *testing.T) {
	for _, test := range []struct {
		name, results, tasks string
		want                 map[string][]string // what inputs leave out
	}{
		{"all", ".", "a: {out: data/a.csv, run: x}\n  b: {out: data/b/, run: x}\n  c: {out: c.txt, run: x}\n  d: {out: data/raw/d, run: x}", map[string][]string{
			"all": {"/data/a.csv", "/data/b", "/data/raw/d"}, "raw": {"*.tmp", "/data/raw/d", "/data/raw/.gitignore"}, "csv": {"/data/a.csv", "/data/b"}, "code": nil}},
		{"some", "{dir: ., of: [a, \"c*\"]}", "a: {out: data/a.csv, run: x}\n  b: {out: data/a.csv, run: x}\n  c: {out: {one: c/one, two: data/two}, run: x}", map[string][]string{
			"all": {"/data/a.csv", "/data/two"}, "raw": {"*.tmp"}, "csv": {"/data/a.csv"}, "code": nil}},
		{"items", ".", "a: {matrix: {k: [1, 2]}, out: \"data/{k}.csv\", run: x}\n  b: {matrix: {id: {from: s, with: []}}, out: \"data/raw/{id}/\", run: x}", map[string][]string{
			"all": {"/data/*.csv", "/data/raw/*"}, "raw": {"*.tmp", "/data/*.csv", "/data/raw/*", "/data/raw/.gitignore"}, "csv": {"/data/*.csv", "/data/raw/*"}, "code": nil}},
		{"gitignore", "{dir: ., gitignore: true}", "a: {out: data/raw/a, run: x}\n  b: {out: data/raw/b, run: x}\n  c: {out: c, run: x}", map[string][]string{
			"all": {"/data/raw/a", "/data/raw/b"}, "raw": {"*.tmp", "/data/raw/a", "/data/raw/b", "/data/raw/.gitignore"}, "csv": nil, "code": nil}},
		{"what waits", "{dir: ., of: [\"b[1]\", c]}", "b: {matrix: {id: {from: s, with: []}}, out: data/b.csv, run: x}\n  c: {in: [\"b[*]\"], out: data/c.csv, run: x}", map[string][]string{
			"all": {"/data/b.csv", "/data/c.csv"}, "raw": {"*.tmp"}, "csv": {"/data/b.csv", "/data/c.csv"}, "code": nil}},
		{"one item", "{dir: ., of: \"a[2]\"}", "a: {matrix: {k: [1, 2]}, out: a.csv, run: x}", map[string][]string{"all": nil, "raw": {"*.tmp"}, "csv": nil, "code": nil}},
	} {
		text := "e3: 1\nname: p\nresults: " + test.results + `
inputs:
  all: {glob: "data/**"}
  raw: {dir: data/raw, except: ["*.tmp"]}
  csv: {glob: "data/*.csv"}
  code: {glob: "src/*.py"}
  s: {file: s.csv}
tasks:
  ` + test.tasks + "\n"
		d, err := manifest.Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		got := map[string][]string{}
		for _, in := range d.Inputs {
			if in.Kind != manifest.FileInput {
				got[in.Name] = in.LeftOut
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: what inputs leave out differs (-want +got):\n%s", test.name, diff)
		}
	}
}

// Items that are known only from data are checked once they are.
func TestInPlaceGrown(t *testing.T) {
	d, err := manifest.Parse("f", []byte("e3: 1\nname: p\nresults: .\ninputs: {s: {file: s.csv}, m: {file: m/b}}\ntasks:\n  t: {matrix: {id: s}, out: \"m/{id}\", run: x}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Expand(manifest.Lists{"s": table("id *", "a", "c")}); err != nil {
		t.Error(err)
	}
	want := "t[b] and the input m are both at m/b"
	if _, err := d.Expand(manifest.Lists{"s": table("id *", "a", "b")}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A place covers its files, and those of its items.
func TestCovers(t *testing.T) {
	for _, test := range []struct {
		out  manifest.Output
		file string
		want bool
	}{
		{manifest.Output{Path: "m/a"}, "m/a", true},
		{manifest.Output{Path: "m/a"}, "m/a/b", false},
		{manifest.Output{Path: "m/a", Kind: manifest.Dir}, "m/a/b/c", true},
		{manifest.Output{Path: "m/a", Kind: manifest.Dir}, "m/ab", false},
		{manifest.Output{Path: "m/{k}.x", ByItem: true}, "m/1.x", true},
		{manifest.Output{Path: "m/{k}.x", ByItem: true}, "m/1/1.x", false},
		{manifest.Output{Path: "m/{k}", ByItem: true, Kind: manifest.Dir}, "m/1/2/3", true},
	} {
		if got := test.out.Covers(test.file); got != test.want {
			t.Errorf("%s covers %s: %t, want %t", test.out.Path, test.file, got, test.want)
		}
	}
}
