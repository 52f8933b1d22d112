//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/queue"
)

// jobKinds are the requests of a task that a worker executes, the run's and the worker's, in the order of the table, and what they are for.
var jobKinds = [][2]string{
	{"PutItem QUEUE.jobs", "it is enqueued"},
	{"GetItem QUEUE.finished", "has it been finished already? and how has it ended, for the run"},
	{"PutItem QUEUE.ready", "it may be claimed"},
	{"UpdateItem QUEUE.jobs", "it is claimed; of a long one, its command runs; it has ended"},
	{"DeleteItem QUEUE.ready", "it may not be claimed any more"},
	{"PutItem QUEUE.finished", "its place among the finished"},
	{"DeleteItem QUEUE.jobs", "and no more among the others"},
}

// TestCostOfJobs lists what a job costs besides its execution, in requests that do not depend on time.
func TestCostOfJobs(t *testing.T) {
	doc := openCostDoc(t)
	c := newCosts(t, nil)
	r := c.open()
	defer r.Close()
	w := c.spawn("worker", c.location, "--json", "-j", "20")
	w.waitLine(`"type":"worker.ready"`)
	want := doc.rows(t, "jobs")
	rows := make([][]string, len(jobKinds))
	for i, kind := range jobKinds {
		rows[i] = []string{"`" + kind[0] + "`", kind[1]}
	}
	for k, test := range []executedCase{executedCases[0], executedCases[3]} {
		var got []string
		var each counts
		var err error
		var two [2]counts
		for range tries {
			for i, n := range []int{executedSizes.few, executedSizes.many} {
				ws := c.name()
				c.manifest("e3.yaml", n, test.run)
				c.must("workspace", "create", "@", ws)
				c.must("workspace", "deploy", "@", ws, "e3.yaml")
				c.take()
				c.project.must("start", c.location, ws, "--publish=final", "--workers")
				jobsEnd(t, r.Queue())
				two[i] = least(two[i], c.take().ofJobs())
			}
			if each, err = per(executedSizes, two[0], two[1]); err != nil {
				continue
			}
			got = nil
			for _, kind := range jobKinds {
				got = append(got, cell(each[kind[0]].requests))
			}
			var documented []string
			for _, row := range want {
				if k+2 < len(row) {
					documented = append(documented, row[k+2])
				}
			}
			if *updateCosts || slices.Equal(documented, got) {
				break
			}
		}
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			return
		}
		t.Logf("%s:\n%s", test.name, each)
		for kind := range each {
			if !slices.ContainsFunc(jobKinds, func(k [2]string) bool { return k[0] == kind }) {
				t.Errorf("%s: the table has no row for %s", test.name, kind)
			}
		}
		for i := range rows {
			rows[i] = append(rows[i], got[i])
		}
	}
	doc.hold(t, "jobs", rows, nil)
	w.kill(true)
}

// jobsEnd waits until the worker has done what is left to do of jobs that have ended: the run does not wait for it.
func jobsEnd(t *testing.T, q *queue.Queue) {
	t.Helper()
	eventually(t, time.Minute, "jobs stay among those that are not finished", func() string {
		left := 0
		for _, err := range q.Unfinished(t.Context()) {
			if err != nil {
				return err.Error()
			}
			left++
		}
		if left > 0 {
			return fmt.Sprintf("%d are left", left)
		}
		return ""
	})
}

// least is what was asked at any rate: the more of one time are of somebody who was slow, and of whoever made good what seemed to be left undone.
func least(a, b counts) counts {
	if a == nil {
		return b
	}
	both := counts{}
	for kind, n := range a {
		if b[kind].requests < n.requests {
			n = b[kind]
		}
		if n.requests > 0 {
			both[kind] = n
		}
	}
	return both
}

// ofJobs are the requests about jobs. Looking for some, at whom others hold, and whose turn something is, goes by time.
func (c counts) ofJobs() counts {
	jobs := counts{}
	for kind, n := range c {
		operation, of, _ := strings.Cut(kind, " ")
		switch _, what, ok := strings.Cut(of, "QUEUE."); {
		case !ok, operation == "Query":
		case what == "turns", what == "holders", what == "cancel":
		case operation == "GetItem" && what != "finished": // of whoever looks at what he found in a list
		default:
			jobs[kind] = n
		}
	}
	return jobs
}
