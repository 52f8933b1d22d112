package dataflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/objectstore"
)

// gatherAll makes a task read all tasks of a prefix as one fan-in with a manifest.
func gatherAll(pkg *record.Package, reader, prefix string, need string) {
	n, ok := notation.ParseNeed(need)
	if !ok {
		panic(need)
	}
	w := record.Wire{Kind: record.WireFanIn, Gather: &record.Gather{Need: n, Names: []string{"item"}}}
	for i := range pkg.Tasks {
		if name := pkg.Tasks[i].Name; strings.HasPrefix(name, prefix) {
			label := strings.TrimPrefix(name, prefix)
			w.Items = append(w.Items, record.FanItem{Label: label, Task: name})
			w.Gather.Values = append(w.Gather.Values, "value of "+label)
		}
	}
	for i := range pkg.Tasks {
		if pkg.Tasks[i].Name == reader {
			pkg.Tasks[i].Wiring = append(pkg.Tasks[i].Wiring, w, record.Wire{Kind: record.WireManifest})
		}
	}
}

// failing makes the attempts of some tasks fail.
func failing(names ...string) func(string, int64) behaviour {
	return func(task string, _ int64) behaviour { return behaviour{fails: slices.Contains(names, task)} }
}

// Each row is a run in which some of three members fail.
func TestNeed(t *testing.T) {
	for _, test := range []struct {
		name, need, fails string
		options           func(*dataflow.Options)
		more              []string // of the flow
		want              string
		state             record.RunState
	}{
		{"none fails", "all", "", nil, nil, "f1=succeeded f2=succeeded f3=succeeded r=succeeded", record.RunCompleted},
		{"all are needed", "all", "f2", nil, nil, "f1=succeeded f2=failed f3=succeeded r=skipped", record.RunFailed},
		{"enough", "2", "f2", nil, nil, "f1=succeeded f2=failed f3=succeeded r=succeeded", record.RunCompleted},
		{"too few", "2", "f2 f3", nil, nil, "f1=succeeded f2=failed f3=failed r=skipped", record.RunFailed},
		{"a share", "60%", "f3", nil, nil, "f1=succeeded f2=succeeded f3=failed r=succeeded", record.RunCompleted},
		{"a greater share", "70%", "f3", nil, nil, "f1=succeeded f2=succeeded f3=failed r=skipped", record.RunFailed},
		{"any", "any", "f1 f2", nil, nil, "f1=failed f2=failed f3=succeeded r=succeeded", record.RunCompleted},
		{"not even any", "any", "f1 f2 f3", nil, nil, "f1=failed f2=failed f3=failed r=skipped", record.RunFailed},
		{"none is needed", "0", "f1 f2 f3", nil, nil, "f1=failed f2=failed f3=failed r=succeeded", record.RunCompleted},
		{"upstream of a member", "any", "up", nil, nil, "f1=skipped f2=succeeded f3=succeeded r=succeeded", record.RunCompleted},
		{"another reader needs it", "any", "f2", nil, []string{"q: f2"}, "f1=succeeded f2=failed f3=succeeded r=succeeded q=skipped", record.RunFailed},
		{"the reader needs it, too", "any", "f2", nil, []string{"r: f2"}, "f1=succeeded f2=failed f3=succeeded r=skipped", record.RunFailed},
		{"another failure", "any", "f2 q", nil, []string{"q"}, "f1=succeeded f2=failed f3=succeeded r=succeeded q=failed", record.RunFailed},
		{"the reader fails", "any", "f2 r", nil, nil, "f1=succeeded f2=failed f3=succeeded r=failed", record.RunFailed},
		{"strict", "any", "f2", func(o *dataflow.Options) { o.Strict = true }, nil, "f1=succeeded f2=failed f3=succeeded r=succeeded", record.RunFailed},
		{"fail fast goes on", "any", "f1", func(o *dataflow.Options) { o.FailFast, o.Concurrency = true, 1 }, nil, "f1=failed f2=succeeded f3=succeeded r=succeeded", record.RunCompleted},
		{"only the members", "any", "f2", func(o *dataflow.Options) { o.Filter = "f?" }, nil, "f1=succeeded f2=failed f3=succeeded", record.RunFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lines := []string{"up", "f1: up", "f2", "f3", "r"}
				if slices.Contains(test.more, "r: f2") {
					lines, test.more = lines[:4], []string{"r: f2"}
				}
				pkg := flow(append(lines, test.more...)...)
				gatherAll(pkg, "r", "f", test.need)
				g, w := graphOf(t, pkg), newWorld()
				w.behave = failing(strings.Fields(test.fails)...)
				log := &emitted{}
				out := run(t.Context(), t, g, w, func(o *dataflow.Options) {
					if test.options != nil {
						test.options(o)
					}
					o.Emit = log.emit
				})
				if err := log.walk(out, map[eventstest.Edge]int{}); err != nil {
					t.Error(err)
				}
				var got []string
				for i := range out.Tasks {
					if name := g.Name(int32(i)); name != "up" && out.Tasks[i].State != dataflow.Pending {
						got = append(got, name+"="+stateName(out.Tasks[i].State))
					}
				}
				if text := strings.Join(got, " "); text != test.want || out.State != test.state {
					t.Errorf("%s, %v %s %s; want %s, %v", text, out.State, out.FailedTask, out.Error, test.want, test.state)
				}
			})
		})
	}
}

func stateName(s dataflow.State) string {
	return map[dataflow.State]string{dataflow.Cached: "cached", dataflow.Succeeded: "succeeded", dataflow.Failed: "failed", dataflow.Skipped: "skipped", dataflow.Abandoned: "abandoned"}[s]
}

// A failed member is left out of the directory and named in the manifest, so that a later success is another key. If it fails again,
// the reader is a hit.
func TestNeedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pkg := flow("f1", "f2", "f3", "r")
		gatherAll(pkg, "r", "f", "any")
		g, w := graphOf(t, pkg), newWorld()
		w.behave = failing("f2")
		log := &emitted{}
		wantStates(t, g, run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Emit = log.emit }), "f1=succeeded f2=failed f3=succeeded r=succeeded")
		told := ""
		for _, e := range log.list {
			switch {
			case e.Type == events.TaskLeftOut:
				told += e.Task + " for " + e.Data.Because + ";"
			case e.Data != nil && e.Data.Gathered != nil:
				told += fmt.Sprintf("%s %s: %+v;", e.Type, e.Task, *e.Data.Gathered)
			case e.Type == events.TaskFailed:
				told += fmt.Sprintf("%s tolerable %v;", e.Task, e.Data.Tolerable)
			}
		}
		if want := "f2 tolerable true;task.marked_ready r: {Members:3 Missing:1 Failed:1 Rejected:0 Skipped:0 Needed:1 Names:[f2]};f2 for r;"; told != want {
			t.Errorf("told %s\nwant %s", told, want)
		}
		read := w.requests[len(w.requests)-1].Inputs
		manifest := `{"items":[{"label":"","file":"1","values":{"item":"value of 1"}},{"label":"","file":"3","values":{"item":"value of 3"}}],"missing":[{"label":"","task":"f2","values":{"item":"value of 2"}}]}` + "\n"
		if want := objectstore.Sum([]byte(manifest)); read[len(read)-1] != want {
			t.Errorf("the manifest is not %s", manifest)
		}
		wantStates(t, g, run(t.Context(), t, g, w, nil), "f1=cached f2=failed f3=cached r=cached")
		w.behave = nil
		wantStates(t, g, run(t.Context(), t, g, w, nil), "f1=cached f2=succeeded f3=cached r=succeeded")
		wantStates(t, g, run(t.Context(), t, g, w, nil), "f1=cached f2=cached f3=cached r=cached")
	})
}

// For random graphs, failures and needs, a run does what it would do if the graph had only the members that succeed, and runs no
// more than that.
func TestNeedProperty(t *testing.T) {
	walked := map[eventstest.Edge]int{}
	rapid.Check(t, func(rt *rapid.T) {
		fault := ""
		check := func(t *testing.T) {
			n := rapid.IntRange(0, 6).Draw(rt, "members")
			var lines []string
			for k := range n {
				line := fmt.Sprintf("f%d:", k)
				if rapid.Bool().Draw(rt, "has a step before") {
					lines = append(lines, fmt.Sprintf("g%d", k))
					line += fmt.Sprintf(" g%d", k)
				}
				if rapid.IntRange(0, 3).Draw(rt, "reads what all read") == 0 {
					line += " base"
				}
				lines = append(lines, line)
			}
			lines = append(lines, "base")
			bad := map[string]bool{}
			for _, line := range lines {
				name, _, _ := strings.Cut(line, ":")
				bad[name] = rapid.IntRange(0, 2).Draw(rt, "how "+name+" ends") == 0
			}
			need := rapid.SampledFrom([]string{"any", "0", "2", "50%", "100%"}).Draw(rt, "need")
			pkg := flow(append(lines, "r", "end: r")...)
			gatherAll(pkg, "r", "f", need)
			policies(pkg, rapid.IntRange(0, 2).Draw(rt, "retries"))
			g, w := graphOf(t, pkg), newWorld()
			w.behave = func(task string, _ int64) behaviour { return behaviour{fails: bad[task]} }
			opts := func(o *dataflow.Options) {
				o.Concurrency = rapid.IntRange(1, 3).Draw(rt, "at a time")
				o.Lookups = rapid.IntRange(0, 2).Draw(rt, "lookups")
			}
			log := &emitted{}
			out := run(t.Context(), t, g, w, func(o *dataflow.Options) { opts(o); o.Emit = log.emit })
			if err := log.walk(out, walked); err != nil {
				fault = err.Error()
				return
			}

			ok := func(name string) bool {
				i, _ := g.Find(name)
				return out.Tasks[i].State == dataflow.Succeeded
			}
			var good []string
			for k := range n {
				if ok(fmt.Sprint("f", k)) {
					good = append(good, fmt.Sprint("f", k))
				}
			}
			parsed, _ := notation.ParseNeed(need)
			if enough := len(good) >= parsed.Of(n); ok("r") != enough || ok("end") != enough {
				fault = fmt.Sprintf("%d of %d succeeded, need %s: r ran: %v", len(good), n, need, ok("r"))
				return
			}
			// The reader has run on the very members that succeeded: by hand, its directory has these entries.
			if ok("r") {
				byHand := flow(append(slices.Clone(lines), "r")...)
				gatherAll(byHand, "r", "f", "all")
				i := len(byHand.Tasks) - 1
				wires := byHand.Tasks[i].Wiring
				fan := &wires[len(wires)-2]
				fan.Gather, byHand.Tasks[i].Wiring = nil, wires[:len(wires)-1]
				fan.Items = slices.DeleteFunc(fan.Items, func(it record.FanItem) bool { return !slices.Contains(good, it.Task) })
				gh, wh := graphOf(t, byHand), newWorld()
				wh.behave = w.behave
				run(t.Context(), t, gh, wh, nil)
				if a, b := inputOf(w, "r"), inputOf(wh, "r"); a != b {
					fault = fmt.Sprintf("r read %v, by hand %v", a, b)
					return
				}
			}
			failed := slices.ContainsFunc(lines, func(line string) bool {
				name, _, _ := strings.Cut(line, ":")
				i, _ := g.Find(name)
				return out.Tasks[i].State == dataflow.Failed && (name == "base" && !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, " base") }) || !ok("r"))
			})
			if (out.State == record.RunFailed) != failed {
				fault = fmt.Sprintf("the run is %v, %s: %s", out.State, out.FailedTask, out.Error)
				return
			}
			// Once all succeed, r runs again exactly if something was left out.
			w.behave, w.calls, w.ran = nil, nil, nil
			again := run(t.Context(), t, g, w, opts)
			if again.State != record.RunCompleted {
				fault = fmt.Sprintf("then it is %v", again.State)
				return
			}
			i, _ := g.Find("r")
			if want := len(good) < n || !ok("r"); (again.Tasks[i].State == dataflow.Succeeded) != want {
				fault = fmt.Sprintf("r is %v, and %d of %d had succeeded", again.Tasks[i].State, len(good), n)
				return
			}
		}
		synctest.Test(t, check)
		if fault != "" {
			rt.Fatal(fault)
		}
	})
	if e := (eventstest.Edge{From: eventstest.Failed, Type: events.TaskLeftOut, To: eventstest.Failed}); walked[e] == 0 && !testing.Short() { // of few draws perhaps none
		t.Errorf("no run has gone this way: %v", e)
	}
}

// policies gives all tasks retries.
func policies(pkg *record.Package, retries int) {
	for i := range pkg.Tasks {
		pkg.Tasks[i].Policy.Retries = int64(retries)
	}
}

// inputOf is the hash of the directory that a task reads, after the input x.
func inputOf(w *world, task string) objectstore.Hash {
	for i := range w.requests {
		if w.requests[i].Name == task {
			return w.requests[i].Inputs[1]
		}
	}
	return objectstore.Hash{}
}
