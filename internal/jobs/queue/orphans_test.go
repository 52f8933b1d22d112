package queue_test

import (
	"testing"
	"time"

	"e3/internal/jobs/queue"
)

// TestOrphans: a worker without room sees the jobs of lost workers. A worker beside another one of their host leaves
// them to that one for a while.
func TestOrphans(t *testing.T) {
	w := newWorld(t)
	front, first := w.on("front"), w.on("here")
	here := first.want()
	here.Host, here.Grace = "here", 20*time.Second
	j := front.enqueue(t, job(1))
	first.claimAs(t, here)
	front.enqueue(t, job(2))
	tell := func(want int) {
		t.Helper()
		got, err := front.Orphans(t.Context(), queue.DefaultQueue)
		if err != nil || len(got) != want || want > 0 && (got[0].ID != j.ID || got[0].MakerHost != "here") {
			t.Errorf("got %+v, %v, want %d", got, err, want)
		}
	}
	tell(0)
	w.kill(first)
	front.reap(t)
	tell(1)

	second := w.on("here")
	here.Beside = true
	if got := second.claimAs(t, here).Job().Task; got != "task-2" {
		t.Errorf("beside another worker of the host: claimed %s", got)
	}
	w.pass(30 * time.Second)
	if l := second.claimAs(t, here); !l.Adopted() {
		t.Error("an orphan that was not claimed in time was not adopted")
	}
	tell(0)
}
