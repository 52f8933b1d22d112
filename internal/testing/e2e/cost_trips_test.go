//go:build linux

package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/testserver"
)

// trips are the requests of a command, each of which takes as long as on a slow network.
type trips struct {
	*costs
	mu    sync.Mutex
	calls []testserver.Call
	last  []testserver.Call // the latest chain
}

// networkDelay is much longer than what the programs do between two requests, also on a busy machine.
const networkDelay = 50 * time.Millisecond

func newTrips(t *testing.T) *trips {
	t.Helper()
	c := &trips{costs: &costs{project: newProjectBelow(t, inMemory(), nil), now: counts{}, idle: map[int]string{}}}
	proxies := [2]*testserver.Proxy{testserver.NewProxy(t, testserver.Minidyn(t)), testserver.NewProxy(t, testserver.GoFakeS3(t))}
	for _, p := range proxies {
		p.Faults(1, testserver.Rule{Fault: testserver.DelayBefore, Delay: networkDelay})
		p.Watch(func(call testserver.Call) {
			c.watch(call)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, call)
		})
	}
	c.location = "dynamodb://" + costTable + "/team?lease=10m&endpoint=" + url.QueryEscape(proxies[0].URL())
	c.s3 = "&bucket=" + costTable + "&s3-endpoint=" + url.QueryEscape(proxies[1].URL())
	c.env = append(c.env, testserver.Env()...)
	c.machine()
	c.must("init", c.location+c.s3)
	return c
}

// chain runs a command and returns the longest chain of its requests in which each came after the answer to the one before: so many
// times it waits for the network.
func (c *trips) chain(args ...string) []testserver.Call {
	c.t.Helper()
	c.mu.Lock()
	c.calls = nil
	c.mu.Unlock()
	c.must(args...)
	c.mu.Lock()
	calls := slices.Clone(c.calls)
	c.mu.Unlock()
	slices.SortFunc(calls, func(a, b testserver.Call) int { return a.Ended.Compare(b.Ended) })
	var chain []testserver.Call
	for i := range calls { // of all requests that can follow, the one that ends first is in a longest chain
		if n := len(chain); n == 0 || !calls[i].Began.Before(chain[n-1].Ended) {
			chain = append(chain, calls[i])
		}
	}
	c.last = chain
	return chain
}

func written(chain []testserver.Call) string {
	var b strings.Builder
	for i := range chain {
		fmt.Fprintf(&b, "%3d  %6d ms  %s\n", i+1, chain[i].Began.Sub(chain[0].Began).Milliseconds(), chain[i].Operation+" "+chain[i].Subject)
	}
	return b.String()
}

// TestRoundTrips: how often a start waits for the network is as doc/cost.md says, whatever the size of the package.
func TestRoundTrips(t *testing.T) {
	c := newTrips(t)
	const n = 100
	c.sources(n)
	c.sourced(n, 0)
	c.must("start", "-f", "e3.yaml", "@", "main")
	revision := 0
	edits := map[string]func(){
		"nothing changed":       func() {},
		"one of n tasks edited": func() { revision++; c.sourced(n, revision) },
	}
	doc := openCostDoc(t).rows(t, "trips")
	if len(doc) != len(edits) {
		t.Errorf("doc/cost.md has %d rows, want %d", len(doc), len(edits))
	}
	for _, row := range doc {
		name := row[0]
		most, err := strconv.Atoi(row[1])
		if err != nil || edits[name] == nil {
			t.Fatalf("doc/cost.md: row %q, %v", row, err)
		}
		var best []testserver.Call
		for range 4 { // requests that a busy machine sends late seem to wait for others
			edits[name]()
			if chain := c.chain("start", "@", "main"); best == nil || len(chain) < len(best) {
				best = chain
			}
			if len(best) <= most {
				break
			}
		}
		t.Logf("%s: %d round trips in turn\n%s", name, len(best), written(best))
		if len(best) > most {
			t.Errorf("%s: %d round trips in turn, want at most %d", name, len(best), most)
		}
	}
}
