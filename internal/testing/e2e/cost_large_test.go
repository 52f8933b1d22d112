//go:build linux

package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/recorded"
	"e3/internal/testing/testserver"
)

// open opens the repository at one of its locations: c.direct is to read from without being counted.
func (c *costs) open(location string) *repo.Repo {
	c.t.Helper()
	for _, v := range testserver.Env() {
		name, value, _ := strings.Cut(v, "=")
		c.t.(*testing.T).Setenv(name, value)
	}
	local := c.path("elsewhere")
	r, err := repo.Open(c.t.Context(), location, repo.Options{Getenv: func(name string) string {
		switch name {
		case repo.CacheDirVariable, repo.StateDirVariable:
			return local
		}
		return ""
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// execute records an execution of each task of a workspace, as if they had run.
func (c *costs) execute(ws string) {
	c.t.Helper()
	r := c.open(c.location)
	defer func() {
		if err := r.Close(); err != nil {
			c.t.Error(err)
		}
	}()
	if err := recorded.Workspace(c.t.Context(), r, ws); err != nil {
		c.t.Fatal(err)
	}
}

// TestCostOfLargeWorkspace counts what a start asks where 10,000 tasks are cached: a fixed number where a proof
// stands, whatever machine asks and of whatever workspace it is, else one read for each task besides. There are fewer with -short or -race, or where
// there is no dynalite.
func TestCostOfLargeWorkspace(t *testing.T) {
	tasks := 10_000
	if testing.Short() || raceBuild {
		tasks = 1000
	}
	doc := openCostDoc(t)
	c := newCosts(t, nil)
	if !c.exact { // it goes over the whole table for each query
		tasks = 200
	}
	began := time.Now()
	c.manifest("e3.yaml", tasks, shell("echo {n} > {out}"))
	c.must("workspace", "create", "@", "w")
	c.must("workspace", "deploy", "@", "w", "e3.yaml")
	c.execute("w")
	c.must("workspace", "create", "@", "forced")
	c.must("workspace", "deploy", "@", "forced", "e3.yaml")
	t.Logf("%d tasks are on record after %v", tasks, time.Since(began).Round(time.Millisecond))

	// The first start finds what another one has left, and has no proof.
	const lookup = "Query EXECUTION"
	for i, step := range []struct {
		name    string
		ws      string
		machine bool // another one
		lookups int
	}{
		{"nothing proven", "w", true, tasks},
		{"nothing changed", "w", false, 0},
		{"nothing changed, again", "w", false, 0},
		{"nothing changed, another machine", "w", true, 0},
		{"proven in another workspace only", "forced", true, 0},
	} {
		if step.machine {
			c.machine()
		}
		began := time.Now()
		got := c.outside(func() counts { return c.must("start", "@", step.ws) })
		elapsed := int(time.Since(began) / time.Second)
		beside := got.total() - got[lookup].requests
		t.Logf("%s: %d requests beside %d lookups\n%s", step.name, beside, got[lookup].requests, got)
		// A server that is too busy to answer is asked again.
		if n := got[lookup].requests; n < step.lookups || n > step.lookups+step.lookups/100 {
			t.Errorf("%s: %d lookups, want %d", step.name, n, step.lookups)
		}
		if beside >= 300 {
			t.Errorf("%s: %d requests beside the lookups, want under 300\n%s", step.name, beside, got)
		}
		most, err := strconv.Atoi(doc.rows(t, "large")[i][2])
		if err != nil {
			t.Fatal(err)
		}
		if beside > most+elapsed { // a run appends its events once a second: a busy machine makes more appends, of fewer events
			t.Errorf("%s: %d requests beside the lookups in %d s; doc/cost.md says at most %d\n%s", step.name, beside, elapsed, most, got)
		}
	}
}
