package dataflow_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/internal/events"
	"e3/internal/record"
)

// Each attempt is one of its own; the pauses between double.
func TestRetries(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy record.Policy
		good   int64 // the first attempt that goes well; 0: none
		want   []time.Duration
		state  string
	}{
		{"second is well", record.Policy{Retries: 3, Backoff: 5 * time.Second}, 2, []time.Duration{0, 5 * time.Second}, "a=succeeded b=succeeded"},
		{"none is well", record.Policy{Retries: 3, Backoff: 5 * time.Second}, 0,
			[]time.Duration{0, 5 * time.Second, 15 * time.Second, 35 * time.Second}, "a=failed b=skipped"},
		{"last is well", record.Policy{Retries: 2, Backoff: time.Second}, 3, []time.Duration{0, time.Second, 3 * time.Second}, "a=succeeded b=succeeded"},
		{"no pause", record.Policy{Retries: 2}, 0, []time.Duration{0, 0, 0}, "a=failed b=skipped"},
		{"no retries", record.Policy{}, 0, []time.Duration{0}, "a=failed b=skipped"},
		{"pauses end at an hour", record.Policy{Retries: 4, Backoff: 25 * time.Minute}, 0,
			[]time.Duration{0, 25 * time.Minute, 75 * time.Minute, 135 * time.Minute, 195 * time.Minute}, "a=failed b=skipped"},
		{"pause beyond an hour", record.Policy{Retries: 2, Backoff: 2 * time.Hour}, 0, []time.Duration{0, 2 * time.Hour, 4 * time.Hour}, "a=failed b=skipped"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("a", "b: a")
				policy(pkg, "a", test.policy)
				g := graph(t, pkg)
				w, log := newWorld(), &emitted{}
				w.behave = func(task string, attempt int64) behaviour {
					return behaviour{fails: task == "a" && (test.good == 0 || attempt < test.good)}
				}
				began := time.Now()
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
				wantStates(t, g, out, test.state)
				var got []time.Duration
				for _, s := range w.ran {
					if s.task != "a" {
						continue
					}
					if got = append(got, s.start.Sub(began)); s.attempt != int64(len(got)) {
						t.Errorf("attempt %d counts as %d", len(got), s.attempt)
					}
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("attempts start at %v, want %v", got, test.want)
				}
				retries := 0
				for _, e := range log.list {
					if e.Type == events.TaskRetryScheduled {
						retries++
						if e.Data.Attempt != int64(retries+1) || time.Duration(e.Data.DelayMs)*time.Millisecond != test.want[retries]-test.want[retries-1] {
							t.Errorf("retry %d is announced as %+v", retries, e.Data)
						}
					}
				}
				if retries != len(test.want)-1 {
					t.Errorf("%d retries are announced, want %d", retries, len(test.want)-1)
				}
			})
		})
	}
}

// A failed task whose next attempt never has its turn has failed.
func TestRetryThatNeverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("flaky", "before", "bad: before", "after: flaky")
		policy(pkg, "flaky", record.Policy{Retries: 1, Backoff: 5 * time.Second})
		g := graph(t, pkg)
		w := newWorld()
		w.behave = func(task string, _ int64) behaviour {
			switch task {
			case "before":
				return behaviour{takes: time.Second}
			case "bad":
				return behaviour{takes: time.Minute, fails: true}
			}
			return behaviour{fails: true}
		}
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Concurrency, o.FailFast = 1, true })
		wantStates(t, g, out, "flaky=failed before=succeeded bad=failed after=skipped")
		if n := len(w.ran); n != 3 {
			t.Errorf("%d commands ran, want 3", n)
		}
	})
}

// Others run while one waits for its next attempt.
func TestRetryHoldsNoCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("flaky", "b", "c", "d")
		policy(pkg, "flaky", record.Policy{Retries: 1, Backoff: time.Minute, Priority: 1})
		g := graph(t, pkg)
		w := newWorld()
		w.behave = func(task string, attempt int64) behaviour {
			return behaviour{takes: time.Second, fails: task == "flaky" && attempt == 1}
		}
		began := time.Now()
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Concurrency = 1 })
		wantStates(t, g, out, "flaky=succeeded b=succeeded c=succeeded d=succeeded")
		if took, most := time.Since(began), 65*time.Second; took > most {
			t.Errorf("it took %v, want at most %v", took, most)
		}
	})
}
