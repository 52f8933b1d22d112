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
	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
)

// Lookup implements dataflow.Lookup.
func (w *world) Lookup(_ context.Context, key executions.Key) (executions.Answer, error) {
	if w.look != nil {
		w.look(key)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.cache[key]
	if !ok {
		return executions.Answer{}, nil
	}
	return executions.Answer{Hit: &executions.Hit{ExecutionID: r.ExecutionID, Output: r.Output, Size: r.Size, Status: &record.Status{}}}, nil
}

// planned plans a run of a graph, by default on one input with two cores.
func planned(t failer, g *dataflow.Graph, w *world, change func(*dataflow.PlanOptions)) *dataflow.Planned {
	t.Helper()
	opts := dataflow.PlanOptions{Options: dataflow.Options{Workspace: "ws", Inputs: oneInput, Concurrency: 2}}
	opts.Stored = func(objectstore.Hash) bool { return true } // this world has inputs and tasks by name only
	if change != nil {
		change(&opts)
	}
	p, err := dataflow.Plan(context.Background(), g, sealed{w.objects}, w, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sealed is a store in which nothing can be put.
type sealed struct{ objectstore.Store }

func (sealed) PutBytes(context.Context, []byte) (objectstore.Hash, error) {
	return objectstore.Hash{}, errors.New("something was stored")
}

// steps is "task step …", with what is waited for.
func steps(g *dataflow.Graph, p *dataflow.Planned) string {
	var list []string
	for i := range p.Tasks {
		t := &p.Tasks[i]
		text := g.Name(int32(i)) + " " + t.Step.String()
		var waits []string
		for _, d := range t.Waits {
			waits = append(waits, g.Name(d))
		}
		if len(waits) > 0 {
			text += "(" + strings.Join(waits, " ") + ")"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func wantSteps(t *testing.T, g *dataflow.Graph, p *dataflow.Planned, want string) {
	t.Helper()
	if got := steps(g, p); got != want {
		t.Errorf("the plan is %s\nwant        %s", got, want)
	}
	var hits, runs, waits, stuck int
	for i := range p.Tasks {
		switch p.Tasks[i].Step {
		case dataflow.StepHit:
			hits++
		case dataflow.StepRun:
			runs++
		case dataflow.StepWait:
			waits++
		case dataflow.StepStuck:
			stuck++
		}
	}
	if hits != p.Hits || runs != p.Runs || waits != p.Waits || stuck != p.Stuck {
		t.Errorf("it counts %d hits, %d runs, %d waits, %d stuck, want %d, %d, %d, %d", p.Hits, p.Runs, p.Waits, p.Stuck, hits, runs, waits, stuck)
	}
}

func TestPlan(t *testing.T) {
	lines := []string{"clean", "train: clean", "report: train clean", "apart", "late: apart"}
	for _, test := range []struct {
		name   string
		lose   string // tasks whose answers are gone
		change func(*dataflow.PlanOptions)
		want   string
	}{
		{"nothing known", "clean train report apart late", nil, "clean run, train waits(clean), report waits(train clean), apart run, late waits(apart)"},
		{"all known", "", nil, "clean hit, train hit, report hit, apart hit, late hit"},
		{"a part lost", "train", nil, "clean hit, train run, report waits(train), apart hit, late hit"},
		{"filtered", "train apart", func(o *dataflow.PlanOptions) { o.Filter = "tr*" },
			"clean hit, train run, report not selected, apart not selected, late not selected"},
		{"forced", "", func(o *dataflow.PlanOptions) { o.Force = true }, "clean run, train run(clean), report run(train clean), apart run, late run(apart)"},
		{"forced in part", "late", func(o *dataflow.PlanOptions) { o.Force, o.Filter = true, "train" },
			"clean hit, train run, report not selected, apart not selected, late not selected"},
		{"forced upstream", "", func(o *dataflow.PlanOptions) { o.Force, o.Filter = true, "?lean" },
			"clean run, train not selected, report not selected, apart not selected, late not selected"},
		{"an input without a value", "", func(o *dataflow.PlanOptions) { o.Inputs = nil },
			"clean stuck, train stuck(clean), report stuck(train clean), apart stuck, late stuck(apart)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, w := graphOf(t, flow(lines...)), newWorld()
			run(t.Context(), t, g, w, nil)
			for key := range w.cache {
				i := slices.Index(g.Hashes, key.Task)
				if slices.Contains(strings.Fields(test.lose), g.Name(int32(i))) {
					delete(w.cache, key)
				}
			}
			wantSteps(t, g, planned(t, g, w, test.change), test.want)
		})
	}
}

// A step comes with its result, if that is known.
func TestPlanTells(t *testing.T) {
	g, w := graphOf(t, flow("a", "b: a", "c: b")), newWorld()
	first := run(t.Context(), t, g, w, nil)
	p := planned(t, g, w, func(o *dataflow.PlanOptions) { o.Force, o.Filter = true, "[bc]" })
	if p.Tasks[0].Step != dataflow.StepNone {
		t.Fatalf("a filter that names nothing selects %v", p.Tasks[0].Step)
	}
	for key := range w.cache {
		if key.Task == g.Hashes[1] {
			delete(w.cache, key)
		}
	}
	p = planned(t, g, w, nil)
	a, b := p.Tasks[0], p.Tasks[1]
	if a.ExecutionID != first.Tasks[0].ExecutionID || a.Key == nil {
		t.Errorf("a is answered by %q under %v, want %q", a.ExecutionID, a.Key, first.Tasks[0].ExecutionID)
	}
	if b.Key == nil || *b.Key != executions.NewKey(g.Hashes[1], b.Inputs) || b.Answer == nil || b.Answer.Hit != nil || len(b.Inputs) != 2 {
		t.Errorf("b runs under %v of %v with the answer %v", b.Key, b.Inputs, b.Answer)
	}
	if c := p.Tasks[2]; c.Key != nil {
		t.Errorf("c, which reads b, has the key %v", c.Key)
	}
}

// One of several tasks with the same key runs, and the others take its result.
func TestPlanTwins(t *testing.T) {
	pkg := flow("one", "other", "reader: other")
	pkg.Tasks[1].Task = pkg.Tasks[0].Task
	g := graphOf(t, pkg)
	p := planned(t, g, newWorld(), nil)
	wantSteps(t, g, p, "one run, other waits(one), reader waits(other)")
	if !p.Tasks[1].Twin || p.Tasks[1].Key == nil || *p.Tasks[1].Key != *p.Tasks[0].Key || p.Tasks[2].Twin {
		t.Errorf("twins are %v and %v", p.Tasks[1], p.Tasks[2])
	}
	if p.Least != time.Second || p.Most != 2*time.Second {
		t.Errorf("it takes %v to %v, want one command to two", p.Least, p.Most)
	}
	p = planned(t, g, newWorld(), func(o *dataflow.PlanOptions) { o.Force = true })
	wantSteps(t, g, p, "one run, other run, reader run(other)")
}

// A task that must run and reads what was left out of an export cannot; what only might have to, waits.
func TestPlanWithoutContent(t *testing.T) {
	pkg := flow("known", "must", "reader: must", "might: apart", "apart")
	pkg.Inputs = append(pkg.Inputs, record.PackageInput{Name: "away", NoExport: true})
	for _, i := range []int{0, 1, 3} {
		pkg.Tasks[i].Wiring = append(pkg.Tasks[i].Wiring, record.Wire{Kind: record.WireInput, Name: "away"})
	}
	inputs := record.Node{{Name: "away", Leaf: record.Leaf{Kind: record.LeafFile, Hash: sum("away")}}, oneInput[0]}
	g, w := graphOf(t, pkg), newWorld()
	run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Inputs = inputs })
	maps.DeleteFunc(w.cache, func(key executions.Key, _ executions.Result) bool { return key.Task != g.Hashes[0] })
	p := planned(t, g, w, func(o *dataflow.PlanOptions) { o.Inputs = inputs })
	wantSteps(t, g, p, "known hit, must stuck, reader stuck(must), might waits(apart), apart run")
	var lacking *dataflow.LackingError
	if !errors.As(p.Tasks[1].Err, &lacking) || lacking.Input != "away" || !errors.As(p.Tasks[3].Err, &lacking) {
		t.Errorf("the reasons are %v and %v", p.Tasks[1].Err, p.Tasks[3].Err)
	}
	p = planned(t, g, w, func(o *dataflow.PlanOptions) { o.Inputs, o.Force, o.Filter = inputs, true, "might" })
	wantSteps(t, g, p, "known not selected, must not selected, reader not selected, might stuck, apart run")
	p = planned(t, g, w, func(o *dataflow.PlanOptions) { o.Inputs, o.Fresh = inputs, map[string]bool{"away": true} })
	wantSteps(t, g, p, "known hit, must run, reader waits(must), might waits(apart), apart run")
	put(t, w.objects, []byte("away"))
	p = planned(t, g, w, func(o *dataflow.PlanOptions) { o.Inputs = inputs })
	wantSteps(t, g, p, "known hit, must run, reader waits(must), might waits(apart), apart run")
}

// Records that cannot be read end the planning; so does a cancelled context.
func TestPlanFaults(t *testing.T) {
	g := graphOf(t, flow("a", "b: a"))
	broken := errors.New("broken")
	if _, err := dataflow.Plan(t.Context(), g, &objectstoretest.Mem{}, lookupFunc(func(executions.Key) (executions.Answer, error) {
		return executions.Answer{}, broken
	}), dataflow.PlanOptions{Options: dataflow.Options{Inputs: oneInput}}); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dataflow.Plan(ctx, g, &objectstoretest.Mem{}, newWorld(), dataflow.PlanOptions{Options: dataflow.Options{Inputs: oneInput}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled, the error is %v", err)
	}
}

type lookupFunc func(executions.Key) (executions.Answer, error)

func (f lookupFunc) Lookup(_ context.Context, key executions.Key) (executions.Answer, error) {
	return f(key)
}

// After any history of edits, losses and runs, the next run does what the plan said.
func TestPlanAgrees(t *testing.T) {
	for range 20 { // times the hundred that rapid makes
		rapid.Check(t, checkPlan)
	}
}

func checkPlan(t *rapid.T) {
	p := &project{inputs: map[string]int{}, whole: true}
	for range rapid.IntRange(1, 8).Draw(t, "tasks") {
		p.tasks = append(p.tasks, drawTask(t, p))
	}
	w := newWorld()
	w.vary = func(task objectstore.Hash) bool { return task[2]&1 == 1 }
	w.behave = func(task string, attempt int64) behaviour {
		b := p.behaviour(task, attempt)
		if i := slices.IndexFunc(p.tasks, func(t taskSpec) bool { return t.name == task }); p.tasks[i].prio%2 == 1 && attempt == 1 {
			b.fails = true // the first attempt
		}
		return b
	}
	var base *dataflow.Baseline
	for step := range rapid.IntRange(2, 6).Draw(t, "steps") {
		if step > 0 {
			for range rapid.IntRange(0, 3).Draw(t, "edits") {
				p.edit(t)
			}
		}
		if lost := rapid.IntRange(0, 9).Draw(t, "lost"); lost < 3 { // pruned, rejected, or their objects gone: no proof stands
			base = nil
			keys := slices.SortedFunc(maps.Keys(w.cache), func(a, b executions.Key) int { return strings.Compare(a.String(), b.String()) })
			for _, key := range keys {
				if rapid.IntRange(0, 3).Draw(t, "goes") == 0 {
					delete(w.cache, key)
				}
			}
		}
		force := rapid.IntRange(0, 4).Draw(t, "force") == 0
		filter := ""
		if rapid.IntRange(0, 5).Draw(t, "filtered") == 0 {
			filter = rapid.SampledFrom([]string{"a*", "b*", "*1", "*2", "none"}).Draw(t, "filter")
		}
		cores := rapid.IntRange(1, 3).Draw(t, "cores")
		pkg, inputs := p.build()
		for i := range pkg.Tasks {
			pkg.Tasks[i].Policy.Retries = int64(rapid.IntRange(0, 2).Draw(t, "retries"))
		}
		if rapid.IntRange(0, 9).Draw(t, "unset") == 0 {
			inputs = slices.Delete(slices.Clone(inputs), 0, 1)
		}
		g := graphOf(t, pkg)
		known := maps.Clone(w.cache)
		plan := planned(t, g, w, func(o *dataflow.PlanOptions) {
			o.Inputs, o.Baseline, o.Force, o.Filter, o.Concurrency = inputs, base, force, filter, cores
		})
		if !maps.Equal(known, w.cache) {
			t.Fatal("planning has changed what is known")
		}
		w.ran = nil
		out, err := dataflow.Run(context.Background(), g, w.objects, w, dataflow.Options{
			RunID: "r", Workspace: "ws", Inputs: inputs, Baseline: base, Force: force, Filter: filter, Concurrency: cores,
		})
		comparePlan(t, g, plan, w, out, err)
		switch {
		case force:
			base = nil
		case rapid.Bool().Draw(t, "replaces the proof"):
			base = successor(base, g, out, inputs)
		}
	}
}

// comparePlan compares a plan with the run that followed.
func comparePlan(t *rapid.T, g *dataflow.Graph, p *dataflow.Planned, w *world, out *dataflow.Outcome, runErr error) {
	executed := map[string]bool{}
	for _, s := range w.ran {
		executed[s.task] = true
	}
	refused := false
	for i := range p.Tasks {
		if e := p.Tasks[i].Err; e != nil && p.Tasks[i].Step == dataflow.StepStuck && out.Tasks[i].State != dataflow.Skipped {
			refused = true // unless something that it waits for fails first
		}
	}
	if refused != (runErr != nil) {
		t.Fatalf("the plan says that the run cannot go on: %v; its error is %v\n%s", refused, runErr, steps(g, p))
	}
	for i := range p.Tasks {
		plan, got, name := &p.Tasks[i], &out.Tasks[i], g.Name(int32(i))
		ran := executed[name]
		wrong := func(format string, args ...any) {
			t.Fatalf("%s is planned as %v: %s; it is %s with %q\n%s", name, plan.Step, fmt.Sprintf(format, args...), stateNames[got.State], got.ExecutionID, steps(g, p))
		}
		if len(plan.Waits) == 0 && (plan.Step == dataflow.StepWait) {
			wrong("it waits for nothing")
		}
		for _, d := range plan.Waits {
			up := p.Tasks[d].Step
			if plan.Step == dataflow.StepStuck && up != dataflow.StepStuck || plan.Step != dataflow.StepStuck && up != dataflow.StepRun && up != dataflow.StepWait {
				wrong("it waits for %s, which is planned as %v", g.Name(d), up)
			}
		}
		if runErr != nil && got.State == dataflow.Abandoned {
			continue // the run stopped before its turn
		}
		switch plan.Step {
		case dataflow.StepNone:
			if got.State != dataflow.Pending || ran {
				wrong("it is not selected")
			}
		case dataflow.StepHit:
			if got.State != dataflow.Cached || ran || got.ExecutionID != plan.ExecutionID {
				wrong("want the hit %q", plan.ExecutionID)
			}
		case dataflow.StepRun:
			skipped := got.State == dataflow.Skipped && len(plan.Waits) > 0
			if !skipped && (!ran || got.State != dataflow.Succeeded && got.State != dataflow.Failed) {
				wrong("want it executed")
			}
		case dataflow.StepWait:
			after := slices.ContainsFunc(plan.Waits, func(d int32) bool { return p.Tasks[d].Step == dataflow.StepRun || p.Tasks[d].Step == dataflow.StepWait })
			if got.State == dataflow.Pending || !after || ran == (got.State == dataflow.Cached || got.State == dataflow.Skipped) {
				wrong("executed: %v", ran)
			}
		case dataflow.StepStuck:
			if ran || got.State != dataflow.Failed && got.State != dataflow.Skipped && got.State != dataflow.Abandoned {
				wrong("it cannot run")
			}
		}
	}
}

// A forecast is the schedule that the scheduler makes for the expected times.
func TestForecast(t *testing.T) {
	took := map[string]time.Duration{"clean": time.Minute, "train": 10 * time.Minute, "report": 2 * time.Minute, "late": 3 * time.Minute}
	lines := []string{"clean", "train: clean", "report: train clean", "apart", "late: apart"}
	for _, test := range []struct {
		name                  string
		lose                  string
		cores                 int
		history               map[string]time.Duration
		least, most, critical time.Duration
		path                  string
		unknown               int
	}{
		{"nothing to do", "", 2, took, 0, 0, 0, "", 0},
		{"all, many cores", "all", 9, took, 4 * time.Minute, 13 * time.Minute, 13 * time.Minute, "clean train report", 1},
		{"all, one core", "all", 1, took, 5 * time.Minute, 20 * time.Minute, 13 * time.Minute, "clean train report", 1},
		{"the end", "report", 1, took, 2 * time.Minute, 2 * time.Minute, 2 * time.Minute, "report", 0},
		{"the middle", "train", 1, took, 10 * time.Minute, 12 * time.Minute, 12 * time.Minute, "train report", 0},
		{"no history", "all", 9, nil, time.Second, 3 * time.Second, 3 * time.Second, "clean train report", 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, w := graphOf(t, flow(lines...)), newWorld()
			run(t.Context(), t, g, w, nil)
			maps.DeleteFunc(w.cache, func(key executions.Key, _ executions.Result) bool {
				return test.lose == "all" || g.Name(int32(slices.Index(g.Hashes, key.Task))) == test.lose
			})
			p := planned(t, g, w, func(o *dataflow.PlanOptions) {
				o.Concurrency, o.Expected = test.cores, func(task string) time.Duration { return test.history[task] }
			})
			var path []string
			for _, i := range p.Critical {
				path = append(path, g.Name(i))
			}
			if p.Least != test.least || p.Most != test.most || p.CriticalTime != test.critical || strings.Join(path, " ") != test.path || p.Unknown != test.unknown || p.History != (test.history != nil) {
				t.Errorf("it takes %v to %v, %v along %v, %d unknown, want %v to %v, %v along %s, %d unknown",
					p.Least, p.Most, p.CriticalTime, path, p.Unknown, test.least, test.most, test.critical, test.path, test.unknown)
			}
		})
	}
}

// If each task takes as long as expected, the run ends when the forecast says. This holds where the order of tasks that
// are launched together cannot matter: on one core, and with cores for all.
func TestForecastIsTheRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scenarios.Draw(rt, "scenario")
		one := rapid.Bool().Draw(rt, "one core")
		for i := range s.pkg.Tasks {
			p := &s.pkg.Tasks[i].Policy
			*p = record.Policy{Priority: p.Priority}
			s.takes[s.pkg.Tasks[i].Name] += time.Second
		}
		cores := 2 * len(s.pkg.Tasks)
		if one {
			cores = 1
		}
		synctest.Test(t, func(t *testing.T) {
			g, w := graphOf(t, s.pkg), newWorld()
			w.behave = func(task string, _ int64) behaviour { return behaviour{takes: s.takes[task]} }
			expected := func(task string) time.Duration { return s.takes[task] }
			p := planned(t, g, w, func(o *dataflow.PlanOptions) { o.Concurrency, o.Expected = cores, expected })
			began := time.Now()
			run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Concurrency, o.Expected = cores, expected })
			took := time.Since(began)
			if slack := time.Duration(g.Len()) * recording; took < p.Most || took > p.Most+slack {
				rt.Errorf("it took %v, the forecast is %v to %v", took, p.Least, p.Most)
			}
			if !one && p.Most != p.CriticalTime {
				rt.Errorf("with cores for all it takes %v, the longest path %v", p.Most, p.CriticalTime)
			}
		})
	})
}

// Whatever the demands, a forecast ends and keeps within the bounds of any schedule.
func TestForecastBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := scenarios.Draw(t, "scenario")
		g := graphOf(t, s.pkg)
		var work time.Duration
		for i := range s.pkg.Tasks {
			s.takes[s.pkg.Tasks[i].Name] += time.Second
			work += s.takes[s.pkg.Tasks[i].Name]
		}
		p := planned(t, g, newWorld(), func(o *dataflow.PlanOptions) {
			o.Concurrency, o.Memory, o.Force = s.cores, s.memory, s.force
			o.Expected = func(task string) time.Duration { return s.takes[task] }
		})
		if p.Least > p.Most || p.Most < p.CriticalTime || p.Most > work {
			t.Fatalf("%v: it takes %v to %v, %v along the longest path, %v of work", s, p.Least, p.Most, p.CriticalTime, work)
		}
	})
}
