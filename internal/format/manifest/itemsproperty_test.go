package manifest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/format/manifest"
)

// Random definitions make the same tasks from lists of items as from the same items written out: names, values, wiring
// and order.
func TestItemsWrittenOut(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9.é][a-z0-9 +é]{0,3}[a-z0-9é]`)
	rapid.Check(t, func(t *rapid.T) {
		xs := rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "xs")
		ids := rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "ids")
		sheet := &manifest.List{Columns: []string{"id", "g"}}
		var groups []string
		for _, id := range ids {
			g := rapid.SampledFrom([]string{"g1", "g2", "g3"}).Draw(t, "group")
			sheet.Items = append(sheet.Items, []string{id, g})
			if !slices.Contains(groups, g) {
				groups = append(groups, g)
			}
		}
		out := func(list []string) string {
			quoted := make([]string, len(list))
			for i, s := range list {
				quoted[i] = fmt.Sprintf("%q", s)
			}
			return "[" + strings.Join(quoted, ", ") + "]"
		}
		dims := []struct{ name, data, written string }{
			{"x", "list", out(xs)},
			{"id", "{from: sheet, with: []}", out(ids)},
			{"g", "sheet.g", out(groups)},
			{"y", "[1, 2]", "[1, 2]"},
		}
		var data, written strings.Builder
		for _, b := range []*strings.Builder{&data, &written} {
			b.WriteString(head + "inputs:\n  list: {value: [0]}\n  sheet: {file: sheet.csv}\ntasks:\n")
		}
		type family struct {
			name string
			dims []string
		}
		var made []family
		for n := range rapid.IntRange(1, 5).Draw(t, "tasks") {
			f := family{name: fmt.Sprint("t", n)}
			var d, w []string
			for _, k := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(dims)-1), 1, 3, rapid.ID).Draw(t, "dimensions") {
				f.dims = append(f.dims, dims[k].name)
				d = append(d, dims[k].name+": "+dims[k].data)
				w = append(w, dims[k].name+": "+dims[k].written)
			}
			var reads []string
			for r, to := range made {
				if !rapid.Bool().Draw(t, "reads") {
					continue
				}
				var selected []string
				for _, dim := range to.dims {
					if slices.Contains(f.dims, dim) && rapid.Bool().Draw(t, "own") {
						selected = append(selected, dim+"="+dim)
					} else {
						selected = append(selected, dim+"=*")
					}
				}
				reads = append(reads, fmt.Sprintf("r%d: {from: %q}", r, to.name+"["+strings.Join(selected, ",")+"]"))
			}
			fmt.Fprintf(&data, "  %s: {matrix: {%s}, in: {%s}, out: %s.out.txt, run: x}\n", f.name, strings.Join(d, ", "), strings.Join(reads, ", "), f.name)
			fmt.Fprintf(&written, "  %s: {matrix: {%s}, in: {%s}, out: %s.out.txt, run: x}\n", f.name, strings.Join(w, ", "), strings.Join(reads, ", "), f.name)
			made = append(made, f)
		}
		grown, err := manifest.Parse("e3.yaml", []byte(data.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, data.String())
		}
		if grown, err = grown.Expand(manifest.Lists{"list": values(xs...), "sheet": sheet}); err != nil {
			t.Fatalf("%v\n%s", err, data.String())
		}
		literal, err := manifest.Parse("e3.yaml", []byte(written.String()))
		if err != nil {
			if strings.Contains(err.Error(), "is both a dimension") { // of data only the dimension is meant
				t.Skip("the drawn names clash: others are drawn")
			}
			t.Fatalf("%v\n%s", err, written.String())
		}
		if err := grown.Faults(); err != nil {
			t.Fatalf("%v\n%s", err, data.String())
		}
		if diff := cmp.Diff(tasksOf(literal), tasksOf(grown)); diff != "" {
			t.Fatalf("(-written out +data)\n%s\n%s\n%s", diff, data.String(), written.String())
		}
	})
}

// Two values never have the same label, and every label is one.
func TestEscapeLabel(t *testing.T) {
	for _, test := range [][2]string{
		{"s1", "s1"}, {"50%", "50%"}, {"a/b", "a%2Fb"}, {"a%2Fb", "a%252Fb"}, {"a%2/", "a%2%2F"}, {"%/", "%%2F"}, {"*", "%2A"}, {"..", "%2E%2E"},
		{" a ", "%20a%20"}, {"a b", "a b"}, {"a=b,c[d]", "a%3Db%2Cc%5Bd%5D"}, {"\n", "%0A"}, {"é", "é"}, {"\xff", "%FF"}, {"\u0085", "%C2%85"},
	} {
		if got := manifest.EscapeLabel(test[0]); got != test[1] {
			t.Errorf("EscapeLabel(%q) is %q, want %q", test[0], got, test[1])
		}
	}
	text := rapid.StringOfN(rapid.RuneFrom([]rune("a2F%/*. =é\u00a0")), 1, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		x, y := manifest.EscapeLabel(a), manifest.EscapeLabel(b)
		if (x == y) != (a == b) {
			t.Fatalf("%q and %q have the labels %q and %q", a, b, x, y)
		}
		if !manifest.ValidLabelItem(x) {
			t.Fatalf("the label %q of %q is none", x, a)
		}
	})
}

// The texts of names, put into the pattern, make the path.
func TestPattern(t *testing.T) {
	for _, test := range []struct {
		pattern, path string
		want          []string
	}{
		{"raw/{sample}_{lane}.fq", "raw/s1_L1.fq", []string{"s1", "L1"}},
		{"raw/{sample}_{lane}.fq", "raw/a_b_L1.fq", []string{"a_b", "L1"}},
		{"raw/{sample}_{lane}.fq", "raw/_L1.fq", nil},
		{"{s}/{s}.txt", "a/a.txt", []string{"a"}},
		{"{s}/{s}.txt", "a/b.txt", nil},
		{"{s}/**/{t}.txt", "a/b.txt", []string{"a", "b"}},
		{"{s}/**/{t}.txt", "a/x/y/b.txt", []string{"a", "b"}},
		{"{d}/?{t}.{e}", "a/éb.c", []string{"a", "b", "c"}},
		{"{a}-{b}-{a}", "x-y-x", []string{"x", "y"}},
		{"{a}-{b}-{a}", "x-y-x-y-x-y-x", []string{"x-y-x", "y"}},
		{"{X}{a}.{b}", "{X}q.r", []string{"q", "r"}},
	} {
		p, err := manifest.ParsePattern(test.pattern)
		if err != nil {
			t.Fatalf("%s: %v", test.pattern, err)
		}
		got, ok := p.Match(test.path)
		if !ok {
			got = nil
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s in %s: %q, want %q", test.pattern, test.path, got, test.want)
		}
		if ok && !manifest.MatchGlob(p.Glob, test.path) {
			t.Errorf("%s: the glob %s does not match %s", test.pattern, p.Glob, test.path)
		}
	}
	for _, pattern := range []string{"raw/*.fq", "{a}{b}", "{a}*", "*{a}", "{A}", "a/{}.x"} {
		if _, err := manifest.ParsePattern(pattern); err == nil {
			t.Errorf("%s is taken", pattern)
		}
	}
	hard, err := manifest.ParsePattern("{a}-{b}-{c}-{d}-{e}-{f}!")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := hard.Match(strings.Repeat("-a", 400)); ok {
		t.Error("a pattern matches what it does not")
	}
}
