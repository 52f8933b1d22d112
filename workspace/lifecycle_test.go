package workspace_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

func TestCreate(t *testing.T) {
	p := newPlace(t)
	for _, name := range []string{"prod", "dev", "prod-2"} {
		if err := p.ws.Create(p.ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ws.Create(p.ctx, "prod"); !errors.Is(err, workspace.ErrExists) || !strings.Contains(err.Error(), "prod") {
		t.Errorf("created twice: %v", err)
	}
	names, err := p.ws.List(p.ctx)
	if want := []string{"dev", "prod", "prod-2"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("List is %v, %v, want %v", names, err, want)
	}
	s, err := p.ws.State(p.ctx, "dev")
	if err != nil || s.Deployed {
		t.Errorf("a new workspace is %+v, %v", s, err)
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.State(p.ctx, "prd"); !errors.Is(err, workspace.ErrNotFound) || !errors.As(err, &unknown) || !slices.Equal(unknown.Known, names) {
		t.Errorf("an unknown workspace: %v", err)
	}
}

// A workspace that has no package, or does not exist, refuses every operation.
func TestNotDeployed(t *testing.T) {
	p := newPlace(t)
	if err := p.ws.Create(p.ctx, "empty"); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(ws string) error{
		"start": func(ws string) error {
			_, err := p.ws.Runner.Start(p.ctx, ws, workspace.StartOptions{Executor: p.executor, Concurrency: 1})
			return err
		},
		"set":   func(ws string) error { return p.ws.Datasets.Set(p.ctx, ws, "a", p.file("x")) },
		"unset": func(ws string) error { _, err := p.ws.Datasets.Unset(p.ctx, ws, "a"); return err },
		"read": func(ws string) error {
			_, err := p.ws.Datasets.Dataset(p.ctx, ws, workspace.DatasetPath{Name: "a"})
			return err
		},
		"inputs": func(ws string) error { _, err := p.ws.Datasets.Input(p.ctx, ws, "a"); return err },
		"names":  func(ws string) error { _, err := p.ws.Datasets.Names(p.ctx, ws); return err },
	} {
		if err := do("empty"); !errors.Is(err, workspace.ErrNotDeployed) {
			t.Errorf("%s without a package: %v", name, err)
		}
		if err := do("absent"); !errors.Is(err, workspace.ErrNotFound) {
			t.Errorf("%s without a workspace: %v", name, err)
		}
	}
	if busy, err := p.ws.Busy(p.ctx, "absent"); busy != nil || err != nil {
		t.Errorf("an unknown workspace is held: %v, %v", busy, err)
	}
}

// Removing deletes the state, the run records and this machine's records. Executions and events stay, so a new
// workspace of that name has hits.
func TestRemove(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	id := p.start().Run.RunID
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.ws.State(p.ctx, "w"); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("its state: %v", err)
	}
	if _, err := p.ws.Runs.Run(p.ctx, "w", id); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("its run record: %v", err)
	}
	for _, partition := range []string{"INDEX/links", "INDEX/proofs", "INDEX/durations"} {
		if _, err := p.repo.Records.Get(p.ctx, refstore.Key{Partition: partition, Sort: "w"}); !errors.Is(err, refstore.ErrNotFound) {
			t.Errorf("%s: %v", partition, err)
		}
	}
	if info, err := p.repo.Records.Size(p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: id}); err != nil || info.Size == 0 {
		t.Errorf("its events: %+v, %v", info, err)
	}
	if err := p.ws.Cleaner.Remove(p.ctx, "w"); !errors.Is(err, workspace.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
	p.deploy(twoInputs)
	if res := p.start(); res.Run.Summary.Cached != 1 {
		t.Errorf("in a new workspace of the name: %+v", res.Run.Summary)
	}
}

// While a process holds the workspace it is neither deployed nor run nor removed, and the error names the holder. Sets
// and reads still work.
func TestBusy(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	state := record.LockState{Operation: record.Dataflow, Holder: `.process (pid=7, bootId="b", startTime=1, command="e3 start")`}
	lock, err := p.repo.Records.TryLock(p.ctx, "workspace/w", refstore.Exclusive, state.Encode())
	if err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"start": func() error {
			_, err := p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Executor: p.executor})
			return err
		},
		"deploy": func() error {
			_, err := p.ws.Deployer.DeployFile(p.ctx, "w", filepath.Join(p.dir, "e3.yaml"))
			return err
		},
		"remove": func() error { return p.ws.Cleaner.Remove(p.ctx, "w") },
	} {
		var busy *workspace.BusyError
		if err := do(); !errors.As(err, &busy) || busy.Operation != record.Dataflow || !strings.Contains(err.Error(), "process 7 (e3 start)") {
			t.Errorf("%s: %v, want a *BusyError that names the holder", name, err)
		}
	}
	p.set("a", "set")
	if got := p.read("a"); got != "set" {
		t.Errorf("a is %q", got)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	p.start()
}

// A redeploy keeps the outputs of tasks that remain, and drops those of removed tasks.
func TestRedeployKeepsOutputs(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  x: {in: [a], out: o, run: cat $a}", "  y: {in: [a], out: o, run: cat $a $a}")
	p.start()
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  y: {in: [a], out: o, run: cat $a $a $a}", "  z: {in: [a], out: o, run: cat $a}")
	if got := p.read("y"); got != "aa" {
		t.Errorf("y is %q, want what it was", got)
	}
	var unassigned *workspace.UnassignedError
	if _, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "z"}); !errors.As(err, &unassigned) {
		t.Errorf("z: %v", err)
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "x"}); !errors.As(err, &unknown) {
		t.Errorf("x: %v", err)
	}
	res := p.start()
	if got := p.read("y") + " " + p.read("z"); got != "aaa a" || res.Run.Summary.Cached != 1 {
		t.Errorf("outputs are %q, %+v", got, res.Run.Summary)
	}
}

// A failed deployment leaves the workspace unchanged.
func TestBadDeployLeavesAll(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {x: {in: [a], out: o, run: cat $a}}")
	before, err := p.ws.State(p.ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"no package file":       "",
		"nonsense":              "nonsense",
		"an input that is gone": "e3: 1\nname: p\ninputs: {a: {file: absent.txt}}\ntasks: {x: {in: [a], out: o, run: cat $a}}\n",
		"a cycle":               "e3: 1\nname: p\ntasks: {x: {in: [y], out: o, run: cat}, y: {in: [x], out: p, run: cat}}\n",
	} {
		file := "bad.yaml"
		if text != "" {
			p.write(file, text)
		} else {
			file = "absent.yaml"
		}
		if _, err := p.ws.Deployer.DeployFile(p.ctx, "w", filepath.Join(p.dir, file)); err == nil {
			t.Errorf("%s is deployed", name)
		}
		after, err := p.ws.State(p.ctx, "w")
		if err != nil || after.WorkspaceState != before.WorkspaceState {
			t.Errorf("%s: the state is %+v, %v, want %+v", name, after, err, before)
		}
		if file, err := p.ws.Deployer.LinkedTo(p.ctx, "w"); err != nil || file != filepath.Join(p.dir, "e3.yaml") {
			t.Errorf("%s: it follows %q, %v", name, file, err)
		}
	}
}

// "start -f" creates a workspace with the package's name, and finds it again.
func TestDeployNew(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	file := filepath.Join(p.dir, "e3.yaml")
	p.write("e3.yaml", "e3: 1\nname: forecast\ninputs: {a: {file: a.txt}}\ntasks: {x: {in: [a], out: o, run: cat $a}}\n")
	if name, err := p.ws.Deployer.WorkspaceFor(p.ctx, file); name != "" || err != nil {
		t.Errorf("before: %q, %v", name, err)
	}
	name, built, err := p.ws.Deployer.DeployNew(p.ctx, "", file, nil)
	if err != nil || name != "forecast" || built.Package.Name != "forecast" {
		t.Fatalf("DeployNew is %q, %+v, %v", name, built, err)
	}
	if name, err := p.ws.Deployer.WorkspaceFor(p.ctx, file); name != "forecast" || err != nil {
		t.Errorf("afterwards: %q, %v", name, err)
	}
	if name, _, err := p.ws.Deployer.DeployNew(p.ctx, "mine", file, nil); err != nil || name != "mine" {
		t.Errorf("under another name: %q, %v", name, err)
	}
	if name, err := p.ws.Deployer.WorkspaceFor(p.ctx, file); name != "forecast" || err != nil {
		t.Errorf("the default is %q, %v", name, err)
	}
	// It does not take over a workspace of the package's name that holds another deployment: the file gets a workspace
	// of its own.
	p.write("other.yaml", "e3: 1\nname: forecast\ntasks: {y: {out: o, run: cat}}\n")
	for range 2 {
		name, built, err = p.ws.Deployer.DeployNew(p.ctx, "", filepath.Join(p.dir, "other.yaml"), nil)
		if err != nil || name != "forecast-2" || built.Instead == nil || built.Instead.File != file {
			t.Errorf("another file of that name: %q, %+v, %v", name, built, err)
		}
	}
	if err := p.ws.Cleaner.Remove(p.ctx, "forecast"); err != nil {
		t.Fatal(err)
	}
	if name, err := p.ws.Deployer.WorkspaceFor(p.ctx, file); name != "" || err != nil {
		t.Errorf("once it is removed: %q, %v", name, err)
	}
}

// A file that was checked is deployed as it was then, whatever it defines, and the next start sees an edit since.
func TestDeployChecked(t *testing.T) {
	for name, text := range map[string]string{
		"plain":      "inputs: {a: {file: a.txt}}\ntasks: {x: {in: [a], out: o, run: cat $a > o}}\n",
		"parameters": "inputs: {p: {params: p.yaml}}\ntasks: {x: {in: [p.rate], out: o, run: echo $rate > o}}\n",
		"list":       "inputs: {l: {file: l.txt}}\ntasks: {x: {matrix: {i: {from: l}}, out: o, run: echo $i > o}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write("a.txt", "a")
			p.write("p.yaml", "rate: 3\n")
			p.write("l.txt", "u\nv\n")
			file := filepath.Join(p.dir, "e3.yaml")
			p.write("e3.yaml", "e3: 1\nname: checked\n"+text)
			want, err := p.ws.Deployer.Build(p.ctx, file, nil)
			if err != nil {
				t.Fatal(err)
			}
			ws, read, err := p.ws.Planner.CheckFile(p.ctx, "", file, nil, "")
			if ws != "checked" || read == nil || err != nil {
				t.Fatalf("CheckFile is %q, %v, %v", ws, read, err)
			}
			p.write("e3.yaml", "e3: 1\nname: checked\ntasks: {edited: {out: o, run: echo > o}}\n")
			_, built, err := p.ws.Deployer.DeployNew(p.ctx, ws, file, read)
			if err != nil || built.Hash != want.Hash {
				t.Fatalf("deployed is %+v, %v, want the package %s", built, err, want.Hash)
			}
			res, err := p.ws.Runner.Start(p.ctx, ws, workspace.StartOptions{Executor: p.executor})
			if err != nil || res.Package.Tasks[0].Name != "edited" {
				t.Errorf("the next start runs %+v, %v, want the edited file", res, err)
			}
		})
	}
}

// A cancelled call changes nothing.
func TestCancelledCalls(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	leaf := p.file("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.ws.Runner.Start(ctx, "w", workspace.StartOptions{Executor: p.executor}); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	if err := p.ws.Datasets.Set(ctx, "w", "a", leaf); !errors.Is(err, context.Canceled) {
		t.Errorf("set: %v", err)
	}
	if err := p.ws.Cleaner.Remove(ctx, "w"); !errors.Is(err, context.Canceled) {
		t.Errorf("remove: %v", err)
	}
	if got := p.read("a"); got != "a" {
		t.Errorf("a is %q", got)
	}
}

// A package file that was checked with a room that is set keeps none of it when it is deployed without.
func TestCheckedRoomIsNotKept(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.dir, "e3.yaml")
	p.write("e3.yaml", "e3: 1\nname: checked\ntasks: {x: {out: o, run: echo > o}}\n")
	want, err := p.ws.Deployer.Build(p.ctx, file, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.ws.Rooms = func(context.Context) (workspace.Rooms, error) { return workspace.RoomsOf("", "closed"), nil }
	ws, read, err := p.ws.Planner.CheckFile(p.ctx, "", file, nil, "")
	if err != nil || read == nil {
		t.Fatalf("CheckFile is %v, %v", read, err)
	}
	p.ws.Rooms = nil
	if _, built, err := p.ws.Deployer.DeployNew(p.ctx, ws, file, read); err != nil || built.Hash != want.Hash {
		t.Errorf("deployed is %+v, %v, want the package %s", built, err, want.Hash)
	}
}
