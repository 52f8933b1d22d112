package workspace_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/refstore/mem"
	"e3/workspace"
)

// A tally counts requests by subject.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(what, partition string) {
	kind, _, _ := strings.Cut(partition, "/")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = map[string]int{}
	}
	t.n[what+" "+kind]++
}

// take returns the counts since the last take, and resets them.
func (t *tally) take() (n map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, t.n = t.n, nil
	return n
}

func sumOf(n map[string]int) (sum int) {
	for _, k := range n {
		sum += k
	}
	return sum
}

func listOf(n map[string]int) string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(n)) {
		fmt.Fprintf(&b, "%6d %s\n", n[what], what)
	}
	return b.String()
}

// countedStore is a store of records and streams that counts all requests.
type countedStore struct {
	*mem.Store
	tally
}

func (s *countedStore) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	s.add("get", key.Partition)
	return s.Store.Get(ctx, key, fields...)
}

func (s *countedStore) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	s.add("put", r.Key.Partition)
	return s.Store.Put(ctx, r)
}

func (s *countedStore) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

func (s *countedStore) Sync(context.Context) error { return nil }

func (s *countedStore) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	s.add("delete", key.Partition)
	return s.Store.Delete(ctx, key, v)
}

func (s *countedStore) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	s.add("list", q.Partition)
	return s.Store.List(ctx, q)
}

func (s *countedStore) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	s.add("append", key.Partition)
	return s.Store.Append(ctx, key, offset, data)
}

func (s *countedStore) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	s.add("open", key.Partition)
	return s.Store.Open(ctx, key, offset)
}

func (s *countedStore) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	s.add("size", key.Partition)
	return s.Store.Size(ctx, key)
}

func (s *countedStore) Tail(ctx context.Context, key refstore.Key, n int64) ([]byte, refstore.StreamInfo, error) {
	s.add("tail", key.Partition)
	return refstore.Tail(ctx, s.Store, key, n)
}

func (s *countedStore) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	s.add("streams", q.Partition)
	return s.Store.ListStreams(ctx, q)
}

func (s *countedStore) StreamPace() time.Duration { return time.Second }

// farObjects is an object store that presumes, and counts.
type farObjects struct {
	*objectstore.Dir
	tally
}

func (o *farObjects) Presumes() bool { return true }

func (o *farObjects) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	o.add("stat", "object")
	return o.Dir.Stat(ctx, h)
}

func (o *farObjects) Missing(ctx context.Context, hs []objectstore.Hash) ([]objectstore.Hash, error) {
	o.add("missing", "object")
	return o.Dir.Missing(ctx, hs)
}

func (o *farObjects) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	o.add("refresh", "object")
	return o.Dir.Refresh(ctx, h)
}

func (o *farObjects) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	o.add("get", "object")
	return o.Dir.Open(ctx, h)
}

func (o *farObjects) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	o.add("get", "object")
	return o.Dir.ReadAll(ctx, h, limit)
}

func (o *farObjects) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	o.add("put", "object")
	return o.Dir.PutBytes(ctx, b)
}

// A site is a shared repository with a workspace of many tasks that all have executions.
type site struct {
	t       *testing.T
	dir     string
	records *countedStore
	objects *farObjects
}

// An office is a machine that works on the site.
type office struct {
	s        *site
	leases   *lease.Leases
	ws       *workspace.Workspaces
	executor *executions.Executor
}

func (s *site) office() *office {
	s.t.Helper()
	o := &office{s: s, leases: lease.New(s.records, lease.Options{})}
	s.t.Cleanup(func() {
		if err := o.leases.Close(); err != nil {
			s.t.Error(err)
		}
	})
	o.ws = workspace.New(workspace.Stores{
		Records: s.records, Locks: o.leases, Sessions: o.leases, Objects: s.objects, Derived: s.records, Lookups: 64,
		Local: &countedStore{Store: mem.New()}, Now: time.Now, Holder: func() string { return ".process (pid=1)" },
		Sweep: func(context.Context) error { return nil },
	})
	o.executor = executions.NewExecutor(executions.NewStore(s.records, s.objects), s.objects, o.leases, nil, executions.Options{Now: time.Now})
	return o
}

func (o *office) start() *workspace.RunResult {
	o.s.t.Helper()
	res, err := o.ws.Runner.Start(o.s.t.Context(), "w", workspace.StartOptions{Executor: o.executor, Concurrency: 2})
	if err != nil {
		o.s.t.Fatal(err)
	}
	if res.Run.State != record.RunCompleted || res.Run.Summary.Cached != res.Run.Summary.Total {
		o.s.t.Fatalf("the run is %v, %+v", res.Run.State, res.Run.Summary)
	}
	return res
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newSite deploys the given number of tasks and one that collects their outputs, and records an execution of each.
func newSite(t *testing.T, tasks int) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), records: &countedStore{Store: mem.New()}}
	dir, err := objectstore.OpenDir(filepath.Join(s.dir, "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.objects = &farObjects{Dir: dir}
	var n []string
	for i := range tasks {
		n = append(n, fmt.Sprint(i))
	}
	file := filepath.Join(s.dir, "e3.yaml")
	writeFile(t, filepath.Join(s.dir, "a.txt"), "a")
	writeFile(t, file, fmt.Sprintf("e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks:\n"+
		"  t: {matrix: {n: [%s]}, in: [a], out: o, run: cat $a}\n  all: {in: {t: 't[*]'}, out: o, run: cat $t}\n", strings.Join(n, ", ")))
	o, ctx := s.office(), t.Context()
	if err := o.ws.Create(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	built, err := o.ws.Deployer.DeployFile(ctx, "w", file)
	if err != nil {
		t.Fatal(err)
	}
	input, output := built.Package.Inputs[0].Default.Hash, objectstore.Sum([]byte("o"))
	if _, err := dir.PutBytes(ctx, []byte("o")); err != nil {
		t.Fatal(err)
	}
	fanIn := make(tree.Entries, tasks)
	for i := range fanIn {
		fanIn[i] = tree.Entry{Name: n[i], Kind: tree.KindFile, Hash: output, Size: 1}
	}
	fanIn.Sort()
	gathered, err := tree.Encode(fanIn)
	if err != nil {
		t.Fatal(err)
	}
	for i := range built.Package.Tasks {
		reads := input
		if built.Package.Tasks[i].Name == "all" {
			reads = objectstore.Sum(gathered).String()
		}
		h, err := objectstore.ParseHash(reads)
		if err != nil {
			t.Fatal(err)
		}
		task, err := objectstore.ParseHash(built.Package.Tasks[i].Task)
		if err != nil {
			t.Fatal(err)
		}
		id := newID(t)
		status := &record.Status{State: record.Success, ExecutionID: id, InputHashes: []string{reads}, OutputHash: output.String(),
			StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(2000)}
		_, err = s.records.Store.Put(ctx, refstore.Record{
			Key:   refstore.Key{Partition: "EXECUTION/" + executions.NewKey(task, []objectstore.Hash{h}).String(), Sort: id},
			Value: status.Encode(),
			Fields: []refstore.Field{{Name: "output", Value: []byte(status.OutputHash + "\n")},
				{Name: "detail.beast2", Value: (&record.Detail{Task: built.Package.Tasks[i].Name, BytesOut: 1}).Encode()}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.records.take()
	s.objects.take()
	return s
}

// The cost of a start in requests: a fixed number if nothing has changed, on any machine; without a known proof, also
// one list for each task.
func TestRequestsOfStart(t *testing.T) {
	const tasks = 10_000
	s := newSite(t, tasks)
	for _, step := range []struct {
		name   string
		lookup int
		most   int // of all others, of records and objects together
	}{
		{"without any local state", tasks + 1, 60}, // some depend on time: events each second, heartbeats
		{"on another machine", 0, 27},
		{"once more", 0, 27},
	} {
		o := s.office()
		o.start()
		if err := o.leases.Close(); err != nil {
			t.Fatal(err)
		}
		records, objects := s.records.take(), s.objects.take()
		t.Logf("%s: %d\n%s%s", step.name, sumOf(records)+sumOf(objects), listOf(records), listOf(objects))
		if got := records["list EXECUTION"]; got != step.lookup {
			t.Errorf("%s: %d lookups, want %d", step.name, got, step.lookup)
		}
		delete(records, "list EXECUTION")
		if got := sumOf(records) + sumOf(objects); got > step.most {
			t.Errorf("%s: %d requests beside the lookups, want at most %d\n%s%s", step.name, got, step.most, listOf(records), listOf(objects))
		}
	}
}

// A planner that remembers looks each task up once.
func TestRequestsOfRepeatedQuestions(t *testing.T) {
	const tasks = 500
	s := newSite(t, tasks)
	o := s.office()
	planner := o.ws.Planner.Remembering()
	for i, want := range []int{tasks + 1, 0, 0} {
		s.records.take()
		if _, err := planner.Status(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
		if got := s.records.take()["list EXECUTION"]; got > want {
			t.Errorf("status %d: %d lookups, want at most %d", i+1, got, want)
		}
	}
}

// A read-only command costs at most one list for each task; with a proof, nothing per task.
func TestRequestsOfQuestions(t *testing.T) {
	const tasks = 500
	s := newSite(t, tasks)
	ask := map[string]func(o *office) error{
		"status": func(o *office) error { _, err := o.ws.Planner.Status(t.Context(), "w"); return err },
		"plan": func(o *office) error {
			_, err := o.ws.Planner.Plan(t.Context(), "w", workspace.PlanOptions{Concurrency: 2})
			return err
		},
		"names": func(o *office) error { _, err := o.ws.Datasets.Names(t.Context(), "w"); return err },
	}
	for _, proven := range []bool{false, true} {
		if proven {
			s.office().start()
			s.records.take()
			s.objects.take()
		}
		for name, do := range ask {
			o := s.office()
			if err := do(o); err != nil {
				t.Fatal(err)
			}
			records, objects := s.records.take(), s.objects.take()
			t.Logf("%s, proven %v:\n%s%s", name, proven, listOf(records), listOf(objects))
			most := 0
			if !proven {
				most = tasks + 1
			}
			if got := records["list EXECUTION"]; got > most {
				t.Errorf("%s, proven %v: %d lookups", name, proven, got)
			}
			delete(records, "list EXECUTION")
			if got := sumOf(records) + sumOf(objects); got > 25 {
				t.Errorf("%s, proven %v: %d requests beside the lookups\n%s%s", name, proven, got, listOf(records), listOf(objects))
			}
		}
	}
}
