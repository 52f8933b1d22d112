//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// An evil is a forged export of a workspace "evil": a package with one input and one task that has run on it.
// Every part of it can be another.
type evil struct {
	z      *forge
	pkg    record.Package
	task   record.Task
	input  record.Leaf
	output record.Leaf
	status record.Status
	detail record.Detail
	run    record.Run
	events []events.Event
	state  record.WorkspaceState
	export record.Export
	stdout string
	stderr string
}

func newEvil(t testing.TB, path string) *evil {
	z := newForge(t, path)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v := &evil{z: z}
	v.input = record.Leaf{Kind: record.LeafFile, Hash: z.bytes([]byte("input\n")), Size: 6}
	v.output = record.Leaf{Kind: record.LeafFile, Hash: z.bytes([]byte("output\n")), Size: 7}
	v.task = record.Task{
		Shell: `cat "$a" > "$out"`, Inputs: []record.Input{{Name: "a", Path: "a.txt", Kind: record.KindFile}},
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "out.txt", Kind: record.KindFile}}},
	}
	v.pkg = record.Package{Name: z.name, Version: "1", Inputs: []record.PackageInput{{Name: "a", Source: record.FromFile, Location: "a.txt"}},
		Tasks: []record.PackageTask{{Name: "t", Output: record.KindFile, Wiring: []record.Wire{{Kind: record.WireInput, Name: "a"}}}}}
	v.status = record.Status{State: record.Success, ExecutionID: idOf(1), StartedAt: now, CompletedAt: now.Add(time.Second)}
	v.detail = record.Detail{Attempt: 1, Worker: "eve@gamma", RunID: idOf(2), Workspace: z.name, Task: "t"}
	v.run = record.Run{RunID: idOf(2), WorkspaceName: z.name, PackageRef: z.name + "@1", StartedAt: now, CompletedAt: now.Add(2 * time.Second), State: record.RunCompleted,
		Summary: record.Summary{Total: 1, Completed: 1}}
	v.events = []events.Event{{Type: events.RunStarted, Data: &events.Data{Package: z.name + "@1"}}, {Type: events.TaskStarted, Task: "t", Execution: idOf(1)},
		{Type: events.TaskCompleted, Task: "t", Execution: idOf(1)}, {Type: events.RunCompleted, Data: &events.Data{Summary: &events.Summary{Total: 1, Completed: 1}}}}
	v.state = record.WorkspaceState{PackageName: z.name, PackageVersion: "1", DeployedAt: now, RootUpdatedAt: now, CurrentRunID: idOf(2)}
	v.export = record.Export{By: "eve@gamma", Repository: "evil", At: now, Version: "9"}
	return v
}

// write puts the parts together.
func (v *evil) write() {
	z := v.z
	z.t.Helper()
	v.agree()
	t := &v.pkg.Tasks[0]
	t.Task = z.bytes(v.task.Encode())
	v.pkg.Inputs[0].Default = v.input
	v.state.PackageHash = z.bytes(v.pkg.Encode())
	inputs := record.Node{{Name: v.pkg.Inputs[0].Name, Leaf: v.input}}
	tasks := record.Node{{Name: t.Name, Leaf: v.output}}
	node := func(n record.Node) record.Leaf {
		return record.Leaf{Kind: record.LeafNode, Hash: z.bytes(n.Encode())}
	}
	top := node(inputs)
	v.state.RootHash = z.bytes(record.Node{{Name: "inputs", Leaf: top}, {Name: "tasks", Leaf: node(tasks)}}.Encode())
	v.run.InputSnapshot = z.bytes(record.Node{{Name: "inputs", Leaf: top}}.Encode())
	v.run.OutputSnapshot = v.state.RootHash
	v.run.Tasks = record.NewRunTasks(func(yield func(record.TaskExecution) bool) {
		yield(record.TaskExecution{Task: t.Name, ExecutionID: v.status.ExecutionID})
	})
	h, err := objectstore.ParseHash(v.input.Hash)
	z.must(err)
	v.status.InputHashes = []string{v.input.Hash}
	folder := "executions/" + t.Task + "/" + executions.InputsHash([]objectstore.Hash{h}).String() + "/" + v.status.ExecutionID + "/"
	if v.status.State == record.Success {
		v.status.OutputHash = v.output.Hash
		z.add(folder+"output", v.output.Hash+"\n")
	}
	z.add(folder+"detail.beast2", string(v.detail.Encode()))
	z.add(folder+"status.beast2", string(v.status.Encode()))
	z.add(folder+"stdout.txt", v.stdout)
	z.add(folder+"stderr.txt", v.stderr)
	z.add("dataflows/"+v.run.WorkspaceName+"/"+v.run.RunID+".beast2", string(v.run.Encode()))
	var lines []byte
	for i := range v.events {
		e := &v.events[i]
		e.Seq, e.Run, e.Workspace, e.Time = int64(i+1), v.run.RunID, v.run.WorkspaceName, time.UnixMilli(1_700_000_000_000)
		lines, err = events.AppendLine(lines, e)
		z.must(err)
	}
	z.add("events/"+v.run.WorkspaceName+"/"+v.run.RunID+".ndjson", string(lines))
	z.add("packages/"+v.state.PackageName+"/"+v.state.PackageVersion, v.state.PackageHash+"\n")
	z.add("workspaces/"+v.run.WorkspaceName+".beast2", string(v.state.Encode()))
	z.add("provenance.beast2", string(v.export.Encode()))
}

// agree has the run and its events say the same of the execution: else the zip would be refused before a command can
// look at it.
func (v *evil) agree() {
	task := v.pkg.Tasks[0].Name
	s := &v.run.Summary
	*s = record.Summary{Total: 1, Completed: 1}
	end := &v.events[len(v.events)-1]
	end.Data = &events.Data{}
	v.events[1].Task, v.events[2].Task, v.events[0].Data.Package = task, task, v.run.PackageRef
	if v.status.State != record.Success {
		*s = record.Summary{Total: 1, Failed: 1}
		v.run.State, v.run.FailedTask = record.RunFailed, task
		v.events[2].Type, v.events[2].Execution = events.TaskFailed, v.status.ExecutionID
		end.Type, end.Task, end.Data.Message = events.RunFailed, task, v.run.Error
	}
	end.Data.Summary = &events.Summary{Total: s.Total, Completed: s.Completed, Failed: s.Failed}
	end.Data.Duration = v.run.CompletedAt.Sub(v.run.StartedAt).Milliseconds()
}

// tree adds a directory object and returns it as a dataset.
func (v *evil) tree(entries ...tree.Entry) record.Leaf {
	v.z.t.Helper()
	data, err := tree.Encode(entries)
	v.z.must(err)
	return record.Leaf{Kind: record.LeafDir, Hash: v.z.bytes(data)}
}

// dir makes the task's output a directory.
func (v *evil) dir(output record.Leaf) {
	v.output = output
	v.task.Output.Entries[0].Kind = record.KindDir
	v.pkg.Tasks[0].Output = record.KindDir
}

func hash(t testing.TB, text string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.ParseHash(text)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// refusals are exports that the program must refuse, one of each sort; package exportimport knows more of them.
var refusals = []struct {
	name string
	make func(v *evil)
	code int
	want string
}{
	{"up", func(v *evil) { v.write(); v.z.add("../evil", "evil") }, 12, `has the segment`},
	{"absolute", func(v *evil) { v.write(); v.z.add(filepath.Join(filepath.Dir(v.z.path), "evil"), "evil") }, 12, "its name is absolute"},
	{"backslash", func(v *evil) { v.write(); v.z.add(`..\evil`, "evil") }, 12, "backslash"},
	{"drive", func(v *evil) { v.write(); v.z.add(`C:/evil`, "evil") }, 12, "drive letter"},
	{"not-text", func(v *evil) { v.write(); v.z.add("evil\xff\x1b[31m", "evil") }, 12, "not UTF-8"},
	{"long-name", func(v *evil) { v.write(); v.z.add(strings.Repeat("\x1b", 65535), "evil") }, 12, "at most 512 are allowed"},
	{"escape", func(v *evil) { v.write(); v.z.add("packages/\x1b]0;evil\a/1", "evil") }, 12, "cannot be the name of a package"},
	{"encoded", func(v *evil) { v.write(); v.z.add("packages/..%2f..%2fevil/1", "evil") }, 12, "cannot be the name of a package"},
	{"symlink", func(v *evil) {
		v.write()
		v.z.enter("objects/ab/"+strings.Repeat("0", 62), 0, 0, 0, 0, 0o120777<<16, nil)
	}, 12, "link or a special file"},
	{"device", func(v *evil) { v.write(); v.z.enter("evil", 0, 0, 0, 0, 0o060666<<16, nil) }, 12, "link or a special file"},
	{"method", func(v *evil) { v.write(); v.z.enter("evil", 99, 0, 0, 0, regularFile, nil) }, 12, "method 99"},
	{"checksum", func(v *evil) { v.write(); v.z.enter("signature.json", 0, 1, 2, 2, regularFile, []byte("{}")) }, 12, "its CRC is"},
	{"signature", func(v *evil) { v.write(); v.z.add("signature.json", "{}\n") }, 12, "bad signature"},
	{"twice", func(v *evil) { v.write(); v.z.add("provenance.beast2", "x") }, 12, "more than one entry of this name"},
	{"object", func(v *evil) { v.write(); v.z.add("objects/ab/"+strings.Repeat("0", 62), "evil") }, 12, "is corrupt"},
	{"run-id", func(v *evil) { v.run.RunID = "../../../../evil"; v.write() }, 12, `has the segment`},
	{"run-of-an-execution", func(v *evil) { v.status.ExecutionID = "evil"; v.write() }, 12, "is not a UUIDv7"},
	{"workspace", func(v *evil) { v.run.WorkspaceName = ".evil"; v.write() }, 12, "cannot be the name of a workspace"},
	{"package", func(v *evil) { v.state.PackageName = "\u202eevil"; v.write() }, 12, "cannot be the name of a package"},
	{"circle", func(v *evil) {
		v.pkg.Tasks[0].Wiring[0] = record.Wire{Kind: record.WireOutput, Name: "t"}
		v.write()
	}, 12, "t → t"},
	{"no-output", func(v *evil) { v.output.Hash = strings.Repeat("1", 64); v.write() }, 12, "not found"},
	{"no-task", func(v *evil) {
		v.write()
		v.z.add("executions/"+strings.Repeat("1", 64)+"/"+executions.InputsHash(nil).String()+"/"+idOf(7)+"/status.beast2", failure(idOf(7)))
	}, 12, "not found"},
	{"climbing-link", func(v *evil) {
		v.dir(v.tree(tree.Entry{Name: "l", Kind: tree.KindLink, Target: "../../../../../../../../etc"}))
		v.write()
	}, 12, "outside the directory"},
	{"another-size", func(v *evil) {
		v.dir(v.tree(tree.Entry{Name: "f", Kind: tree.KindFile, Hash: hash(v.z.t, v.input.Hash), Size: 1 << 60}))
		v.write()
	}, 12, "the size is said to be"},
	{"deep", func(v *evil) {
		leaf := v.tree()
		for range million(v.z.t) / 50 {
			leaf = v.tree(tree.Entry{Name: "d", Kind: tree.KindDir, Hash: hash(v.z.t, leaf.Hash)})
		}
		v.dir(leaf)
		v.write()
	}, 12, "nest deeper than 256 levels"},
	{"deep-and-torn", func(v *evil) {
		h := objectstore.Hash{1}
		for range 20_000 {
			leaf := v.tree(tree.Entry{Name: strings.Repeat("d", 100), Kind: tree.KindDir, Hash: h})
			h = hash(v.z.t, leaf.Hash)
		}
		v.dir(record.Leaf{Kind: record.LeafDir, Hash: h.String()})
		v.write()
	}, 12, "not found"},
}

// TestHostileZips imports what must be refused with the program itself.
func TestHostileZips(t *testing.T) {
	suite.Thorough(t)
	p := zipVictim(t)
	outside := func() map[string]string {
		all := map[string]string{}
		for _, dir := range []string{p.dir, filepath.Dir(p.dir), p.path("state")} {
			list, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				if strings.Contains(e.Name(), "evil") {
					all[filepath.Join(dir, e.Name())] = e.Type().String()
				}
			}
		}
		return all
	}
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			v := newEvil(t, p.path(c.name+".zip"))
			c.make(v)
			v.z.close()
			p.importEvil(t, c.code, c.want, "package", "import", ".", c.name+".zip")
			p.importEvil(t, c.code, c.want, "workspace", "import", ".", c.name+".zip", "w")
			before := p.visible()
			if r := p.e3("workspace", "import", ".", c.name+".zip", "--dry-run"); r.code != c.code {
				t.Errorf("a dry run: exit code %d\n%s", r.code, r.text())
			}
			if diff := difference(p.visible(), before); diff != "" {
				t.Errorf("a dry run has changed\n  %s", diff)
			}
			if all := outside(); len(all) > 0 {
				t.Errorf("outside of the repository there is %v", all)
			}
			os.Remove(v.z.path)
		})
	}
	// Usage, and what is no zip at all.
	p.write("text.zip", "this is no zip, but text\n")
	p.importEvil(t, 12, "no zip archive", "package", "import", ".", "text.zip")
	p.importEvil(t, 12, "the shortest archive has 22", "package", "import", ".", "t.txt")
	p.importEvil(t, 2, "there is no file", "package", "import", ".", "none.zip")
	p.importEvil(t, 2, "is not a file", "package", "import", ".", "data")
	p.importEvil(t, 2, "", "workspace", "import", ".", "text.zip", "../evil")
	check(t, p.repository())
}

// looks are commands that show an imported zip of a stranger. They end, and harm no terminal.
func (p *project) looks(t *testing.T, ws string) {
	t.Helper()
	for _, args := range [][]string{
		{"package", "list", "."}, {"workspace", "list", "."}, {"workspace", "status", ".", ws}, {"list", ".", ws}, {"run", ".", ws}, {"run", ".", ws, "--json"},
		{"logs", ".", ws + ".t"}, {"logs", ".", ws + ".t", "--json"}, {"get", ".", ws + ".tasks.t.output"}, {"get", ".", ws + ".t"},
		{"verify", "."}, {"gc", ".", "--dry-run"}, {"workspace", "export", ".", ws, "again-" + ws + ".zip"}, {"status", "."}, {"start", ".", ws},
	} {
		r := p.e3(args...)
		if r.code < 0 || strings.Contains(r.stderr, "goroutine ") {
			t.Errorf("e3 %q died:\n%s", args, r.text())
		}
		harmless(t, r.stderr)
		if raw := args[0] == "logs" || args[0] == "get" || slices.Contains(args, "--json"); !raw { // for programs, as it is
			harmless(t, r.stdout)
		}
	}
}

// accepted are exports without a fault that try to harm the terminals of readers.
var accepted = []struct {
	name string
	make func(v *evil)
	look func(t *testing.T, p *project, ws string)
}{
	{"escapes", func(v *evil) {
		const evil = "\x1b]0;evil\a\x1b[2J\r\u202e\u009b"
		v.detail.Worker, v.detail.Task, v.detail.Workspace = evil, evil, evil
		v.status.State, v.status.Message = record.Error, evil
		v.run.State, v.run.FailedTask, v.run.Error, v.run.PackageRef = record.RunFailed, evil, evil, evil
		v.run.Summary = record.Summary{Total: 1, Failed: 1}
		v.pkg.Description, v.pkg.Inputs[0].Location = evil, evil
		v.export.By, v.export.Repository, v.export.Version = evil, evil, evil
		v.stdout, v.stderr = evil+"\n", evil+"\n"
		v.events[0].Data.Package = evil
		v.events[0].Data.Process = &events.Process{Host: evil, User: evil}
		v.events[2] = events.Event{Type: events.TaskFailed, Worker: evil, Data: &events.Data{Message: evil, Reason: evil}}
	}, nil},
	{"odd-names", func(v *evil) {
		v.pkg.Tasks[0].Name, v.pkg.Inputs[0].Name = "../../evil\x1b[31m", "../evil\n"
		v.pkg.Tasks[0].Wiring[0].Name = "../evil\n"
		v.pkg.Name = "../evil"
	}, func(t *testing.T, p *project, ws string) {
		r := p.e3("get", ".", ws+".`../../evil\x1b[31m`", "-o", "got")
		harmless(t, r.stderr)
		if r.code == 0 && p.read("got") != "output\n" {
			t.Errorf("the dataset is %q", p.read("got"))
		}
	}},
	{"directory-of-all", func(v *evil) {
		leaf := v.tree(tree.Entry{Name: "f", Kind: tree.KindFile, Hash: hash(v.z.t, v.input.Hash), Size: 6})
		for range 60 {
			h := hash(v.z.t, leaf.Hash)
			leaf = v.tree(tree.Entry{Name: "a", Kind: tree.KindDir, Hash: h}, tree.Entry{Name: "b", Kind: tree.KindDir, Hash: h})
		}
		v.dir(leaf)
	}, nil},
	{"task-that-climbs", func(v *evil) {
		v.task.Shell = `echo ran; cp "$a" "$out"`
		v.task.Inputs[0].Path = "../../../../../evil-input"
		v.task.Output.Entries[0].Path = "../../../../../evil-output"
		v.status.State, v.status.ExitCode = record.Failed, 3
		v.run.State = record.RunFailed
	}, func(t *testing.T, p *project, ws string) {
		r := p.e3("start", ".", ws)
		if r.code == 0 {
			t.Errorf("a task with paths outside of its folder has run:\n%s", r.text())
		}
		found, _ := filepath.Glob(filepath.Join(filepath.Dir(p.dir), "evil-*"))
		inside, _ := filepath.Glob(p.path("evil-*"))
		if len(found)+len(inside) > 0 {
			t.Errorf("it has made %q", append(found, inside...))
		}
	}},
	{"secrets", func(v *evil) {
		v.task.Env = []record.EnvVar{{Name: "PATH=x", Value: "y"}, {Name: "LD_PRELOAD", Value: "/evil\x00"}}
		v.status.State, v.status.ExitCode = record.Failed, 3
	}, nil},
	{"numbers", func(v *evil) {
		v.detail.Attempt, v.detail.UserCPU, v.detail.PeakRSS = -1<<63, 1<<62, -1<<63
		v.status.StartedAt, v.status.CompletedAt = time.UnixMilli(1<<62), time.UnixMilli(-1<<62)
		v.run.StartedAt, v.run.CompletedAt = time.UnixMilli(1<<55), time.UnixMilli(-1<<55)
		v.pkg.Tasks[0].Policy = record.Policy{Timeout: 1, Retries: -5, Memory: -1, Priority: -1 << 63, CPU: 1e300}
		v.output.Size = -1
		v.export.At = time.UnixMilli(1 << 60)
	}, nil},
}

// TestHostileImports takes in what is in order and looks at it: nothing that was imported can do more than be read.
func TestHostileImports(t *testing.T) {
	for _, c := range accepted {
		t.Run(c.name, func(t *testing.T) {
			p := zipVictim(t)
			v := newEvil(t, p.path(c.name+".zip"))
			c.make(v)
			v.write()
			v.z.close()
			p.importEvil(t, 0, "", "workspace", "import", ".", c.name+".zip")
			ws := c.name
			p.looks(t, ws)
			if c.look != nil {
				c.look(t, p, ws)
			}
			os.Remove(v.z.path)
		})
	}
}
