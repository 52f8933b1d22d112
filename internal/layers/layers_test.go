// Package layers_test holds the direction of imports (doc/design.md, "Layers"): a package
// imports only what stands below it, and only what its row allows.
package layers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "e3"

// table is the law: a package, then what of this module its non-test files may import. A
// row names only rows below it, so there are no cycles. A package without a row, and a row
// without a package, is a violation. "(test)" marks a package that only tests may import.
const table = `
cmd/e3:                        workspace dataflow executions objectstore internal/repo internal/runner internal/events
                               internal/manifest internal/record internal/value internal/beast2

# The composition root: it alone knows the backends.
internal/repo:                 workspace executions objectstore refstore refstore/fs internal/events internal/runner internal/record

workspace:                     dataflow executions objectstore refstore internal/events internal/manifest internal/record internal/value
dataflow:                      executions objectstore internal/events internal/record
executions:                    objectstore refstore internal/record internal/runner internal/value

internal/events:               refstore
internal/value:                internal/manifest internal/beast2
internal/manifest:
internal/runner:
internal/record:               objectstore internal/beast2

objectstore/objectstoretest:   objectstore
objectstore:                   internal/beast2 internal/atomicfile
refstore/fs:                   refstore internal/atomicfile
refstore/mem:                  refstore
refstore/refstoretest:         refstore
refstore/internal/modeltest:   refstore (test)
refstore:

internal/beast2:
internal/atomicfile:
`

// owners are the only packages that may import these modules: a dependency stays where its
// concern is.
var owners = map[string][]string{
	"github.com/spf13/cobra":       {"cmd/e3"},
	"github.com/spf13/pflag":       {"cmd/e3"},
	"go.yaml.in/yaml":              {"internal/manifest"},
	"github.com/fsnotify/fsnotify": {"refstore/fs"},
}

// A row is what a package may import.
type row struct {
	imports  []string
	testOnly bool
}

// parseTable reads the table; continuation lines begin with a space.
func parseTable(text string) (rows map[string]row, faults []string) {
	rows = map[string]row{}
	var order []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		name, rest, begins := strings.Cut(line, ":")
		if begins {
			order = append(order, name)
			if _, twice := rows[name]; twice {
				faults = append(faults, fmt.Sprintf("%s has two rows", name))
			}
			rows[name] = row{}
		} else {
			rest = line
		}
		if len(order) == 0 {
			continue
		}
		name = order[len(order)-1]
		r := rows[name]
		for _, word := range strings.Fields(rest) {
			if word == "(test)" {
				r.testOnly = true
				continue
			}
			r.imports = append(r.imports, word)
		}
		rows[name] = r
	}
	for i, name := range order {
		for _, imp := range rows[name].imports {
			if slices.Index(order, imp) <= i {
				faults = append(faults, fmt.Sprintf("the row of %s names %s, which is not below it", name, imp))
			}
		}
	}
	return rows, faults
}

// check returns what breaks the law in a graph of packages and their direct imports. Names
// of this module have no prefix there, others are import paths.
func check(text string, graph map[string][]string) []string {
	rows, faults := parseTable(text)
	for name := range rows {
		if _, ok := graph[name]; !ok {
			faults = append(faults, fmt.Sprintf("%s has a row but does not exist", name))
		}
	}
	for pkg, imports := range graph {
		r, ok := rows[pkg]
		if !ok {
			faults = append(faults, fmt.Sprintf("%s has no row: enter it in the table where it belongs", pkg))
			continue
		}
		for _, imp := range imports {
			if msg := checkImport(rows, graph, pkg, imp, r); msg != "" {
				faults = append(faults, pkg+" "+msg)
			}
		}
	}
	slices.Sort(faults)
	return faults
}

func checkImport(rows map[string]row, graph map[string][]string, pkg, imp string, r row) string {
	if _, ours := graph[imp]; ours {
		switch {
		case !slices.Contains(r.imports, imp):
			return fmt.Sprintf("imports %s, which its row does not allow", imp)
		case rows[imp].testOnly && !r.testOnly:
			return fmt.Sprintf("imports %s, which is for tests", imp)
		}
		return ""
	}
	if imp == "testing" && !r.testOnly {
		return "imports testing outside its tests"
	}
	for dep, may := range owners {
		if (imp == dep || strings.HasPrefix(imp, dep+"/")) && !slices.Contains(may, pkg) {
			return fmt.Sprintf("imports %s, which only %s may", imp, strings.Join(may, ", "))
		}
	}
	return ""
}

// listed is a package as the go command describes it.
type listed struct {
	ImportPath string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// list describes all packages of the module on a system.
func list(t *testing.T, goos string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,GoFiles,Imports,Deps", module+"/...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v\n%s", goos, err, stderr.Bytes())
	}
	var pkgs []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list for %s: %v", goos, err)
		}
		if len(p.GoFiles) > 0 { // packages that are nothing but tests are under no law
			pkgs = append(pkgs, p)
		}
	}
	if len(pkgs) == 0 {
		t.Fatalf("go list for %s found no packages", goos)
	}
	return pkgs
}

func TestImportsPointDown(t *testing.T) {
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			graph := map[string][]string{}
			for _, p := range list(t, goos) {
				imports := slices.Clone(p.Imports)
				for i := range imports {
					imports[i] = strings.TrimPrefix(imports[i], module+"/")
				}
				graph[strings.TrimPrefix(p.ImportPath, module+"/")] = imports
			}
			for _, fault := range check(table, graph) {
				t.Error(fault)
			}
		})
	}
}

// The binary must not link testing, by whatever way.
func TestCommandsLinkNoTesting(t *testing.T) {
	for _, p := range list(t, "linux") {
		if strings.HasPrefix(p.ImportPath, module+"/cmd/") && slices.Contains(p.Deps, "testing") {
			t.Errorf("%s links testing", p.ImportPath)
		}
	}
}

func TestCheckFindsViolations(t *testing.T) {
	const law = `
cmd/e3:    root top
root:      top store
top:       bottom
           suite
suite:     bottom (test)
store:     bottom
bottom:    # imports nothing
`
	whole := map[string][]string{
		"cmd/e3": {"root", "top", "github.com/spf13/cobra"},
		"root":   {"top", "store"},
		"top":    {"bottom", "fmt"},
		"suite":  {"bottom", "testing"},
		"store":  {"bottom"},
		"bottom": {"os"},
	}
	if got := check(law, whole); len(got) > 0 {
		t.Fatalf("a lawful graph: got %q, want no violations", got)
	}
	for _, tt := range []struct {
		name string
		law  string
		pkg  string
		imp  []string
		want string
	}{
		{"upward", law, "bottom", []string{"top"}, "bottom imports top, which its row does not allow"},
		{"backend outside the root", law, "top", []string{"store"}, "top imports store, which its row does not allow"},
		{"new package", law, "new", nil, "new has no row: enter it in the table where it belongs"},
		{"testing", law, "store", []string{"bottom", "testing"}, "store imports testing outside its tests"},
		{"test package", law, "top", []string{"suite"}, "top imports suite, which is for tests"},
		{"dependency out of place", law, "top", []string{"go.yaml.in/yaml/v4"}, "top imports go.yaml.in/yaml/v4, which only internal/manifest may"},
		{"row without a package", law + "gone:\n", "", nil, "gone has a row but does not exist"},
		{"row twice", law + "bottom:\n", "", nil, "bottom has two rows"},
		{"table points up", law + "last: top\n", "last", nil, "the row of last names top, which is not below it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			graph := maps.Clone(whole)
			if tt.pkg != "" {
				graph[tt.pkg] = tt.imp
			}
			if got := check(tt.law, graph); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
