package queue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/refstore/mem"
)

// cutOff is the connection of a process that is cut off during the first creation of a job: the job is made, the answer
// is lost, and when the store answers again the request is sent once more.
type cutOff struct {
	*mem.Store
	meanwhile func() // nil: the process is connected
}

func (c *cutOff) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	v, err := c.Store.Put(ctx, r)
	if during := c.meanwhile; during != nil && err == nil && strings.Contains(r.Key.Partition, "/jobs") {
		c.meanwhile = nil
		during()
		return c.Store.Put(ctx, r)
	}
	return v, err
}

// A job that a worker finishes while the run that enqueues it is cut off has ended, for the run too: it is not made
// again, and no worker runs it a second time.
func TestEnqueuedWhileCutOff(t *testing.T) {
	for _, how := range []string{"one by one", "in batches"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.batches = how == "in batches"
				front, worker := w.on("a"), w.on("b")
				c := &cutOff{Store: front.wire.Store.(*mem.Store)}
				front.wire.Store = c
				ended := ""
				c.meanwhile = func() {
					worker.repair(t) // the entry of the job is missing
					l := worker.claim(t)
					ended = l.Job().Execution
					worker.finish(t, l)
					w.flush()
					w.pass(4 * time.Second)
					if left := w.sorts(t, "jobs"); len(left) > 0 {
						t.Fatalf("jobs %v are unfinished", left)
					}
				}
				j, err := front.EnqueueFirst(t.Context(), job(1))
				if err != nil || j.Status != queue.Succeeded || j.Outcome.ExecutionID != ended {
					t.Errorf("got a job that is %s, %+v, %v; want the one that has ended", j.Status, j.Outcome, err)
				}
				worker.claimNone(t)
				if left := w.sorts(t, "jobs"); len(left) > 0 {
					t.Errorf("jobs %v are unfinished", left)
				}
			})
		})
	}
}
