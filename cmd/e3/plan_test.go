package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/workspace"
)

// A plan's document has the same form whatever the plan.
func TestPlanDocument(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "e3.yaml")
	text := "e3: 1\nname: demo\ntasks:\n  one: {out: o, run: 'echo 1 > \"$out\"'}\n  two: {in: {x: one}, out: p, run: 'cat \"$x\" > \"$out\"'}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c := &console{t: t}
	plan := document[planDocument](c, 0, "plan", "-f", file)
	if !plan.New || plan.Expected != nil || len(plan.Tasks) != 2 || plan.Tasks[0].Cause != "never ran" || plan.Tasks[1].Plan != "waits" || plan.Tasks[1].For[0] != "one" {
		t.Errorf("before anything was made: %+v", plan)
	}
	c.play("start", "-f", file, "--progress", "none")
	if plan = document[planDocument](c, 0, "plan", filepath.Join(dir, ".e3"), "demo"); plan.Hits != 2 || plan.New || plan.Expected == nil || plan.Tasks[1].Execution == "" {
		t.Errorf("after a start: %+v", plan)
	}
	if plan = document[planDocument](c, 1, "plan", filepath.Join(dir, ".e3"), "demo", "--force", "--exit-code"); plan.Runs != 2 || plan.Expected.Least != plan.Expected.Most {
		t.Errorf("forced: %+v", plan)
	}
}

// planDocument is a plan as a program reads it, with the words of steps.
type planDocument struct {
	workspace.Plan
	Tasks []struct {
		workspace.PlannedTask
		Plan string `json:"plan"`
	} `json:"tasks"`
}

// The text of a plan is safe for terminals and agrees with its counts.
func TestWritePlan(t *testing.T) {
	pkg := &record.Package{Name: "p\x1b[2J", Version: "1"}
	for _, name := range []string{"a\x1b[31m", "b", "c"} {
		pkg.Tasks = append(pkg.Tasks, record.PackageTask{Name: name, Task: strings.Repeat("0", 64)})
	}
	millis := func(seconds int) moment.Millis { return moment.Millis(time.Duration(seconds) * time.Second) }
	last := func(seconds int) *moment.Millis { ms := millis(seconds); return &ms }
	g, err := graph.New(pkg)
	if err != nil {
		t.Fatal(err)
	}
	p := &workspace.Plan{
		Workspace: "w", New: true, Package: workspace.PackageRef{Name: pkg.Name, Version: "1"}, Graph: g,
		Holder: &workspace.BusyError{Workspace: "w", Operation: record.Dataflow}, Concurrency: 4,
		Planned: &dataflow.Planned{
			Tasks: []dataflow.TaskPlan{{Step: dataflow.StepRun, Forced: true}, {Step: dataflow.StepWait, Waits: []int32{0}}, {Step: dataflow.StepStuck, Err: errors.New("no value")}},
			Runs:  1, Waits: 1, Stuck: 1,
		},
		Expected: &workspace.Expected{
			Least: millis(90), Most: millis(100), WithoutHistory: 1, CriticalPath: []string{"a\x1b[31m", "b"}, CriticalTime: millis(100),
		},
		Steps: []workspace.PlannedTask{
			{Task: "a\x1b[31m", Plan: dataflow.StepRun, Reason: "forced", Last: last(90)}, {Task: "b", Plan: dataflow.StepWait, Reason: "for a\x1b[31m", Last: last(10)},
			{Task: "c", Plan: dataflow.StepStuck},
		},
	}
	var b strings.Builder
	writePlan(&render.Sheet{Writer: &b}, p, false, time.Time{})
	want := `Workspace w (nothing is deployed in it yet), package p\x1b[2J@1
It is being run by another process: what is finished meanwhile turns into hits
  a\x1b[31m  run    1m30s  forced
  b          waits  10.0s  for a\x1b[31m
  c          stuck      ?
0 hits, 1 to run, 1 waits for it, 1 cannot run
A start would stop at c, whatever else there is to run
About 1m30s to 1m40s with 4 at a time; 1 task without history counted as the average
Critical path: a\x1b[31m → b (1m40s)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestPathText(t *testing.T) {
	for want, n := range map[string]int{"": 0, "a": 1, "a → b → c → d → e → f → g → h → i": 9, "a → b → c → d → … 2 more … → g → h → i → j": 10} {
		var names []string
		for i := range n {
			names = append(names, string(rune('a'+i)))
		}
		if got := pathText(names); got != want {
			t.Errorf("%d tasks: %q, want %q", n, got, want)
		}
	}
}
