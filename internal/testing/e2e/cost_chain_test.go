//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// chainGraph is a chain of so many tasks. revision is in the first one, so that all of them run.
func chainGraph(steps, revision int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "e3: 1\nname: chain\ntasks:\n  t0: {out: o, run: 'echo %d > \"$out\"'}\n", revision)
	for i := 1; i < steps; i++ {
		fmt.Fprintf(&b, "  t%d: {in: [t%d], out: o%d, run: 'cp \"$t%d\" \"$out\"; echo %d >> \"$out\"'}\n", i, i-1, i, i-1, i)
	}
	return b.String()
}

// TestRoundTripsOfAChain: how often a step of a chain waits for the network, with a worker and without, is as doc/cost.md says. The
// requests of the run and of its worker are one chain: each step is enqueued, claimed, finished and seen.
func TestRoundTripsOfAChain(t *testing.T) {
	suite.Thorough(t)
	c := newTrips(t)
	const few, many = 2, 10 // what a run costs beside its steps is in both
	revision := 0
	trips := func(args ...string) func(steps int) float64 {
		return func(steps int) float64 {
			revision++
			c.write("e3.yaml", chainGraph(steps, revision))
			return float64(len(c.chain(append([]string{"start", "-f", "e3.yaml", "@", "main", "--json"}, args...)...)))
		}
	}
	for _, row := range openCostDoc(t).rows(t, "chain") {
		name := row[0]
		most, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatalf("doc/cost.md: row %q, %v", row, err)
		}
		play := trips()
		switch name {
		case "by the run itself":
		case "by a worker":
			w := c.spawn("worker", c.location, "--json", "-j", "2")
			w.waitLine(`"type":"worker.ready"`)
			defer w.kill(true)
			play = trips("--workers")
		default:
			t.Fatalf("doc/cost.md: row %q", row)
		}
		var each []float64
		for range 4 { // requests that a busy machine sends late seem to wait for others
			short := play(few)
			each = append(each, (play(many)-short)/(many-few))
			t.Logf("%s: %d steps take %.1f round trips each", name, many-few, each[len(each)-1])
			if slices.Min(each) <= most {
				break
			}
		}
		if slices.Min(each) > most {
			t.Errorf("%s: a step waits %.1f times for the network, want at most %v", name, slices.Min(each), most)
		}
		t.Logf("the last run:\n%s", written(steps(c.last)))
	}
}

// steps are the requests of a chain that are no looks for something to do: those are as many as fit beside the others.
func steps(chain []testserver.Call) []testserver.Call {
	return slices.DeleteFunc(slices.Clone(chain), func(c testserver.Call) bool {
		return c.Operation == "Query" && (strings.Contains(c.Subject, "/ready") || strings.Contains(c.Subject, "/delayed") || strings.Contains(c.Subject, "/holders") || strings.HasPrefix(c.Subject, "CANCEL"))
	})
}
