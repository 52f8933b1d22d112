package history_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/refstore"
	"e3/workspace"
)

// tester is the part of testing.TB that a workshop uses; rapid.T has it too.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// A workshop is a repository in which runs are made.
type workshop struct {
	tester
	dir string
	*repo.Repo
	executor *executions.Executor
}

func newWorkshop(t tester, dir string) *workshop {
	t.Helper()
	w := &workshop{tester: t, dir: dir}
	root, err := repo.Create(filepath.Join(dir, repo.DirName))
	w.must(err)
	w.Repo, err = repo.Open(context.Background(), root, repo.Options{Version: "test"})
	w.must(err)
	w.executor = executions.NewExecutor(w.Executions, w.Objects, w.Records, commands{}, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: w.Scratch, Now: time.Now,
	})
	return w
}

func (w *workshop) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *workshop) stores() history.Stores {
	return history.Stores{Records: w.Records, Executions: w.Executions, Runs: w.Workspaces.Runs}
}

// commands understands "fail" and "make <output> <text>".
type commands struct{}

func (commands) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	words := strings.Fields(spec.Argv[len(spec.Argv)-1])
	if words[0] == "fail" {
		return runner.Result{ExitCode: 1}, nil
	}
	return runner.Result{}, os.WriteFile(filepath.Join(spec.Dir, words[1]), []byte(words[2]), 0o644)
}

func (w *workshop) write(name, text string) {
	w.Helper()
	w.must(os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644))
}

func (w *workshop) deploy(ws string, lines ...string) {
	w.Helper()
	w.write("e3.yaml", "e3: 1\nname: p\ninputs: {file: {file: data.txt}}\ntasks:\n"+strings.Join(lines, "\n")+"\n")
	if err := w.Workspaces.Create(w.Context(), ws); !errors.Is(err, workspace.ErrExists) {
		w.must(err)
	}
	_, err := w.Workspaces.Deployer.DeployFile(w.Context(), ws, filepath.Join(w.dir, "e3.yaml"))
	w.must(err)
}

func (w *workshop) start(ws string, change ...func(*workspace.StartOptions)) *record.Run {
	w.Helper()
	o := workspace.StartOptions{Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1, User: "me", Host: "here"}, Executor: w.executor}
	for _, c := range change {
		c(&o)
	}
	res, err := w.Workspaces.Runner.Start(w.Context(), ws, o)
	w.must(err)
	return res.Run
}

// A model records the executions, the runs that made them, and the runs that used their results.
type model struct {
	execs map[string]*known // by id
}

type known struct {
	ws, task, run string
	status        runview.TaskState
	key           executions.Key
	gone          bool
	runs          map[[2]string][]string // by workspace and task: its runs whose events are here
}

// ran adds an ended run.
func (m *model) ran(w *workshop, ws string, run *record.Run) {
	for e, err := range w.Executions.All(w.Context()) {
		w.must(err)
		if m.execs[e.ExecutionID] != nil {
			continue
		}
		status := map[record.State]runview.TaskState{record.Success: runview.TaskSuccess, record.Failed: runview.TaskFailed, record.Error: runview.TaskError}[e.State]
		k := &known{ws: e.Detail.Workspace, task: e.Detail.Task, run: e.Detail.RunID, status: status, key: e.Key, runs: map[[2]string][]string{}}
		if k.run != run.RunID {
			w.Errorf("execution %s is of run %s, not of %s", e.ExecutionID, k.run, run.RunID)
		}
		m.execs[e.ExecutionID] = k
		k.partOf(k.ws, k.task, run.RunID)
	}
	for t := range run.Tasks.All() {
		m.execs[t.ExecutionID].partOf(ws, t.Task, run.RunID)
	}
}

func (k *known) partOf(ws, task, run string) {
	name := [2]string{ws, task}
	if !slices.Contains(k.runs[name], run) {
		k.runs[name] = append(k.runs[name], run)
	}
}

// forget removes the facts that only the events of a run held.
func (m *model) forget(run string) {
	for _, k := range m.execs {
		for name, runs := range k.runs {
			if k.runs[name] = slices.DeleteFunc(runs, func(r string) bool { return r == run }); len(k.runs[name]) == 0 {
				delete(k.runs, name)
			}
		}
	}
}

// lines are the attempts of a task, the latest first.
func (m *model) lines(ws, task string) []string {
	var list []string
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(m.execs))) {
		k := m.execs[id]
		runs := k.runs[[2]string{ws, task}]
		if len(runs) == 0 && (k.gone || k.ws != ws || k.task != task) {
			continue
		}
		slices.Sort(runs)
		list = append(list, fmt.Sprintf("%s %s gone %v in %v", id, k.status, k.gone, runs))
	}
	return list
}

func attemptLines(list []history.Attempt) []string {
	var lines []string
	for i := range list {
		x := &list[i]
		lines = append(lines, fmt.Sprintf("%s %s gone %v in %v", x.ExecutionID, x.Status, x.Execution == nil, append([]string{}, x.Runs...)))
	}
	return lines
}

// TestAgainstModel makes random runs, prunes, and removes events, and compares the history with the model.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "shop")
		if err != nil {
			rt.Fatal(err)
		}
		defer os.RemoveAll(dir)
		w := newWorkshop(rt, dir)
		defer func() { w.must(w.Repo.Close()) }()
		m := &model{execs: map[string]*known{}}
		word := func(label string) string { return rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, label) }
		ws := func() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "workspace") }
		w.write("data.txt", "x")
		deploy := func() {
			var lines []string
			for i := range rapid.IntRange(1, 3).Draw(rt, "tasks") {
				run := rapid.SampledFrom([]string{"make o%d ", "make o%d ", "fail %d"}).Draw(rt, "command") + word("output")
				in := "file"
				if i > 0 && rapid.Bool().Draw(rt, "chain") {
					in = "t0"
				}
				policy := rapid.SampledFrom([]string{"", ", retries: {max: 1, backoff: 1ms}"}).Draw(rt, "policy")
				lines = append(lines, fmt.Sprintf("  t%d: {in: [%s], out: o%d, run: %s%s}", i, in, i, fmt.Sprintf(run, i), policy))
			}
			w.deploy(ws(), lines...)
		}
		deploy()
		type logged struct{ ws, run string }
		var logs []logged // of runs, the earliest first
		start := func(name string, change ...func(*workspace.StartOptions)) {
			if s, err := w.Workspaces.State(w.Context(), name); err == nil && s.Deployed {
				run := w.start(name, change...)
				m.ran(w, name, run)
				logs = append(logs, logged{name, run.RunID})
			}
		}
		actions := map[string]func(*rapid.T){
			"edit":   func(*rapid.T) { w.write("data.txt", word("content")) },
			"deploy": func(*rapid.T) { deploy() },
			"start":  func(*rapid.T) { start(ws()) },
			"again":  func(*rapid.T) { name := ws(); start(name); start(name) },
			"force":  func(*rapid.T) { start(ws(), func(o *workspace.StartOptions) { o.Force = true }) },
			"filter": func(*rapid.T) { start(ws(), func(o *workspace.StartOptions) { o.Filter = "t0" }) },
			"prune": func(*rapid.T) {
				_, err := gc.Prune(w.Context(), gc.PruneStores{
					Records: w.Records, Objects: w.Objects, Workspaces: w.Workspaces, Curator: executions.NewCurator(w.Executions, w.Records, time.Now),
					Jobs: w.Queue(),
				}, gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}, By: "me@here", Now: time.Now()})
				w.must(err)
				left := map[string]bool{}
				for e, err := range w.Executions.All(w.Context()) {
					w.must(err)
					left[e.ExecutionID] = true
				}
				for id, k := range m.execs {
					k.gone = !left[id]
				}
			},
			"clean": func(*rapid.T) {
				if len(logs) < 2 {
					return
				}
				old := logs[0]
				for _, l := range logs[1:] { // the latest of a workspace stays
					if l.ws == old.ws {
						w.must(w.Records.Remove(w.Context(), refstore.Key{Partition: "EVENTS/" + old.ws, Sort: old.run}))
						m.forget(old.run)
						logs = logs[1:]
						return
					}
				}
			},
		}
		check := func() {
			name, task := ws(), fmt.Sprintf("t%d", rapid.IntRange(0, 2).Draw(rt, "task"))
			found, err := history.Find(w.Context(), w.stores(), history.Query{Workspace: name, Pattern: "*", Deep: true})
			w.must(err)
			for _, t := range found.Tasks {
				if want := m.lines(name, t.Name); !slices.Equal(attemptLines(t.Attempts), want) {
					w.Errorf("%s.%s: got %v, want %v", name, t.Name, attemptLines(t.Attempts), want)
				}
				if t.Name == task {
					w.compare(m, name, task, t.Attempts)
				}
			}
		}
		names := slices.Sorted(maps.Keys(actions))
		for range rapid.IntRange(2, 12).Draw(rt, "steps") {
			actions[rapid.SampledFrom(names).Draw(rt, "action")](rt)
			check()
		}
	})
}

// compare checks the attempts of a task from a deep query of all tasks, and from a query of this task alone.
func (w *workshop) compare(m *model, ws, task string, deep []history.Attempt) {
	w.Helper()
	want := m.lines(ws, task)
	if got := attemptLines(deep); !slices.Equal(got, want) {
		w.Errorf("%s.%s, deep: got\n\t%s\nwant\n\t%s", ws, task, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	for i := range deep {
		x := &deep[i]
		k := m.execs[x.ExecutionID]
		if x.Key != (executions.Key{}) && x.Key != k.key || !k.gone && (x.MadeBy != k.run || x.Worker != "me@here" || !x.Timed) {
			w.Errorf("%s.%s: %+v was made as %+v", ws, task, x, k)
		}
		if k.gone != errors.Is(x.Err, executions.ErrNotFound) || k.gone && x.Key != (executions.Key{}) && x.Pruned() == nil {
			w.Errorf("%s.%s: of execution %s, gone %v, it says %v", ws, task, x.ExecutionID, k.gone, x.Err)
		}
	}
	// Without a deep query, attempts that only executions hold are missing if their command is no longer known; the
	// rest is the same.
	list, err := history.Attempts(w.Context(), w.stores(), ws, task)
	w.must(err)
	got := attemptLines(list)
	for n := range 3 {
		found, err := history.Latest(w.Context(), w.stores(), history.Query{Workspace: ws, Tasks: []string{task}}, n, all)
		w.must(err)
		few := attemptLines(found.Tasks[0].Attempts)
		if found.Partial && (len(few) <= n || len(few) > len(got)) || !found.Partial && len(few) != len(got) || !slices.Equal(few, got[:len(few)]) {
			w.Errorf("%s.%s, latest %d: got\n\t%s\nof\n\t%s", ws, task, n, strings.Join(few, "\n\t"), strings.Join(got, "\n\t"))
		}
	}
	for _, l := range want {
		if slices.Contains(got, l) || strings.HasSuffix(l, "in []") {
			continue
		}
		w.Errorf("%s.%s: it lacks\n\t%s\nit has\n\t%s", ws, task, l, strings.Join(got, "\n\t"))
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			w.Errorf("%s.%s: it has\n\t%s\nwhich is not among\n\t%s", ws, task, l, strings.Join(want, "\n\t"))
		}
	}
}

// TestProven has more tasks than get their own events when nothing has changed. One event stands for all of them, and
// the history still names its run.
func TestProven(t *testing.T) {
	w := newWorkshop(t, t.TempDir())
	t.Cleanup(func() { w.must(w.Repo.Close()) })
	m := &model{execs: map[string]*known{}}
	const tasks = events.Bulk + 10
	lines := func(last string) []string {
		var list []string
		for i := range tasks {
			list = append(list, fmt.Sprintf("  t%d: {in: [file], out: o%d, run: make o%d x}", i, i, i))
		}
		return append(list, "  last: {in: [t0], out: o, run: "+last+"}", "  after: {in: [last], out: p, run: make p x}")
	}
	check := func() {
		t.Helper()
		for _, task := range []string{"t0", "t7", "last", "after"} {
			found, err := history.Find(t.Context(), w.stores(), history.Query{Workspace: "a", Tasks: []string{task}, Deep: true})
			w.must(err)
			w.compare(m, "a", task, found.Tasks[0].Attempts)
		}
	}
	w.write("data.txt", "x")
	w.deploy("a", lines("make o x")...)
	var runs []*record.Run
	start := func(change ...func(*workspace.StartOptions)) {
		t.Helper()
		run := w.start("a", change...)
		m.ran(w, "a", run)
		runs = append(runs, run)
		check()
	}
	start()
	start()
	w.deploy("a", lines("fail 1")...)
	start() // all but two are proven
	w.deploy("a", lines("make o y")...)
	start()
	start(func(o *workspace.StartOptions) { o.Filter = "t*" })
	start()
	w.write("data.txt", "y")
	start()
	start()
	if bulk := w.bulk("a"); bulk < 4 {
		t.Errorf("%d runs have an event for many tasks, want 4 at least", bulk)
	}
	// The events of the first run name the executions of the second; without them, those of later runs still do.
	for _, run := range runs[:2] {
		w.must(w.Records.Remove(t.Context(), refstore.Key{Partition: "EVENTS/a", Sort: run.RunID}))
		m.forget(run.RunID)
	}
	list, err := history.Attempts(t.Context(), w.stores(), "a", "t7")
	w.must(err)
	if len(list) != 2 || !slices.Equal(list[0].Runs, []string{runs[6].RunID, runs[7].RunID}) {
		t.Errorf("got %v", attemptLines(list))
	}
}

// bulk counts the runs of a workspace with an event that stands for many proven tasks.
func (w *workshop) bulk(ws string) int {
	w.Helper()
	refs, err := events.Runs(w.Context(), w.Records, ws)
	w.must(err)
	n := 0
	for _, ref := range refs {
		for e, err := range events.Read(w.Context(), w.Records, ws, ref.Run) {
			w.must(err)
			if e.Type == events.TaskCached && e.Task == "" {
				n++
			}
		}
	}
	return n
}
