package layers_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw the picture of the packages in doc/design.md anew")

const (
	design       = "../../../doc/design.md"
	pictureBegin = "<!-- drawn by internal/testing/layers: go test ./internal/testing/layers -update -->\n"
	pictureEnd   = "<!-- end of the drawing -->\n"
)

// wings are the folders whose packages are drawn as one room; what stands below the others of its wing has its own.
var wings = []string{"internal/format", "internal/jobs", "internal/insight/runview", "internal/insight", "internal/host", "internal/testing", "objectstore", "refstore"}

// room is where a package is drawn.
func room(pkg string) string {
	for _, wing := range wings {
		if pkg == wing || strings.HasPrefix(pkg, wing+"/") {
			return wing
		}
	}
	return pkg
}

// rooms returns which rooms the packages of each room import, tests aside.
func rooms(graph map[string][]string) map[string][]string {
	arrows := map[string][]string{}
	for pkg, imports := range graph {
		from := room(pkg)
		arrows[from] = append(arrows[from], "")
		for _, imp := range imports {
			if _, ours := graph[imp]; ours && room(imp) != from {
				arrows[from] = append(arrows[from], room(imp))
			}
		}
	}
	for from, to := range arrows {
		slices.Sort(to)
		arrows[from] = slices.Compact(to)[1:]
	}
	return arrows
}

// leads tells whether a way of two arrows or more leads from one room to another.
func leads(arrows map[string][]string, from, to string) bool {
	seen := map[string]bool{}
	var walk func(at string) bool
	walk = func(at string) bool {
		if seen[at] {
			return false
		}
		seen[at] = true
		for _, next := range arrows[at] {
			if next == to && at != from || !(at == from && next == to) && walk(next) {
				return true
			}
		}
		return false
	}
	return walk(from)
}

// picture draws the rooms with those arrows that no other way makes superfluous.
func picture(arrows map[string][]string) string {
	var b strings.Builder
	b.WriteString("```mermaid\nflowchart TD\n")
	for _, from := range slices.Sorted(maps.Keys(arrows)) {
		for _, to := range arrows[from] {
			if !leads(arrows, from, to) {
				fmt.Fprintf(&b, "  %s --> %s\n", from, to)
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// TestPicture holds the picture in the design against the code.
func TestPicture(t *testing.T) {
	graph := imports(t, "linux")
	for _, outside := range []string{"bench", "internal/release"} {
		delete(graph, outside)
	}
	maps.DeleteFunc(graph, func(pkg string, _ []string) bool { return room(pkg) == "internal/testing" })
	want := picture(rooms(graph))
	text, err := os.ReadFile(design)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), pictureBegin)
	got, after, ends := strings.Cut(rest, pictureEnd)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no place for the picture, between\n%s%s", design, pictureBegin, pictureEnd)
	case got == want:
	case *update:
		if err := os.WriteFile(design, []byte(before+pictureBegin+want+pictureEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the picture in %s is not that of the code: go test ./internal/testing/layers -update\ngot\n%swant\n%s", design, got, want)
	}
}

// TestPictureLeavesOut: an arrow that two others make superfluous is not drawn.
func TestPictureLeavesOut(t *testing.T) {
	got := picture(rooms(map[string][]string{
		"cmd/e3": {"top", "bottom"}, "top": {"objectstore/s3", "fmt"}, "objectstore/s3": {"objectstore"}, "objectstore": {"bottom"}, "bottom": nil,
	}))
	const want = "```mermaid\nflowchart TD\n  cmd/e3 --> top\n  objectstore --> bottom\n  top --> objectstore\n```\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
