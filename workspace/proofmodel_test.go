package workspace_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/workspace"
)

// uneven is a package whose runs end in all ways: with failures, allowed and not, with gaps, with tasks that wait for a person, and
// with tasks from a list that a task makes.
const uneven = `inputs: {a: {file: a.txt}, b: {file: b.txt}, v: {value: %d}}
tasks:
  one: {in: {x: a}, out: one.o, run: go one.o one $x}
  two: {in: {x: one}, out: two.o, run: go two.o two $x}
  may: {in: {x: b}, out: may.o, may_fail: true, run: go may.o may $x}
  after: {in: {x: may}, out: after.o, run: go after.o after $x}
  m: {matrix: {k: [p, q, r]}, in: {x: one, v: v}, out: m.o, run: go m.o m.$k $x}
  all: {in: {ms: {from: "m[*]", need: 1}}, out: all.o, run: go all.o all $ms}
  tail: {in: {x: all}, out: tail.o, run: go tail.o tail $x}
  ok: {in: {x: b}, out: ok.o, approve: true, run: go ok.o ok $x}
  below: {in: {x: ok, y: two}, out: below.o, run: go below.o below $x $y}
  split: {in: {x: a}, out: list.txt, run: split list.txt split $x}
  fit: {matrix: {part: split}, in: {x: two}, out: fit.o, run: go fit.o fit.$part $x}
  fits: {in: {parts: "fit[*]"}, out: fits.o, run: go fits.o fits $parts}`

// A busy is a workspace of that package, with whatever happens between two starts.
type busy struct {
	p     *place
	value int

	mu    sync.Mutex
	fails map[string]bool // commands that fail now, whatever they read
	stop  func()          // called by the command of the task that stops the run
	stops string
}

var unevenCommands = []string{"one", "two", "may", "may", "after", "m.p", "m.q", "m.q", "all", "tail", "ok", "split", "fit.x", "fit.y", "fits"}

// run simulates the commands. Few different outputs come of them, so that a change often makes no difference downstream.
func (d *busy) run(ctx context.Context, script, dir string) int {
	words := strings.Fields(script)
	d.mu.Lock()
	fails, stops := d.fails[words[2]], d.stops == words[2]
	d.mu.Unlock()
	if stops {
		d.stop()
	}
	if fails {
		return 3
	}
	var text []byte
	for _, source := range words[3:] {
		err := filepath.WalkDir(filepath.Join(dir, source), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			text = append(append(text, filepath.Base(path)...), data...)
			return err
		})
		if err != nil {
			return 9
		}
	}
	sum := sha256.Sum256(append([]byte(words[2]), text...))
	content := fmt.Sprint(words[2], " ", sum[0]%3)
	if words[0] == "split" {
		content = []string{"x\n", "x\ny\n", "y\nz\n"}[sum[0]%3]
	}
	if os.WriteFile(filepath.Join(dir, words[1]), []byte(content), 0o644) != nil {
		return 9
	}
	return 0
}

// seen is what commands tell of a workspace: how fresh each output is, and what the next start would do.
func (d *busy) seen(t *rapid.T) (string, *workspace.Plan) {
	w := d.p.reader()
	plan, err := w.Planner.Plan(d.p.ctx, "w", workspace.PlanOptions{Concurrency: 2})
	if err != nil {
		t.Fatal(err)
	}
	text := freshnessBy(t, d.p, w.Planner) + "\n" + steps(plan) + "\n"
	for i := range plan.Tasks {
		text += plan.Tasks[i].ExecutionID + " "
	}
	return text, plan
}

// agree compares what is told by the proof with what is told without it, and returns the plan without it.
func (d *busy) agree(t *rapid.T) (plan *workspace.Plan, proof *record.Proof) {
	p, key := d.p, refstore.Key{Partition: "INDEX/proofs", Sort: "w"}
	proven, _ := d.seen(t)
	rec, err := p.repo.Records.Get(p.ctx, key)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
	case err != nil:
		t.Fatal(err)
	default:
		if proof, err = record.DecodeProof(rec.Value); err != nil {
			t.Fatal(err)
		}
		p.forget(key)
	}
	afresh, plan := d.seen(t)
	if proven != afresh {
		t.Fatalf("with the proof %+v:\n%s\nwithout:\n%s", proof, proven, afresh)
	}
	if proof != nil {
		if _, err := p.repo.Records.Put(p.ctx, refstore.Record{Key: key, Value: rec.Value, Version: refstore.Absent}); err != nil {
			t.Fatal(err)
		}
	}
	return plan, proof
}

// disturb does one thing that happens between two starts.
func (d *busy) disturb(t *rapid.T) {
	p := d.p
	what := rapid.SampledFrom([]string{"edit", "edit", "value", "set", "unset", "fail", "fail", "fail", "heal", "heal", "decide", "prune", "reject", "other", "collect"}).Draw(t, "what")
	switch what {
	case "edit":
		p.write(rapid.SampledFrom([]string{"a.txt", "b.txt"}).Draw(t, "file"), fmt.Sprint("text ", rapid.IntRange(0, 2).Draw(t, "text")))
	case "value":
		d.value = rapid.IntRange(0, 2).Draw(t, "value")
		p.write("e3.yaml", "e3: 1\nname: p\n"+fmt.Sprintf(uneven, d.value)+"\n")
	case "set":
		p.set("b", fmt.Sprint("text ", rapid.IntRange(0, 2).Draw(t, "text")))
	case "unset":
		_, _ = p.ws.Datasets.Unset(p.ctx, "w", "b")
	case "fail", "heal":
		d.fails[rapid.SampledFrom(unevenCommands).Draw(t, "command")] = what == "fail"
	case "decide":
		by := approval.Resolution{By: "ann@desk", Approve: rapid.IntRange(0, 3).Draw(t, "approved") > 0}
		_, _ = p.ws.Approvals.Resolve(p.ctx, "w", "ok", by) // it may not wait
	case "prune", "reject":
		d.spoil(t, what)
	case "other": // another workspace executes some of the same keys
		if err := p.ws.Create(p.ctx, "other"); err != nil && !strings.Contains(err.Error(), "exists") {
			t.Fatal(err)
		}
		if _, err := p.ws.Deployer.DeployFile(p.ctx, "other", filepath.Join(p.dir, "e3.yaml")); err != nil {
			t.Fatal(err)
		}
		d.start(t, "other", "the other's")
	case "collect":
		end, err := p.generation().Begin(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		end()
	}
}

// spoil takes one of the answers away.
func (d *busy) spoil(t *rapid.T, how string) {
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
	if how == "prune" {
		_, err = p.curator().Prune(p.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me", "")
	} else {
		_, err = p.curator().Reject(p.ctx, e.Key, e.ExecutionID, &record.Rejection{Rejected: true, At: e.CompletedAt})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// attempted is a start, with what became of it.
type attempted struct {
	*workspace.RunResult
	executed map[string]bool
	whole    bool // nothing was forced, left out or ended early
}

// start runs a workspace in one of the ways of starting it.
func (d *busy) start(t *rapid.T, ws, what string) attempted {
	p := d.p
	how := rapid.SampledFrom([]string{"", "", "", "", "filter", "filter", "set", "force", "strict", "fail fast", "cancel", "no publish"}).Draw(t, what+" start")
	o := startOptions(p, "")
	o.NoWait = true
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	s := attempted{executed: map[string]bool{}, whole: how == "" || how == "strict"}
	switch how {
	case "filter":
		o.Filter = rapid.SampledFrom([]string{"two", "tail", "m*", "may", "fit*", "below"}).Draw(t, "filter")
	case "set":
		o.Set = []workspace.Override{{Name: "v", Value: int64(rapid.IntRange(0, 3).Draw(t, "set"))}}
	case "force":
		o.Force, o.Filter = true, rapid.SampledFrom([]string{"", "two"}).Draw(t, "filter")
	case "strict":
		o.Strict = true
	case "fail fast":
		o.FailFast = true
	case "no publish":
		o.Publish = workspace.Never
	case "cancel":
		d.mu.Lock()
		d.stops, d.stop = rapid.SampledFrom(unevenCommands).Draw(t, "stops"), cancel
		d.mu.Unlock()
		defer func() { d.stops = "" }()
	}
	o.OnEvent = func(e events.Event) {
		if e.Type == events.TaskStarted {
			d.mu.Lock()
			s.executed[e.Task] = true
			d.mu.Unlock()
		}
	}
	res, err := p.ws.Runner.Start(ctx, ws, o)
	if err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	s.RunResult = res
	return s
}

// Whatever has happened to a workspace and however its runs have ended: what its proof says is what a look at everything
// finds, and a start takes the same answers.
func TestProofAgrees(t *testing.T) {
	partial, used := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlace(t)
		d := &busy{p: p, fails: map[string]bool{}}
		p.run = d.run
		p.write("a.txt", "text 0")
		p.write("b.txt", "text 1")
		p.deploy(fmt.Sprintf(uneven, 0))
		d.start(rt, "w", "first")
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			d.agree(rt)
			for range rapid.IntRange(0, 3).Draw(rt, "disturbances") {
				d.disturb(rt)
			}
			plan, proof := d.agree(rt)
			if proof != nil && proof.Partial {
				partial++
			}
			s := d.start(rt, "w", "next")
			if !s.whole || s.RunResult == nil {
				continue
			}
			if s.Outcome != nil && s.Outcome.Proven > 0 && proof != nil && proof.Partial {
				used++
			}
			cached := map[string]string{}
			for e := range s.Run.Tasks.All() {
				if e.Cached {
					cached[e.Task] = e.ExecutionID
				}
			}
			for i := range plan.Tasks {
				if name, task := plan.Graph.Name(int32(i)), &plan.Tasks[i]; task.Step == dataflow.StepHit && (s.executed[name] || cached[name] != task.ExecutionID) {
					rt.Fatalf("%s is answered by %s without the proof %+v; in the run it was executed: %v, answered by %q", name, task.ExecutionID, proof, s.executed[name], cached[name])
				}
			}
		}
	})
	if !t.Failed() && (partial == 0 || used == 0) {
		t.Errorf("%d partial proofs were compared and %d answered a start: want some", partial, used)
	}
}
