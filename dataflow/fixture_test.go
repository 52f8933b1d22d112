package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/dataflow/graph/graphtest"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// flow returns a package of tasks that read the input x and each other.
func flow(lines ...string) *record.Package { return graphtest.Flow(lines...) }

func sum(text string) string { return objectstore.Sum([]byte(text)).String() }

// policy sets the policy of a task.
func policy(pkg *record.Package, name string, p record.Policy) {
	for i := range pkg.Tasks {
		if pkg.Tasks[i].Name == name {
			pkg.Tasks[i].Policy = p
		}
	}
}

type failer interface {
	Helper()
	Fatal(...any)
}

func graphOf(t failer, pkg *record.Package) *dataflow.Graph {
	t.Helper()
	g, err := graph.New(pkg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func value(text string) record.Leaf { return record.Leaf{Kind: record.LeafValue, Hash: sum(text)} }

var oneInput = record.Node{{Name: "x", Leaf: value("x")}}

// A world is an executor that computes instead of running commands: what a task leaves
// follows from its hash and what it reads. It keeps every success.
type world struct {
	objects *objectstoretest.Mem
	// behave says how an attempt of a task goes; nil: at once, and well.
	behave func(task string, attempt int64) behaviour
	// vary makes the n-th output of a key differ from the others, as a task does that is
	// not deterministic.
	vary func(task objectstore.Hash) bool

	mu    sync.Mutex
	cache map[executions.Key]executions.Result
	count map[executions.Key]int
	calls []string // tasks that were asked for, in order
	ran   []step   // commands, in the order of their ends
	live  map[string]*record.Policy
	watch func(live map[string]*record.Policy) // is told when a command has started
	look  func(executions.Key)                 // receives the lookups outside Do; nil: they are dropped
	// workers says that executions are made elsewhere, without admission.
	workers  bool
	requests []executions.Request
	// reads says that what a task reads must be there. Of a made output spoil says whether it is lost at once.
	reads bool
	spoil func(task string) bool
}

// store puts what tasks of a flow read beside each other's outputs, and their objects.
func (w *world) store(pkg *record.Package) {
	w.objects.Set(objectstore.Sum([]byte("x")), []byte("x"))
	for i := range pkg.Tasks {
		text := "task " + pkg.Tasks[i].Name
		w.objects.Set(objectstore.Sum([]byte(text)), []byte(text))
	}
}

type behaviour struct {
	takes time.Duration
	fails bool              // with exit code 3
	error executions.Reason // ends in this error
	fault error             // of the stores
	other record.State      // Success, Failed: another run was waited for, and ended so
	late  bool              // a cancellation finds the command announced and not started
	// suspends: the command ends with the code by which it asks to be resumed. With other: that run's did.
	suspends bool
	// lost is how many workers are lost before one comes through, in a world of workers; with error ReasonLost none does.
	lost   int
	silent bool // the start of the command is not announced
}

type step struct {
	task       string
	attempt    int64
	start, end time.Time
}

// recording is how long an executor takes from the end of a command to its return.
const recording = time.Millisecond

func newWorld() *world {
	return &world{objects: &objectstoretest.Mem{}, cache: map[executions.Key]executions.Result{}, count: map[executions.Key]int{}, live: map[string]*record.Policy{}}
}

func (w *world) Do(ctx context.Context, req *executions.Request) (executions.Result, error) {
	key := executions.NewKey(req.Task, req.Inputs)
	w.mu.Lock()
	w.calls, w.requests = append(w.calls, req.Name), append(w.requests, *req)
	hit, ok := w.cache[key]
	w.mu.Unlock()
	if ok && !req.Force && (req.Without == "" || hit.ExecutionID != req.Without) {
		hit.Cached = true
		return hit, nil
	}
	var b behaviour
	if w.behave != nil {
		b = w.behave(req.Name, req.Attempt)
	}
	if b.fault != nil {
		return executions.Result{}, b.fault
	}
	if b.other != 0 {
		return w.others(req, key, b)
	}
	if w.reads {
		if res, err := w.stage(req, key); err != nil || res.State != 0 {
			return res, err
		}
	}
	release := func(bool) {}
	if req.Admit != nil {
		var err error
		if release, err = req.Admit(ctx); err != nil {
			return executions.Result{}, err
		}
	}
	for range b.lost {
		if err := w.lose(ctx, req, key, b.takes); err != nil {
			return executions.Result{}, err
		}
	}
	start := time.Now()
	if ctx.Err() != nil {
		release(true)
		return executions.Result{}, context.Cause(ctx)
	}
	id, _ := w.newID(key)
	if w.workers {
		req.Claimed(id, "worker", time.Time{})
		if b.takes > 0 && !w.sleep(ctx, recording) {
			return executions.Result{}, context.Cause(ctx)
		}
		if b.error == executions.ReasonLost { // by all of them
			w.end(req, start)
			return executions.Result{ExecutionID: id, State: record.Error, Reason: b.error, Message: "gone"}, nil
		}
	}
	w.begin(req, id, b.silent)
	cancelled := false
	if b.takes > 0 {
		select {
		case <-time.After(b.takes):
		case <-ctx.Done():
			cancelled = true
		}
	}
	w.end(req, start)
	if cancelled && b.late {
		release(true)
		return executions.Result{}, fmt.Errorf("not started: %w", context.Cause(ctx))
	}
	release(cancelled || b.fails || b.suspends || b.error != "")
	if b.takes > 0 {
		time.Sleep(recording)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	res := executions.Result{ExecutionID: id, Duration: time.Since(start)}
	switch {
	case cancelled:
		res.State, res.Reason, res.Message = record.Error, executions.ReasonCancelled, "cancelled"
	case b.suspends:
		res.State, res.ExitCode, res.Reason = record.Failed, suspendCode, executions.ReasonSuspended
	case b.fails:
		res.State, res.ExitCode = record.Failed, 3
	case b.error != "":
		res.State, res.Reason, res.Message = record.Error, b.error, string(b.error)
	default:
		res.State = record.Success
		res.Output, res.Size = w.compute(req, key)
		w.cache[key] = res
		if w.spoil != nil && w.spoil(req.Name) {
			w.objects.Set(res.Output, []byte("damaged"))
		}
	}
	return res, nil
}

// stage fails if something is not there that a task reads.
func (w *world) stage(req *executions.Request, key executions.Key) (executions.Result, error) {
	_, err := req.Load(context.Background())
	if err != nil && !errors.Is(err, record.ErrType) {
		return executions.Result{}, fmt.Errorf("stage inputs: %w", err)
	}
	for _, h := range req.Inputs {
		err := objectstore.Check(context.Background(), w.objects, h)
		if err == nil {
			continue
		}
		if !w.workers {
			return executions.Result{}, fmt.Errorf("stage inputs: %w", err)
		}
		id, n := w.newID(key)
		if n%2 == 0 {
			req.Claimed(id, "worker", time.Time{})
		}
		return executions.Result{ExecutionID: id, State: record.Error, Reason: executions.ReasonInput, Message: err.Error()}, nil
	}
	return executions.Result{}, nil
}

const suspendCode = 75

// newID makes the id of the n-th execution of a key.
func (w *world) newID(key executions.Key) (id string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count[key]++
	return fmt.Sprintf("%s#%04d", key.String()[:8]+key.Inputs.String()[:8], w.count[key]), w.count[key]
}

// lose is a worker that takes the task and is lost: before the command has started, while it runs, or after another has taken it.
func (w *world) lose(ctx context.Context, req *executions.Request, key executions.Key, takes time.Duration) error {
	start := time.Now()
	id, n := w.newID(key)
	req.Claimed(id, "worker", time.Time{})
	if n%4 == 0 {
		req.Released(id, time.Time{})
		id, n = w.newID(key)
		req.Claimed(id, "another", time.Time{})
	}
	switch n % 3 {
	case 0:
		req.Started(id, time.Time{})
		req.Orphaned(id, time.Time{})
		req.Adopted(id, "another that goes on", time.Time{})
	case 1:
		req.Orphaned(id, time.Time{})
		req.Adopted(id, "another that settles it", time.Time{})
		id, _ = w.newID(key)
		req.Claimed(id, "another that begins anew", time.Time{})
	}
	if takes > 0 && !w.sleep(ctx, takes/2) {
		return context.Cause(ctx)
	}
	w.end(req, start)
	req.Lost(id, executions.ReasonLost, "gone", time.Time{}, time.Now().Add(takes/2))
	if takes > 0 && !w.sleep(ctx, takes/2) {
		return context.Cause(ctx)
	}
	return nil
}

// sleep tells whether it came to its end.
func (w *world) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// others is the answer of another run.
func (w *world) others(req *executions.Request, key executions.Key, b behaviour) (executions.Result, error) {
	time.Sleep(b.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	res := executions.Result{ExecutionID: "other", State: b.other, Cached: true}
	switch {
	case b.other == record.Success:
		res.Output, res.Size = w.compute(req, key)
	case b.suspends:
		res.ExitCode, res.Reason = suspendCode, executions.ReasonSuspended
	default:
		res.ExitCode = 3
	}
	return res, nil
}

func (w *world) begin(req *executions.Request, id string, silent bool) {
	w.mu.Lock()
	w.live[req.Name] = req.Policy
	if w.watch != nil {
		w.watch(w.live)
	}
	w.mu.Unlock()
	if req.Started != nil && !silent {
		req.Started(id, time.Time{})
	}
}

func (w *world) end(req *executions.Request, start time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.live, req.Name)
	w.ran = append(w.ran, step{req.Name, req.Attempt, start, time.Now()})
}

// compute makes few different outputs of many inputs, so that a change often makes no
// difference further down. A task whose hash is odd leaves a directory.
func (w *world) compute(req *executions.Request, key executions.Key) (objectstore.Hash, int64) {
	n := key.Task[1]
	for _, h := range req.Inputs {
		n += h[0] & 1
	}
	if w.vary != nil && w.vary(req.Task) {
		n += byte(w.count[key])
	}
	put := func(b []byte) objectstore.Hash {
		h, err := objectstore.PutBytes(context.Background(), w.objects, b)
		if err != nil {
			panic(err)
		}
		return h
	}
	if !isDir(req.Task) {
		text := fmt.Appendf(nil, "content %d", n%3)
		return put(text), int64(len(text))
	}
	var entries tree.Entries
	for k, name := range []string{"a", "b"} {
		text := fmt.Appendf(nil, "entry %d", (n>>(k+1))%2)
		entries = append(entries, tree.Entry{Name: name, Kind: tree.KindFile, Hash: put(text), Size: int64(len(text)), Executable: n%2 == 1})
	}
	data, err := tree.Encode(entries)
	if err != nil {
		panic(err)
	}
	return put(data), int64(len(data))
}

func isDir(task objectstore.Hash) bool { return task[0]&1 == 1 }

// run runs a graph, by default on one input with two cores.
func run(ctx context.Context, t failer, g *dataflow.Graph, w *world, change func(*dataflow.Options)) *dataflow.Outcome {
	t.Helper()
	opts := dataflow.Options{RunID: "r", Workspace: "ws", Inputs: oneInput, Concurrency: 2}
	if change != nil {
		change(&opts)
	}
	out, err := dataflow.Run(ctx, g, w.objects, w, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var stateNames = map[dataflow.State]string{
	dataflow.Pending: "pending", dataflow.Cached: "cached", dataflow.Succeeded: "succeeded",
	dataflow.Failed: "failed", dataflow.Skipped: "skipped", dataflow.Abandoned: "abandoned",
}

// wantStates compares the states of tasks, given as "name=state …".
func wantStates(t *testing.T, g *dataflow.Graph, out *dataflow.Outcome, want string) {
	t.Helper()
	var got []string
	for i := range out.Tasks {
		got = append(got, g.Name(int32(i))+"="+stateNames[out.Tasks[i].State])
	}
	if text := strings.Join(got, " "); text != want {
		t.Errorf("states are %s\nwant       %s", text, want)
	}
}

// emitted collects events.
type emitted struct {
	mu   sync.Mutex
	list []events.Event
}

func (e *emitted) emit(ev events.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, ev)
}

func (e *emitted) of(task string) []events.Type {
	var types []events.Type
	for _, ev := range e.list {
		if ev.Task == task {
			types = append(types, ev.Type)
		}
	}
	return types
}

// has tells whether any event is of a type.
func (e *emitted) has(typ events.Type) bool {
	for _, ev := range e.list {
		if ev.Type == typ {
			return true
		}
	}
	return false
}
