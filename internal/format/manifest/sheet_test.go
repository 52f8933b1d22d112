package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

const sheetFile = `e3: 1
name: p
inputs: {s: {file: s.csv, paths: [a, b]}}
tasks:
  t: {matrix: {id: s}, in: {one: "s[id].a", two: "s[id].b", all: s}, out: "o/{id}", run: x}
  u: {in: ["s[id=x].a"], out: u.txt, run: x}
`

// A row's files are staged at their paths; an empty cell is no input; columns with paths are no constants.
func TestSheetPaths(t *testing.T) {
	d := expand(t, sheetFile, manifest.Lists{"s": table("id a b g", "x raw/x ./far/ G", "y raw/y - H")})
	var got []string
	for i := range d.Tasks {
		s := d.Tasks[i].Name
		for _, v := range d.Tasks[i].Items {
			s += " " + v.Name + "=" + v.Value
		}
		for _, in := range d.Tasks[i].Inputs {
			s += " " + in.Name + "<-" + in.Source.Path + "@" + in.Path
			if in.Kind == manifest.Dir {
				s += "/"
			}
		}
		got = append(got, s)
	}
	want := []string{"t[x] id=x g=G one<-raw/x@raw/x two<-far@far/ all<-s.csv@s.csv", "t[y] id=y g=H one<-raw/y@raw/y two<--@- all<-s.csv@s.csv", "u a<-raw/x@raw/x"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inputs differ (-want +got):\n%s", diff)
	}
	sheet := table("id a b g", "x raw/x far G")
	sheet.Items[0][2] = " "
	if got := len(expand(t, sheetFile, manifest.Lists{"s": sheet}).Tasks[0].Inputs); got != 2 {
		t.Errorf("with an empty cell the task has %d inputs, want 2", got)
	}
}

// Columns may have any names: a matrix and a source name them in their long forms.
func TestSheetColumnsWithSpaces(t *testing.T) {
	file := `e3: 1
name: p
inputs: {s: {file: s.csv, paths: ["Read 1"]}}
tasks:
  t:
    matrix: {zip: {id: {from: s, column: Sample Name, with: []}, lane: {from: s, column: "Lane #"}}}
    in: {fq: {from: "s[id,lane]", column: Read 1}}
    out: "{id}-{lane}"
    run: x
  u: {matrix: {id: {from: s, column: Sample Name}}, in: {fq: {from: "s[id, *]", column: Read 1}}, out: "{id}", run: x}
`
	sheet := &manifest.List{Columns: []string{"Sample Name", "Lane #", "Read 1"}, Items: [][]string{{"a", "1", "raw/a 1.fq"}, {"a", "2", "raw/a 2.fq"}}}
	d := expand(t, file, manifest.Lists{"s": sheet})
	if got := d.Tasks[1].Inputs[0].Path; d.Tasks[1].Name != "t[id=a,lane=2]" || got != "raw/a 2.fq" {
		t.Errorf("%s reads %s, want t[id=a,lane=2] and raw/a 2.fq", d.Tasks[1].Name, got)
	}
	if fan := d.FanIns[d.Tasks[2].Inputs[0].Source.Index]; len(fan) != 2 || fan[1].Label != "2-a 2.fq" {
		t.Errorf("u[a] gathers %v, want two files, the second as 2-a 2.fq", fan)
	}
	for in, want := range map[string]string{
		`{from: "s[id,lane].x", column: Read 1}`: `"s[id,lane].x" and column: both name one`,
		`{from: "s[id,lane]", column: x}`:        `no path stands in the column "x" (the columns with paths are Read 1)`,
		`{from: "u[id]", column: x}`:             "column belongs to a sheet with paths, and u is none",
	} {
		_, err := manifest.Parse("f", []byte(strings.Replace(file, `{from: "s[id,lane]", column: Read 1}`, in, 1)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("in: %s: %v, want %q", in, err, want)
		}
	}
}

// A sheet that was set in place of the file's own may be any list.
func TestSheetPathsFaults(t *testing.T) {
	for _, test := range []struct {
		sheet []string
		want  string
	}{
		{[]string{"id b", "x y"}, `s[id].a: s has no column "a"; its columns are id, b`},
		{[]string{"id a b", "x /etc/x y"}, `s[id].a: item 1 of s: the path is absolute`},
		{[]string{"id a b", "x o/x y"}, `task t[x]: input "one" and output "out" are both at o/x`},
		{[]string{"id a b", "x y y"}, `task t[x]: input "one" and input "two" are both at y`},
		{[]string{"id a b", "z y q"}, `s[id=x].a: s has no file for u`},
	} {
		d, err := manifest.Parse("f", []byte(sheetFile))
		if err != nil {
			t.Fatal(err)
		}
		if d, err = d.Expand(manifest.Lists{"s": table(test.sheet...)}); err == nil {
			err = d.Faults()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: got %v, want %s", test.sheet, err, test.want)
		}
	}
}

func TestSheetPath(t *testing.T) {
	for _, test := range []struct {
		cell, path string
		folder     bool
		fault      string
	}{
		{" raw/x.fq ", "raw/x.fq", false, ""}, {"./raw//x/", "raw/x", true, ""}, {"", "", false, ""},
		{"s3://b/k", "", false, "the cell is a URL"}, {"../x", "", false, "leaves the folder"}, {".", "", false, "is the folder of the package file"},
		{".e3/objects", "", false, "e3's own"}, {`C:\x`, "", false, "is absolute"},
	} {
		clean, folder, fault := manifest.SheetPath(test.cell)
		if test.fault == "" && (clean != test.path || folder != test.folder || fault != "") || !strings.Contains(fault, test.fault) {
			t.Errorf("%q: got %q, %t, %q, want %q, %t, %q", test.cell, clean, folder, fault, test.path, test.folder, test.fault)
		}
	}
}

// Columns of a zip name a row together, and a constant of a group is that of all its rows.
func TestRowsOfSeveralColumns(t *testing.T) {
	file := `e3: 1
name: p
inputs: {s: {file: s.csv, paths: [a, b]}}
tasks:
  t: {matrix: {zip: {id: s.sample, k: {from: s, column: lane, with: [g]}}}, in: ["s[id,k].a"], out: "o/{id}-{k}", run: x}
  u: {matrix: {n: {from: s, column: sample, with: [g]}}, in: {f: "s[n, *].a", h: "s[n, *].b", m: {from: "t[id=n, *]"}}, out: "{n}", run: x}
`
	sheet := table("sample lane g a b", "x 1 G raw/1/r -", "x 2 G raw/2/r far/", "y 1 H raw/3 -")
	sheet.Items[0][4], sheet.Items[2][4] = "", ""
	d := expand(t, file, manifest.Lists{"s": sheet})
	var got []string
	for i := range d.Tasks {
		s := d.Tasks[i].Name
		for _, v := range d.Tasks[i].Items[1:] {
			s += " " + v.Name + "=" + v.Value
		}
		for _, in := range d.Tasks[i].Inputs {
			s += " " + in.Name + "@" + in.Path
			if in.Source.Kind == manifest.FromFanIn {
				for _, it := range d.FanIns[in.Source.Index] {
					s += " " + it.Label + "<" + it.Path
				}
			}
		}
		got = append(got, s)
	}
	want := []string{
		"t[id=x,k=1] k=1 g=G a@raw/1/r", "t[id=x,k=2] k=2 g=G a@raw/2/r", "t[id=y,k=1] k=1 g=H a@raw/3",
		"u[x] g=G f@f 1-r<raw/1/r 2-r<raw/2/r h@h 2-far<far m@m id=x,k=1< id=x,k=2<",
		"u[y] g=H f@f 1-3<raw/3 m@m id=y,k=1<",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tasks differ (-want +got):\n%s", diff)
	}
}

func TestRowsOfSeveralColumnsFaults(t *testing.T) {
	file := "e3: 1\nname: p\ninputs: {s: {file: s.csv, paths: [a]}, o: {file: o.csv}}\ntasks:\n  t: {%s, out: o, run: x}\n"
	sheet := manifest.Lists{"s": table("n g a", "x G r", "x H s", "y G t"), "o": table("n", "x", "z")}
	for _, test := range []struct{ task, want string }{
		{`matrix: {zip: {n: s.n, k: [1]}}`, "zip: k: a column and a list in one zip"},
		{`matrix: {zip: {k: [1], n: s.n}}`, "zip: n: a column and a list in one zip"},
		{`matrix: {zip: {n: s.n, g: o.g}}`, "a zip has columns of one source, and these are of s and o"},
		{`matrix: {zip: {n: s.n, g: s}}`, `"s" names no column`},
		{`matrix: {zip: {n: s.n, g: s.h}}`, `s has no column "h"; its columns are n, g, a`},
		{`matrix: {m: {from: s, by: n}}`, "item 1 and item 2 of s are both named x; " +
			"for one task for each m write {m: s.n}; for one for each row {zip: {m: s.n, g: s.g}}"},
		{`matrix: {zip: {m: s.n}}`, "item 1 and item 2 of s are both named x"},
		{`matrix: {n: {from: s, column: n, with: [g]}}`, "item 1 and item 2 of s have the n x and differ in g"},
		{`matrix: {n: s.n}, in: ["s[n].a"]`, "s has several files for t[x]; s[n, *].a is a folder of all"},
		{`matrix: {n: o}, in: ["s[n, *].a"]`, "s has no row for t[z]"},
	} {
		d, err := manifest.Parse("f", fmt.Appendf(nil, file, test.task))
		if err == nil {
			if d, err = d.Expand(sheet); err == nil {
				err = d.Faults()
			}
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.task, err, test.want)
		}
	}
}
