package workspace_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/workspace"
)

// reader opens the place's repository without a session.
func (p *place) reader() *workspace.Workspaces {
	p.t.Helper()
	r, err := repo.Open(context.Background(), p.repo.Root, repo.Options{Version: "test"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close() })
	return r.Workspaces
}

func (p *place) plan(change ...func(*workspace.PlanOptions)) *workspace.Plan {
	p.t.Helper()
	o := workspace.PlanOptions{Concurrency: 2}
	for _, c := range change {
		c(&o)
	}
	plan, err := p.reader().Planner.Plan(p.ctx, "w", o)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan
}

// steps returns "task step …", with the tasks that each waits for.
func steps(p *workspace.Plan) string {
	var list []string
	for i := range p.Tasks {
		t := &p.Tasks[i]
		text := p.Graph.Name(int32(i)) + " " + t.Step.String()
		var waits []string
		for _, d := range t.Waits {
			waits = append(waits, p.Graph.Name(d))
		}
		if len(waits) > 0 {
			text += "(" + strings.Join(waits, " ") + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// A plan shows what the next start would do, whatever has changed.
func TestPlan(t *testing.T) {
	p := newChain(t)
	check := func(what, want string, change ...func(*workspace.PlanOptions)) {
		t.Helper()
		if got := steps(p.plan(change...)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("unchanged", "one hit, two hit, other hit")
	check("forced in part", "one hit, two run, other not selected", func(o *workspace.PlanOptions) { o.Force, o.Filter = true, "two" })
	p.write("a.txt", "b")
	check("an input changed on disk", "one run, two waits(one), other hit")
	p.write("a.txt", "a")
	check("and back", "one hit, two hit, other hit")
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.ReplaceAll(chain, "two}", "two, version: 2}")+"\n")
	if plan := p.plan(); !plan.Edited || plan.New || steps(plan) != "one hit, two run, other hit" {
		t.Errorf("an edited task: edited %v, %s", plan.Edited, steps(plan))
	}
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.ReplaceAll(chain, "value: 1", "value: 2")+"\n")
	check("a new value that no task reads", "one hit, two hit, other hit")
	if _, err := p.reader().Planner.Plan(p.ctx, "w", workspace.PlanOptions{Filter: "onee"}); !errors.Is(err, workspace.ErrNoMatch) {
		t.Errorf("a filter that names nothing: %v", err)
	}
	if _, err := p.reader().Planner.Plan(p.ctx, "x", workspace.PlanOptions{}); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("a workspace that is not there: %v", err)
	}
	if err := p.ws.Create(p.ctx, "empty"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.reader().Planner.Plan(p.ctx, "empty", workspace.PlanOptions{}); !errors.Is(err, workspace.ErrNotDeployed) {
		t.Errorf("an empty workspace: %v", err)
	}
}

// A start that would deploy first can be planned without deploying. Set values are kept.
func TestPlanFile(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	file := filepath.Join(p.dir, "new.yaml")
	p.write("new.yaml", "e3: 1\nname: fresh\n"+chain+"\n")
	before := p.print()
	plan, err := p.reader().Planner.PlanFile(p.ctx, "", file, workspace.PlanOptions{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Workspace != "fresh" || !plan.New || plan.File != file || steps(plan) != "one run, two waits(one), other run" {
		t.Errorf("workspace %s of %s, new %v: %s", plan.Workspace, plan.File, plan.New, steps(plan))
	}
	if after := p.print(); !maps.Equal(before, after) {
		t.Errorf("the repository changed:\n%s", cmp.Diff(before, after))
	}
	p.deploy(chain)
	p.run = func(context.Context, string, string) int { return 3 }
	p.start()
	p.run = shell
	p.set("a", "set")
	p.start(func(o *workspace.StartOptions) { o.Filter = "one" })
	plan, err = p.reader().Planner.PlanFile(p.ctx, "w", file, workspace.PlanOptions{Concurrency: 1})
	if err != nil || plan.New || steps(plan) != "one hit, two run, other run" {
		t.Errorf("in a workspace in which a is set: %v, %v", plan, err)
	}
	if _, err := p.reader().Planner.PlanFile(p.ctx, "", filepath.Join(p.dir, "no.yaml"), workspace.PlanOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	// An unnamed workspace is not taken over.
	p.write("new.yaml", "e3: 1\nname: w\n"+strings.Replace(chain, "value: 1", "value: 5", 1)+"\n")
	if plan, err := p.reader().Planner.PlanFile(p.ctx, "", file, workspace.PlanOptions{Concurrency: 1}); err != nil || plan.Workspace != "w-2" {
		t.Errorf("a workspace that follows another file: %v, %v", plan, err)
	}
}

// The durations of the latest executions predict how long a run takes.
func TestPlanDurations(t *testing.T) {
	p := newChain(t)
	took := record.Durations{"one": 3 * time.Second, "two": 5 * time.Second, "other": 7 * time.Second}
	p.overwrite(refstore.Key{Partition: "INDEX/durations", Sort: "w"}, took.Encode([]string{"one", "two", "other"}))
	check := func(what string, least, most time.Duration, critical []int32, unknown int) {
		t.Helper()
		f := p.plan().Forecast
		if !f.History || f.Least != least || f.Most != most || f.CriticalTime != most || !slices.Equal(f.Critical, critical) || f.Unknown != unknown {
			t.Errorf("%s: %+v, want %v to %v, along %v, %d unknown", what, f, least, most, critical, unknown)
		}
	}
	check("unchanged", 0, 0, nil, 0)
	p.write("a.txt", "b")
	check("an input changed", 3*time.Second, 8*time.Second, []int32{0, 1}, 0)
	p.write("e3.yaml", "e3: 1\nname: p\n"+chain+"\n  more: {in: {x: two}, out: q, run: cat more}\n")
	check("a task added", 3*time.Second, 13*time.Second, []int32{0, 1, 3}, 1)
}

// A plan can be made while a run is at work. It names the run, and disturbs nothing.
func TestPlanDuringRun(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.write("b.txt", "2")
	p.deploy(twoInputs)
	g := newGate()
	p.run = func(ctx context.Context, script, dir string) int {
		g.wait()
		return shell(ctx, script, dir)
	}
	done := make(chan *workspace.RunResult)
	go func() { done <- p.start() }()
	<-g.reached
	plan := p.plan()
	if plan.Busy == nil || plan.Busy.Operation != "being run" || steps(plan) != "t run" {
		t.Errorf("busy %+v: %s", plan.Busy, steps(plan))
	}
	close(g.open)
	<-done
	if plan = p.plan(); plan.Busy != nil || steps(plan) != "t hit" {
		t.Errorf("afterwards, busy %+v: %s", plan.Busy, steps(plan))
	}
	if !p.current() {
		t.Error("the run after was not proven current at once")
	}
}

// A plan also reports inputs that the store has lost, unless the start would read them again.
func TestPlanMissingInputs(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.write("b.txt", "2")
	p.deploy(twoInputs)
	p.set("b", "set")
	lose := func(name string) {
		t.Helper()
		h := p.output(name).String()
		if err := os.Remove(filepath.Join(filepath.Join(p.repo.Root, "objects"), h[:2], h[2:])); err != nil {
			t.Fatal(err)
		}
	}
	lose("a")
	if plan := p.plan(); steps(plan) != "t run" {
		t.Errorf("without the content of a linked input: %s", steps(plan))
	}
	lose("b")
	plan, res := p.plan(), p.start()
	if steps(plan) != "t stuck" || !strings.Contains(res.Run.Error, "input b is gone") {
		t.Errorf("without the content of an input that was set the plan says %s, the start %q", steps(plan), res.Run.Error)
	}
}

// print is every file of the repository with its visible attributes.
func (p *place) print() map[string]string {
	p.t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(p.repo.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := fmt.Sprint(info.Mode(), " ", info.ModTime().UnixNano(), " ", info.Size())
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sha256.Sum256(data))
		}
		seen[path] = text
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return seen
}

// A draft is a package file that is repeatedly edited and run.
type draft struct {
	p       *place
	version int
	value   int
	labels  []string // of the matrix task m
	tasks   []draftTask
	broken  bool // the file is invalid

	lost map[string]bool // outputs that were removed by hand

	mu    sync.Mutex
	calls map[string]int // of each script
}

type draftTask struct {
	name  string
	seed  int
	mode  string // ok, fail, flaky, vary
	two   bool   // several outputs, one of them a directory
	reads []string
}

var draftModes = []string{"ok", "ok", "ok", "ok", "vary", "fail", "flaky"}

func (d *draft) sources() []string {
	names := []string{"a", "b", "v"}
	for i := range d.tasks {
		names = append(names, d.tasks[i].name)
		if d.tasks[i].two {
			names = append(names, d.tasks[i].name+".odd", d.tasks[i].name+".w")
		}
	}
	if len(d.labels) > 0 {
		names = append(names, "m[*]")
	}
	return names
}

func (d *draft) add(t *rapid.T) {
	d.version++
	d.tasks = append(d.tasks, draftTask{
		name: fmt.Sprint("t", d.version), seed: rapid.IntRange(0, 3).Draw(t, "seed"),
		mode: rapid.SampledFrom(draftModes).Draw(t, "mode"), two: rapid.Bool().Draw(t, "two outputs"),
		reads: rapid.SliceOfNDistinct(rapid.SampledFrom(d.sources()), 0, 3, rapid.ID[string]).Draw(t, "reads"),
	})
}

// text is the package file. It leaves out inputs that no longer exist.
func (d *draft) text() string {
	if d.broken {
		return "e3: 1\nname: p\ntasks: {x: {run: 3}}\n"
	}
	b := fmt.Sprintf("e3: 1\nname: p\ninputs: {a: {file: a.txt}, b: {file: b.txt}, v: {value: %d}}\ntasks:\n", d.value)
	if len(d.labels) > 0 {
		b += fmt.Sprintf("  m: {matrix: {k: [%s]}, in: {x0: a}, out: m.txt, run: make 0 ok $out -- $x0 $k}\n", strings.Join(d.labels, ", "))
	}
	known := (&draft{labels: d.labels}).sources()
	for i := range d.tasks {
		task := &d.tasks[i]
		var in, args []string
		for k, source := range task.reads {
			if slices.Contains(known, source) {
				in = append(in, fmt.Sprintf("x%d: %q", k, source))
				args = append(args, fmt.Sprintf("$x%d", k))
			}
		}
		out, vars := task.name+".txt", "$out"
		if task.two {
			out, vars = fmt.Sprintf("{odd: %[1]s.odd, even: %[1]s.even, w: %[1]s.w/}", task.name), "$odd $even $w"
		}
		b += fmt.Sprintf("  %s: {in: {%s}, out: %s, retries: %d, run: make %d %s %s -- %s}\n",
			task.name, strings.Join(in, ", "), out, map[bool]int{true: 1}[task.mode == "flaky"], task.seed, task.mode, vars, strings.Join(args, " "))
		known = append(known, task.name)
		if task.two {
			known = append(known, task.name+".odd", task.name+".w")
		}
	}
	return b
}

// make simulates the commands. It has few different outputs, so that a change often makes no difference downstream.
func (d *draft) make(_ context.Context, script, dir string) int {
	words := strings.Fields(script)
	split := slices.Index(words, "--")
	mode, outputs := words[2], words[3:split]
	sum := sha256.New()
	fmt.Fprint(sum, words[1])
	for _, source := range words[split+1:] {
		if err := filepath.WalkDir(filepath.Join(dir, source), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			fmt.Fprintf(sum, " %s", data)
			return err
		}); err != nil {
			fmt.Fprint(sum, source) // a value
		}
	}
	d.mu.Lock()
	d.calls[outputs[0]]++
	n := d.calls[outputs[0]]
	d.mu.Unlock()
	if mode == "fail" || mode == "flaky" && n%2 == 1 {
		return 3
	}
	h := sum.Sum(nil)
	for k, out := range outputs {
		text := fmt.Sprint("content ", h[k]%3)
		if k > 0 { // otherwise a part would often equal another task's output
			text = fmt.Sprint(text, " of ", k, " of ", outputs[0])
		}
		if mode == "vary" {
			text += fmt.Sprint(" ", n%2)
		}
		files := []string{filepath.Join(dir, out)}
		if fi, err := os.Stat(files[0]); err == nil && fi.IsDir() {
			files = []string{filepath.Join(files[0], "f"), filepath.Join(files[0], "g")}
		}
		for _, file := range files {
			if os.WriteFile(file, []byte(text+filepath.Base(file)[:1]), 0o644) != nil {
				return 9
			}
		}
	}
	return 0
}

var draftEdits = []string{
	"input", "input", "value", "seed", "seed", "mode", "add", "remove", "outputs", "matrix", "set", "unset", "lose", "damage", "damage", "damage", "reject", "prune", "remove file", "broken", "deploy",
}

// edit changes the project, or the records, in one way.
func (d *draft) edit(t *rapid.T) {
	p, at := d.p, rapid.IntRange(0, 9).Draw(t, "at")
	task := &d.tasks[at%len(d.tasks)]
	what := rapid.SampledFrom(draftEdits).Draw(t, "edit")
	switch what {
	case "input":
		p.write(rapid.SampledFrom([]string{"a.txt", "b.txt"}).Draw(t, "file"), fmt.Sprint("text ", rapid.IntRange(0, 2).Draw(t, "text")))
	case "remove file":
		if at == 0 {
			os.Remove(filepath.Join(p.dir, "b.txt"))
		}
	case "value":
		d.value = rapid.IntRange(0, 2).Draw(t, "value")
	case "seed":
		task.seed = rapid.IntRange(0, 3).Draw(t, "seed")
	case "mode":
		task.mode = rapid.SampledFrom(draftModes).Draw(t, "mode")
	case "outputs":
		task.two = !task.two
	case "add":
		d.add(t)
	case "remove":
		if len(d.tasks) > 1 {
			d.tasks = slices.Delete(d.tasks, at%len(d.tasks), at%len(d.tasks)+1)
		}
	case "matrix":
		d.labels = rapid.SampledFrom([][]string{{"p"}, {"p", "q"}, {"q", "p", "r"}, nil}).Draw(t, "labels")
	case "broken":
		d.broken = at == 0
	case "deploy":
		_, _ = p.ws.Deployer.DeployFile(p.ctx, "w", filepath.Join(p.dir, "e3.yaml")) // it may be broken
	case "set":
		_ = p.ws.Datasets.Set(p.ctx, "w", "a", p.file(fmt.Sprint("text ", at%3)))
	case "unset":
		_, _ = p.ws.Datasets.Unset(p.ctx, "w", "a")
	case "lose", "damage", "reject", "prune":
		d.spoil(t, what)
	}
	p.write("e3.yaml", d.text())
}

// spoil removes one of the answers.
func (d *draft) spoil(t *rapid.T, how string) {
	p := d.p
	var list []*executions.Execution
	for e, err := range p.repo.Executions.All(p.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if e.State == record.Success {
			list = append(list, e)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b *executions.Execution) int { return strings.Compare(a.ExecutionID, b.ExecutionID) })
	e := list[rapid.IntRange(0, 99).Draw(t, "which")%len(list)]
	var err error
	switch how {
	case "lose", "damage":
		err = d.lose(t, e, how == "damage")
	case "reject":
		_, err = p.curator().Reject(p.ctx, e.Key, e.ExecutionID, &record.Rejection{Rejected: true, At: e.CompletedAt})
	case "prune":
		_, err = p.curator().Prune(p.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me", "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Over any history of edits, losses and runs: the next start does what was planned, and planning leaves no trace.
func TestPlanAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlace(t)
		d := &draft{p: p, calls: map[string]int{}, lost: map[string]bool{}, labels: []string{"p", "q"}}
		p.run = d.make
		p.write("a.txt", "text 0")
		p.write("b.txt", "text 1")
		for range rapid.IntRange(1, 5).Draw(rt, "tasks") {
			d.add(rt)
		}
		p.write("e3.yaml", d.text())
		if err := p.ws.Create(p.ctx, "w"); err != nil {
			rt.Fatal(err)
		}
		file := filepath.Join(p.dir, "e3.yaml")
		d.compare(rt, func(w *workspace.Workspaces) (*workspace.Plan, error) {
			return w.Planner.PlanFile(p.ctx, "w", file, workspace.PlanOptions{Concurrency: 2})
		}, func(o workspace.StartOptions) (*workspace.RunResult, error) {
			if _, _, err := p.ws.Deployer.DeployNew(p.ctx, "w", file, nil); err != nil {
				return nil, err
			}
			return p.ws.Runner.Start(p.ctx, "w", o)
		})
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 3).Draw(rt, "edits") {
				d.edit(rt)
			}
			force := rapid.IntRange(0, 4).Draw(rt, "force") == 0
			filter := rapid.SampledFrom([]string{"", "", "", "t1", "m*", "t?"}).Draw(rt, "filter")
			d.compare(rt, func(w *workspace.Workspaces) (*workspace.Plan, error) {
				return w.Planner.Plan(p.ctx, "w", workspace.PlanOptions{Concurrency: 2, Force: force, Filter: filter})
			}, func(o workspace.StartOptions) (*workspace.RunResult, error) {
				o.Force, o.Filter = force, filter
				return p.ws.Runner.Start(p.ctx, "w", o)
			})
		}
	})
}

// compare makes a plan, starts, and compares the two.
func (d *draft) compare(t *rapid.T, makePlan func(*workspace.Workspaces) (*workspace.Plan, error), start func(workspace.StartOptions) (*workspace.RunResult, error)) {
	p := d.p
	r, err := repo.Open(context.Background(), p.repo.Root, repo.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	maps.DeleteFunc(d.lost, func(text string, _ bool) bool {
		h, err := objectstore.ParseHash(text)
		return err == nil && d.whole(h)
	})
	if s, err := p.ws.State(p.ctx, "w"); err == nil && s.Deployed && len(d.lost) == 0 { // losses by hand are seen after a minute
		if p.remembering == nil {
			p.remembering = p.ws.Planner.Remembering()
		}
		if now, remembered := freshnessBy(t, p, r.Workspaces.Planner), freshnessBy(t, p, p.remembering); now != remembered {
			t.Fatalf("a planner that remembers says %s, want %s", remembered, now)
		}
	}
	before := p.print()
	plan, planErr := makePlan(r.Workspaces)
	if after := p.print(); !maps.Equal(before, after) {
		t.Fatalf("the repository changed:\n%s", cmp.Diff(before, after))
	}
	var mu sync.Mutex
	executed := map[string]bool{}
	var told []string // what happened, for the one who reads that they do not agree
	o := startOptions(p, "")
	o.OnEvent = func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprint(e.Type, " ", e.Task, " ", e.Facts().Reason))
		if e.Type == events.TaskStarted {
			executed[e.Task] = true
		}
	}
	res, err := start(o)
	if planErr != nil || err != nil {
		if planErr == nil || err == nil || planErr.Error() != err.Error() {
			t.Fatalf("planning says %v, the start %v", planErr, err)
		}
		return
	}
	cached := map[string]string{}
	for e := range res.Run.Tasks.All() {
		if e.Cached {
			cached[e.Task] = e.ExecutionID
		}
	}
	total := 0
	for i := range plan.Tasks {
		task, name := &plan.Tasks[i], plan.Graph.Name(int32(i))
		fine := d.back(plan.Graph.Hashes[i], cached[name]) // its output was lost at the time of the plan, and another task has produced the same since
		switch answer, hit := cached[name]; task.Step {
		case dataflow.StepNone:
			fine = !hit && !executed[name]
			total--
		case dataflow.StepHit:
			fine = fine || answer == task.ExecutionID && !executed[name] ||
				executed[name] && (d.needed(plan, int32(i)) || d.shown(plan, int32(i)))
		case dataflow.StepRun:
			failed := res.Run.State == record.RunFailed
			fine = fine || executed[name] || len(task.Waits) > 0 && !hit && failed || hit && failed && d.unread(plan, int32(i), answer, executed)
		case dataflow.StepWait:
			// An answer may also take the place of a second attempt: its output was made by another task after the first.
			fine = len(task.Waits) > 0 && (fine || !(hit && executed[name])) && (hit || executed[name] || res.Run.State == record.RunFailed)
		}
		if !fine {
			t.Fatalf("%s is planned as %v with %q; it was executed: %v, answered by %q\n%s\n%s",
				name, task.Step, task.ExecutionID, executed[name], cached[name], steps(plan), strings.Join(told, "\n"))
		}
		total++
	}
	if int64(total) != res.Run.Summary.Total || plan.Package.Hash == "" || res.Run.PackageRef != plan.Package.Name+"@"+plan.Package.Version {
		t.Fatalf("%d tasks of %v are planned, the run has %d of %s", total, plan.Package, res.Run.Summary.Total, res.Run.PackageRef)
	}
}

// needed tells whether the run may notice that the output of a hit is lost: a waiting task may turn out to read it.
func (d *draft) needed(plan *workspace.Plan, i int32) bool {
	return len(d.lost) > 0 && slices.ContainsFunc(plan.Graph.Dependents(i), func(k int32) bool { return plan.Tasks[k].Step == dataflow.StepWait })
}

// shown tells whether the output of a hit was lost, which the plan had no reason to see because no task that is to run
// reads it. The run removes a damaged object when it reads it as a part of another output, and may then miss it here.
func (d *draft) shown(plan *workspace.Plan, i int32) bool {
	e, err := d.p.repo.Executions.Get(d.p.ctx, *plan.Tasks[i].Key, plan.Tasks[i].ExecutionID)
	return err == nil && len(d.lostOf(e)) > 0
}

// lostOf returns the parts of an execution's output that were removed or damaged before the run. It may have made them again.
func (d *draft) lostOf(e *executions.Execution) []objectstore.Hash {
	top, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(d.parts(top), func(h objectstore.Hash) bool { return !d.lost[h.String()] })
}

// lose removes or damages one of the objects of an execution's output.
func (d *draft) lose(t *rapid.T, e *executions.Execution, stays bool) error {
	top, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return err
	}
	h := rapid.SampledFrom(d.parts(top)).Draw(t, "part").String()
	d.lost[h] = true
	file := filepath.Join(d.p.repo.Root, "objects", h[:2], h[2:])
	data, err := os.ReadFile(file)
	if err != nil {
		return ignoreNotExist(err)
	}
	if err := os.Remove(file); err != nil || !stays && rapid.Bool().Draw(t, "gone") || len(data) == 0 {
		return err
	}
	data[rapid.IntRange(0, len(data)-1).Draw(t, "byte")] ^= 1
	return os.WriteFile(file, data, 0o444)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// unread tells whether the run could not notice the loss of an execution's output, because no task that reads it was
// started: the run had failed before.
func (d *draft) unread(plan *workspace.Plan, i int32, answer string, executed map[string]bool) bool {
	if slices.ContainsFunc(plan.Graph.Dependents(i), func(k int32) bool { return executed[plan.Graph.Name(k)] }) {
		return false
	}
	e, err := d.p.repo.Executions.Get(d.p.ctx, *plan.Tasks[i].Key, answer)
	return err == nil && slices.ContainsFunc(d.lostOf(e), func(h objectstore.Hash) bool { return !d.whole(h) })
}

// back tells whether an execution answers a task that the plan did not expect it to answer, because its output was
// lost: another task has since produced the same output again.
func (d *draft) back(task objectstore.Hash, answer string) bool {
	if answer == "" {
		return false
	}
	e, err := d.p.repo.Executions.FindTask(d.p.ctx, task, answer)
	return err == nil && e.State == record.Success && slices.ContainsFunc(d.lostOf(e), d.whole)
}

// whole tells whether an object is readable.
func (d *draft) whole(h objectstore.Hash) bool {
	return objectstore.Check(d.p.ctx, d.p.repo.Objects, h) == nil
}

// parts returns the readable objects that an output consists of.
func (d *draft) parts(top objectstore.Hash) []objectstore.Hash {
	parts := []objectstore.Hash{top}
	if entries, err := tree.Read(d.p.ctx, d.p.repo.Objects, top); err == nil {
		for i := range entries {
			parts = append(parts, d.parts(entries[i].Hash)...)
		}
	}
	return parts
}
