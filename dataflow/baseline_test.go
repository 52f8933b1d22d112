package dataflow_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/objectstore"
)

// project is a package file that is edited and run again and again. Whatever the edits do,
// build makes a package that is whole: what a task cannot read, an input replaces.
type project struct {
	inputs map[string]int // name → content
	tasks  []taskSpec     // in declared order
	named  int
	whole  bool // fan-ins need all their members
}

type taskSpec struct {
	id    int // part of what the task hash is made from: which of two equal tasks runs is chance
	name  string
	rank  int // it reads only tasks of smaller rank
	def   int // what the task hash is made from
	kind  record.Kind
	reads []readSpec
	fails bool
	may   bool // its failure is allowed
	prio  int64
}

type readSpec struct {
	kind  record.WireKind
	names []string
	entry string // of a task that leaves a directory
	need  int64  // of a fan-in: members that must succeed; 0: all
}

var (
	inputNames  = []string{"i0", "i1", "i2"}
	outputKinds = []record.Kind{record.KindDir, record.KindFile, record.KindExecutable}
	edits       = []string{"entry", "input", "item", "task", "kind", "rewire", "reread", "swap names", "fail", "fail", "allow", "add", "remove", "rename", "reorder", "rank", "policy"}
)

func drawRead(t *rapid.T, p *project) readSpec {
	var names []string // what comes first is drawn most
	for _, task := range p.tasks {
		names = append(names, task.name)
	}
	names = append(names, inputNames...)
	r := readSpec{
		kind:  rapid.SampledFrom([]record.WireKind{record.WireOutput, record.WireFanIn, record.WireInput}).Draw(t, "wire"),
		entry: rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "entry"),
	}
	r.names = rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, "names")
	if !p.whole {
		r.need = int64(rapid.IntRange(0, 2).Draw(t, "need"))
	}
	return r
}

func drawTask(t *rapid.T, p *project) taskSpec {
	p.named++
	return taskSpec{
		id: p.named, name: fmt.Sprint(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "group"), p.named), rank: p.named, def: rapid.IntRange(0, 5).Draw(t, "def"),
		kind:  rapid.SampledFrom(outputKinds).Draw(t, "kind"),
		reads: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) readSpec { return drawRead(t, p) }), 0, 3).Draw(t, "reads"),
	}
}

// edit changes the project in one way.
func (p *project) edit(t *rapid.T) {
	what := rapid.SampledFrom(edits).Draw(t, "edit")
	if len(p.tasks) == 0 {
		what = "add"
	}
	at := 0
	if len(p.tasks) > 0 {
		at = rapid.IntRange(0, len(p.tasks)-1).Draw(t, "at")
	}
	switch what {
	case "input":
		p.inputs[rapid.SampledFrom(inputNames).Draw(t, "input")] = rapid.IntRange(0, 3).Draw(t, "content")
	case "task":
		p.tasks[at].def = rapid.IntRange(0, 5).Draw(t, "def")
	case "kind":
		p.tasks[at].kind = rapid.SampledFrom(outputKinds).Draw(t, "kind")
	case "rewire":
		p.tasks[at].reads = drawTask(t, p).reads
	case "reread":
		if reads := p.tasks[at].reads; len(reads) > 0 {
			reads = slices.Clone(reads)
			reads[0] = drawRead(t, p)
			p.tasks[at].reads = reads
		}
	case "entry", "item": // one detail of one wire
		if reads := p.tasks[at].reads; len(reads) > 0 {
			reads = slices.Clone(reads)
			r := &reads[rapid.IntRange(0, len(reads)-1).Draw(t, "read")]
			if other := drawRead(t, p); what == "entry" {
				r.entry = other.entry
			} else {
				r.names = slices.Clone(r.names)
				r.names[len(r.names)-1] = other.names[0]
			}
			p.tasks[at].reads = reads
		}
	case "add":
		p.tasks = slices.Insert(p.tasks, at, drawTask(t, p))
	case "remove":
		p.tasks = slices.Delete(p.tasks, at, at+1)
	case "rename":
		p.named++
		p.tasks[at].name = fmt.Sprint("a", p.named)
	case "swap names":
		other := rapid.IntRange(0, len(p.tasks)-1).Draw(t, "other")
		p.tasks[at].name, p.tasks[other].name = p.tasks[other].name, p.tasks[at].name
	case "reorder":
		p.tasks = rapid.Permutation(p.tasks).Draw(t, "order")
	case "policy":
		p.tasks[at].prio++
	case "fail":
		p.tasks[at].fails = !p.tasks[at].fails
	case "allow":
		p.tasks[at].may = !p.tasks[at].may
	case "rank":
		p.tasks[at].rank = rapid.IntRange(0, p.named).Draw(t, "rank")
	}
}

func (p *project) build() (pkg *record.Package, inputs record.Node) {
	pkg = &record.Package{Name: "project"}
	for _, name := range inputNames {
		pkg.Inputs = append(pkg.Inputs, record.PackageInput{Name: name})
		inputs = append(inputs, record.NodeEntry{Name: name, Leaf: value(fmt.Sprint("input ", p.inputs[name]))})
	}
	byName := map[string]*taskSpec{}
	for i := range p.tasks {
		byName[p.tasks[i].name] = &p.tasks[i]
	}
	for i := range p.tasks {
		task := &p.tasks[i]
		n := 1000*task.id + 10*task.def
		if task.fails {
			n++
		}
		if task.kind == record.KindExecutable {
			n += 2
		}
		t := record.PackageTask{Name: task.name, Task: taskHash(n, task.kind == record.KindDir), Output: task.kind, Policy: record.Policy{Priority: task.prio, MayFail: task.may}}
		for _, r := range task.reads {
			t.Wiring = append(t.Wiring, task.wire(r, byName))
		}
		pkg.Tasks = append(pkg.Tasks, t)
	}
	return pkg, inputs
}

func (task *taskSpec) wire(r readSpec, byName map[string]*taskSpec) record.Wire {
	readable := func(name string) bool { return byName[name] != nil && byName[name].rank < task.rank }
	entry := func(name string) string {
		if byName[name].kind != record.KindDir {
			return ""
		}
		return r.entry
	}
	name := r.names[0]
	switch {
	case r.kind == record.WireFanIn:
		w := record.Wire{Kind: record.WireFanIn}
		for k, name := range r.names {
			if readable(name) {
				w.Items = append(w.Items, record.FanItem{Label: fmt.Sprint("l", k), Task: name, Entry: entry(name)})
			}
		}
		if r.need > 0 && len(w.Items) > 0 {
			w.Gather = &record.Gather{Need: notation.Need{Kind: notation.NeedCount, N: min(r.need, int64(len(w.Items)))}}
		}
		return w
	case r.kind == record.WireOutput && readable(name):
		return record.Wire{Kind: record.WireOutput, Name: name, Entry: entry(name)}
	case slices.Contains(inputNames, name):
		return record.Wire{Kind: record.WireInput, Name: name}
	}
	return record.Wire{Kind: record.WireInput, Name: "i0"}
}

// The answer for a task is the same whether a baseline proves it, early cut-off keeps it or the
// executions are asked, over any history of edits and runs.
func TestBaselineChangesNoAnswer(t *testing.T) {
	for range 20 { // times the hundred that rapid makes
		rapid.Check(t, checkBaseline)
	}
}

func checkBaseline(t *rapid.T) {
	p := &project{inputs: map[string]int{}}
	for range rapid.IntRange(1, 8).Draw(t, "tasks") {
		p.tasks = append(p.tasks, drawTask(t, p))
	}
	proving, asking := newWorld(), newWorld()
	asking.objects = proving.objects // content never disagrees
	var base *dataflow.Baseline
	for step := range rapid.IntRange(2, 6).Draw(t, "steps") {
		edited := false
		if step > 0 {
			for range rapid.IntRange(0, 3).Draw(t, "edits") {
				p.edit(t)
				edited = true
			}
		}
		force := rapid.IntRange(0, 4).Draw(t, "force") == 0
		filter := ""
		if rapid.IntRange(0, 5).Draw(t, "filtered") == 0 {
			filter = rapid.SampledFrom([]string{"a*", "b*", "*1", "*2", "none"}).Draw(t, "filter")
		}
		cores, lookups := rapid.IntRange(1, 3).Draw(t, "cores"), rapid.IntRange(0, 2).Draw(t, "lookups")
		pkg, inputs := p.build()
		if base != nil && !edited && rapid.Bool().Draw(t, "same package") {
			pkg = base.Package // read once, as where nothing was edited
			inputs = base.Inputs
		}
		g := graphOf(t, pkg)
		run1 := func(w *world, base *dataflow.Baseline) *dataflow.Outcome {
			w.calls = nil
			w.behave = p.behaviour
			w.vary = func(task objectstore.Hash) bool { return task[2]&1 == 1 }
			return run(context.Background(), t, g, w, func(o *dataflow.Options) {
				o.Inputs, o.Baseline, o.Force, o.Filter, o.Concurrency, o.Lookups = inputs, base, force, filter, cores, lookups
			})
		}
		got, want := run1(proving, base), run1(asking, nil)
		compareOutcomes(t, g, got, want)
		if !maps.Equal(proving.count, asking.count) {
			t.Fatalf("with a baseline %v was executed, without one %v", proving.count, asking.count)
		}
		if len(proving.calls) > len(asking.calls) {
			t.Fatalf("with a baseline %v is looked up, without one only %v", proving.calls, asking.calls)
		}
		if base != nil && pkg == base.Package && !force {
			for _, task := range proving.calls {
				if answers(base, task) {
					t.Fatalf("nothing was edited and %s, which the baseline answers, is looked up", task)
				}
			}
		}
		switch {
		case force: // a second success under a key: the generation changes
			base = nil
		case rapid.Bool().Draw(t, "replaces the proof"):
			base = successor(base, g, got, inputs)
		}
	}
}

func (p *project) behaviour(task string, _ int64) behaviour {
	i := slices.IndexFunc(p.tasks, func(t taskSpec) bool { return t.name == task })
	return behaviour{fails: i >= 0 && p.tasks[i].fails}
}

// baseline is what is kept of a completed run.
func baseline(g *dataflow.Graph, out *dataflow.Outcome, inputs record.Node) *dataflow.Baseline {
	b := &dataflow.Baseline{RunID: "before", Package: g.Package, Inputs: inputs, Tasks: out.Executions(g)}
	for _, c := range out.Results(g, true) {
		b.Outputs = b.Outputs.Set(c.Task, c.Leaf)
	}
	return b
}

// successor is what is kept of a run that may have failed, or was filtered. The outputs of other tasks stay as they were.
func successor(before *dataflow.Baseline, g *dataflow.Graph, out *dataflow.Outcome, inputs record.Node) *dataflow.Baseline {
	if out.Answered == 0 && out.State != record.RunCompleted {
		return before
	}
	b := baseline(g, out, inputs)
	b.Open = out.Open
	if before != nil {
		for _, e := range before.Outputs {
			if _, ok := b.Outputs.Get(e.Name); !ok {
				b.Outputs = b.Outputs.Set(e.Name, e.Leaf)
			}
		}
	}
	return b
}

// answers tells whether a baseline has an answer for a task.
func answers(b *dataflow.Baseline, task string) bool {
	for e := range b.Tasks.All() {
		if e.Task == task {
			return !slices.Contains(b.Open, task)
		}
	}
	return false
}

func compareOutcomes(t *rapid.T, g *dataflow.Graph, got, want *dataflow.Outcome) {
	if got.State != want.State || got.Summary != want.Summary {
		t.Fatalf("with a baseline the run is %v %+v, without one %v %+v", got.State, got.Summary, want.State, want.Summary)
	}
	for i := range got.Tasks {
		a, b := got.Tasks[i], want.Tasks[i]
		if a.State != b.State || a.ExecutionID != b.ExecutionID || a.Output != b.Output {
			t.Fatalf("%s: with a baseline %s %s %s, without one %s %s %s", g.Name(int32(i)),
				stateNames[a.State], a.ExecutionID, a.Output, stateNames[b.State], b.ExecutionID, b.Output)
		}
	}
	proven := 0
	for i := range got.Tasks {
		if got.Tasks[i].Proven {
			proven++
		}
	}
	if got.Proven != proven {
		t.Fatalf("%d tasks are said to be proven, %d are", got.Proven, proven)
	}
	if a, b := got.Results(g, true), want.Results(g, true); !slices.Equal(a, b) {
		t.Fatalf("with a baseline the datasets are %v, without one %v", a, b)
	}
}
