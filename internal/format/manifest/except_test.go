package manifest_test

import (
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/manifest"
)

// The patterns mean what they mean in .gitignore.
func TestExcept(t *testing.T) {
	for _, test := range []struct {
		patterns string // of the input data
		out      string // of the paths in it; a folder has a slash
		in       string
	}{
		{"", ".DS_Store a/Thumbs.db x.py~ #x# .#x .x.swp a/.x.swo a/__pycache__/ .ipynb_checkpoints/ .nfs01", "x.swp __pycache__ ~x x#y .x DS_Store"},
		{"*.tmp", "a.tmp .tmp a/b.tmp a.tmp/", "a.tmpx tmp"},
		{"cache/", "cache/ a/cache/ cache/x", "cache a/cache"},
		{"/data/a.txt", "a.txt", "b/a.txt"},
		{"data/a.txt", "a.txt", "b/a.txt data/a.txt"},
		{"data/*/x", "a/x .a/x", "x a/b/x"},
		{"data/**/x", "x a/x a/b/x", "a/y"},
		{"data/a/**", "a/x a/b/", "a/ a"},
		{"**/*.tmp", "x.tmp a/x.tmp", "tmp"},
		{"a?c *b*d*", "abc xbxdx", "ac"},
		{"*.log !keep.log", "a.log", "keep.log a/keep.log"},
		{"!keep.log *.log", "keep.log", ""},
		{"!*~ !__pycache__/", ".DS_Store", "x~ __pycache__/"},
		{"*~", "x~", ""},
		{"*.csv !data/keep/*.csv /data/keep/b.csv /data/c.csv", "a.csv keep/b.csv c.csv", "keep/a.csv"},
	} {
		e := manifest.NewExcept(strings.Fields(test.patterns), "data")
		for want, list := range map[bool]string{true: test.out, false: test.in} {
			for _, p := range strings.Fields(list) {
				path, folder := strings.CutSuffix(p, "/")
				out, _ := e.Leaves(path, folder)
				if out = out || !folder && e.LeavesIn(path); out != want {
					t.Errorf("%q: %s is left out: %t, want %t", test.patterns, p, out, want)
				}
			}
		}
	}
}

func TestExceptRefused(t *testing.T) {
	for _, test := range []struct{ input, want string }{
		{`{file: a, except: [b]}`, `f:3:31: input i: except: only dir, glob and files leave something out`},
		{`{dir: a, except: 1}`, `want a list of patterns, such as ["*.tmp", cache/], not an integer`},
		{`{dir: a, except: [1]}`, `want a pattern such as *.tmp, not an integer`},
		{`{dir: a, except: [""]}`, `f:3:31: input i: except "": the pattern is empty`},
		{`{dir: a, except: ["!/"]}`, `the pattern is empty`},
		{`{dir: a, except: ["*.py[co]"]}`, `brackets mean nothing in a pattern (write a pattern for each, or ? for any character)`},
		{`{dir: a, except: ['b\c']}`, `the pattern holds a backslash (separate folders with /)`},
		{`{dir: a, except: [../b]}`, `the pattern is not a clean path (paths are relative to the package file)`},
		{`{dir: a, except: [b//c]}`, `the pattern is not a clean path`},
		{`{dir: a, except: ["b/c**"]}`, `** must stand alone between slashes`},
		{`{dir: a/b, except: [tmp/x]}`, `input i: except "tmp/x": nothing in a/b has this path (paths are relative to the package file: write a/b/tmp/x)`},
		{`{glob: "a/*.csv", except: [/b]}`, `nothing in a has this path`},
		{`{dir: a/b, except: [a/b/]}`, `except "a/b/": it leaves out all of a/b`},
		{`{dir: a/b, except: ["a/*"]}`, `it leaves out all of a/b`},
		{`{dir: a, excep: [b]}`, `unknown key "excep" (did you mean "except"?)`},
	} {
		_, err := manifest.Parse("f", []byte("e3: 1\nname: p\ninputs: {i: "+test.input+"}\ntasks: {t: {in: [i], out: o, run: x}}\n"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.input, err, test.want)
		}
	}
	d, err := manifest.Parse("f", []byte("e3: 1\nname: p\ninputs: {i: {glob: \"**/*.c\", except: \"a/b\"}}\ntasks: {t: {in: [i], out: o, run: x}}\n"))
	if err != nil || fmt.Sprint(d.Inputs[0].LeftOut) != "[a/b]" {
		t.Errorf("one pattern: got %v, %v, want [a/b]", d, err)
	}
}

// BenchmarkExcept is what a scan pays for each file.
func BenchmarkExcept(b *testing.B) {
	for _, patterns := range []string{"", "*.tmp cache/", "*.tmp /data/a.csv /data/b.csv", "data/**/x"} {
		b.Run(patterns, func(b *testing.B) {
			e := manifest.NewExcept(strings.Fields(patterns), "data")
			for b.Loop() {
				e.Leaves("some/folder/measurement_000123.csv", false)
			}
		})
	}
}
