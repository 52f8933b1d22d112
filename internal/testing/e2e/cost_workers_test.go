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
	{"UpdateItem QUEUE.jobs", "it is claimed; of a long one, its command runs; it has ended"},
	{"GetObject objects", "the task object, if it is too large to come with the job"},
}

// mostBatches is how many requests a job takes besides, at most: to write together what follows from its transitions,
// and to read its end. Together with the others it is less where many jobs end within moments.
const mostBatches = 2

// TestCostOfJobs lists what a job costs besides its execution, in requests that do not depend on time. The worker is on
// another machine than the run.
func TestCostOfJobs(t *testing.T) {
	suite.Thorough(t)
	doc := openCostDoc(t)
	c := newCosts(t, nil)
	r := c.open(c.direct)
	defer r.Close()
	c.machine()
	w := c.spawn("worker", c.location, "--json", "-j", "20")
	w.waitLine(`"type":"worker.ready"`)
	c.machine()
	short, long := executedCases[0], executedCases[3]
	large := executedCase{name: "long script", run: shell(": " + strings.Repeat("x", 1000) + "; echo {n} > {out}")}
	rows, _ := c.perTask(t, doc.rows(t, "jobs"), jobKinds, []executedCase{short, long, large}, func(_ executedCase, ws string) counts {
		c.take()
		c.project.must("start", c.location, ws, "--publish=final", "--workers")
		jobsEnd(t, r.Queue())
		counted := c.take()
		more, tasks := 0, counted["PutItem QUEUE.jobs"].requests
		for kind, n := range counted {
			if strings.HasPrefix(kind, "BatchWriteItem QUEUE") || kind == "GetItem QUEUE.finished" || kind == "BatchGetItem" {
				more += n.requests
			}
		}
		if t.Logf("%d jobs took %d batches and reads of their ends", tasks, more); more > mostBatches*tasks {
			t.Errorf("%d jobs took %d batches and reads of their ends, want %d each at most", tasks, more, mostBatches)
		}
		return counted.ofJobs()
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
		case kind == "GetObject objects":
			jobs[kind] = n
		case !ok, operation == "Query":
		case what == "turns", what == "holders", what == "cancel":
		case operation == "GetItem", operation == "BatchWriteItem": // how many depends on how fast jobs end
		default:
			jobs[kind] = n
		}
	}
	return jobs
}
