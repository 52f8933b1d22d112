package dataflow_test

import (
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
	"e3/internal/format/record"
	"e3/objectstore"
)

func TestRun(t *testing.T) {
	g := graphOf(t, flow("report: train clean", "clean", "train: clean"))
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
	out := run(t.Context(), t, graphOf(t, &record.Package{Name: "none"}), newWorld(), nil)
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
	g := graphOf(t, pkg)
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
	g := graphOf(t, flow("a", "bad: a", "x: bad", "y: x other", "other", "z: other"))
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

// The first failure in time is the run's.
func TestFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.behave = func(task string, _ int64) behaviour {
			if task == "late" {
				return behaviour{takes: time.Minute, fails: true}
			}
			return behaviour{takes: time.Second, error: executions.ReasonOutput}
		}
		out := run(t.Context(), t, graphOf(t, flow("late", "early")), w, nil)
		if out.FailedTask != "early" || out.Error != "output" || out.Summary.Failed != 2 {
			t.Errorf("the run failed in %q: %q", out.FailedTask, out.Error)
		}
	})
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
		out := run(t.Context(), t, graphOf(t, flow("a")), w, nil)
		if out.Error != test.error || out.TimedOut != test.timed || out.FailedTask != "a" {
			t.Errorf("%+v: error is %q, timed out %v, want %q, %v", test.b, out.Error, out.TimedOut, test.error, test.timed)
		}
	}
}

// After the first failure no command starts. One may run, and comes to its end.
func TestFailFast(t *testing.T) {
	for _, cores := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			g := graphOf(t, flow("bad", "slow", "c", "d", "after: slow"))
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

// A fault of the stores stops the run: what runs comes back, nothing more starts.
func TestFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk gone")
		g := graphOf(t, flow("a", "b", "c: b", "d"))
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
	g := graphOf(t, flow("a"))
	w := newWorld()
	for name, inputs := range map[string]record.Node{"absent": nil, "unassigned": {{Name: "x", Leaf: record.Leaf{Kind: record.LeafUnassigned}}}} {
		_, err := dataflow.Run(t.Context(), g, w.objects, w, dataflow.Options{Workspace: "prod", Inputs: inputs, Concurrency: 1})
		if err == nil || !strings.Contains(err.Error(), "e3 set") || !strings.Contains(err.Error(), "prod.x") {
			t.Errorf("%s: error is %v, want one that says what to do", name, err)
		}
	}
}

func TestFilter(t *testing.T) {
	g := graphOf(t, flow("clean", "train[4]: clean", "train[8]: clean", "report: train[4] train[8]", "apart"))
	w := newWorld()
	out := run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Filter = "train[4]" })
	wantStates(t, g, out, "clean=succeeded train[4]=succeeded train[8]=pending report=pending apart=pending")
	if want := (record.Summary{Total: 2, Completed: 2}); out.Summary != want || out.State != record.RunCompleted {
		t.Errorf("%v, summary is %+v, want %+v", out.State, out.Summary, want)
	}
}

// Forced tasks run though the answer is known; what is upstream of them does not.
func TestForce(t *testing.T) {
	g := graphOf(t, flow("clean", "train: clean", "report: train"))
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
