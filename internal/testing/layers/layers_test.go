// Package layers_test holds the direction of imports (doc/design.md, "Packages"): a package
// imports only what stands below it, and only what its row allows.
package layers_test

import (
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "e3"

// table is the law: a package, then what of this module its non-test files may import. A
// row names only rows below it, so there are no cycles. A package without a row, and a row
// without a package, is a violation. "(test)" marks a package that only tests may import.
const table = `
# What looks at the program from outside.
bench:                         executions internal/host/room internal/host/runner internal/host/trace internal/jobs/queue internal/repo objectstore objectstore/tree objectstore/s3 refstore refstore/fs refstore/dynamo internal/testing/recorded internal/testing/testserver
internal/testing/e2e:
internal/release:
internal/testing/testserver/serve: internal/testing/testserver
internal/testing/testserver:
internal/testing/recorded:     executions internal/repo objectstore refstore internal/format/record internal/events internal/insight/runview
internal/testing/linear:       (test)
internal/events/eventstest:    internal/events (test)
internal/testing/built:        (test)
internal/testing/testimage:    (test)
internal/testing/suite:        (test)
internal/testing/browser:      (test)

cmd/e3:                        internal/fetch internal/format/moment internal/images internal/propose internal/host/trace internal/watch dataflow/remaining internal/insight/runview dataflow/graph exportimport internal/verify gc internal/resultdir internal/newfile workspace dataflow executions objectstore objectstore/tree refstore internal/repo internal/host/remains internal/host/headroom internal/host/runner internal/events internal/pkgref internal/format/pattern
                               internal/jobs/worker internal/jobs/dispatch internal/jobs/profile internal/jobs/cluster internal/jobs/queue internal/jobs/approval
                               internal/insight/explain internal/insight/compare internal/insight/figures internal/insight/history internal/insight/report internal/insight/trace internal/insight/diagram internal/insight/telemetry internal/insight/stats internal/ui
                               internal/format/manifest internal/format/notation internal/format/record internal/format/value internal/settings internal/format/signature internal/format/beast2 internal/host/modes internal/host/beneath internal/host/atomicfile
                               cmd/e3/internal/render cmd/e3/internal/term internal/human internal/backoff
cmd/e3/internal/render:        cmd/e3/internal/term internal/human
cmd/e3/internal/term:          internal/human

internal/resultdir:            internal/format/manifest internal/repo internal/insight/runview workspace objectstore objectstore/tree refstore internal/format/record internal/host/atomicfile internal/human internal/backoff

# The composition root: it alone knows the backends.
internal/repo:                 internal/fetch internal/format/moment internal/jobs/worker internal/jobs/dispatch internal/jobs/queue internal/jobs/approval workspace executions objectstore objectstore/tree objectstore/cached objectstore/mounted objectstore/objectstoretest objectstore/s3 refstore refstore/refstoretest refstore/checked refstore/fs refstore/dynamo refstore/postgres refstore/lease refstore/overlay refstore/known objectstore/overlay
                               internal/events internal/format/notation internal/format/signature internal/host/remains internal/host/beneath internal/host/filelock internal/host/modes internal/host/runner internal/host/room internal/host/trace internal/host/tools internal/host/process internal/format/record internal/host/atomicfile internal/host/kept internal/settings internal/images internal/images/registry internal/human

internal/images/registry:      internal/images internal/format/image
internal/images:               internal/format/moment objectstore internal/format/image internal/format/digest internal/host/atomicfile
internal/newfile:              internal/format/manifest internal/format/notation internal/format/pattern
internal/propose:              internal/format/manifest internal/format/record internal/host/trace internal/format/pattern
internal/verify:               internal/format/moment internal/insight/runview internal/jobs/queue internal/jobs/approval workspace executions objectstore objectstore/tree refstore internal/reach internal/events internal/settings internal/format/record internal/format/beast2 internal/pkgref
internal/ui:                   dataflow/remaining gc workspace internal/jobs/queue internal/jobs/approval internal/insight/markup internal/insight/report internal/insight/explain internal/insight/compare internal/insight/history internal/insight/stats internal/insight/diagram internal/insight/figures internal/insight/runview dataflow/graph executions objectstore objectstore/tree refstore internal/events internal/format/record internal/format/value internal/format/notation internal/human
gc:                            internal/format/moment workspace executions objectstore refstore internal/reach internal/format/record
exportimport:                  internal/format/moment internal/insight/runview dataflow/graph workspace dataflow executions objectstore objectstore/tree refstore internal/reach internal/format/zipfile internal/settings internal/format/signature internal/packages internal/pkgref
                               internal/events internal/format/notation internal/format/eastref internal/format/record internal/host/atomicfile internal/human internal/backoff
internal/watch:                internal/projectfiles internal/format/items internal/format/manifest
internal/insight/explain:      internal/format/manifest internal/format/moment internal/insight/runview dataflow/plan dataflow/graph internal/insight/history executions objectstore objectstore/tree refstore internal/events internal/format/record internal/format/value internal/human internal/pkgref internal/packages internal/format/pattern
internal/insight/compare:      internal/format/moment internal/insight/runview dataflow/plan dataflow/graph internal/packages executions objectstore objectstore/tree internal/events internal/format/record internal/format/value internal/human internal/parallel internal/insight/figures
workspace:                     internal/fetch internal/format/moment internal/insight/runview dataflow/plan dataflow/graph dataflow internal/jobs/approval executions objectstore objectstore/tree refstore internal/events internal/projectfiles internal/format/manifest internal/format/notation internal/format/eastref internal/format/items internal/format/record internal/format/signature internal/format/value internal/host/git internal/host/stamp internal/host/tools internal/human internal/packages internal/parallel internal/backoff
internal/insight/report:       internal/parallel internal/insight/markup internal/insight/markdown internal/insight/runview internal/insight/diagram internal/insight/plot executions objectstore objectstore/tree internal/format/record internal/format/value internal/human internal/insight/figures internal/format/pattern
internal/insight/trace:        internal/insight/runview dataflow/graph executions internal/events internal/format/record internal/parallel internal/packages
internal/insight/stats:        internal/format/moment internal/insight/runview internal/events internal/format/record refstore
internal/insight/telemetry:    internal/insight/runview internal/events internal/human internal/pkgref internal/backoff
internal/insight/history:      internal/format/moment internal/insight/runview dataflow/graph executions objectstore internal/events internal/format/record internal/human
dataflow/remaining:            dataflow internal/format/moment internal/insight/runview dataflow/graph internal/events internal/human
internal/insight/diagram:      internal/insight/markup internal/insight/runview internal/human
internal/insight/plot:         internal/insight/figures internal/insight/markup internal/format/record internal/human
internal/insight/figures:      internal/format/manifest internal/format/record objectstore objectstore/tree internal/format/pattern
internal/insight/markdown:       internal/insight/markup internal/format/pattern
internal/insight/markup:       internal/human
internal/insight/runview:      internal/format/moment dataflow/graph executions objectstore refstore internal/packages internal/events internal/format/record internal/human internal/parallel internal/pkgref
dataflow:                      dataflow/plan dataflow/graph internal/jobs/approval executions objectstore objectstore/tree refstore internal/events internal/format/record
dataflow/plan:                 dataflow/graph executions objectstore internal/format/record
internal/jobs/worker:          internal/format/moment internal/jobs/dispatch internal/jobs/queue executions objectstore refstore internal/events internal/host/runner internal/format/record internal/backoff
internal/jobs/profile:         internal/jobs/cluster executions internal/jobs/queue internal/format/notation internal/format/record internal/parallel internal/format/pattern
internal/jobs/cluster:         internal/jobs/dispatch executions internal/jobs/queue internal/backoff internal/parallel internal/format/pattern
internal/jobs/dispatch:        internal/jobs/queue executions objectstore refstore internal/format/record internal/backoff
internal/reach:                internal/human executions objectstore objectstore/tree refstore internal/jobs/queue internal/events internal/format/image internal/format/eastref internal/format/record internal/pkgref
internal/packages:             internal/format/moment objectstore refstore internal/format/eastref internal/format/record internal/human internal/pkgref
executions:                    objectstore objectstore/tree refstore internal/format/record internal/format/image internal/format/signature internal/host/bash internal/host/room internal/host/rootfs internal/host/kept internal/host/tools internal/host/trace internal/host/remains internal/host/runner internal/host/cgroup internal/host/process internal/host/watch internal/format/value internal/host/stamp internal/host/modes internal/host/atomicfile internal/human internal/backoff internal/host/beneath

refstore/lease:                refstore internal/host/process internal/human
internal/jobs/queue/queuetest: internal/jobs/queue refstore (test)
internal/jobs/queue:           internal/format/moment refstore internal/events internal/format/record internal/human internal/parallel internal/backoff
internal/jobs/approval:        internal/format/moment refstore internal/format/record
dataflow/graph:                internal/events internal/format/record internal/format/digest
dataflow/graph/graphtest:      internal/format/record internal/format/digest (test)
internal/events:               internal/format/moment refstore internal/human internal/backoff
internal/fetch:                internal/backoff internal/host/atomicfile internal/host/filelock internal/format/notation
internal/settings:             internal/format/moment refstore internal/format/notation internal/format/signature internal/host/atomicfile
internal/projectfiles:         internal/format/manifest
internal/format/items:         internal/format/value internal/format/manifest
internal/format/value:         internal/format/manifest internal/format/beast2
internal/format/manifest:      internal/format/record internal/format/notation internal/format/image internal/format/pattern
internal/host/bash:            internal/host/runner
internal/host/git:             internal/host/beneath
internal/host/rootfs:          internal/host/atomicfile internal/host/beneath
internal/host/kept:            internal/host/atomicfile internal/host/beneath internal/host/filelock
internal/host/tools:           internal/host/atomicfile internal/host/stamp
internal/host/remains:         internal/host/runner internal/host/modes internal/host/beneath
internal/host/runner: internal/host/headroom internal/host/room internal/host/trace internal/host/cgroup internal/host/process
internal/host/cgroup:          internal/host/process
internal/format/eastref:       internal/format/record internal/format/beast2 internal/format/digest
internal/format/record:        internal/format/codec internal/format/beast2 internal/format/notation
internal/format/codec:         internal/format/beast2

objectstore/cached:            objectstore internal/backoff
objectstore/s3:                objectstore internal/backoff
objectstore/mounted:           objectstore internal/host/beneath internal/host/modes
objectstore/overlay:           objectstore
objectstore/objectstoretest:   objectstore objectstore/tree
objectstore/tree:              objectstore internal/format/beast2 internal/format/digest internal/host/stamp internal/host/beneath internal/parallel
objectstore:                   internal/format/digest internal/host/modes internal/host/atomicfile internal/host/stamp internal/host/beneath internal/host/filelock
refstore/checked:              refstore
refstore/overlay:              refstore
refstore/known:                refstore
refstore/fs:                   refstore internal/host/modes internal/host/atomicfile internal/host/beneath internal/host/filelock
refstore/dynamo:               refstore refstore/internal/remote internal/backoff
refstore/postgres:             refstore refstore/internal/remote internal/backoff
refstore/internal/remote:      refstore internal/backoff
refstore/mem:                  refstore
refstore/refstoretest:         refstore
refstore/internal/modeltest:   refstore (test)
refstore:

internal/format/moment:
internal/format/image:         internal/format/digest
internal/format/signature:
internal/format/digest:
internal/format/notation:      internal/format/pattern
internal/format/zipfile:
internal/host/modes:           internal/host/atomicfile internal/host/beneath
internal/pkgref:
internal/format/beast2:
internal/host/atomicfile:
internal/host/room: internal/host/trace internal/host/nofile internal/host/beneath
internal/host/trace:
internal/host/nofile:
internal/host/headroom:
internal/host/watch:
internal/host/process:
internal/human:
internal/parallel:
internal/format/pattern:
internal/backoff:
internal/host/stamp:
internal/host/beneath:
internal/host/filelock:
`

// closed are the wings whose packages import nothing of this module but each other.
var closed = []string{"internal/format/", "internal/host/"}

// owners are the only packages that may import these modules: a dependency stays where its
// concern is.
var owners = map[string][]string{
	"github.com/spf13/cobra":                 {"cmd/e3"},
	"github.com/spf13/pflag":                 {"cmd/e3"},
	"go.yaml.in/yaml":                        {"internal/format/manifest", "internal/insight/figures", "internal/jobs/profile", "internal/newfile", "internal/propose"},
	"github.com/BurntSushi/toml":             {"internal/format/manifest"},
	"mvdan.cc/sh":                            {"internal/format/manifest", "internal/host/bash"},
	"github.com/fsnotify/fsnotify":           {"refstore/fs", "internal/watch"},
	"github.com/VictoriaMetrics":             {"internal/jobs/worker"},
	"github.com/klauspost/compress":          {"internal/format/zipfile", "internal/host/rootfs"},
	"github.com/google/go-containerregistry": {"internal/images/registry", "internal/testing/testimage"},
	"golang.org/x/mod":                       {"internal/pkgref"},
	"golang.org/x/term":                      {"cmd/e3/internal/term"},
	"go.opentelemetry.io":                    {"internal/insight/telemetry"},
	"github.com/aws":                         {"internal/repo", "internal/fetch", "refstore/dynamo", "objectstore/s3", "internal/testing/testserver", "bench"},
	"github.com/truora/minidyn":              {"internal/testing/testserver"},
	"github.com/johannesboyne":               {"internal/testing/testserver"},
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
		for _, wing := range closed {
			if strings.HasPrefix(pkg, wing) && !strings.HasPrefix(imp, wing) {
				return fmt.Sprintf("imports %s: packages of %s import only each other", imp, wing)
			}
		}
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

// imports returns what the packages of the module import on a system. It reads the source
// itself, so that go test knows what a cached result depends on.
func imports(t *testing.T, goos string) map[string][]string {
	t.Helper()
	const root = "../../.."
	system := build.Default
	system.GOOS, system.CgoEnabled = goos, false
	graph := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if name := e.Name(); path != root && (name == "testdata" || strings.ContainsAny(name[:1], "._")) {
			return fs.SkipDir
		}
		p, err := system.ImportDir(path, 0)
		if noGo := (*build.NoGoError)(nil); errors.As(err, &noGo) {
			return nil
		}
		if err != nil || len(p.GoFiles) == 0 { // packages that are nothing but tests are under no law
			return err
		}
		for i := range p.Imports {
			p.Imports[i] = strings.TrimPrefix(p.Imports[i], module+"/")
		}
		name, err := filepath.Rel(root, path)
		graph[filepath.ToSlash(name)] = p.Imports
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return graph
}

func TestImportsPointDown(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		t.Run(goos, func(t *testing.T) {
			for _, fault := range check(table, imports(t, goos)) {
				t.Error(fault)
			}
		})
	}
}

// TestInsightOnlyReads: among the imports of insight, direct or not, there is no scheduler, no worker, and no workspace that is
// written. executions is the exception, and with it the runner of processes: records of attempts are read there, beside what
// makes them.
func TestInsightOnlyReads(t *testing.T) {
	graph := imports(t, "linux")
	runs := []string{"dataflow", "workspace", "gc", "exportimport", "internal/jobs/worker", "internal/jobs/dispatch", "internal/jobs/cluster", "internal/jobs/queue"}
	for pkg := range graph {
		if !strings.HasPrefix(pkg, "internal/insight/") {
			continue
		}
		seen := map[string]bool{pkg: true}
		for next := []string{pkg}; len(next) > 0; next = next[1:] {
			for _, imp := range graph[next[0]] {
				if !seen[imp] {
					seen[imp], next = true, append(next, imp)
				}
			}
		}
		for _, imp := range runs {
			if seen[imp] {
				t.Errorf("%s imports %s, perhaps through others: insight reads, and runs nothing", pkg, imp)
			}
		}
	}
}

// The program must not link testing, by whatever way.
func TestProgramLinksNoTesting(t *testing.T) {
	imports(t, "linux") // for the cache of go test, which does not see what go list reads
	if _, err := os.ReadFile("../../../go.mod"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "list", "-deps", module+"/cmd/e3").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/workspace") {
		t.Fatalf("go list named %d packages, without %s/workspace", len(deps), module)
	}
	if slices.Contains(deps, "testing") {
		t.Errorf("%s/cmd/e3 links testing", module)
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
		{"out of a closed wing", law + "internal/host/a: low\nlow:\n", "", nil, "internal/host/a imports low: packages of internal/host/ import only each other"},
		{"new package", law, "new", nil, "new has no row: enter it in the table where it belongs"},
		{"testing", law, "store", []string{"bottom", "testing"}, "store imports testing outside its tests"},
		{"test package", law, "top", []string{"suite"}, "top imports suite, which is for tests"},
		{"dependency out of place", law, "top", []string{"go.yaml.in/yaml/v4"}, "top imports go.yaml.in/yaml/v4, which only internal/format/manifest, internal/insight/figures, internal/jobs/profile, internal/newfile, internal/propose may"},
		{"row without a package", law + "gone:\n", "", nil, "gone has a row but does not exist"},
		{"row twice", law + "bottom:\n", "", nil, "bottom has two rows"},
		{"table points up", law + "last: top\n", "last", nil, "the row of last names top, which is not below it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			graph := maps.Clone(whole)
			if tt.pkg != "" {
				graph[tt.pkg] = tt.imp
			}
			if strings.Contains(tt.law, "low:") {
				graph["internal/host/a"], graph["low"] = []string{"low"}, nil
			}
			if got := check(tt.law, graph); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}
