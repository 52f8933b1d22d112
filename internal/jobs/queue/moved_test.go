package queue_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"e3/internal/jobs/queue"
	"e3/refstore"
)

// A job that was moved to the finished ones has ended, whatever error the move returned: its worker has not lost it. The
// faults last for a while, as those of a disk do.
func TestMoveFailsAfterwards(t *testing.T) {
	for _, after := range []string{"move jobs", "move jobs, get"} {
		t.Run(after, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.moves = true
				p := w.on("a")
				p.enqueue(t, job(1))
				l := p.claim(t)
				faults := 0
				p.wire.hook(func(_ int, done bool, op string) error {
					if done && (op == "move jobs" && faults == 0 || strings.HasPrefix(op, "get") && strings.Contains(after, "get") && faults == 1) {
						faults++
						return fmt.Errorf("%s: the disk failed", op)
					}
					return nil
				})
				err := l.Finish(t.Context(), success(l))
				p.wire.hook(nil)
				if err != nil && (errors.Is(err, refstore.ErrLost) || !strings.Contains(after, "get")) {
					t.Fatalf("got %v", err)
				}
				if err := l.Finish(t.Context(), success(l)); err != nil && !strings.Contains(fmt.Sprint(err), "finish") {
					t.Fatalf("once more: %v", err)
				}
				j, err := p.Job(t.Context(), queue.DefaultQueue, l.Job().ID)
				if err != nil || j.Status != queue.Succeeded {
					t.Errorf("the job is %v, %v", j.Status, err)
				}
			})
		})
	}
}
