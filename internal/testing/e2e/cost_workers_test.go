//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
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
	suite.Thorough(t)
	doc := openCostDoc(t)
	c := newCosts(t, nil)
	r := c.open(c.direct)
	defer r.Close()
	w := c.spawn("worker", c.location, "--json", "-j", "20")
	w.waitLine(`"type":"worker.ready"`)
	short, long := executedCases[0], executedCases[3]
	rows, _ := c.perTask(t, doc.rows(t, "jobs"), jobKinds, []executedCase{short, long}, func(_ executedCase, ws string) counts {
		c.take()
		c.project.must("start", c.location, ws, "--publish=final", "--workers")
		jobsEnd(t, r.Queue())
		return c.take().ofJobs()
	})
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

// ofJobs are the requests about jobs. Requests that look for jobs, holders and turns depend on time.
func (c counts) ofJobs() counts {
	jobs := counts{}
	for kind, n := range c {
		operation, of, _ := strings.Cut(kind, " ")
		switch _, what, ok := strings.Cut(of, "QUEUE."); {
		case !ok, operation == "Query":
		case what == "turns", what == "holders", what == "cancel":
		case operation == "GetItem" && what != "finished": // of a process that reads what it found in a list
		default:
			jobs[kind] = n
		}
	}
	return jobs
}
