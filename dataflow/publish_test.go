package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/internal/format/record"
)

// update is a call of Publish.
type update struct {
	at      time.Duration // since the run began
	changes []dataflow.Change
}

// published runs n tasks, one after the other, each of which takes the given time, and returns
// the updates of the workspace while they ran.
func published(t *testing.T, n int, takes, publishing time.Duration) (updates []update, out *dataflow.Outcome) {
	t.Helper()
	var lines []string
	for i := range n {
		line := fmt.Sprint("t", i)
		if i > 0 {
			line += fmt.Sprint(": t", i-1)
		}
		lines = append(lines, line)
	}
	g := graphOf(t, flow(lines...))
	w := newWorld()
	w.behave = func(string, int64) behaviour { return behaviour{takes: takes} }
	began := time.Now()
	busy := false
	out = run(t.Context(), t, g, w, func(o *dataflow.Options) {
		o.Publish = func(ctx context.Context, changes []dataflow.Change) error {
			if busy {
				t.Error("two updates at once")
			}
			busy = true
			updates = append(updates, update{time.Since(began), changes})
			time.Sleep(publishing)
			busy = false
			return nil
		}
	})
	return updates, out
}

// Results are gathered for half a second, in their order, each once.
func TestPublishGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		updates, out := published(t, 100, 50*time.Millisecond, time.Millisecond)
		if n := len(updates); n < 8 || n > 10 {
			t.Errorf("%d updates in five seconds, want one each half second", n)
		}
		next := 0
		for i, u := range updates {
			for _, c := range u.changes {
				if want := fmt.Sprint("t", next); c.Task != want || c.Leaf.Hash != out.Tasks[next].Output.String() {
					t.Fatalf("%+v is published when %s was due", c, want)
				}
				next++
			}
			if len(u.changes) == 0 {
				t.Errorf("update %d is empty", i)
			}
			if i > 0 && u.at-updates[i-1].at < 500*time.Millisecond {
				t.Errorf("update %d comes %v after the one before", i, u.at-updates[i-1].at)
			}
		}
		if next < 80 { // what is left the caller publishes at the end
			t.Errorf("only %d results were published in time", next)
		}
	})
}

// Updates that take long come less often: they cost at most a twentieth of the time.
func TestPublishShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cost = 500 * time.Millisecond
		updates, _ := published(t, 600, 100*time.Millisecond, cost)
		if n := len(updates); n < 3 || n > 7 {
			t.Errorf("%d updates in a minute that take half a second each", n)
		}
		for i := 1; i < len(updates); i++ {
			if pause := updates[i].at - updates[i-1].at - cost; pause < 20*cost {
				t.Errorf("update %d comes %v after the end of the one before, want 20 times its cost", i, pause)
			}
		}
	})
}

func TestShortRunDoesNotPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if updates, _ := published(t, 3, 10*time.Millisecond, 0); len(updates) > 0 {
			t.Errorf("%d updates", len(updates))
		}
	})
}

// The run waits for an update that is under way, and a fault of it is the run's.
func TestPublishFault(t *testing.T) {
	for name, ends := range map[string]time.Duration{"while it runs": 10 * time.Second, "as it ends": 600 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := errors.New("disk full")
				g := graphOf(t, flow("a", "b", "c: b"))
				w := newWorld()
				w.behave = func(task string, _ int64) behaviour {
					if task == "b" {
						return behaviour{takes: ends}
					}
					return behaviour{}
				}
				out, err := dataflow.Run(t.Context(), g, w.objects, w, dataflow.Options{
					Inputs: oneInput, Concurrency: 2,
					Publish: func(context.Context, []dataflow.Change) error {
						time.Sleep(time.Second)
						return broken
					},
				})
				if !errors.Is(err, broken) || out.State != record.RunFailed {
					t.Errorf("the run is %v, %v, want failed with the fault", out.State, err)
				}
			})
		})
	}
}

// An update that was begun is finished though the run is called off meanwhile.
func TestPublishOutlivesCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld()
		w.behave = func(task string, _ int64) behaviour {
			if task == "b" {
				return behaviour{takes: time.Hour}
			}
			return behaviour{}
		}
		finished := false
		run(ctx, t, graphOf(t, flow("a", "b")), w, func(o *dataflow.Options) {
			o.Publish = func(ctx context.Context, _ []dataflow.Change) error {
				cancel()
				time.Sleep(time.Minute)
				finished = ctx.Err() == nil
				return nil
			}
		})
		if !finished {
			t.Error("the update was called off")
		}
	})
}
