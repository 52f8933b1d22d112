package workspace_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	"e3/workspace"
)

// surroundings is an environment that a test changes.
type surroundings map[string]string

func (s surroundings) lookup(name string) (string, bool) {
	v, ok := s[name]
	return v, ok
}

func (p *place) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func code(err error) int {
	if err != nil {
		return 9
	}
	return 0
}

// inEnvironment gives a place its own environment. Commands do not run in it: they get variables from their inputs.
func inEnvironment(p *place) surroundings {
	s := surroundings{}
	p.ws.Getenv = s.lookup
	return s
}

const keyedYAML = `tasks:
  a: {out: o, run: cat word-$MODE, in: [f], key_env: [ZONE, MODE]}
  b: {out: o, run: cat f, in: [f]}
inputs:
  f: {file: f}
`

func newKeyed(t *testing.T) (*place, surroundings) {
	p := newPlace(t)
	env := inEnvironment(p)
	p.run = func(_ context.Context, script, dir string) int {
		return code(os.WriteFile(filepath.Join(dir, "o"), []byte(strings.TrimPrefix(script, "cat ")), 0o644))
	}
	p.write("f", "f")
	return p, env
}

// The variables, in key order, are inputs of the task after its own. The package holds no values, so it is the same
// everywhere.
func TestBuildVariables(t *testing.T) {
	p, env := newKeyed(t)
	one := p.build(keyedYAML)
	env["MODE"] = "fast"
	two := p.build(strings.Replace(keyedYAML, "[ZONE, MODE]", "[MODE, ZONE]", 1))
	if one.Hash != two.Hash {
		t.Errorf("in another order, and another environment, the package is %s, not %s", two.Hash, one.Hash)
	}
	want := []record.PackageInput{
		{Name: "$MODE", Source: record.FromVariable, Location: "MODE", Default: record.Leaf{Kind: record.LeafUnassigned}},
		{Name: "$ZONE", Source: record.FromVariable, Location: "ZONE", Default: record.Leaf{Kind: record.LeafUnassigned}},
	}
	if diff := cmp.Diff(want, one.Package.Inputs[1:]); diff != "" {
		t.Errorf("inputs of the package (-want +got):\n%s", diff)
	}
	wantInputs := []record.Input{{Name: "f", Path: "f", Kind: record.KindFile}, {Name: "MODE", Kind: record.KindVariable}, {Name: "ZONE", Kind: record.KindVariable}}
	if diff := cmp.Diff(wantInputs, p.object(one, "a").Inputs); diff != "" {
		t.Errorf("inputs of the task (-want +got):\n%s", diff)
	}
	wantWiring := []record.Wire{{Kind: record.WireInput, Name: "f"}, {Kind: record.WireInput, Name: "$MODE"}, {Kind: record.WireInput, Name: "$ZONE"}}
	if diff := cmp.Diff(wantWiring, one.Package.Tasks[0].Wiring); diff != "" {
		t.Errorf("wiring (-want +got):\n%s", diff)
	}
	plain := p.build(strings.Replace(keyedYAML, ", key_env: [ZONE, MODE]", "", 1))
	if plain.Package.Tasks[1].Task != one.Package.Tasks[1].Task {
		t.Error("variables of another task change the hash of a task without any")
	}
}

// executed starts a run, and returns how many tasks it has run and the task's output.
func (p *place) executed(task string) (int64, string) {
	p.t.Helper()
	s := p.start().Run.Summary
	if s.Failed+s.Skipped > 0 {
		p.t.Fatalf("run ended with %+v", s)
	}
	return s.Completed - s.Cached, p.read(task)
}

// Each start uses the values of its own environment, whether it follows a package file or not. A new value reruns only
// the tasks that read it, and an earlier value hits. The values are recorded.
func TestStartTakesVariables(t *testing.T) {
	for name, deploy := range map[string]func(p *place){
		"of a package file": func(p *place) { p.deploy(keyedYAML) },
		"of a registered package": func(p *place) {
			b := p.build(keyedYAML)
			ref := workspace.PackageRef{Name: "p", Version: b.Package.Version, Hash: b.Hash}
			p.must(p.ws.Packages.Add(p.ctx, ref))
			p.must(p.ws.Create(p.ctx, "w"))
			p.must(p.ws.Deployer.Deploy(p.ctx, "w", ref))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, env := newKeyed(t)
			env["MODE"] = "fast"
			deploy(p)
			for i, step := range []struct {
				mode string // "-": unset
				ran  int64
				made string
			}{{"fast", 2, "word-fast"}, {"fast", 0, "word-fast"}, {"slow", 1, "word-slow"}, {"fast", 0, "word-fast"}, {"", 1, "word-"}, {"-", 1, "word-$MODE"}, {"", 0, "word-"}} {
				delete(env, "MODE")
				if step.mode != "-" {
					env["MODE"] = step.mode
				}
				ahead, err := p.ws.Planner.Plan(p.ctx, "w", workspace.PlanOptions{Concurrency: 1})
				p.must(err)
				if int64(ahead.Runs) != step.ran {
					t.Errorf("step %d: the plan runs %d tasks, want %d", i, ahead.Runs, step.ran)
				}
				ran, made := p.executed("a")
				if ran != step.ran || made != step.made {
					t.Errorf("step %d: got %d tasks and %q, want %d and %q", i, ran, made, step.ran, step.made)
				}
				if got := p.variable("$MODE"); got != step.mode {
					t.Errorf("step %d: the workspace has %q, want %q", i, got, step.mode)
				}
			}
		})
	}
}

// variable is the value of a variable in the workspace, "-" if it was unset.
func (p *place) variable(name string) string {
	p.t.Helper()
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: name})
	p.must(err)
	h, err := objectstore.ParseHash(d.Hash)
	p.must(err)
	data, err := objectstore.ReadAll(p.ctx, p.repo.Objects, h, 1<<20)
	p.must(err)
	v, err := value.Decode(data)
	p.must(err)
	if text, ok := v.Text(); ok {
		return text
	}
	if !v.IsNull() {
		p.t.Fatalf("%s is neither a text nor null", name)
	}
	return "-"
}

// Other variables cause no rerun, and the executing process's environment does not matter.
func TestOnlyNamedVariables(t *testing.T) {
	t.Setenv("MODE", "of the process")
	p, env := newKeyed(t)
	env["MODE"] = "fast"
	p.deploy(keyedYAML)
	if ran, made := p.executed("a"); ran != 2 || made != "word-fast" {
		t.Errorf("got %d tasks and %q, want 2 and word-fast", ran, made)
	}
	env["OTHER"] = "x"
	if ran, _ := p.executed("a"); ran != 0 {
		t.Errorf("%d tasks ran, want 0", ran)
	}
	env["ZONE"] = "eu"
	if ran, _ := p.executed("a"); ran != 1 {
		t.Errorf("with another ZONE %d tasks ran, want 1", ran)
	}
}

// A value that is lost from the store is stored again, also without a followed file and during a run.
func TestVariablesAreStoredAgain(t *testing.T) {
	p, env := newKeyed(t)
	env["MODE"] = "fast"
	p.deploy(keyedYAML)
	p.executed("a")
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "$MODE"})
	p.must(err)
	for name, o := range map[string]func(*workspace.StartOptions){
		"forced":   func(o *workspace.StartOptions) { o.Force = true },
		"filtered": func(o *workspace.StartOptions) { o.Force, o.Filter = true, "a" },
	} {
		p.must(os.Remove(filepath.Join(p.repo.Root, "objects", d.Hash[:2], d.Hash[2:])))
		if res := p.start(o); res.Run.State != record.RunCompleted {
			t.Errorf("%s: the run is %v, %s", name, res.Run.State, res.Run.Error)
		}
		if got := p.read("a"); got != "word-fast" {
			t.Errorf("%s: got %q, want word-fast", name, got)
		}
	}
}

// A value comes only from the environment. A text that no record can hold makes a start fail, and status reports it.
func TestVariablesRefused(t *testing.T) {
	p, env := newKeyed(t)
	p.deploy(keyedYAML)
	_, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "$MODE"})
	if err == nil || !strings.Contains(err.Error(), "a start takes it from the environment: MODE=<value> e3 start") {
		t.Errorf("before the first start: got %v, want an error that says where the value comes from", err)
	}
	p.executed("b")
	leaf, err := p.ws.Datasets.PutValue(p.ctx, "slow")
	p.must(err)
	if err := p.ws.Datasets.Set(p.ctx, "w", "$MODE", leaf); !errors.Is(err, workspace.ErrVariable) {
		t.Errorf("set: got %v, want ErrVariable", err)
	}
	if _, err := p.ws.Datasets.Unset(p.ctx, "w", "$MODE"); !errors.Is(err, workspace.ErrVariable) {
		t.Errorf("unset: got %v, want ErrVariable", err)
	}
	if ran, _ := p.executed("a"); ran != 0 {
		t.Errorf("after the refusals %d tasks ran, want 0", ran)
	}
	env["MODE"] = "a\xff"
	_, err = p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Executor: p.executor, Concurrency: 1})
	var bad *workspace.InputError
	if !errors.As(err, &bad) || bad.Input != "$MODE" {
		t.Errorf("start: got %v, want an error of input $MODE", err)
	}
	st, err := p.ws.Planner.Status(p.ctx, "w")
	p.must(err)
	if len(st.Faults) != 1 || !errors.As(st.Faults[0], &bad) {
		t.Errorf("faults of the status are %v, want one of input $MODE", st.Faults)
	}
}

// A plan before the first deployment predicts what a start then finds.
func TestPlanFileTakesVariables(t *testing.T) {
	p, env := newKeyed(t)
	env["MODE"] = "fast"
	p.write("e3.yaml", "e3: 1\nname: p\n"+keyedYAML)
	plan, err := p.ws.Planner.PlanFile(p.ctx, "w", filepath.Join(p.dir, "e3.yaml"), workspace.PlanOptions{Concurrency: 1})
	p.must(err)
	var planned executions.Key
	for i := range plan.Tasks {
		if plan.Graph.Name(int32(i)) == "a" {
			planned = *plan.Tasks[i].Key
		}
	}
	p.deploy(keyedYAML)
	p.executed("a")
	found, err := p.repo.Executions.Lookup(p.ctx, planned)
	p.must(err)
	if found.Hit == nil {
		t.Errorf("the key that was planned, %v, has no execution", planned)
	}
}
