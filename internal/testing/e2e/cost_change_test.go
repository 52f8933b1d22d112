//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/objectstore"
)

// sourced writes a package of n tasks in which each reads one of n/5 files, and one a folder with as many; revision is in the command
// of one task.
func (c *costs) sourced(n, revision int) {
	c.t.Helper()
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\ninputs:\n  tree: {dir: tree}\n")
	for i := range n / 5 {
		fmt.Fprintf(&b, "  s%d: {file: src/%[1]d.txt}\n", i)
	}
	b.WriteString("tasks:\n  all: {in: [tree], out: o, run: " + shell("echo all > {out}") + "}\n")
	for i := range n {
		said := i
		if i == n/2 {
			said = i + revision
		}
		fmt.Fprintf(&b, "  t%d: {in: [s%d], out: o, run: %s}\n", i, i%(n/5), shell("echo "+strconv.Itoa(i)+" "+strconv.Itoa(said)+" > {out}"))
	}
	c.write("e3.yaml", b.String())
}

// sources writes the inputs that sourced names.
func (c *costs) sources(n int) {
	c.t.Helper()
	for i := range n / 5 {
		c.write(fmt.Sprintf("src/%d.txt", i), fmt.Sprintf("source %d\n", i))
		c.write(fmt.Sprintf("tree/%d/%d.txt", i%20, i), fmt.Sprintf("leaf %d\n", i))
	}
}

// elsewhere has all that follows happen in another clone, on a machine that knows nothing of the repository.
func (c *costs) elsewhere() {
	c.t.Helper()
	clone := c.t.TempDir()
	for _, name := range []string{"src", "tree"} {
		if err := os.CopyFS(filepath.Join(clone, name), os.DirFS(c.path(name))); err != nil {
			c.t.Fatal(err)
		}
	}
	text := c.read("e3.yaml")
	c.dir = clone
	c.write("e3.yaml", text)
	c.machine()
}

// TestCostOfChange counts what a change costs in a large package: requests follow the change, not the package. There are fewer tasks
// with -short or -race, or where there is no dynalite.
func TestCostOfChange(t *testing.T) {
	tasks := 10_000
	if testing.Short() || raceBuild {
		tasks = 1000
	}
	c := newCosts(t, nil)
	if !c.exact { // it goes over the whole table for each query
		tasks = 200
	}
	if env := os.Getenv("E3_COST_TASKS"); env != "" {
		var err error
		if tasks, err = strconv.Atoi(env); err != nil {
			t.Fatal(err)
		}
	}
	const lookup = "Query EXECUTION"
	doc := openCostDoc(t).rows(t, "change")
	// check compares a start with its row: the lookups, and at most so many others. Of these, what goes by time is left out where the
	// start is slow, as on a busy machine.
	check := func(row int, got counts, took time.Duration) {
		t.Helper()
		name := doc[row][0]
		var want [2]int
		for i := range want {
			var err error
			if want[i], err = strconv.Atoi(strings.ReplaceAll(doc[row][2+i], ",", "")); err != nil {
				t.Fatal(err)
			}
		}
		if want[0] == 10_001 {
			want[0] = tasks + 1
		}
		beside := got.total() - got[lookup].requests
		t.Logf("%s: %d requests beside %d lookups in %v\n%s", name, beside, got[lookup].requests, took.Round(time.Millisecond), got)
		if took > 5*time.Second {
			for kind, n := range got {
				if ofRun(kind) || kind == "PutObject streams" || kind == "UpdateItem WORKSPACE" {
					beside -= n.requests
				}
			}
		}
		// A server that is too busy to answer is asked again.
		if n := got[lookup].requests; n > want[0]+want[0]/100 {
			t.Errorf("%s: %d lookups, want at most %d", name, n, want[0])
		}
		if beside > want[1] {
			t.Errorf("%s: %d requests beside the lookups, want at most %d\n%s", name, beside, want[1], got)
		}
	}
	row := 0
	start := func(args ...string) {
		t.Helper()
		began := time.Now()
		got := c.must(append([]string{"start"}, args...)...)
		check(row, got, time.Since(began))
		row++
	}
	began := time.Now()
	c.sources(tasks)
	c.sourced(tasks, 0)
	c.must("workspace", "create", "@", "main")
	first := c.must("workspace", "deploy", "@", "main", "e3.yaml")
	t.Logf("first deploy: %d requests\n%s", first.total(), first)
	c.execute("main")
	t.Logf("%d tasks are on record after %v", tasks, time.Since(began).Round(time.Millisecond))

	here, env := c.dir, slices.Clone(c.env)
	c.elsewhere()
	start("-f", "e3.yaml", "@", "branch")
	c.elsewhere()
	start("-f", "e3.yaml", "@", "again")
	c.sourced(tasks, 1)
	c.elsewhere()
	start("-f", "e3.yaml", "@", "edited")
	c.write("tree/1/1.txt", "changed\n")
	c.elsewhere()
	start("-f", "e3.yaml", "@", "edited")

	c.dir, c.env = here, env
	c.must("start", "@", "main")
	c.sourced(tasks, 2)
	start("@", "main")
	c.write("tree/1/1.txt", "changed again\n")
	start("@", "main")
	c.write("src/1.txt", "changed\n")
	start("@", "main")
	if row != len(doc) {
		t.Errorf("%d rows were counted, doc/cost.md has %d", row, len(doc))
	}
}

// TestLostBesideEdit: neither an edit nor a start asks anything about objects that the workspace names: they are presumed to be
// there. An object that was removed by hand is made good by a deployment that looks at each.
func TestLostBesideEdit(t *testing.T) {
	const n = 20
	c := newCosts(t, nil)
	c.sources(n)
	c.sourced(n, 0)
	c.must("start", "-f", "e3.yaml", "@", "main")
	r := c.open(c.location)
	defer r.Close()
	state, err := r.Workspaces.State(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := r.Workspaces.Packages.Load(t.Context(), state.PackageHash)
	if err != nil {
		t.Fatal(err)
	}
	lose := func(name string) (lost objectstore.Hash) {
		t.Helper()
		for i := range pkg.Tasks {
			if pkg.Tasks[i].Name != name {
				continue
			}
			if lost, err = objectstore.ParseHash(pkg.Tasks[i].Task); err == nil {
				err = r.Objects.Delete(t.Context(), lost)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return lost
	}
	there := func(h objectstore.Hash) bool {
		t.Helper()
		_, err := r.Objects.Stat(t.Context(), h)
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	unneeded, needed := lose("t1"), lose("t2")
	c.write("src/2.txt", "changed\n")
	c.sourced(n, 1)
	c.must("start", "@", "main")
	if there(unneeded) || there(needed) {
		t.Fatal("they are there: the start has asked about each")
	}
	c.must("workspace", "deploy", "@", "main", "e3.yaml")
	if !there(unneeded) || !there(needed) {
		t.Errorf("after a deployment that looks at each object: the task that ran is there: %v; the one that did not: %v", there(needed), there(unneeded))
	}
}
