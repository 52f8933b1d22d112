package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A definition is a package whose tasks follow from lists, as a package file is: a line is "name/source: read …". The family
// name has an item for each of the list that the source, a task or family, makes; without a source it is one task. It reads
// tasks, its own item of families of the same source ("f"), and all items of families ("f*").
type definition struct {
	templates []template
	index     map[string]int
}

type template struct {
	name, source string
	reads        []string
}

func define(lines ...string) *definition {
	d := &definition{index: map[string]int{}}
	for _, line := range lines {
		head, reads, _ := strings.Cut(line, ":")
		name, source, _ := strings.Cut(head, "/")
		d.index[name] = len(d.templates)
		d.templates = append(d.templates, template{name, source, strings.Fields(reads)})
	}
	return d
}

// lists are the items by the task that makes them.
type lists map[string][]string

// items returns the labels of a family, false if they are not known. The only item of a task has no label.
func (d *definition) items(name string, known lists) ([]string, bool) {
	t := d.templates[d.index[name]]
	if t.source == "" {
		return []string{""}, true
	}
	makers, ok := d.items(t.source, known)
	if !ok {
		return nil, false
	}
	var all []string
	for _, label := range makers {
		list, ok := known[t.source+label]
		if !ok {
			return nil, false
		}
		for _, item := range list {
			if label == "" {
				all = append(all, "["+item+"]")
			} else {
				all = append(all, strings.TrimSuffix(label, "]")+","+item+"]")
			}
		}
	}
	return all, true
}

func (d *definition) pending(name string, known lists) bool {
	if _, ok := d.items(name, known); !ok {
		return true
	}
	return slices.ContainsFunc(d.templates[d.index[name]].reads, func(r string) bool { return d.pending(strings.TrimSuffix(r, "*"), known) })
}

// expand returns the package of the lists that are known.
func (d *definition) expand(known lists) (*record.Package, *graph.Growing) {
	pkg := flow()
	growing := &graph.Growing{}
	held := map[string][]string{}
	for _, t := range d.templates {
		var names []string
		if d.pending(t.name, known) {
			p := graph.Pending{Name: t.name}
			for _, r := range t.reads {
				if r = strings.TrimSuffix(r, "*"); d.pending(r, known) {
					p.After = append(p.After, r)
				}
			}
			growing.Pending, names = append(growing.Pending, p), []string{t.name}
		} else {
			labels, _ := d.items(t.name, known)
			for _, label := range labels {
				pkg.Tasks = append(pkg.Tasks, d.task(t, label, known))
				names = append(names, t.name+label)
			}
		}
		for _, source := range d.decides(t, known) {
			held[source] = append(held[source], names...)
		}
	}
	for _, source := range slices.Sorted(maps.Keys(held)) {
		g := graph.Gate{Source: source, Name: source + "'s", Holds: held[source]}
		for _, t := range d.templates {
			if t.source == source {
				g.Families = append(g.Families, t.name)
			}
		}
		if s := d.templates[d.index[source]].source; s != "" {
			g.Behind = []string{s}
		}
		if d.pending(source, known) {
			g.After = []string{source}
		} else {
			labels, _ := d.items(source, known)
			for _, label := range labels {
				g.After = append(g.After, source+label)
			}
		}
		growing.Gates = append(growing.Gates, g)
	}
	return pkg, growing
}

// decides returns the sources whose lists decide what a template becomes.
func (d *definition) decides(t template, known lists) []string {
	var list []string
	names := append([]string{t.name}, t.reads...)
	for k := 0; k < len(names); k++ {
		r := d.templates[d.index[strings.TrimSuffix(names[k], "*")]]
		for s := r.source; s != ""; s = d.templates[d.index[s]].source {
			list = append(list, s)
		}
		if items, ok := d.items(r.name, known); k > 0 && ok && len(items) == 0 { // no task of it tells
			names = append(names, r.reads...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (d *definition) task(t template, label string, known lists) record.PackageTask {
	task := flow(t.name + label).Tasks[0]
	for _, r := range t.reads {
		all := strings.HasSuffix(r, "*")
		r = strings.TrimSuffix(r, "*")
		if !all {
			at := ""
			if d.templates[d.index[r]].source != "" {
				at = label
			}
			task.Wiring = append(task.Wiring, record.Wire{Kind: record.WireOutput, Name: r + at})
			continue
		}
		w := record.Wire{Kind: record.WireFanIn}
		labels, _ := d.items(r, known)
		for _, l := range labels {
			w.Items = append(w.Items, record.FanItem{Label: "i" + strings.Trim(l, "[]"), Task: r + l})
		}
		task.Wiring = append(task.Wiring, w)
	}
	return task
}

// grower is the Growth of a definition. A task's output says how many items it has made.
type grower struct {
	d     *definition
	known lists
	bad   map[string]bool // sources whose list cannot be used
	lost  func() error    // of a read
	grown int
	pkg   *record.Package // that it has become, nil before a run
}

func (g *grower) Growing() *graph.Growing {
	_, growing := g.d.expand(g.known)
	return growing
}

func itemsOf(output string) []string {
	var list []string
	for k := range int(output[5]) % 4 {
		list = append(list, string(rune('a'+(k+int(output[1]))%5)))
	}
	return list
}

func (g *grower) Grow(_ context.Context, before *dataflow.Graph, made []dataflow.MadeList) (*dataflow.Graph, map[string]error, error) {
	if g.lost != nil {
		if err := g.lost(); err != nil {
			return nil, nil, err
		}
	}
	failed := map[string]error{}
	known, changed := maps.Clone(g.known), false
	for _, m := range made {
		for _, o := range m.Outputs {
			if g.bad[m.Source] {
				if _, ok := known[o.Task]; ok {
					changed = true
				}
				delete(known, o.Task)
				for _, t := range g.d.templates {
					if t.source == m.Source {
						failed[t.name] = errors.New("bad list")
					}
				}
				continue
			}
			list := itemsOf(o.Leaf.Hash)
			if was, ok := known[o.Task]; !ok || !slices.Equal(was, list) {
				known[o.Task], changed = list, true
			}
		}
	}
	if !changed {
		return nil, failed, nil
	}
	g.known = known
	g.grown++
	grown, err := before.Grow(g.d.expand(known))
	return grown, failed, err
}

// grow runs a definition, beginning with known lists.
func grow(ctx context.Context, t failer, d *definition, g *grower, w *world, change func(*dataflow.Options)) *dataflow.Outcome {
	t.Helper()
	if g.known == nil {
		g.known = lists{}
	}
	g.d = d
	pkg, growing := d.expand(g.known)
	if g.pkg != nil { // as a workspace has it
		pkg = g.pkg
	}
	gr, err := graph.NewGrowing(pkg, growing)
	if err != nil {
		t.Fatal(err)
	}
	out := run(ctx, t, gr, w, func(o *dataflow.Options) {
		o.Growth = g
		if change != nil {
			change(o)
		}
	})
	g.pkg = out.Graph.Origin
	return out
}

func ran(w *world) []string {
	var names []string
	for _, s := range w.ran {
		names = append(names, s.task)
	}
	slices.Sort(names)
	return names
}

func TestGrowth(t *testing.T) {
	d := define("split", "fit/split: prep", "prep", "merge: fit*", "report: merge", "other")
	w, log, g := newWorld(), &emitted{}, &grower{}
	out := grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
	if out.State != record.RunCompleted || g.grown != 1 {
		t.Fatalf("outcome is %v, %q; grown %d times", out.State, out.Error, g.grown)
	}
	n := len(g.known["split"])
	if n == 0 {
		t.Fatal("the test needs a list with items")
	}
	if want := (record.Summary{Total: int64(n + 5), Completed: int64(n + 5)}); out.Summary != want || len(out.Tasks) != n+5 {
		t.Errorf("summary is %+v with %d tasks, want %+v", out.Summary, len(out.Tasks), want)
	}
	created := 0
	for _, e := range log.list {
		if e.Type == events.TaskCreated {
			created += e.Data.Tasks
		}
	}
	if created != n+5 {
		t.Errorf("%d tasks were announced, want %d", created, n+5)
	}
	again := grow(t.Context(), t, d, g, w, nil)
	if again.Summary.Cached != int64(n+5) || g.grown != 1 {
		t.Errorf("the second time %+v, grown %d times", again.Summary, g.grown)
	}
}

// Tasks that do not depend on a list go on while it is read.
func TestGrowthIsNoBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := define("split", "fit/split", "slow", "after: slow")
		w, g := newWorld(), &grower{}
		w.behave = func(task string, _ int64) behaviour {
			if task == "slow" {
				return behaviour{takes: time.Hour}
			}
			return behaviour{takes: time.Second}
		}
		out := grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Concurrency = 1 + 8 })
		if out.State != record.RunCompleted || len(g.known["split"]) == 0 {
			t.Fatalf("outcome is %v with %v", out.State, g.known)
		}
		for _, s := range w.ran {
			if strings.HasPrefix(s.task, "fit") && s.start.After(w.ran[0].start.Add(time.Minute)) {
				t.Errorf("%s waited for a task that it does not depend on", s.task)
			}
		}
	})
}

// A list that cannot be used fails what it decides, and nothing else.
func TestBadList(t *testing.T) {
	for _, known := range []lists{nil, {"split": {"a", "b"}}} {
		d := define("split", "fit/split", "merge: fit*", "report: merge other", "other", "free: other")
		w, log, g := newWorld(), &emitted{}, &grower{bad: map[string]bool{"split": true}, known: known}
		out := grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
		if out.State != record.RunFailed || out.FailedTask != "fit" || out.Error != "bad list" {
			t.Errorf("outcome is %v, %q, %q", out.State, out.FailedTask, out.Error)
		}
		if got := ran(w); !slices.Equal(got, []string{"free", "other", "split"}) {
			t.Errorf("%v ran", got)
		}
		var skipped []string
		for _, e := range log.list {
			if e.Type == events.TaskSkipped {
				skipped = append(skipped, e.Task)
				if e.Data.Because != "fit" {
					t.Errorf("%s is skipped because of %s", e.Task, e.Data.Because)
				}
			}
		}
		slices.Sort(skipped)
		if want := []string{"merge", "report"}; !slices.Equal(skipped, want) {
			t.Errorf("%v are skipped, want %v", skipped, want)
		}
		created := int64(0)
		for _, e := range log.list {
			if e.Type == events.TaskCreated {
				created += int64(e.Data.Tasks)
			}
		}
		if out.Summary.Total != created {
			t.Errorf("%d tasks were announced, and %d are in the summary", created, out.Summary.Total)
		}
	}
}

// An item of last time does not run before it is known to be an item still.
func TestItemsThatAreGone(t *testing.T) {
	d := define("split", "fit/split", "merge: fit*")
	w, g := newWorld(), &grower{known: lists{"split": {"gone", "a", "old"}}}
	out := grow(t.Context(), t, d, g, w, nil)
	if out.State != record.RunCompleted || g.grown != 1 {
		t.Fatalf("outcome is %v, grown %d times", out.State, g.grown)
	}
	for _, name := range ran(w) {
		if strings.Contains(name, "gone") || strings.Contains(name, "old") {
			t.Errorf("%s ran", name)
		}
	}
	if int(out.Summary.Total) != len(g.known["split"])+2 {
		t.Errorf("summary is %+v for %v", out.Summary, g.known)
	}
}

func TestGrowthFilter(t *testing.T) {
	d := define("split", "fit/split: prep", "prep", "merge: fit*", "other")
	g := &grower{}
	grow(t.Context(), t, d, g, newWorld(), nil)
	item := g.known["split"][0]
	for _, test := range []struct {
		filter, error string
		want          []string
	}{
		{"fit[" + item + "]", "", []string{"fit[" + item + "]", "prep", "split"}},
		{"fit[nobody]", "no task matches fit[nobody]", []string{"split"}},
		{"split", "", []string{"split"}},
		{"other", "", []string{"other"}},
	} {
		w := newWorld()
		out := grow(t.Context(), t, d, &grower{}, w, func(o *dataflow.Options) { o.Filter = test.filter })
		if got := ran(w); !slices.Equal(got, test.want) || out.Error != test.error {
			t.Errorf("with filter %s %v ran, want %v: %q", test.filter, got, test.want, out.Error)
		}
	}
}

// A lost list is made again.
func TestLostList(t *testing.T) {
	d := define("split", "fit/split", "merge: fit*")
	w, log := newWorld(), &emitted{}
	g := &grower{}
	out := grow(t.Context(), t, d, g, w, nil)
	w.store(out.Graph.Origin)
	split, _ := out.Graph.Find("split")
	w.objects.Set(out.Tasks[split].Output, []byte("damaged"))
	w.reads, w.ran = true, nil
	lost := true
	g.lost = func() error {
		if lost {
			lost = false
			return fmt.Errorf("read: %w", objectstore.ErrNotFound)
		}
		return nil
	}
	out = grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Emit = log.emit })
	if out.State != record.RunCompleted || !slices.Equal(ran(w), []string{"split"}) || !log.has(events.TaskReopened) {
		t.Errorf("outcome is %v %q; %v ran", out.State, out.Error, ran(w))
	}
}

// A graph that grows has the answers of the same graph written out, and runs exactly what that runs: at first, after edits,
// and where tasks fail.
func TestGrowthEqualsWrittenOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := definitions.Draw(t, "definition")
		cache, g := newWorld(), &grower{bad: map[string]bool{}}
		var base *dataflow.Baseline
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			fails := map[string]bool{}
			for _, tm := range d.templates {
				fails[tm.name] = rapid.IntRange(0, 9).Draw(t, "fails") == 0
			}
			behave := func(task string, _ int64) behaviour {
				name, _, _ := strings.Cut(task, "[")
				return behaviour{fails: fails[name]}
			}
			x := record.Node{{Name: "x", Leaf: value(rapid.SampledFrom([]string{"x", "y", "z", "u", "v"}).Draw(t, "x"))}}
			options := func(log *emitted) func(o *dataflow.Options) {
				return func(o *dataflow.Options) {
					o.Inputs, o.Emit, o.Baseline = x, log.emit, base
					o.Concurrency = 3
				}
			}
			bad := rapid.IntRange(0, 9).Draw(t, "bad")
			g.bad = map[string]bool{fmt.Sprintf("t%d", bad): true}
			w, log := cache.clone(), &emitted{}
			w.behave = behave
			out := grow(t.Context(), t, d, g, w, options(log))

			literal := cache.clone()
			literal.behave = behave
			want := run(t.Context(), t, graphOf(t, out.Graph.Origin), literal, options(&emitted{}))
			unknown := false
			for i := range out.Tasks {
				got, want := out.Tasks[i], want.Tasks[i]
				if got.State == dataflow.Skipped && want.State != dataflow.Skipped { // an item of last time that may be gone
					unknown = true
					continue
				}
				if got.State != want.State || got.Output != want.Output {
					t.Fatalf("%s is %s, written out %s", out.Graph.Name(int32(i)), stateNames[got.State], stateNames[want.State])
				}
			}
			// A reader of a family without items may run before it is known that this family waits for a list.
			got := slices.DeleteFunc(ran(w), func(name string) bool { _, ok := out.Graph.Find(name); return !ok && name != "" })
			if want := ran(literal); !unknown && !slices.Equal(got, want) {
				t.Fatalf("%v ran, written out %v", got, want)
			}
			if !unknown && len(g.Growing().Pending) == 0 && (out.Summary != want.Summary || out.State != want.State) {
				t.Fatalf("%v %+v, written out %v %+v", out.State, out.Summary, want.State, want.Summary)
			}
			created := announced(log)
			if created != out.Summary.Total {
				t.Fatalf("%d tasks were announced, %d are in the summary", created, out.Summary.Total)
			}
			cache, base = w, successor(base, out.Graph, out, x)
		}
	})
}

var definitions = rapid.Custom(func(t *rapid.T) *definition {
	var lines []string
	var names []string
	source := map[string]string{}
	for i := range rapid.IntRange(2, 8).Draw(t, "templates") {
		name := fmt.Sprintf("t%d", i)
		line := name
		if len(names) > 0 && rapid.Bool().Draw(t, "family") {
			source[name] = rapid.SampledFrom(names).Draw(t, "source")
			line += "/" + source[name]
		}
		line += ":"
		for _, r := range names {
			switch {
			case rapid.IntRange(0, 2).Draw(t, "reads") > 0:
			case source[r] == "":
				line += " " + r
			case source[r] == source[name] && rapid.Bool().Draw(t, "item"):
				line += " " + r
			default:
				line += " " + r + "*"
			}
		}
		lines, names = append(lines, line), append(names, name)
	}
	return define(rapid.Permutation(lines).Draw(t, "declared")...)
})

// announced counts the tasks that events make part of the run.
func announced(log *emitted) int64 {
	n := 0
	for _, e := range log.list {
		switch {
		case e.Type == events.TaskCreated || e.Type == events.TaskCached && e.Task == "":
			n += e.Data.Tasks
		case e.Type == events.TaskCached && e.Data.As != "":
			n++
		}
	}
	return int64(n)
}

// clone returns a world with the same cache.
func (w *world) clone() *world {
	c := newWorld()
	c.objects, c.cache, c.count = w.objects, maps.Clone(w.cache), maps.Clone(w.count)
	return c
}

// A run that was filtered has found a list's maker, and has not taken the list: the next run reads the list, though the
// maker's answer stands.
func TestAListThatWasNotTaken(t *testing.T) {
	d := define("split", "fit/split", "merge: fit*")
	g, w := &grower{known: lists{"split": {"old"}}}, newWorld()
	filtered := grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Filter = "split" })
	if !slices.Equal(filtered.Open, []string{"split"}) || filtered.Answered != 0 {
		t.Errorf("%d tasks are answered, and open are %v: want none and split", filtered.Answered, filtered.Open)
	}
	split, _ := filtered.Graph.Find("split")
	want := itemsOf(filtered.Tasks[split].Output.String())
	base := baseline(filtered.Graph, filtered, oneInput)
	base.Open = filtered.Open
	out := grow(t.Context(), t, d, g, w, func(o *dataflow.Options) { o.Baseline = base })
	if got := g.known["split"]; !slices.Equal(got, want) || out.Summary.Completed != int64(len(want))+2 {
		t.Errorf("the items are %v and %d tasks completed, want %v and %d", got, out.Summary.Completed, want, len(want)+2)
	}
}
