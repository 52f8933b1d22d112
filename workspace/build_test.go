package workspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/workspace"
)

// build builds a package file with the given text below its name.
func (p *place) build(text string) *workspace.Built {
	p.t.Helper()
	p.write("e3.yaml", "e3: 1\nname: p\n"+text)
	b, err := p.ws.Deployer.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// project writes the files that the package files of these tests name.
func (p *place) project() {
	p.t.Helper()
	for _, dir := range []string{"data/img", "src"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, name := range []string{"data/sales.csv", "data/img/1.png", "src/clean.py", "src/tool.sh"} {
		p.write(name, name)
	}
	if err := os.Chmod(filepath.Join(p.dir, "src/tool.sh"), 0o755); err != nil {
		p.t.Fatal(err)
	}
}

const example = `version: 1.0.0
description: Sales.
inputs:
  sales:   {file: data/sales.csv}
  images:  {dir: data/img}
  src:     {glob: "src/*.py"}
  tool:    {file: src/tool.sh}
  horizon: {value: 12, export: false}
  grid:    {value: [1, 2]}
tasks:
  clean:
    in:  [sales, src]
    out: clean.csv
    run: [python3, src/clean.py, "{sales}", "{out}"]
  train:
    in:  {table: clean, horizon: horizon, grid: grid, tool: tool, images: images}
    out: {model: model.pkl, metrics: {file: metrics.json, kind: metrics}}
    run: |
      train "$table"
    matrix: {depth: [4, 8]}
    env: {OMP_NUM_THREADS: "2"}
    pass_env: [CUDA_HOME]
    secrets: [TOKEN]
    resources: {cpu: 2, memory: 2GiB, gpu: 1}
    timeout: 30m
    retries: {max: 2, backoff: 5s, on: [timeout, oom, lost, 75], lost: 1}
    on_oom: {memory: x1.5, max: 8GiB}
    priority: 3
    approve: true
    suspend: 76
    queue: gpus
    labels: [gpu, big]
    version: 7
  report:
    in:  {metrics: "train[*].metrics", best: "train[4].model"}
    out: report/
    run: render
`

func TestBuild(t *testing.T) {
	p := newPlace(t)
	p.project()
	b := p.build(example)
	pkg := b.Package
	if pkg.Name != "p" || pkg.Version != "1.0.0" || pkg.Description != "Sales." {
		t.Errorf("the package is %s@%s, %q", pkg.Name, pkg.Version, pkg.Description)
	}
	file := func(text string, executable bool) record.Leaf {
		return record.Leaf{Kind: record.LeafFile, Hash: objectstore.Sum([]byte(text)).String(), Size: int64(len(text)), Executable: executable}
	}
	wantInputs := []record.PackageInput{
		{Name: "sales", Source: record.FromFile, Location: "data/sales.csv", Default: file("data/sales.csv", false)},
		{Name: "images", Source: record.FromDir, Location: "data/img", Default: record.Leaf{Kind: record.LeafDir}},
		{Name: "src", Source: record.FromGlob, Location: "src/*.py", Default: record.Leaf{Kind: record.LeafDir}},
		{Name: "tool", Source: record.FromFile, Location: "src/tool.sh", Executable: true, Default: file("src/tool.sh", true)},
		{Name: "horizon", Source: record.FromValue, NoExport: true, Default: record.Leaf{Kind: record.LeafValue}},
		{Name: "grid", Source: record.FromValue, Default: record.Leaf{Kind: record.LeafValue}},
	}
	noHash := cmp.FilterPath(func(path cmp.Path) bool { return path.Last().String() == ".Hash" }, cmp.Comparer(func(a, b string) bool {
		return a == b || a == "" || b == "" // of directories and values, whose hash does not matter here
	}))
	if diff := cmp.Diff(wantInputs, pkg.Inputs, noHash); diff != "" {
		t.Errorf("inputs differ (-want +got):\n%s", diff)
	}
	fromTrain := func(entry string) record.Wire {
		return record.Wire{Kind: record.WireFanIn, Items: []record.FanItem{
			{Label: "4.json", Task: "train[4]", Entry: entry}, {Label: "8.json", Task: "train[8]", Entry: entry}}}
	}
	train := record.PackageTask{
		Name: "train[4]", Output: record.KindDir,
		Wiring: []record.Wire{{Kind: record.WireOutput, Name: "clean"}, {Kind: record.WireInput, Name: "horizon"}, {Kind: record.WireInput, Name: "grid"},
			{Kind: record.WireInput, Name: "tool"}, {Kind: record.WireInput, Name: "images"}},
		Policy: record.Policy{
			Timeout: 30 * time.Minute, Retries: 2, Backoff: 5 * time.Second, CPU: 2, Memory: 2 << 30, Priority: 3,
			Resources: []record.Amount{{Name: "gpu", Value: 1}},
			Views:     []record.View{{Entry: "metrics", Path: "metrics.json", Kind: record.ViewMetrics}},
			RetryOn:   []string{"timeout", "oom", "lost", "75"}, Lost: 1, OOM: record.Escalation{Factor: 1.5, Max: 8 << 30},
			Approve: true, Suspend: 76, Queue: "gpus", Labels: []string{"gpu", "big"},
		},
	}
	train8 := train
	train8.Name = "train[8]"
	wantTasks := []record.PackageTask{
		{Name: "clean", Output: record.KindFile, Wiring: []record.Wire{{Kind: record.WireInput, Name: "sales"}, {Kind: record.WireInput, Name: "src"}}},
		train, train8,
		{Name: "report", Output: record.KindDir, Wiring: []record.Wire{fromTrain("metrics"), {Kind: record.WireOutput, Name: "train[4]", Entry: "model"}}},
	}
	if diff := cmp.Diff(wantTasks, pkg.Tasks, cmpopts.IgnoreFields(record.PackageTask{}, "Task"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("tasks differ (-want +got):\n%s", diff)
	}
	stored, err := p.ws.Packages.Load(p.ctx, b.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pkg, stored, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the stored package differs (-want +got):\n%s", diff)
	}
}

// object reads the task object of a task.
func (p *place) object(b *workspace.Built, name string) *record.Task {
	p.t.Helper()
	for i := range b.Package.Tasks {
		if b.Package.Tasks[i].Name != name {
			continue
		}
		h, err := objectstore.ParseHash(b.Package.Tasks[i].Task)
		if err != nil {
			p.t.Fatal(err)
		}
		data, err := objectstore.ReadAll(p.ctx, p.repo.Objects, h, 1<<20)
		if err != nil {
			p.t.Fatal(err)
		}
		task, err := record.DecodeTask(data)
		if err != nil {
			p.t.Fatal(err)
		}
		return task
	}
	p.t.Fatalf("there is no task %s", name)
	return nil
}

func TestTaskObjects(t *testing.T) {
	p := newPlace(t)
	p.project()
	b := p.build(example)
	for name, want := range map[string]*record.Task{
		"clean": {
			Argv:   []string{"python3", "src/clean.py", "{sales}", "{out}"},
			Inputs: []record.Input{{Name: "sales", Path: "data/sales.csv", Kind: record.KindFile}, {Name: "src", Path: "src", Kind: record.KindDir}},
			Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "clean.csv", Kind: record.KindFile}}},
		},
		"train[8]": {
			Shell: "train \"$table\"\n", Version: "7", Passed: record.Passed{Env: []string{"CUDA_HOME"}, Secrets: []string{"TOKEN"}},
			Env: []record.EnvVar{{Name: "OMP_NUM_THREADS", Value: "2"}, {Name: "depth", Value: "8"}},
			Inputs: []record.Input{
				{Name: "table", Path: "clean.csv", Kind: record.KindFile}, {Name: "horizon", Kind: record.KindValue},
				{Name: "grid", Path: ".e3-values/grid.json", Kind: record.KindValue}, {Name: "tool", Path: "src/tool.sh", Kind: record.KindExecutable},
				{Name: "images", Path: "data/img", Kind: record.KindDir}},
			Output: record.Output{Multi: true, Entries: []record.OutputEntry{
				{Name: "model", Path: "model.pkl", Kind: record.KindFile}, {Name: "metrics", Path: "metrics.json", Kind: record.KindFile}}},
		},
		"report": {
			Shell:  "render",
			Inputs: []record.Input{{Name: "metrics", Path: "metrics", Kind: record.KindDir}, {Name: "best", Path: "model.pkl", Kind: record.KindFile}},
			Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "report", Kind: record.KindDir}}},
		},
	} {
		if diff := cmp.Diff(want, p.object(b, name), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

// Which fields enter a task's hash. A change of the others needs no new run.
func TestTaskHash(t *testing.T) {
	p := newPlace(t)
	p.project()
	const base = "inputs: {sales: {file: data/sales.csv}}\ntasks:\n  one: {in: [sales], out: o, run: cat, env: {A: b}}\n"
	hash := func(b *workspace.Built, name string) string {
		for i := range b.Package.Tasks {
			if b.Package.Tasks[i].Name == name {
				return b.Package.Tasks[i].Task
			}
		}
		t.Fatalf("there is no task %s", name)
		return ""
	}
	was := hash(p.build(base), "one")
	for _, test := range []struct {
		name, old, new string
		same           bool
	}{
		{"description", "env: {A: b}", "env: {A: b}, description: d", true},
		{"timeout", "env: {A: b}", "env: {A: b}, timeout: 1m", true},
		{"retries", "env: {A: b}", "env: {A: b}, retries: 3", true},
		{"retries by reason", "env: {A: b}", "env: {A: b}, retries: {max: 3, on: [oom, 7], lost: 0}", true},
		{"growth", "env: {A: b}", "env: {A: b}, retries: 1, resources: {memory: 1GiB}, on_oom: {memory: x2}", true},
		{"approval", "env: {A: b}", "env: {A: b}, approve: true, suspend: 75", true},
		{"workers", "env: {A: b}", "env: {A: b}, queue: q, labels: [gpu]", true},
		{"resources", "env: {A: b}", "env: {A: b}, resources: {cpu: 2}", true},
		{"priority", "env: {A: b}", "env: {A: b}, priority: 9", true},
		{"pass_env", "env: {A: b}", "env: {A: b}, pass_env: [X]", false},
		{"secrets", "env: {A: b}", "env: {A: b}, secrets: [X]", false},
		{"open room", "env: {A: b}", "env: {A: b}, room: open, network: true", true},
		{"closed room", "env: {A: b}", "env: {A: b}, room: closed", false},
		{"closed room of the package", "inputs:", "room: closed\ninputs:", false},
		{"other tasks", "tasks:\n", "tasks:\n  zero: {out: z, run: cat}\n", true},
		{"package version", "inputs:", "version: 2.0.0\ninputs:", true},
		{"where the value of an input comes from", "file: data/sales.csv}", "file: data/sales.csv, executable: false}", true},
		{"command", "run: cat", "run: cat -n", false},
		{"argv", "run: cat", "run: [cat]", false},
		{"env", "env: {A: b}", "env: {A: c}", false},
		{"more env", "env: {A: b}", "env: {A: b, B: c}", false},
		{"output path", "out: o", "out: p", false},
		{"output kind", "out: o", "out: o/", false},
		{"output name", "out: o", "out: {x: o}", false},
		{"executable input", "file: data/sales.csv}", "file: data/sales.csv, executable: true}", false},
		{"version", "env: {A: b}", "env: {A: b}, version: 2", false},
		{"input name", "in: [sales]", "in: {s: sales}", false},
	} {
		if strings.Count(base, test.old) != 1 {
			t.Fatalf("%s: %q is not there once", test.name, test.old)
		}
		now := hash(p.build(strings.Replace(base, test.old, test.new, 1)), "one")
		if (now == was) != test.same {
			t.Errorf("%s: the hash is the same: %v, want %v", test.name, now == was, test.same)
		}
	}
	if renamed := hash(p.build(strings.Replace(base, "one:", "two:", 1)), "two"); renamed != was {
		t.Error("the name of a task enters its hash")
	}
	p.write("data/sales.csv", "other content")
	if now := hash(p.build(base), "one"); now != was {
		t.Error("the content of an input enters the task's hash")
	}
}

// An error names all unreadable inputs at once.
func TestBuildMissingInputs(t *testing.T) {
	p := newPlace(t)
	p.write("e3.yaml", "e3: 1\nname: p\ninputs: {a: {file: no.txt}, b: {dir: nowhere}}\ntasks: {t: {in: [a, b], out: o, run: cat}}\n")
	_, err := p.ws.Deployer.Build(p.ctx, filepath.Join(p.dir, "e3.yaml"), nil)
	var input *workspace.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "input a") || !strings.Contains(err.Error(), "input b") {
		t.Errorf("error is %v, want both inputs", err)
	}
}

// The names of passed variables are part of a task's hash; their order is not.
func TestPassedNamesAreInTheKey(t *testing.T) {
	p := newPlace(t)
	key := func(declared string) string {
		return p.build("tasks:\n  t:\n    out: o\n    " + declared + "\n    run: echo x >$out\n").Package.Tasks[0].Task
	}
	seen := map[string]string{}
	for _, declared := range []string{
		"description: none", "pass_env: [A]", "pass_env: [B]", "pass_env: [A, B]", "secrets: [A]", "secrets: [A, B]", "pass_env: [A]\n    secrets: [B]",
	} {
		h := key(declared)
		if other, ok := seen[h]; ok {
			t.Errorf("%q has the key of %q", declared, other)
		}
		seen[h] = declared
	}
	if key("pass_env: [A, B]") != key("pass_env: [B, A]") {
		t.Error("another order of the names is another key")
	}
	if key("description: none") != key("pass_env: []") {
		t.Error("a task to which nothing is passed has another key")
	}
}
