package ui_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/compare"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/jobs/queue"
	"e3/internal/packages"
	"e3/internal/repo"
	"e3/internal/ui"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const runID = "0194fdc2-fa2f-7cc0-81d3-ff12045b73c8"

// memory is a store in memory with the further methods of a workspace's store.
type memory struct{ *mem.Store }

func (m memory) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return m.Put(ctx, r)
}

func (memory) Sync(context.Context) error { return nil }

// desk is a workspace that a test has made by hand.
type desk struct {
	pkg  string
	live bool
	took map[string]time.Duration // on record
}

func (d *desk) State(_ context.Context, ws string) (*record.WorkspaceState, error) {
	if ws != "prod" {
		return nil, &human.UnknownError{What: "workspace", Name: ws, Known: []string{"prod"}}
	}
	return &record.WorkspaceState{PackageHash: d.pkg}, nil
}

func (d *desk) AtWork(context.Context, string, *record.Run) (bool, refstore.Heard, error) {
	return d.live, refstore.Heard{}, nil
}

func (d *desk) Expected(context.Context, string) func(string) time.Duration {
	return func(task string) time.Duration { return d.took[task] }
}

func (d *desk) Queued(context.Context, string, string) ([]runview.Queued, error) { return nil, nil }

// answers are a test's answers of other packages: a workspace, and queues with their unfinished jobs.
type answers struct {
	queues []queue.State
	jobs   map[string][]queue.Job // by queue
}

func (answers) Names(context.Context) ([]string, error) { return []string{"prod"}, nil }
func (answers) Status(context.Context, string) (*workspace.Status, error) {
	return status("prod", dataflow.Current, dataflow.Stale), nil
}
func (a answers) Queues(context.Context) (queue.States, error) {
	return queue.States{Queues: a.queues}, nil
}
func (a answers) InTurn(_ context.Context, queues ...string) (queue.Rows, []error, error) {
	return queue.RowsOf(a.jobs[queues[0]]), nil, nil
}
func (answers) Garbage(context.Context) (*gc.Report, error) { return &gc.Report{}, nil }

// status is that of a workspace with a package, whose outputs have these states.
func status(ws string, outputs ...dataflow.Freshness) *workspace.Status {
	st := &workspace.Status{Workspace: ws, Package: &workspace.ListedPackage{Ref: packages.Ref{Name: "demo", Version: "1.0.0"}}}
	for i, is := range outputs {
		st.Datasets = append(st.Datasets, workspace.DatasetRow{Name: string(rune('a' + i)), Output: true, Freshness: is})
	}
	return st
}

// running is the rows of jobs that a worker has.
func running(jobs ...queue.Job) (list []queue.WorkRow) {
	for i := range jobs {
		list = append(list, queue.WorkRow{Row: queue.RowOf(&jobs[i]), Work: &queue.Work{Job: jobs[i]}})
	}
	return list
}

// A bench is a repository in memory with one workspace, whose runs tests write by hand: no package file could name its tasks so.
type bench struct {
	t       testing.TB
	objects *objectstore.Dir
	records memory
	desk    *desk
	stores  ui.Stores
	pkg     record.Package
	log     *events.Log
	began   time.Time
	id      string // of the run that is written next
	limits  *events.Limits

	ctx    context.Context
	stop   context.CancelFunc
	server *ui.Server
	front  *httptest.Server
	client *http.Client
}

// newObjects returns the objects of a new repository.
func newObjects(t testing.TB) *objectstore.Dir {
	t.Helper()
	root, err := repo.Create(t.TempDir() + "/" + repo.DirName)
	if err != nil {
		t.Fatal(err)
	}
	r, err := repo.Open(t.Context(), root, repo.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r.Objects.(*objectstore.Dir)
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{
		t: t, objects: newObjects(t), records: memory{mem.New()}, desk: &desk{},
		pkg: record.Package{Name: "demo", Version: "1.0.0"}, began: now.Add(-time.Hour), id: runID,
	}
	w := workspace.New(workspace.Stores{Records: b.records, Locks: b.records, Objects: b.objects, Local: b.records, Now: func() time.Time { return now }})
	w.Runs.Workspaces = b.desk
	x := executions.NewStore(b.records, b.objects)
	b.stores = ui.Stores{
		Records: b.records, Objects: b.objects, Executions: x, Runs: w.Runs, Answers: answers{},
		Compare: compare.Stores{Records: b.records, Objects: b.objects, Executions: x, Workspaces: w.View(), Runs: w.Runs, Packages: w.Packages},
		Explain: func() *explain.Explainer {
			return explain.New(explain.Stores{Stores: history.Stores{Records: b.records, Executions: x, Runs: w.Runs}, Workspaces: w.View(), Objects: b.objects})
		},
	}
	return b
}

// made describes a task for a test.
type made struct {
	name           string
	state          runview.TaskState
	stdout, stderr string
	script         string // in place of a list of words
	file, output   string
	kind           string
	folder         map[string]string // output that is a directory of these files
	views          []record.View
	message        string
	took           time.Duration
	reads          []string
	batch          record.Batched
	mayFail        bool
}

func (b *bench) object(data []byte) objectstore.Hash {
	b.t.Helper()
	h, err := objectstore.PutBytes(b.t.Context(), b.objects, data)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

// run writes a run with these tasks, and its record if it has ended.
func (b *bench) run(live bool, list ...made) {
	b.t.Helper()
	began := b.began
	keys := make([]executions.Key, len(list))
	ids := make([]string, len(list))
	outs := make([]string, len(list))
	for i, m := range list {
		task := record.Task{Argv: []string{"run", m.name}}
		if m.script != "" {
			task = record.Task{Shell: m.script}
		}
		task.Output.Entries = []record.OutputEntry{{Name: "out", Path: m.file, Kind: record.KindFile}}
		declared := record.PackageTask{Name: m.name, Output: record.KindFile}
		for k, from := range m.reads {
			task.Inputs = append(task.Inputs, record.Input{Name: fmt.Sprintf("in%d", k), Path: fmt.Sprintf("in%d", k), Kind: record.KindFile})
			declared.Wiring = append(declared.Wiring, record.Wire{Kind: record.WireOutput, Name: from})
		}
		if declared.Policy.Views = m.views; m.folder != nil {
			task.Output.Entries[0].Kind, declared.Output = record.KindDir, record.KindDir
		}
		if m.kind != "" {
			declared.Policy.Views = []record.View{view("", m.file, m.kind)}
		}
		hash := b.object(task.Encode())
		declared.Task = hash.String()
		b.pkg.Tasks = append(b.pkg.Tasks, declared)
		keys[i] = executions.Key{Task: hash, Inputs: executions.InputsHash(nil)}
		ids[i], _ = executions.NewID()
		if m.folder != nil {
			var list dirtree.Entries
			for name, content := range m.folder {
				list = append(list, dirtree.Entry{Name: name, Kind: dirtree.KindFile, Hash: b.object([]byte(content)), Size: int64(len(content))})
			}
			list.Sort()
			data, err := dirtree.Encode(list)
			if err != nil {
				b.t.Fatal(err)
			}
			outs[i] = b.object(data).String()
		}
		if m.output != "" {
			outs[i] = b.object([]byte(m.output)).String()
		}
		b.execution(m, keys[i], ids[i], began.Add(time.Duration(i)*time.Second), outs[i])
	}
	pkg := b.object(b.pkg.Encode()).String()
	b.desk.pkg, b.desk.live = pkg, live
	if _, err := events.RecordRun(b.t.Context(), b.records, "prod", b.id, func() time.Time { return now }, 0); err != nil {
		b.t.Fatal(err)
	}
	b.record(record.Run{RunID: b.id, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: began, State: record.RunRunning})
	b.log = events.Create(b.records, "prod", b.id, func() time.Time { return now })
	b.log.Emit(events.Event{Time: began, Type: events.RunStarted, Data: &events.Data{Package: "demo@1.0.0", PackageHash: pkg, Limits: b.limits, Warnings: []string{"e3.yaml:3:1: quote <it>"}}})
	b.log.Emit(events.Event{Time: began, Type: events.TaskCreated, Data: &events.Data{Tasks: len(list)}})
	for i, m := range list {
		b.events(m, keys[i], ids[i], began.Add(time.Duration(i)*time.Second))
	}
	if live {
		if err := b.log.Flush(); err != nil {
			b.t.Fatal(err)
		}
		return
	}
	b.log.Emit(events.Event{Time: began.Add(time.Minute), Type: events.RunFailed, Data: &events.Data{Duration: 60_000}})
	if err := b.log.Close(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) record(r record.Run) {
	b.t.Helper()
	rec := refstore.Record{Key: runview.Key("prod", r.RunID)}
	if old, err := b.records.Get(context.Background(), rec.Key); err == nil {
		rec.Version = old.Version
	}
	rec.Value = r.Encode()
	if _, err := b.records.Put(context.Background(), rec); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) events(m made, key executions.Key, id string, at time.Time) {
	d := &events.Data{Key: key.String(), Attempt: 1}
	if m.state == runview.TaskWaits {
		return
	}
	if m.state == runview.TaskCached {
		b.log.Emit(events.Event{Time: at, Type: events.TaskCached, Task: m.name, Execution: id, Data: d})
		return
	}
	d.Batch, d.Items = m.batch.ID, m.batch.Items
	b.log.Emit(events.Event{Time: at, Type: events.TaskMarkedReady, Task: m.name})
	b.log.Emit(events.Event{Time: at, Type: events.TaskStarted, Task: m.name, Execution: id, Worker: "ann@mill", Data: d})
	end := map[runview.TaskState]events.Type{runview.TaskSuccess: events.TaskCompleted, runview.TaskFailed: events.TaskFailed, runview.TaskError: events.TaskFailed}[m.state]
	if end == "" {
		return
	}
	d = &events.Data{Key: key.String(), Attempt: 1, Message: m.message, Duration: m.took.Milliseconds(), Batch: m.batch.ID, Items: m.batch.Items}
	if d.MayFail = m.mayFail; m.state == runview.TaskFailed {
		d.ExitCode = 3
	}
	b.log.Emit(events.Event{Time: at.Add(m.took), Type: end, Task: m.name, Execution: id, Data: d})
}

func (b *bench) execution(m made, key executions.Key, id string, began time.Time, out string) {
	b.t.Helper()
	s := record.Status{State: record.Success, ExecutionID: id, StartedAt: began, CompletedAt: began.Add(m.took), OutputHash: out}
	switch m.state {
	case runview.TaskFailed:
		s.State, s.OutputHash, s.ExitCode = record.Failed, "", 3
	case runview.TaskError:
		s.State, s.OutputHash, s.Message = record.Error, "", m.message
	}
	detail := record.Detail{Attempt: 1, RunID: b.id, Workspace: "prod", Task: m.name, Version: "1.2.3", Worker: "ann@mill", PeakRSS: 40 << 20, UserCPU: m.took * 7 / 4, Batch: m.batch}
	rec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: id}, Value: s.Encode(), Fields: []refstore.Field{
		{Name: "detail.beast2", Value: detail.Encode()},
		{Name: string(executions.Stderr), Value: []byte(m.stderr)}, {Name: string(executions.Stdout), Value: []byte(m.stdout)},
	}}
	if _, err := b.records.Put(b.t.Context(), rec); err != nil {
		b.t.Fatal(err)
	}
}

// serve starts a server, and lets the bench's client in.
func (b *bench) serve(o ui.Options) {
	b.t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return now }
	}
	o.Repository, o.Version = "/srv/e3", "9.9"
	b.ctx, b.stop = context.WithCancel(b.t.Context())
	b.server = ui.New(b.ctx, b.stores, o)
	b.front = httptest.NewServer(b.server.Handler())
	b.t.Cleanup(func() { b.stop(); b.front.CloseClientConnections(); b.front.Close() })
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.client = &http.Client{Jar: jar}
	if status, text := b.get(b.server.Login(ui.Start("prod"))); status != http.StatusOK || !strings.Contains(text, "/run?w=prod") {
		b.t.Fatalf("login: %d %s", status, text)
	}
}

// get requests a path.
func (b *bench) get(path string) (status int, text string) {
	b.t.Helper()
	answer, err := b.client.Get(b.front.URL + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

// page requests a page that must be there.
func (b *bench) page(path string) string {
	b.t.Helper()
	status, text := b.get(path)
	if status != http.StatusOK {
		b.t.Fatalf("%s: %d\n%.2000s", path, status, text)
	}
	return text
}

// cookie is the cookie of the bench's client.
func (b *bench) cookie() *http.Cookie {
	b.t.Helper()
	at, err := url.Parse(b.front.URL)
	if err != nil {
		b.t.Fatal(err)
	}
	list := b.client.Jar.Cookies(at)
	if len(list) != 1 {
		b.t.Fatalf("%d cookies, want one", len(list))
	}
	return list[0]
}

// small is a run with tasks of several states.
func small() []made {
	return []made{
		{name: "clean", state: runview.TaskCached, took: 2 * time.Second, file: "c", output: "a,b\n1,2\n", stdout: "cleaned\n"},
		{name: "train[1]", state: runview.TaskSuccess, took: 3 * time.Second, file: "m.json", output: `{"accuracy": 0.5}`, kind: "metrics", reads: []string{"clean"}},
		{name: "train[2]", state: runview.TaskSuccess, took: 9 * time.Second, file: "m.json", output: `{"accuracy": 0.7}`, kind: "metrics", reads: []string{"clean"}},
		{name: "broken", state: runview.TaskFailed, took: time.Second, stderr: "\x1b[31mValueError\x1b[0m: no <data>\n", file: "b", reads: []string{"train[2]"}},
	}
}

// view marks an output as metrics, plot or report; file is "" for a directory.
func view(entry, file, kind string) record.View {
	v := record.View{Entry: entry, Kind: record.ViewKind(slices.Index(record.ViewKind(0).Cases(), kind))}
	if file != "" {
		v.Path = path.Base(file)
	}
	return v
}
