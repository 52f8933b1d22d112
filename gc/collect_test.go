package gc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/workspace"
)

// tester is the part of testing.TB that a house uses; rapid.T has it too.
type tester interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// A house is a repository with a project beside it. Each visit acts as a separate process for the repository: its
// objects are young until the visit ends.
type house struct {
	tester
	root string // of the repository
	dir  string // of the project
	*repo.Repo
	executor *executions.Executor // of this visit
}

func newHouse(t tester, dir string) *house {
	t.Helper()
	root, err := repo.Create(filepath.Join(dir, repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	h := &house{tester: t, root: root, dir: dir}
	h.enter()
	return h
}

func (h *house) enter() {
	h.Helper()
	r, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
	h.must(err)
	h.Repo, h.executor = r, nil
}

// again ends the visit and begins another, once the file system's clock has moved on.
func (h *house) again() {
	h.Helper()
	h.must(h.Repo.Close())
	probe := filepath.Join(h.dir, "probe")
	var first time.Time
	for {
		h.must(os.WriteFile(probe, []byte{0}, 0o644))
		fi, err := os.Stat(probe)
		h.must(err)
		if first.IsZero() {
			first = fi.ModTime()
		}
		h.must(os.Remove(probe))
		if fi.ModTime().After(first) {
			break
		}
	}
	h.enter()
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *house) stores() gc.Stores {
	return gc.Stores{Records: h.Records, Objects: h.Objects, Executions: h.Executions, Jobs: h.Queue(), Now: time.Now, Holder: h.Workspaces.Holder, By: "me@here"}
}

// collect makes a visit that collects.
func (h *house) collect(o gc.Options) *gc.Report {
	h.Helper()
	h.again()
	report, err := gc.Collect(h.Context(), h.stores(), o)
	h.must(err)
	return report
}

func (h *house) put(text string) objectstore.Hash {
	h.Helper()
	hash, err := h.Objects.PutBytes(h.Context(), []byte(text))
	h.must(err)
	return hash
}

func (h *house) has(hash objectstore.Hash) bool {
	h.Helper()
	missing, err := h.Objects.Missing(h.Context(), []objectstore.Hash{hash})
	h.must(err)
	return len(missing) == 0
}

// objects returns the sizes of all objects.
func (h *house) objects() map[objectstore.Hash]int64 {
	h.Helper()
	all := map[objectstore.Hash]int64{}
	for e, err := range h.Objects.Walk(h.Context()) {
		h.must(err)
		all[e.Hash] = e.Size
	}
	return all
}

func (h *house) write(name, text string) {
	h.Helper()
	path := filepath.Join(h.dir, name)
	h.must(os.MkdirAll(filepath.Dir(path), 0o755))
	h.must(os.WriteFile(path, []byte(text), 0o644))
}

// deploy deploys a package file in a workspace, and makes the workspace if necessary.
func (h *house) deploy(ws string, lines ...string) {
	h.Helper()
	h.write("e3.yaml", "e3: 1\nname: p\n"+strings.Join(lines, "\n")+"\n")
	if err := h.Workspaces.Create(h.Context(), ws); !errors.Is(err, workspace.ErrExists) {
		h.must(err)
	}
	_, err := h.Workspaces.Deployer.DeployFile(h.Context(), ws, filepath.Join(h.dir, "e3.yaml"))
	h.must(err)
}

func (h *house) start(ws string) *workspace.RunResult {
	h.Helper()
	res, err := h.Workspaces.Runner.Start(h.Context(), ws, h.options())
	h.must(err)
	return res
}

// options returns the options of a start in this visit.
func (h *house) options() workspace.StartOptions {
	if h.executor == nil {
		h.executor = executions.NewExecutor(h.Executions, h.Objects, h.Records, commands{}, executions.Options{
			Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: h.Scratch, Now: time.Now,
		})
	}
	return workspace.StartOptions{Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1}, Executor: h.executor}
}

// commands understands "fail", and "make <output> <text>", where an output that ends with a slash becomes a directory
// of two files.
type commands struct{}

func (commands) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	words := strings.Fields(spec.Argv[len(spec.Argv)-1])
	if words[0] == "fail" {
		return runner.Result{ExitCode: 1}, nil
	}
	files := map[string]string{words[1]: words[2]}
	if out, isDir := strings.CutSuffix(words[1], "/"); isDir {
		files = map[string]string{out + "/" + words[2]: words[2], out + "/sub/same": "same"}
	}
	for name, text := range files {
		path := filepath.Join(spec.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return runner.Result{}, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return runner.Result{}, err
		}
	}
	return runner.Result{}, nil
}

const inputs = "inputs: {file: {file: data.txt}, images: {dir: images}, n: {value: [1, 2]}}"

// project writes the files that inputs name.
func (h *house) project(content string) {
	h.Helper()
	h.write("data.txt", content)
	h.write("images/a", "a of "+content)
	h.write("images/deep/b", "b of "+content)
}

func TestCollectKeepsWhatIsNeeded(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.project("first")
	lines := []string{inputs, `tasks:`,
		`  one: {in: [file, n], out: o, run: make o one}`,
		`  two: {in: [images], out: d/, run: make d/ two}`,
		`  bad: {in: [images], out: o, run: fail}`}
	h.deploy("w", lines...)
	if res := h.start("w"); res.Run.State != record.RunFailed || res.Run.Summary.Completed != 2 {
		t.Fatalf("run: got %s with %d tasks completed, want failed with 2", res.Run.State, res.Run.Summary.Completed)
	}
	// Executions of old inputs stay, with the directory objects of these inputs but without their content.
	h.project("two")
	h.deploy("w", lines...) // otherwise the package would hold the inputs
	h.start("w")
	h.again()
	old, oldDeep := objectstore.Sum([]byte("first")), objectstore.Sum([]byte("b of first"))
	garbage := h.put("nobody needs this")
	if !h.has(old) || !h.has(oldDeep) {
		t.Fatal("the old inputs are gone before anything was collected")
	}
	dry := h.collect(gc.Options{DryRun: true})
	if !h.has(old) || !h.has(garbage) {
		t.Error("a dry run has removed objects")
	}
	report := h.collect(gc.Options{})
	dry.DryRun = false
	if diff := cmp.Diff(dry, report); diff != "" {
		t.Errorf("the dry run has said something else (-dry +real):\n%s", diff)
	}
	for name, hash := range map[string]objectstore.Hash{"file": old, "entry": objectstore.Sum([]byte("a of first")), "deep entry": oldDeep, "garbage": garbage} {
		if h.has(hash) {
			t.Errorf("%s: still there", name)
		}
	}
	h.check()
	after := h.objects()
	var sum int64
	for _, size := range after {
		sum += size
	}
	if want := (gc.Amount{Objects: int64(len(after)), Bytes: sum}); report.Live != want {
		t.Errorf("live: got %+v, want %+v", report.Live, want)
	}
	if report.Collected.Objects < 4 || report.Young != (gc.Amount{}) || report.Missing != 0 || len(report.Warnings) > 0 {
		t.Errorf("report: got %+v, want 4 objects or more collected, nothing young, missing or odd", report)
	}
	// Nothing runs again.
	if res := h.start("w"); res.Run.Summary.Cached != 2 {
		t.Errorf("after the collection: got %d tasks cached, want 2", res.Run.Summary.Cached)
	}
}

func TestCollectSparesTheYoung(t *testing.T) {
	h := newHouse(t, t.TempDir())
	old := h.put("old")
	h.again()
	worker, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
	h.must(err)
	defer worker.Close()
	young, err := worker.Objects.PutBytes(t.Context(), []byte("young"))
	h.must(err)
	began, err := worker.Records.SessionBegan(t.Context())
	h.must(err)
	report := h.collect(gc.Options{})
	if h.has(old) || !h.has(young) {
		t.Errorf("old object there: %v, young: %v; want only the young one", h.has(old), h.has(young))
	}
	if report.Young != (gc.Amount{Objects: 1, Bytes: 5}) || report.Sessions != 1 || !report.OldestSession.Equal(began) {
		t.Errorf("report: got %+v, want one young object and the session of %s", report, began)
	}
	h.must(worker.Close())
	report = h.collect(gc.Options{})
	if h.has(young) || report.Collected.Objects != 1 || report.Sessions != 0 || !report.OldestSession.IsZero() {
		t.Errorf("once the session is over: got %+v, want the object collected", report)
	}
}

func TestCollectKeepsWhatIsProtected(t *testing.T) {
	h := newHouse(t, t.TempDir())
	file := h.put("protected")
	data, err := tree.Encode(tree.Entries{{Name: "f", Kind: tree.KindFile, Hash: file, Size: 9}})
	h.must(err)
	dir := h.put(string(data))
	h.again()
	worker, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
	h.must(err)
	defer worker.Close()
	release, err := worker.Records.Protect(t.Context(), []string{"dir " + dir.String()})
	h.must(err)
	if report := h.collect(gc.Options{}); report.Live.Objects != 2 || !h.has(file) {
		t.Errorf("got %+v, want both objects live", report)
	}
	release()
	if report := h.collect(gc.Options{}); report.Collected.Objects != 2 {
		t.Errorf("once it is released: got %+v, want both collected", report)
	}
	if _, err := worker.Records.Protect(t.Context(), []string{"riddle " + dir.String()}); err != nil {
		t.Fatal(err)
	}
	garbage := h.put("garbage")
	h.again()
	if _, err := gc.Collect(t.Context(), h.stores(), gc.Options{}); err == nil || !h.has(garbage) {
		t.Errorf("a name of an unknown kind: got %v, want an error and nothing removed", err)
	}
}

// No live process can have found an execution that was pruned before the process began. The time of another machine's
// clock is no evidence for that.
func TestCollectWhatWasPrunedBefore(t *testing.T) {
	for by, want := range map[string]int64{"you@here": 0, "me@there": 5} {
		h := newHouse(t, t.TempDir())
		h.project("x")
		h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: d/, run: make d/ one}")
		h.start("w")
		h.must(h.Workspaces.Cleaner.Remove(t.Context(), "w"))
		h.forgetEvents("w")
		curator := executions.NewCurator(h.Executions, h.Records, func() time.Time { return time.Now().Add(-time.Second) })
		for e, err := range h.Executions.All(t.Context()) {
			h.must(err)
			_, err = curator.Prune(t.Context(), e.Key.Task, []executions.Victim{e.Victim()}, by, "test")
			h.must(err)
		}
		worker, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
		h.must(err)
		_, err = worker.Records.SessionBegan(t.Context())
		h.must(err)
		h.again()
		if report := h.collect(gc.Options{}); report.Live.Objects != want || int64(len(h.objects())) != want {
			t.Errorf("pruned by %s: got %+v, want %d objects to be left", by, report, want)
		}
		h.must(worker.Close())
	}
}

// A process that was live when an execution was pruned may have found it before, and may still name its output.
func TestCollectKeepsWhatWasJustPruned(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.project("x")
	h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: d/, run: make d/ one}")
	h.start("w")
	h.must(h.Workspaces.Cleaner.Remove(t.Context(), "w"))
	h.forgetEvents("w")
	h.again()
	worker, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
	h.must(err)
	defer worker.Close()
	_, err = worker.Records.SessionBegan(t.Context())
	h.must(err)
	curator := executions.NewCurator(h.Executions, h.Records, time.Now)
	for e, err := range h.Executions.All(t.Context()) {
		h.must(err)
		_, err = curator.Prune(t.Context(), e.Key.Task, []executions.Victim{e.Victim()}, "me", "test")
		h.must(err)
	}
	// The task, the directory that it made, one in it, and their two files.
	if report := h.collect(gc.Options{}); report.Live.Objects != 5 || !h.has(objectstore.Sum([]byte("same"))) {
		t.Errorf("got %+v, want what the task has made to be live", report)
	}
	h.must(worker.Close())
	if report := h.collect(gc.Options{}); report.Live.Objects != 0 || len(h.objects()) != 0 {
		t.Errorf("once the session is over: got %+v, want nothing left", report)
	}
}

// forgetEvents removes the events of a workspace.
func (h *house) forgetEvents(ws string) {
	h.Helper()
	for key, err := range h.Records.ListStreams(h.Context(), refstore.Query{Partition: "EVENTS/" + ws}) {
		h.must(err)
		h.must(h.Records.Remove(h.Context(), key))
	}
}

// The nodes of a run's inputs and outputs stay as long as its events; the datasets do not. The nodes may be gone
// already, and events may hold anything.
func TestCollectKeepsWhatEventsName(t *testing.T) {
	h := newHouse(t, t.TempDir())
	lines := []string{inputs, `tasks:`, `  one: {in: [file], out: o, run: make o one}`}
	h.project("first")
	h.deploy("w", lines...)
	first := h.start("w").Run
	h.project("second")
	h.deploy("w", lines...)
	h.start("w")
	h.again()
	nodes := map[objectstore.Hash]bool{}
	h.snapshot(first.InputSnapshot, nodes)
	h.snapshot(first.OutputSnapshot, nodes)
	if len(nodes) != 4 { // two roots, inputs, tasks
		t.Fatalf("the snapshots have %d nodes, want 4", len(nodes))
	}
	file := objectstore.Sum([]byte("first"))
	h.collect(gc.Options{})
	h.check()
	odd := h.put("no node")
	log := events.Create(h.Records, "w", "018f3b4c-9a2d-7def-8abc-123456789012", time.Now)
	log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: odd.String()}})
	log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{Outputs: strings.Repeat("0", 64)}})
	h.must(log.Close())
	h.must(h.Records.Append(t.Context(), refstore.Key{Partition: "EVENTS/w", Sort: "018f3b4c-9a2d-7def-8abc-123456789013"}, 0, []byte("what\n")))
	h.again()
	if r := h.collect(gc.Options{}); len(r.Warnings) > 0 || r.Missing != 0 {
		t.Errorf("got %+v, want no warnings", r)
	}
	for n := range nodes {
		if !h.has(n) {
			t.Errorf("node %s of a run whose events are here is gone", n)
		}
	}
	if h.has(file) {
		t.Error("a dataset stays because events name a node with it")
	}
	h.forgetEvents("w")
	h.collect(gc.Options{})
	gone := 0
	for n := range nodes {
		if !h.has(n) {
			gone++
		}
	}
	if gone < 3 || h.has(odd) {
		t.Errorf("without the events %d of the nodes are gone, want those that no other run has", gone)
	}
}

// If the target of a reference is unknown, the collection removes nothing.
func TestCollectRefusesWhatIsUnsafe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func(h *house, state *record.WorkspaceState)
		want   string // "" : it is collected
	}{
		{"workspace record", func(h *house, _ *record.WorkspaceState) {
			h.must(os.WriteFile(filepath.Join(h.root, "workspaces", "w.beast2"), []byte("torn"), 0o644))
		}, "workspace w"},
		{"package record", func(h *house, _ *record.WorkspaceState) {
			h.must(os.MkdirAll(filepath.Join(h.root, "packages", "p"), 0o755))
			h.must(os.WriteFile(filepath.Join(h.root, "packages", "p", "1"), []byte("torn"), 0o644))
		}, "package p@1"},
		{"tombstones", func(h *house, _ *record.WorkspaceState) {
			h.must(os.MkdirAll(filepath.Join(h.root, "tombstones"), 0o755))
			name := objectstore.Sum(nil).String() + ".rec"
			h.must(os.WriteFile(filepath.Join(h.root, "tombstones", name), []byte("torn"), 0o644))
		}, "TOMBSTONE"},
		{"corrupt package", func(h *house, s *record.WorkspaceState) { h.corrupt(s.PackageHash) }, "workspace w: package"},
		{"missing package", func(h *house, s *record.WorkspaceState) { h.remove(s.PackageHash) }, "workspace w: package"},
		{"corrupt tree", func(h *house, s *record.WorkspaceState) { h.corrupt(s.RootHash) }, "workspace w: tree"},
		{"missing node", func(h *house, s *record.WorkspaceState) { h.remove(h.node(s.RootHash, "inputs")) }, "workspace w: tree/inputs"},
		{"corrupt directory", func(h *house, s *record.WorkspaceState) {
			h.corrupt(h.node(h.node(s.RootHash, "inputs"), "images"))
		}, "images"},
		{"missing directory", func(h *house, s *record.WorkspaceState) {
			h.remove(h.node(h.node(s.RootHash, "inputs"), "images"))
		}, ""},
		{"missing file", func(h *house, s *record.WorkspaceState) { h.remove(h.node(h.node(s.RootHash, "inputs"), "file")) }, ""},
		{"run record", func(h *house, s *record.WorkspaceState) {
			h.must(os.WriteFile(filepath.Join(h.root, "dataflows", "w", s.CurrentRunID+".beast2"), []byte("torn"), 0o644))
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, t.TempDir())
			h.project("x")
			h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: o, run: make o one}")
			h.start("w")
			state, err := h.Workspaces.State(t.Context(), "w")
			h.must(err)
			garbage := h.put("garbage")
			h.again()
			tt.damage(h, &state.WorkspaceState)
			report, err := gc.Collect(t.Context(), h.stores(), gc.Options{})
			if tt.want == "" {
				if err != nil || h.has(garbage) || report.Missing+len(report.Warnings) == 0 {
					t.Errorf("got %+v, %v; want the garbage collected and a warning", report, err)
				}
				return
			}
			var unsafe *gc.UnsafeError
			if !errors.As(err, &unsafe) || !strings.Contains(err.Error(), tt.want) || !h.has(garbage) {
				t.Errorf("got %v, garbage there: %v; want an UnsafeError that names %q and nothing removed", err, h.has(garbage), tt.want)
			}
		})
	}
}

func (h *house) path(hash string) string { return filepath.Join(h.root, "objects", hash[:2], hash[2:]) }

func (h *house) remove(hash string) {
	h.Helper()
	h.must(os.Remove(h.path(hash)))
}

func (h *house) corrupt(hash string) {
	h.Helper()
	h.remove(hash)
	h.must(os.WriteFile(h.path(hash), []byte("corrupt"), 0o444))
}

// node is the hash of an entry of a node.
func (h *house) node(hash, name string) string {
	h.Helper()
	leaf, ok := h.readNode(hash).Get(name)
	if !ok {
		h.Fatal("node has no " + name)
	}
	return leaf.Hash
}

func (h *house) readNode(hash string) record.Node {
	h.Helper()
	parsed, err := objectstore.ParseHash(hash)
	h.must(err)
	data, err := objectstore.ReadAll(h.Context(), h.Objects, parsed, 1<<30)
	h.must(err)
	node, err := record.DecodeNode(data)
	h.must(err)
	return node
}

func TestCollectOneAtATime(t *testing.T) {
	h := newHouse(t, t.TempDir())
	defer h.Close()
	var inner error
	_, err := gc.Collect(t.Context(), h.stores(), gc.Options{Progress: func(gc.Progress) {
		if inner == nil {
			other, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
			h.must(err)
			defer other.Close()
			s := h.stores()
			s.Records = other.Records
			_, inner = gc.Collect(t.Context(), s, gc.Options{})
			if _, err := gc.Collect(t.Context(), s, gc.Options{DryRun: true}); err != nil {
				t.Errorf("a dry run beside it: %v", err)
			}
		}
	}})
	h.must(err)
	var busy *gc.BusyError
	if !errors.As(inner, &busy) || !strings.HasPrefix(busy.Holder, fmt.Sprintf("process %d", os.Getpid())) || time.Since(busy.Since) > time.Minute {
		t.Errorf("the second collector: got %v, want a BusyError with this process", inner)
	}
}

func TestCollectCutOff(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.project("x")
	h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: o, run: make o one}")
	h.start("w")
	for i := range 2000 {
		h.put(fmt.Sprint("garbage ", i))
	}
	for _, at := range []int{0, 1, 2, 50, 200} { // calls of Progress
		h.again()
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := gc.Collect(ctx, h.stores(), gc.Options{Progress: func(gc.Progress) {
			if calls == at {
				cancel()
			}
			calls++
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cut off at %d: got %v, want %v", at, err, context.Canceled)
		}
		h.check()
	}
	h.collect(gc.Options{})
	if diff := cmp.Diff(len(h.model()), len(h.objects())); diff != "" {
		t.Errorf("objects in the end (-want +got):\n%s", diff)
	}
}

// check fails if an object is missing that the model needs.
func (h *house) check() {
	h.Helper()
	all := h.objects()
	for hash := range h.model() {
		if _, ok := all[hash]; !ok {
			h.Errorf("object %s is needed and gone", hash)
		}
	}
}

func TestCollectLeftovers(t *testing.T) {
	h := newHouse(t, t.TempDir())
	key := executions.NewKey(objectstore.Sum(nil), nil)
	h.must(os.MkdirAll(filepath.Join(h.root, "executions", key.String(), "0190f4c2-0000-7000-8000-000000000000"), 0o755))
	if report := h.collect(gc.Options{}); report.Leftovers == 0 {
		t.Errorf("got %+v, want leftovers removed", report)
	}
}

// During sets, deployments and runs, garbage is collected all the time: no needed object is removed.
func TestCollectBesideOthers(t *testing.T) {
	h := newHouse(t, t.TempDir())
	h.project("x")
	h.deploy("a", inputs, "tasks:", "  one: {in: [n, file], out: d/, run: make d/ one}")
	h.deploy("b", inputs, "tasks:", "  one: {in: [n, file], out: d/, run: make d/ one}")
	h.again()
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	done := make(chan struct{})
	var workers, collector sync.WaitGroup
	// Each visit sets the values of two rounds before, so that objects are collected and put again.
	for _, ws := range []string{"a", "b"} {
		workers.Go(func() {
			for i := range rounds {
				r, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
				if err != nil {
					t.Error(err)
					return
				}
				visit := &house{tester: t, root: h.root, dir: h.dir, Repo: r}
				if err := visit.change(ws, i); err != nil {
					t.Errorf("workspace %s, round %d: %v", ws, i, err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	collected := 0
	collector.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			r, err := repo.Open(context.Background(), h.root, repo.Options{Version: "test"})
			if err != nil {
				t.Error(err)
				return
			}
			visit := &house{tester: t, root: h.root, dir: h.dir, Repo: r}
			report, err := gc.Collect(t.Context(), visit.stores(), gc.Options{})
			if err != nil {
				t.Errorf("collect: %v", err)
			} else {
				collected += int(report.Collected.Objects)
				if report.Missing > 0 || len(report.Warnings) > 0 {
					t.Errorf("collect: %d objects missing, warnings %v", report.Missing, report.Warnings)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	workers.Wait()
	close(done)
	collector.Wait()
	h.check()
	h.collect(gc.Options{})
	h.check()
	t.Logf("%d objects were collected meanwhile", collected)
}

// change sets, unsets or runs a workspace, and reads the value that it has set.
func (h *house) change(ws string, i int) error {
	ctx := h.Context()
	leaf, err := h.Workspaces.Datasets.PutValue(ctx, []any{int64(i % 3), ws})
	if err != nil {
		return err
	}
	if err := h.Workspaces.Datasets.Set(ctx, ws, "n", leaf); err != nil {
		return err
	}
	switch i % 4 {
	case 1:
		leaf, err := h.Workspaces.Datasets.PutStream(ctx, strings.NewReader(fmt.Sprint("stream ", i%3, ws)))
		if err != nil {
			return err
		}
		if err := h.Workspaces.Datasets.Set(ctx, ws, "file", leaf); err != nil {
			return err
		}
	case 2:
		if _, err := h.Workspaces.Datasets.Unset(ctx, ws, "file"); err != nil {
			return err
		}
	case 3:
		h.start(ws)
	}
	hash, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return err
	}
	_, err = h.Objects.Stat(ctx, hash)
	return err
}

// model finds the needed objects in the simplest way: it reads every record and every object, again and again.
func (h *house) model() map[objectstore.Hash]bool {
	h.Helper()
	need := map[objectstore.Hash]bool{}
	ctx := h.Context()
	hash := func(s string) objectstore.Hash {
		parsed, err := objectstore.ParseHash(s)
		h.must(err)
		return parsed
	}
	var dir func(top objectstore.Hash, files bool)
	dir = func(top objectstore.Hash, files bool) {
		entries, err := tree.Read(ctx, h.Objects, top)
		if !files && errors.Is(err, objectstore.ErrNotFound) {
			return
		}
		h.must(err)
		need[top] = true
		for _, e := range entries {
			switch {
			case e.Kind == tree.KindDir:
				dir(e.Hash, files)
			case e.Kind == tree.KindFile && files:
				need[e.Hash] = true
			}
		}
	}
	var leaf func(l record.Leaf, data bool)
	leaf = func(l record.Leaf, data bool) {
		switch {
		case l.Kind == record.LeafNode:
			need[hash(l.Hash)] = true
			for _, e := range h.readNode(l.Hash) {
				leaf(e.Leaf, data)
			}
		case l.Kind == record.LeafUnassigned || !data:
		case l.Kind == record.LeafDir:
			dir(hash(l.Hash), true)
		default:
			need[hash(l.Hash)] = true
		}
	}
	pkg := func(s string) {
		p, err := h.Workspaces.Packages.Load(ctx, s)
		h.must(err)
		need[hash(s)] = true
		for _, t := range p.Tasks {
			need[hash(t.Task)] = true
		}
		for _, in := range p.Inputs {
			leaf(in.Default, true)
		}
	}
	packages, err := h.Workspaces.Packages.List(ctx)
	h.must(err)
	for _, p := range packages {
		pkg(p.Hash)
	}
	names, err := h.Workspaces.List(ctx)
	h.must(err)
	for _, name := range names {
		s, err := h.Workspaces.State(ctx, name)
		h.must(err)
		if s.Deployed {
			pkg(s.PackageHash)
			leaf(record.Leaf{Kind: record.LeafNode, Hash: s.RootHash}, true)
		}
		for rec, err := range h.Records.List(ctx, refstore.Query{Partition: "DATAFLOW/" + name}) {
			h.must(err)
			run, err := record.DecodeRun(rec.Value)
			h.must(err)
			for _, s := range []string{run.InputSnapshot, run.OutputSnapshot} {
				if s != "" {
					h.snapshot(s, need)
				}
			}
		}
	}
	for ws, err := range h.Records.List(ctx, refstore.Query{Partition: "RUNS", KeysOnly: true}) {
		h.must(err)
		for key, err := range h.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws.Key.Sort}) {
			h.must(err)
			for e, err := range events.Read(ctx, h.Records, ws.Key.Sort, key.Sort) {
				h.must(err)
				if e.Data == nil {
					continue
				}
				for _, s := range []string{e.Data.Inputs, e.Data.Outputs} {
					if s != "" {
						h.snapshot(s, need)
					}
				}
			}
		}
	}
	for e, err := range h.Executions.All(ctx) {
		h.must(err)
		data, err := objectstore.ReadAll(ctx, h.Objects, e.Key.Task, 1<<20)
		h.must(err)
		need[e.Key.Task] = true
		task, err := record.DecodeTask(data)
		h.must(err)
		for i, in := range task.Inputs {
			switch made := hash(e.InputHashes[i]); {
			case in.Kind == record.KindDir:
				dir(made, false)
			case in.Made() && h.has(made):
				need[made] = true
			}
		}
		if e.State != record.Success {
			continue
		}
		if task.Output.Multi || task.Output.Entries[0].Kind == record.KindDir {
			dir(hash(e.OutputHash), true)
		} else {
			need[hash(e.OutputHash)] = true
		}
	}
	return need
}

// snapshot adds the existing nodes of a snapshot.
func (h *house) snapshot(s string, need map[objectstore.Hash]bool) {
	parsed, err := objectstore.ParseHash(s)
	h.must(err)
	if !h.has(parsed) {
		return
	}
	need[parsed] = true
	for _, e := range h.readNode(s) {
		if e.Kind == record.LeafNode {
			h.snapshot(e.Hash, need)
		}
	}
}
