package queue_test

import (
	"testing"
	"time"

	"e3/internal/jobs/queue"
)

// TestWorkingOfTheLost: no request waits for ever for an execution whose worker was lost, if no other worker adopts it.
func TestWorkingOfTheLost(t *testing.T) {
	const patience = 40 * time.Second
	w := newWorld(t)
	front, worker := w.onStore("front", w.store, queue.Options{Patience: patience}), w.on("back")
	j := front.enqueue(t, job(1))
	execution := worker.claim(t).Job().Execution
	working := func(when, execution string, want bool) {
		t.Helper()
		got, err := front.Working(t.Context(), j.Ref(), execution)
		if err != nil || got != want {
			t.Errorf("%s: is %s being made? got %v, %v, want %v", when, execution, got, err, want)
		}
	}
	w.pass(2 * patience)
	working("while its worker lives", execution, true)
	w.kill(worker)
	working("when it has just died", execution, true)
	w.pass(patience / 2)
	front.reap(t) // it writes the job anew, which is no sign of life of the execution
	working("half of the time later", execution, true)
	w.pass(patience / 2)
	working("when no worker has taken it up", execution, false)

	heir := w.on("back")
	l := heir.claim(t)
	if !l.Adopted() {
		t.Fatal("the orphan was not adopted")
	}
	working("once it was adopted after all", execution, true)
	heir.finish(t, l)
	working("when it has ended", execution, false)
}
