package graph_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/dataflow/graph"
	"e3/dataflow/graph/graphtest"
	"e3/internal/events"
	"e3/internal/format/digest"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

func graphOf(t *testing.T, pkg *record.Package) *graph.Graph {
	t.Helper()
	g, err := graph.New(pkg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGraph(t *testing.T) {
	g := graphOf(t, graphtest.Flow("report: train clean", "clean", "train: clean clean"))
	if g.Len() != 3 {
		t.Fatalf("%d tasks, want 3", g.Len())
	}
	at := map[string]int32{}
	for i := range int32(3) {
		at[g.Name(i)] = i
		if found, ok := g.Find(g.Name(i)); !ok || found != i {
			t.Errorf("Find(%s) is %d, %v", g.Name(i), found, ok)
		}
		if g.Hashes[i].String() != g.Package.Tasks[i].Task {
			t.Errorf("the hash of %s is %s", g.Name(i), g.Hashes[i])
		}
	}
	if _, ok := g.Find("absent"); ok {
		t.Error("a task that does not exist is found")
	}
	if got, want := g.Dependencies(at["train"]), []int32{at["clean"]}; !slices.Equal(got, want) {
		t.Errorf("train reads %v, want %v once", got, want)
	}
	if got, want := g.Dependents(at["clean"]), []int32{at["report"], at["train"]}; !slices.Equal(got, want) {
		t.Errorf("clean is read by %v, want %v", got, want)
	}
}

func TestGraphRefuses(t *testing.T) {
	edit := func(pkg *record.Package, change func(*record.Package)) *record.Package {
		change(pkg)
		return pkg
	}
	for _, test := range []struct {
		name string
		pkg  *record.Package
		want []string
	}{
		{"unknown task", graphtest.Flow("a: b"), []string{"flow", "task a", `"b"`, "does not exist"}},
		{"unknown task in a fan-in", edit(graphtest.Flow("a"), func(p *record.Package) {
			p.Tasks[0].Wiring = []record.Wire{{Kind: record.WireFanIn, Items: []record.FanItem{{Label: "1", Task: "zz"}}}}
		}), []string{"task a", `"zz"`}},
		{"unknown input", edit(graphtest.Flow("a"), func(p *record.Package) { p.Inputs = nil }), []string{"task a", "input", `"x"`}},
		{"task twice", graphtest.Flow("a", "b", "a"), []string{`"a"`, "two"}},
		{"input twice", edit(graphtest.Flow("a"), func(p *record.Package) { p.Inputs = append(p.Inputs, p.Inputs[0]) }), []string{`"x"`, "two"}},
		{"no task hash", edit(graphtest.Flow("a"), func(p *record.Package) { p.Tasks[0].Task = "abc" }), []string{"task a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := graph.New(test.pkg)
			if err == nil {
				t.Fatal("taken")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want %s in it", err, want)
				}
			}
		})
	}
}

// The error for a cycle names the tasks on it in order, and no other tasks.
func TestCycle(t *testing.T) {
	for _, test := range []struct {
		name  string
		lines []string
		want  [][]string // any of these
	}{
		{"itself", []string{"a: a"}, [][]string{{"a", "a"}}},
		{"two", []string{"a: b", "b: a"}, [][]string{{"a", "b", "a"}, {"b", "a", "b"}}},
		{"three among others", []string{"before", "a: before c", "b: a", "c: b", "after: c", "apart"},
			[][]string{{"a", "c", "b", "a"}, {"c", "b", "a", "c"}, {"b", "a", "c", "b"}}},
		{"two cycles", []string{"a: b", "b: a", "c: d a", "d: c"}, [][]string{{"a", "b", "a"}, {"b", "a", "b"}, {"c", "d", "c"}, {"d", "c", "d"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := graph.New(graphtest.Flow(test.lines...))
			var cycle *graph.CycleError
			if !errors.As(err, &cycle) {
				t.Fatalf("got %v, want a *CycleError", err)
			}
			if !slices.ContainsFunc(test.want, func(w []string) bool { return slices.Equal(w, cycle.Tasks) }) {
				t.Errorf("the cycle is %v, want one of %v", cycle.Tasks, test.want)
			}
			if !strings.Contains(err.Error(), strings.Join(cycle.Tasks, " → ")) {
				t.Errorf("error is %q", err)
			}
		})
	}
}

// For random wirings: a graph is refused exactly if a task depends on itself, and the error names such a cycle.
func TestCycleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "tasks")
		reads := map[string][]string{}
		var lines []string
		for i := range n {
			name := fmt.Sprint("t", i)
			for _, d := range rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 3).Draw(t, "reads") {
				reads[name] = append(reads[name], fmt.Sprint("t", d))
			}
			lines = append(lines, name+": "+strings.Join(reads[name], " "))
		}
		_, err := graph.New(graphtest.Flow(lines...))
		var cycle *graph.CycleError
		if errors.As(err, &cycle) {
			if len(cycle.Tasks) < 2 || cycle.Tasks[0] != cycle.Tasks[len(cycle.Tasks)-1] {
				t.Fatalf("%v does not come back", cycle.Tasks)
			}
			for i := 1; i < len(cycle.Tasks); i++ {
				if !slices.Contains(reads[cycle.Tasks[i-1]], cycle.Tasks[i]) {
					t.Fatalf("in %v, %s does not read %s", cycle.Tasks, cycle.Tasks[i-1], cycle.Tasks[i])
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		var visit func(name string, above []string)
		visit = func(name string, above []string) {
			if slices.Contains(above, name) {
				t.Fatalf("%v comes back to %s and was taken", above, name)
			}
			for _, d := range reads[name] {
				visit(d, append(above, name))
			}
		}
		for name := range reads {
			visit(name, nil)
		}
	})
}

// A fan-in of many wires, each read twice, is linked in one pass.
func TestLargeFanIn(t *testing.T) {
	build := func(n int) *record.Package {
		pkg := &record.Package{Name: "wide", Inputs: []record.PackageInput{{Name: "x"}}}
		w := record.Wire{Kind: record.WireFanIn}
		for i := range n {
			name := fmt.Sprint("t", i)
			pkg.Tasks = append(pkg.Tasks, record.PackageTask{Name: name, Task: digest.Sum([]byte(name)).String(), Wiring: []record.Wire{{Kind: record.WireInput, Name: "x"}}})
			w.Items = append(w.Items, record.FanItem{Label: name, Task: name})
		}
		pkg.Tasks = append(pkg.Tasks, record.PackageTask{Name: "all", Task: digest.Sum([]byte("all")).String(), Wiring: []record.Wire{w, w}})
		return pkg
	}
	took := func(pkg *record.Package) time.Duration {
		best := time.Hour
		for range 5 {
			began := suite.ProcessorTime(t)
			g := graphOf(t, pkg)
			best = min(best, suite.ProcessorTime(t)-began)
			if i, _ := g.Find("all"); len(g.Dependencies(i)) != len(pkg.Tasks)-1 {
				t.Fatalf("%d dependencies, want %d", len(g.Dependencies(i)), len(pkg.Tasks)-1)
			}
		}
		return best
	}
	small, large := took(build(2_000)), took(build(32_000))
	// 16 times as many wires would take 256 times as long if each wire were compared with every other one.
	if large > 100*small {
		t.Errorf("2,000 wires take %v of processor time, 32,000 take %v", small, large)
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"train", "train", true},
		{"train", "trainer", false},
		{"train", "retrain", false},
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "train[4]", true},
		{"train*", "train", true},
		{"*[4]", "train[4]", true},
		{"train[*]", "train[depth=4,lr=0.1]", true},
		{"train[4]", "train4", false}, // brackets are literal
		{"train[?]", "train[4]", true},
		{"train[?]", "train[44]", false},
		{"?", "é", true},
		{"??", "é", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "aXbYbZ", false},
		{"*a", "aaab", false},
		{"**", "x", true},
		{"a.b", "a.b", true},
		{"a.b", "axb", false},
		{"A", "a", false},
	} {
		if got := events.Match(test.pattern, test.name); got != test.want {
			t.Errorf("Match(%q, %q) is %v, want %v", test.pattern, test.name, got, test.want)
		}
	}
}

// Match against the plain definition.
func TestMatchProperty(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab*?[é")), 0, 8, -1)
	var define func(p, n []rune) bool
	define = func(p, n []rune) bool {
		switch {
		case len(p) == 0:
			return len(n) == 0
		case p[0] == '*':
			return define(p[1:], n) || len(n) > 0 && define(p, n[1:])
		case len(n) == 0:
			return false
		}
		return (p[0] == '?' || p[0] == n[0]) && define(p[1:], n[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern, name := text.Draw(t, "pattern"), text.Draw(t, "name")
		if got, want := events.Match(pattern, name), define([]rune(pattern), []rune(name)); got != want {
			t.Fatalf("Match(%q, %q) is %v, want %v", pattern, name, got, want)
		}
	})
}

func TestSelect(t *testing.T) {
	g := graphOf(t, graphtest.Flow("report: train[8]", "clean", "train[4]: clean", "train[8]: clean other", "other", "apart"))
	for _, test := range []struct{ pattern, named, selected string }{
		{"*", "report clean train[4] train[8] other apart", "report clean train[4] train[8] other apart"},
		{"report", "report", "report clean train[8] other"},
		{"train[*]", "train[4] train[8]", "clean train[4] train[8] other"},
		{"apart", "apart", "apart"},
		{"none", "", ""},
	} {
		named, selected := g.Select(test.pattern)
		names := func(chosen []bool) string {
			var list []string
			for i, yes := range chosen {
				if yes {
					list = append(list, g.Name(int32(i)))
				}
			}
			return strings.Join(list, " ")
		}
		if got := names(named); got != test.named {
			t.Errorf("%s names %q, want %q", test.pattern, got, test.named)
		}
		if got := names(selected); got != test.selected {
			t.Errorf("%s selects %q, want %q", test.pattern, got, test.selected)
		}
	}
}
