package dataflow_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
)

// Each attempt has its own execution; the pauses between them double.
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
				g := graphOf(t, pkg)
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

// An input is lost while a retry waits, and cannot be made again. The task has failed as its last attempt did: one failure
// is one event.
func TestRetryWhoseInputIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("a", "b: a", "c: b", "slow", "d: a slow")
		policy(pkg, "b", record.Policy{Retries: 2, Backoff: time.Hour})
		g := graphOf(t, pkg)
		w, log := newWorld(), &emitted{}
		w.store(pkg)
		w.reads = true
		w.behave = func(task string, attempt int64) behaviour {
			switch {
			case task == "slow":
				return behaviour{takes: time.Minute}
			case task == "b", task == "a" && attempt > 1:
				return behaviour{fails: true}
			}
			return behaviour{}
		}
		emit := func(e events.Event) {
			log.emit(e)
			if e.Type == events.TaskRetryScheduled {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, made := range w.cache { // a's
					w.objects.Set(made.Output, []byte("damaged"))
				}
			}
		}
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit = emit })
		wantStates(t, g, out, "a=failed b=failed c=skipped slow=succeeded d=skipped")
		if got, want := log.of("b"), []events.Type{events.TaskMarkedReady, events.TaskStarted, events.TaskFailed, events.TaskRetryScheduled}; !slices.Equal(got, want) {
			t.Errorf("of b is told %q, want %q", got, want)
		}
		if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
			t.Error(err)
		}
	})
}

// An output is lost, and what its task reads was lost before and could not be made again. The task cannot run.
func TestLostAfterItsInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := graphOf(t, flow("a", "b: a", "soon", "after", "d: a soon", "c: b after", "e: c"))
		w, log := newWorld(), &emitted{}
		w.store(g.Package)
		w.reads = true
		w.behave = func(task string, attempt int64) behaviour {
			return behaviour{takes: map[string]time.Duration{"soon": time.Minute, "after": time.Hour}[task], fails: task == "a" && attempt > 1}
		}
		emit := func(e events.Event) {
			log.emit(e)
			if e.Type == events.TaskCompleted && e.Task == "soon" {
				w.mu.Lock()
				defer w.mu.Unlock()
				for _, made := range w.cache { // a's and b's
					w.objects.Set(made.Output, []byte("damaged"))
				}
			}
		}
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit, o.Concurrency = emit, 4 })
		wantStates(t, g, out, "a=failed b=skipped soon=succeeded after=succeeded d=skipped c=skipped e=skipped")
		if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
			t.Error(err)
		}
	})
}

// Only failures that the policy names are retried.
func TestRetriesByReason(t *testing.T) {
	exit, signal := behaviour{fails: true}, behaviour{error: executions.ReasonSignal}
	for _, test := range []struct {
		name string
		on   []string
		how  behaviour
		want int // attempts, of at most three
	}{
		{"all, exit", nil, exit, 3},
		{"all, signal", nil, signal, 3},
		{"exit", []string{"exit"}, exit, 3},
		{"another than exit", []string{"exit"}, signal, 1},
		{"the code", []string{"1", "3"}, exit, 3},
		{"another code", []string{"1", "33"}, exit, 1},
		{"signal", []string{"timeout", "signal"}, signal, 3},
		{"timeout", []string{"timeout"}, behaviour{error: executions.ReasonTimeout}, 3},
		{"oom", []string{"oom"}, behaviour{error: executions.ReasonOOM}, 3},
		{"oom is no signal", []string{"signal"}, behaviour{error: executions.ReasonOOM}, 1},
		{"output", []string{"output"}, behaviour{error: executions.ReasonOutput}, 3},
		{"start", []string{"start"}, behaviour{error: executions.ReasonStart}, 3},
		{"an unknown reason", []string{"", "new"}, behaviour{error: "new"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("a")
				policy(pkg, "a", record.Policy{Retries: 2, RetryOn: test.on})
				w := newWorld()
				w.behave = func(string, int64) behaviour { return test.how }
				run(t.Context(), t, graphOf(t, pkg), w, nil)
				if len(w.ran) != test.want {
					t.Errorf("there are %d attempts, want %d", len(w.ran), test.want)
				}
			})
		})
	}
}

// A task that ran out of memory gets more, within the policy and the budget, and its events say so.
func TestMoreMemory(t *testing.T) {
	for _, test := range []struct {
		name   string
		memory int64
		more   record.Escalation
		want   []int64
	}{
		{"doubled", 4, record.Escalation{Factor: 2}, []int64{4, 8, 16}},
		{"bounded", 4, record.Escalation{Factor: 2, Max: 10}, []int64{4, 8, 10}},
		{"below what it has", 4, record.Escalation{Factor: 2, Max: 3}, []int64{4, 4, 4}},
		{"not declared", 0, record.Escalation{Factor: 2}, []int64{0, 0, 0}},
		{"as it was", 4, record.Escalation{}, []int64{4, 4, 4}},
		{"beyond all", 1 << 61, record.Escalation{Factor: 1e300}, []int64{1 << 61, 1 << 61, 1 << 61}},
		{"up to a bound of our own", 1 << 59, record.Escalation{Factor: 1e300}, []int64{1 << 59, 1 << 60, 1 << 60}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pkg := flow("a", "b")
				policy(pkg, "a", record.Policy{Retries: 2, Memory: test.memory, OOM: test.more, Priority: 1})
				policy(pkg, "b", record.Policy{Memory: 3})
				w, log := newWorld(), &emitted{}
				w.behave = func(task string, attempt int64) behaviour {
					if task == "b" {
						return behaviour{takes: time.Hour}
					}
					return behaviour{error: executions.ReasonOOM, takes: time.Second}
				}
				w.watch = func(live map[string]*record.Policy) {
					sum := int64(0)
					for _, p := range live {
						sum += min(p.Memory, 12)
					}
					if sum > 12 {
						t.Errorf("%d bytes of 12 are taken", sum)
					}
				}
				run(t.Context(), t, graphOf(t, pkg), w, func(o *dataflow.Options) { o.Memory, o.Emit = 12, log.emit })
				var got, told []int64
				for _, r := range w.requests {
					if r.Name == "a" {
						got = append(got, r.Policy.Memory)
					}
				}
				for i, e := range slices.DeleteFunc(log.list, func(e events.Event) bool { return e.Type != events.TaskRetryScheduled }) {
					if e.Data.Memory != 0 {
						told = append(told, e.Data.Memory)
					} else {
						told = append(told, test.want[i])
					}
				}
				if !slices.Equal(got, test.want) || !slices.Equal(told, test.want[1:]) {
					t.Errorf("the attempts ask for %d, and are announced as %d; want %d", got, told, test.want)
				}
				if pkg.Tasks[0].Policy.Memory != test.memory {
					t.Errorf("the package asks for %d now", pkg.Tasks[0].Policy.Memory)
				}
			})
		})
	}
}

// A task whose retry never starts has failed.
func TestRetryThatNeverStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("flaky", "before", "bad: before", "after: flaky")
		policy(pkg, "flaky", record.Policy{Retries: 1, Backoff: 5 * time.Second})
		g := graphOf(t, pkg)
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
		g := graphOf(t, pkg)
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
