//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/record"
	"e3/internal/repo"
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

// executeSourced records an execution of each task of a workspace with one input, as if they had run.
func (c *costs) executeSourced(ws string) {
	c.t.Helper()
	r := c.open(c.location)
	defer func() {
		if err := r.Close(); err != nil {
			c.t.Error(err)
		}
	}()
	ctx := c.t.Context()
	state, err := r.Workspaces.State(ctx, ws)
	if err != nil {
		c.t.Fatal(err)
	}
	pkg, err := r.Workspaces.Packages.Load(ctx, state.PackageHash)
	if err != nil {
		c.t.Fatal(err)
	}
	inputs := map[string]objectstore.Hash{}
	for i := range pkg.Inputs {
		if inputs[pkg.Inputs[i].Name], err = objectstore.ParseHash(pkg.Inputs[i].Default.Hash); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := succeedAll(ctx, r, pkg, inputs); err != nil {
		c.t.Fatal(err)
	}
}

func succeedAll(ctx context.Context, r *repo.Repo, pkg *record.Package, inputs map[string]objectstore.Hash) error {
	output, err := r.Objects.PutBytes(ctx, []byte("output\n"))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range pkg.Tasks {
		t := &pkg.Tasks[i]
		g.Go(func() error { return succeed(ctx, r.Records, t, inputs[t.Wiring[0].Name], output) })
	}
	return g.Wait()
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
	check := func(name string, got counts, most, lookups int) {
		t.Helper()
		t.Logf("%s: %d requests beside %d lookups\n%s", name, got.total()-got[lookup].requests, got[lookup].requests, got)
		// A server that is too busy to answer is asked again.
		if n := got[lookup].requests; n > lookups+lookups/100 {
			t.Errorf("%s: %d lookups, want at most %d", name, n, lookups)
		}
		if beside := got.total() - got[lookup].requests; beside > most {
			t.Errorf("%s: %d requests beside the lookups, want at most %d\n%s", name, beside, most, got)
		}
	}
	began := time.Now()
	c.sources(tasks)
	c.sourced(tasks, 0)
	first := c.must("workspace", "create", "@", "main")
	first = c.must("workspace", "deploy", "@", "main", "e3.yaml")
	t.Logf("first deploy: %d requests\n%s", first.total(), first)
	c.executeSourced("main")
	t.Logf("%d tasks are on record after %v", tasks, time.Since(began).Round(time.Millisecond))

	here, env := c.dir, slices.Clone(c.env)
	c.elsewhere()
	check("new machine, nothing proven", c.must("start", "-f", "e3.yaml", "@", "branch"), 200, tasks+4)
	c.elsewhere()
	check("new machine, proven under another workspace", c.must("start", "-f", "e3.yaml", "@", "again"), 200, 4)
	c.sourced(tasks, 1)
	c.elsewhere()
	check("new machine, one task edited", c.must("start", "-f", "e3.yaml", "@", "edited"), 200, 4)
	c.write("tree/1/1.txt", "changed\n")
	c.elsewhere()
	check("new machine, one file of a folder changed", c.must("start", "-f", "e3.yaml", "@", "edited"), 200, 4)

	c.dir, c.env = here, env
	c.must("start", "@", "main")
	c.sourced(tasks, 2)
	check("one task edited", c.must("start", "@", "main"), 147, 3)
	c.write("tree/1/1.txt", "changed again\n")
	check("one file of a folder changed", c.must("start", "@", "main"), 147, 3)
	c.write("src/1.txt", "changed\n")
	five := c.must("start", "@", "main")
	t.Logf("one input changed: %d requests\n%s", five.total(), five)
}
