//go:build linux

package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// questions ask for what is the same however many runs there are. Those that show all runs, as stats and history without
// --last do, are not among them.
var questions = [][]string{
	{"history", "@", "w.t", "-n", "5"},
	{"history", "@", "w", "-n", "5"},
	{"history", "@", "w.t", "-n", "2", "--json"},
	{"why", "@", "w.t"},
	{"plan", "@", "w"},
	{"status", "@", "w"},
	{"list", "@", "w"},
	{"run", "@", "w"},
	{"graph", "@", "w"},
	{"diff", "@", "w"},
	{"logs", "@", "w.t"},
	{"get", "@", "w.t"},
	{"events", "@", "w", "-n", "5"},
	{"workspace", "list", "@"},
	{"queue", "list", "@"},
}

// TestCostOfQuestions shows that the requests of a question do not grow with the runs and executions that it does not
// show. Each run executes the task on other inputs.
func TestCostOfQuestions(t *testing.T) {
	suite.Thorough(t)
	const few, many = 70, 110 // why reads 64 runs
	c := &costs{project: newProjectBelow(t, inMemory(), map[string]string{
		"e3.yaml": "e3: 1\nname: p\ninputs: {n: {file: n.txt}}\ntasks:\n  t: {in: [n], out: o.txt, run: 'cat \"$n\" > \"$out\"'}\n",
	}), now: counts{}, idle: map[int]string{}}
	proxies := [2]*testserver.Proxy{testserver.NewProxy(t, testserver.Minidyn(t)), testserver.NewProxy(t, testserver.GoFakeS3(t))}
	for _, p := range proxies {
		p.Watch(c.watch)
	}
	c.location = "dynamodb://" + costTable + "/team?lease=10m&endpoint=" + url.QueryEscape(proxies[0].URL())
	c.env = append(c.env, testserver.Env()...)
	c.machine()
	c.must("init", c.location+"&bucket="+costTable+"&s3-endpoint="+url.QueryEscape(proxies[1].URL()))
	runs := 0
	ask := func(upTo int) (list []int) {
		for ; runs < upTo; runs++ {
			c.write("n.txt", fmt.Sprint(runs))
			c.must("start", "-f", "e3.yaml", "@", "w")
		}
		for _, q := range questions {
			c.must(q...) // copies of objects come with the first
			list = append(list, c.must(q...).total())
		}
		return list
	}
	before, after := ask(few), ask(many)
	for i, q := range questions {
		t.Logf("e3 %s: %d requests with %d runs, %d with %d", strings.Join(q, " "), before[i], few, after[i], many)
		// Lists have pages, and the parts of the journal vary until they are merged: that is less than a request a run,
		// which is the least that reading every run takes.
		if after[i] >= before[i]+(many-few) {
			t.Errorf("e3 %s: %d requests with %d runs, %d with %d", strings.Join(q, " "), before[i], few, after[i], many)
		}
	}
}
