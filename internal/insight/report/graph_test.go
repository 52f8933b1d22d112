package report_test

import (
	"slices"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/report"
)

// An item follows from each task that makes a list of its matrix, also from one that makes two of them. Of the items of another
// matrix, each of which makes a list, it follows from one that is not known.
func TestGraphNamesListMakers(t *testing.T) {
	list := func(task, entry string) record.PackageList { return record.PackageList{Task: task, Entry: entry} }
	for name, test := range map[string]struct {
		lists []record.PackageList
		want  []string
	}{
		"two tasks":                {[]record.PackageList{list("x", ""), list("y", "")}, []string{"x", "y"}},
		"two outputs":              {[]record.PackageList{list("x", "a"), list("x", "b")}, []string{"x"}},
		"one item":                 {[]record.PackageList{list("m[1]", "a"), list("m[1]", "b")}, []string{"m[1]"}},
		"several items":            {[]record.PackageList{list("m[1]", ""), list("m[2]", ""), list("m[1]", "")}, nil},
		"several items and a task": {[]record.PackageList{list("m[1]", ""), list("x", ""), list("m[2]", "")}, []string{"x"}},
		"an input":                 {[]record.PackageList{{Input: "x"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pkg := &record.Package{Lists: test.lists, Families: []record.PackageFamily{{Name: "f"}}}
			for i := range test.lists {
				pkg.Families[0].Lists = append(pkg.Families[0].Lists, int64(i))
			}
			for _, task := range []string{"x", "y", "m[1]", "m[2]", "f[a]"} {
				pkg.Tasks = append(pkg.Tasks, record.PackageTask{Name: task})
			}
			g := report.Graph(pkg, report.GraphOptions{})
			var got []string
			for _, e := range g.Edges {
				if g.Nodes[e.To].Label == "f[a]" {
					got = append(got, g.Nodes[e.From].Label)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("f[a] follows from %q, want %q", got, test.want)
			}
		})
	}
}
