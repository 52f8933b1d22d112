package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/record"
	"e3/objectstore"
)

func TestRun(t *testing.T) {
	g := graph(t, flow("report: train clean", "clean", "train: clean"))
	w, log := newWorld(), &emitted{}
	out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
	wantStates(t, g, out, "report=succeeded clean=succeeded train=succeeded")
	if out.State != record.RunCompleted || out.FailedTask != "" || out.Error != "" || out.TimedOut {
		t.Errorf("outcome is %+v", out)
	}
	if want := (record.Summary{Total: 3, Completed: 3}); out.Summary != want {
		t.Errorf("summary is %+v, want %+v", out.Summary, want)
	}
	want := []events.Type{events.TaskMarkedReady, events.TaskStarted, events.TaskCompleted}
	for _, task := range []string{"clean", "train", "report"} {
		if got := log.of(task); !slices.Equal(got, want) {
			t.Errorf("events of %s are %v, want %v", task, got, want)
		}
	}
	var ids []string
	for e := range out.Executions(g).All() {
		ids = append(ids, e.Task)
		if e.ExecutionID == "" || e.Cached {
			t.Errorf("run record has %+v", e)
		}
	}
	if want := []string{"report", "clean", "train"}; !slices.Equal(ids, want) {
		t.Errorf("run record has %v, want %v", ids, want)
	}
	if changes := out.Results(g, true); len(changes) != 3 || changes[1].Task != "clean" || changes[1].Leaf.Hash != out.Tasks[1].Output.String() || changes[1].Leaf.Size != out.Tasks[1].Size {
		t.Errorf("results are %+v", changes)
	}

	again := run(t.Context(), t, g, w, nil)
	wantStates(t, g, again, "report=cached clean=cached train=cached")
	if want := (record.Summary{Total: 3, Completed: 3, Cached: 3}); again.Summary != want {
		t.Errorf("the second time the summary is %+v, want %+v", again.Summary, want)
	}
}

func TestEmptyGraph(t *testing.T) {
	out := run(t.Context(), t, graph(t, &record.Package{Name: "none"}), newWorld(), nil)
	if out.State != record.RunCompleted || out.Summary != (record.Summary{}) {
		t.Errorf("outcome is %+v", out)
	}
}

// What a task leaves is known to the workspace by the kind that the package says.
func TestLeaves(t *testing.T) {
	pkg := flow("file", "tool", "dir")
	pkg.Tasks[1].Output, pkg.Tasks[2].Output = record.KindExecutable, record.KindDir
	for i := range pkg.Tasks {
		pkg.Tasks[i].Task = taskHash(i, pkg.Tasks[i].Output == record.KindDir)
	}
	g := graph(t, pkg)
	out := run(t.Context(), t, g, newWorld(), nil)
	leaves := map[string]record.Leaf{}
	for _, c := range out.Results(g, true) {
		leaves[c.Task] = c.Leaf
		leaves[c.Task] = record.Leaf{Kind: c.Leaf.Kind, Executable: c.Leaf.Executable}
		if (c.Leaf.Size > 0) != (c.Leaf.Kind == record.LeafFile) {
			t.Errorf("%s has size %d", c.Task, c.Leaf.Size)
		}
	}
	want := map[string]record.Leaf{"file": {Kind: record.LeafFile}, "tool": {Kind: record.LeafFile, Executable: true}, "dir": {Kind: record.LeafDir}}
	for name, leaf := range want {
		if leaves[name] != leaf {
			t.Errorf("%s is %+v, want %+v", name, leaves[name], leaf)
		}
	}
}

// taskHash makes a hash for which the world leaves a directory, or a file.
func taskHash(n int, dir bool) string {
	for k := 0; ; k++ {
		h := objectstore.Sum(fmt.Appendf(nil, "task %d %d", n, k))
		if isDir(h) == dir {
			return h.String()
		}
	}
}

// A failure skips what is downstream of it and nothing else.
func TestFailureSkips(t *testing.T) {
	g := graph(t, flow("a", "bad: a", "x: bad", "y: x other", "other", "z: other"))
	w, log := newWorld(), &emitted{}
	w.behave = func(task string, _ int64) behaviour { return behaviour{fails: task == "bad"} }
	out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
	wantStates(t, g, out, "a=succeeded bad=failed x=skipped y=skipped other=succeeded z=succeeded")
	if out.State != record.RunFailed || out.FailedTask != "bad" || out.Error != "3" {
		t.Errorf("outcome is %v, %q, %q, want a failure of bad with 3", out.State, out.FailedTask, out.Error)
	}
	if want := (record.Summary{Total: 6, Completed: 3, Failed: 1, Skipped: 2}); out.Summary != want {
		t.Errorf("summary is %+v, want %+v", out.Summary, want)
	}
	for _, e := range log.list {
		if e.Type == events.TaskSkipped && e.Data.Because != "bad" {
			t.Errorf("%s is skipped because of %q", e.Task, e.Data.Because)
		}
		if e.Type == events.TaskFailed && (e.Task != "bad" || e.Data.ExitCode != 3 || e.Data.Attempt != 1) {
			t.Errorf("event is %+v %+v", e, e.Data)
		}
	}
	for _, e := range out.Results(g, true) {
		if e.Task == "bad" || e.Task == "x" || e.Task == "y" {
			t.Errorf("%s has a result", e.Task)
		}
	}
}

func TestErrorText(t *testing.T) {
	for _, test := range []struct {
		b     behaviour
		error string
		timed bool
	}{
		{behaviour{fails: true}, "3", false},
		{behaviour{error: executions.ReasonTimeout}, "timeout", true},
		{behaviour{error: executions.ReasonOutput}, "output", false},
	} {
		w := newWorld()
		w.behave = func(string, int64) behaviour { return test.b }
		out := run(t.Context(), t, graph(t, flow("a")), w, nil)
		if out.Error != test.error || out.TimedOut != test.timed || out.FailedTask != "a" {
			t.Errorf("%+v: error is %q, timed out %v, want %q, %v", test.b, out.Error, out.TimedOut, test.error, test.timed)
		}
	}
}

// After the first failure no command starts. One may run, and comes to its end.
func TestFailFast(t *testing.T) {
	for _, cores := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := graph(t, flow("bad", "slow", "c", "d", "after: slow"))
			w, log := newWorld(), &emitted{}
			w.behave = func(task string, _ int64) behaviour {
				if task == "bad" {
					return behaviour{takes: time.Second, fails: true}
				}
				return behaviour{takes: time.Minute}
			}
			policy(g.Package, "bad", record.Policy{Priority: 1})
			began := time.Now()
			out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Concurrency, o.FailFast, o.Emit = cores, true, log.emit })
			failed := began.Add(2 * time.Minute)
			for _, s := range w.ran {
				if s.task == "bad" {
					failed = s.end
				}
			}
			for _, s := range w.ran {
				if !s.start.Before(failed) && s.task != "bad" {
					t.Errorf("%d cores: %s starts %v after the failure", cores, s.task, s.start.Sub(failed))
				}
			}
			if out.State != record.RunFailed || out.FailedTask != "bad" || out.Summary.Failed != 1 {
				t.Errorf("%d cores: outcome is %+v", cores, out)
			}
			if i, _ := g.Find("after"); out.Tasks[i].State != dataflow.Abandoned {
				t.Errorf("%d cores: what comes after is %s", cores, stateNames[out.Tasks[i].State])
			}
			if !log.has(events.TaskAbandoned) {
				t.Errorf("%d cores: nothing says that tasks were abandoned", cores)
			}
		})
	}
}

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

func TestCancel(t *testing.T) {
	why := errors.New("interrupted")
	for _, test := range []struct {
		name  string
		after time.Duration
		want  string
		state record.RunState
	}{
		{"at once", 0, "a=abandoned b=abandoned c=abandoned", record.RunCancelled},
		{"in the first", 30 * time.Second, "a=failed b=skipped c=skipped", record.RunCancelled},
		{"in the second", 90 * time.Second, "a=succeeded b=failed c=skipped", record.RunCancelled},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				if test.after == 0 {
					cancel(why)
				} else {
					time.AfterFunc(test.after, func() { cancel(why) })
				}
				g := graph(t, flow("a", "b: a", "c: b"))
				policy(g.Package, "b", record.Policy{Retries: 5})
				w := newWorld()
				w.behave = func(string, int64) behaviour { return behaviour{takes: time.Minute} }
				began := time.Now()
				out := run(ctx, t, g, w, nil)
				wantStates(t, g, out, test.want)
				if out.State != test.state {
					t.Errorf("the run is %v, want %v", out.State, test.state)
				}
				if took := time.Since(began); took > test.after+recording {
					t.Errorf("it went on for %v", took-test.after)
				}
			})
		})
	}
}

// Calling off between two attempts ends the wait at once; the task has failed.
func TestCancelDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		pkg := flow("a", "b: a")
		policy(pkg, "a", record.Policy{Retries: 1, Backoff: time.Hour})
		g := graph(t, pkg)
		w := newWorld()
		w.behave = func(string, int64) behaviour { return behaviour{fails: true} }
		began := time.Now()
		out := run(ctx, t, g, w, nil)
		wantStates(t, g, out, "a=failed b=skipped")
		if out.State != record.RunCancelled || time.Since(began) != time.Minute || len(w.ran) != 1 {
			t.Errorf("it was %v after %v and %d attempts", out.State, time.Since(began), len(w.ran))
		}
	})
}

// Executors, stores and file systems end with the context's error, others with its cause.
func TestCancelErrors(t *testing.T) {
	for name, fault := range map[string]func(ctx context.Context) error{
		"cause": context.Cause,
		"error": func(ctx context.Context) error { return fmt.Errorf("stage inputs: %w", ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			g := graph(t, flow("a", "b"))
			x := doFunc(func(ctx context.Context, req *executions.Request) (executions.Result, error) {
				cancel(errors.New("interrupted"))
				<-ctx.Done()
				return executions.Result{}, fault(ctx)
			})
			out, err := dataflow.Run(ctx, g, newWorld().objects, x, dataflow.Options{Inputs: oneInput, Concurrency: 2})
			if err != nil || out.State != record.RunCancelled {
				t.Errorf("the run is %v, %v, want cancelled", out.State, err)
			}
			wantStates(t, g, out, "a=abandoned b=abandoned")
		})
	}
}

type doFunc func(context.Context, *executions.Request) (executions.Result, error)

func (f doFunc) Do(ctx context.Context, req *executions.Request) (executions.Result, error) {
	return f(ctx, req)
}

// A run that was called off when all was done is a completed one.
func TestCancelAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld()
	g := graph(t, flow("a"))
	out := run(ctx, t, g, w, func(o *dataflow.Options) {
		o.Emit = func(e events.Event) events.Event {
			if e.Type == events.TaskCompleted {
				cancel()
			}
			return e
		}
	})
	if out.State != record.RunCompleted {
		t.Errorf("the run is %v", out.State)
	}
}

// A fault of the stores stops the run: what runs comes back, nothing more starts.
func TestFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk gone")
		g := graph(t, flow("a", "b", "c: b", "d"))
		w := newWorld()
		w.behave = func(task string, _ int64) behaviour {
			if task == "a" {
				return behaviour{fault: broken}
			}
			return behaviour{takes: time.Minute}
		}
		out, err := dataflow.Run(t.Context(), g, w.objects, w, dataflow.Options{Inputs: oneInput, Concurrency: 2})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "task a") {
			t.Errorf("error is %v, want the fault with the task", err)
		}
		if out.State != record.RunFailed || out.FailedTask != "a" || !strings.Contains(out.Error, "disk gone") {
			t.Errorf("outcome is %+v", out)
		}
		if i, _ := g.Find("c"); out.Tasks[i].State != dataflow.Abandoned {
			t.Errorf("c is %s", stateNames[out.Tasks[i].State])
		}
	})
}

func TestInputWithoutValue(t *testing.T) {
	g := graph(t, flow("a"))
	w := newWorld()
	for name, inputs := range map[string]record.Node{"absent": nil, "unassigned": {{Name: "x", Leaf: record.Leaf{Kind: record.LeafUnassigned}}}} {
		_, err := dataflow.Run(t.Context(), g, w.objects, w, dataflow.Options{Workspace: "prod", Inputs: inputs, Concurrency: 1})
		if err == nil || !strings.Contains(err.Error(), "e3 set") || !strings.Contains(err.Error(), "prod.x") {
			t.Errorf("%s: error is %v, want one that says what to do", name, err)
		}
	}
}

func TestFilter(t *testing.T) {
	g := graph(t, flow("clean", "train[4]: clean", "train[8]: clean", "report: train[4] train[8]", "apart"))
	w := newWorld()
	out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Filter = "train[4]" })
	wantStates(t, g, out, "clean=succeeded train[4]=succeeded train[8]=pending report=pending apart=pending")
	if want := (record.Summary{Total: 2, Completed: 2}); out.Summary != want || out.State != record.RunCompleted {
		t.Errorf("%v, summary is %+v, want %+v", out.State, out.Summary, want)
	}
}

// Forced tasks run though the answer is known; what is upstream of them does not.
func TestForce(t *testing.T) {
	g := graph(t, flow("clean", "train: clean", "report: train"))
	w := newWorld()
	run(t.Context(), t, g, w, nil)
	for _, test := range []struct{ filter, want string }{
		{"", "clean=succeeded train=succeeded report=succeeded"},
		{"train", "clean=cached train=succeeded report=pending"},
		{"*", "clean=succeeded train=succeeded report=succeeded"},
		{"re*", "clean=cached train=cached report=succeeded"},
	} {
		out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Force, o.Filter = true, test.filter })
		wantStates(t, g, out, test.want)
	}
}
