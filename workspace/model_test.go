package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/jobs/approval"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
	"e3/workspace"
)

// A saga is a sequence of starts of two workspaces with the same package: starts that succeed or fail, are cancelled by
// another process, get a signal, or crash.
type saga struct {
	tasks   []sagaTask
	wide    bool // also as many tasks as share one event
	workers bool // workers run the commands
	rounds  []sagaRound
}

type sagaTask struct {
	name    string
	reads   []string
	retries int
	backoff int // seconds
	calls   []sagaCall
	approve bool
	decides time.Duration // tasks are approved or rejected after this time
	rejects bool
	fates   []fate // of the workers that take it, in order; further workers run the command
}

type fate int

const (
	runs      fate = iota
	overtaken      // a later attempt replaces it
	dies
)

// sagaCall is the course of a command. The default is success after a second.
type sagaCall struct {
	fails    bool
	suspends bool
	takes    time.Duration
}

// A sagaRound is a start of each workspace at the same time, after an edit.
type sagaRound struct {
	edit   string // of the input
	starts [2]sagaStart
}

type sagaStart struct {
	skip            bool
	after           time.Duration // delay of the start
	force, failFast bool
	filter          string
	end             sagaEnd
	at              time.Duration
	torn            int // bytes of the last append that a crash leaves
}

type sagaEnd int

const (
	byItself sagaEnd = iota
	byRequest
	byRequestUnwaited
	bySignal
	byCrash
)

var sagas = rapid.Custom(func(t *rapid.T) saga {
	s := saga{wide: rapid.IntRange(0, 9).Draw(t, "wide") == 0, workers: rapid.IntRange(0, 2).Draw(t, "workers") == 0}
	millis := func(most int, label string) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Millisecond
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "tasks") {
		task := sagaTask{name: fmt.Sprintf("t%d", i), retries: rapid.IntRange(0, 2).Draw(t, "retries"), backoff: rapid.IntRange(1, 3).Draw(t, "backoff")}
		for d := range i {
			if rapid.IntRange(0, 2).Draw(t, "reads") == 0 {
				task.reads = append(task.reads, fmt.Sprintf("t%d", d))
			}
		}
		for range rapid.IntRange(0, 6).Draw(t, "calls") {
			task.calls = append(task.calls, sagaCall{
				fails: rapid.IntRange(0, 2).Draw(t, "fails") > 0, suspends: rapid.IntRange(0, 4).Draw(t, "suspends") == 0, takes: millis(3000, "takes")})
		}
		task.approve, task.rejects = rapid.IntRange(0, 3).Draw(t, "approve") == 0, rapid.IntRange(0, 3).Draw(t, "rejects") == 0
		task.decides = millis(3000, "decides")
		for range rapid.IntRange(0, 3).Draw(t, "fates") {
			task.fates = append(task.fates, rapid.SampledFrom([]fate{runs, overtaken, dies}).Draw(t, "fate"))
		}
		s.tasks = append(s.tasks, task)
	}
	for range rapid.IntRange(1, 4).Draw(t, "rounds") {
		r := sagaRound{edit: rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "edit")}
		for i := range r.starts {
			r.starts[i] = sagaStart{
				skip: i == 1 && rapid.Bool().Draw(t, "skip"), after: millis(500, "after"),
				force: rapid.IntRange(0, 5).Draw(t, "force") == 0, failFast: rapid.IntRange(0, 3).Draw(t, "failfast") == 0,
				filter: rapid.SampledFrom([]string{"", "", "", "t0", "t?"}).Draw(t, "filter"),
				end:    rapid.SampledFrom([]sagaEnd{byItself, byItself, byRequest, byRequestUnwaited, bySignal, byCrash}).Draw(t, "end"),
				at:     millis(6000, "at"), torn: rapid.IntRange(0, 400).Draw(t, "torn"),
			}
		}
		s.rounds = append(s.rounds, r)
	}
	return s
})

func (s saga) yaml() string {
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks:\n")
	for _, t := range s.tasks {
		reads := append([]string{"a"}, t.reads...)
		fmt.Fprintf(&b, "  %s: {in: [%s], out: %s.txt, retries: {max: %d, backoff: %ds}, approve: %v, suspend: 75, run: '%s $out $%s'}\n",
			t.name, strings.Join(reads, ", "), t.name, t.retries, t.backoff, t.approve, t.name, strings.Join(reads, " $"))
	}
	if s.wide {
		var n []string
		for i := range events.Bulk + 1 {
			n = append(n, fmt.Sprint(i))
		}
		fmt.Fprintf(&b, "  wide: {matrix: {n: [%s]}, in: [a], out: w.txt, run: 'wide$n $out $a'}\n", strings.Join(n, ", "))
	}
	return b.String()
}

// Whatever happens to runs: each log is a walk through the diagram, from the beginning of a run to its end, and its
// counts add up. Together, the logs take every step of the diagram.
func TestEventsModel(t *testing.T) {
	walked := map[eventstest.Edge]int{}
	play := func(s saga, fatalf func(string, ...any)) {
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = s.play(t, walked) })
		if len(faults) > 0 {
			fatalf("%s%+v\n%s", s.yaml(), s.rounds, strings.Join(faults, "\n"))
		}
	}
	play(saga{wide: true, rounds: make([]sagaRound, 2)}, t.Fatalf)
	// Not covered here: nothing is lost and no lease expires (the scheduler's model has that), and no execution
	// outlives its run (TestLate has that).
	elsewhere := []events.Type{events.TaskReopened, events.TaskOrphaned, events.TaskAdopted, events.TaskLeftOut}
	untrodden := func(e eventstest.Edge) bool {
		return walked[e] == 0 && !slices.Contains(elsewhere, e.Type) && !e.OfBatch() && !e.OfReplacedInput() && (!e.Closing() || e.From == eventstest.Retrying)
	}
	for range 200 { // some steps are rare: play sagas until each was taken
		rapid.Check(t, func(rt *rapid.T) { play(sagas.Draw(rt, "saga"), rt.Fatalf) })
		if t.Failed() || !slices.ContainsFunc(eventstest.Diagram(), untrodden) {
			break
		}
	}
	for _, e := range eventstest.Diagram() {
		t.Logf("%6d × %v", walked[e], e)
		if untrodden(e) {
			t.Errorf("no run has gone this way: %v", e)
		}
	}
}

// A stage is a repository in memory, except for its objects, with a project beside it.
type stage struct {
	t       *testing.T
	dir     string
	records *mem.Store
	objects *objectstore.Dir
	saga    *saga
	shared  bool // machines have links of their own

	mu     sync.Mutex
	calls  map[string]int // of commands, by task
	taken  map[string]int // of workers, by task
	pids   int
	faults []string
}

// newStage deploys the tasks of a saga in the workspaces w0 and w1.
func newStage(t *testing.T, s *saga, shared bool) *stage {
	t.Helper()
	st := &stage{t: t, dir: t.TempDir(), records: mem.New(), saga: s, shared: shared, calls: map[string]int{}, taken: map[string]int{}}
	objects, err := objectstore.OpenDir(filepath.Join(st.dir, "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st.objects = objects
	st.write("a.txt", "first")
	st.write("e3.yaml", s.yaml())
	ws := st.process().ws
	for _, name := range []string{"w0", "w1"} {
		if err := ws.Create(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := ws.Deployer.DeployFile(t.Context(), name, filepath.Join(st.dir, "e3.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

func (s saga) play(t *testing.T, walked map[eventstest.Edge]int) []string {
	st, ctx := newStage(t, &s, false), t.Context()
	last := sagaRound{} // closes crashed runs
	for _, r := range append(s.rounds, last) {
		if r.edit != "" {
			st.write("a.txt", r.edit)
		}
		var wg sync.WaitGroup
		for i, start := range r.starts {
			if !start.skip {
				wg.Go(func() { st.start(ctx, fmt.Sprintf("w%d", i), start) })
			}
		}
		wg.Wait()
	}
	st.check(ctx, walked)
	return st.faults
}

func (st *stage) write(name, text string) {
	if err := os.WriteFile(filepath.Join(st.dir, name), []byte(text), 0o644); err != nil {
		st.t.Fatal(err)
	}
}

func (st *stage) fault(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.faults = append(st.faults, fmt.Sprintf(format, args...))
}

// An actor is a process on the repository. Once dead, it writes nothing more.
type actor struct {
	*mem.Store
	dead atomic.Bool
	torn int
	ws   *workspace.Workspaces
	// puts and gets, if not nil, are called with the key of every record that is written or read.
	puts, gets func(refstore.Key)
}

var errDead = errors.New("this process is dead")

func (st *stage) process() *actor {
	st.mu.Lock()
	st.pids++
	holder := fmt.Sprintf(".process (pid=%d)", st.pids)
	st.mu.Unlock()
	a := &actor{Store: st.records}
	stores := workspace.Stores{
		Records: a, Locks: a, Objects: st.objects, Local: a, Now: time.Now, Holder: func() string { return holder },
		Sweep: func(context.Context) error { return nil },
	}
	if st.shared {
		stores.Derived = a
	}
	a.ws = workspace.New(stores)
	return a
}

func (a *actor) alive() error {
	if a.dead.Load() {
		return errDead
	}
	return nil
}

func (a *actor) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if err := a.alive(); err != nil {
		return "", err
	}
	v, err := a.Store.Put(ctx, r)
	if a.puts != nil && err == nil {
		a.puts(r.Key)
	}
	return v, err
}

func (a *actor) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if a.gets != nil {
		a.gets(key)
	}
	return a.Store.Get(ctx, key, fields...)
}

func (a *actor) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return a.Put(ctx, r)
}

func (a *actor) Sync(context.Context) error { return a.alive() }

func (a *actor) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	if err := a.alive(); err != nil {
		return err
	}
	return a.Store.Delete(ctx, key, v)
}

// Append of a dead actor writes the beginning of the data, once.
func (a *actor) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if err := a.alive(); err != nil {
		n := min(a.torn, len(data))
		a.torn = 0
		if n > 0 {
			_ = a.Store.Append(ctx, key, offset, data[:n])
		}
		return err
	}
	return a.Store.Append(ctx, key, offset, data)
}

func (a *actor) Cut(ctx context.Context, key refstore.Key, size int64) error {
	if err := a.alive(); err != nil {
		return err
	}
	return a.Store.Cut(ctx, key, size)
}

// AdoptStream allows running executions to be recorded.
func (a *actor) AdoptStream(ctx context.Context, key refstore.Key, path string) error {
	data, err := os.ReadFile(path)
	if err == nil {
		err = a.Append(ctx, key, 0, data)
	}
	return err
}

// executor runs commands in a process.
func (st *stage) executor(a *actor, objects executions.LocalObjects) *executions.Executor {
	o := executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: func(string) (string, bool) { return "", false },
		Scratch: func() (string, error) { return st.t.TempDir(), nil }, Now: time.Now,
	}
	here := executions.NewExecutor(executions.NewStore(a, objects), objects, a, st, o)
	if !st.saga.workers {
		return here
	}
	o.Remote = &workers{st: st, here: here}
	return executions.NewExecutor(executions.NewStore(a, objects), objects, a, st, o)
}

// workers run the commands of a start, some of them badly. They die with the start.
type workers struct {
	st   *stage
	here *executions.Executor
}

func (w *workers) Execute(ctx context.Context, _ executions.Key, req *executions.Request) (executions.Result, error) {
	for {
		id, err := executions.NewID()
		if err != nil {
			return executions.Result{}, err
		}
		req.Claimed(id, "first@there", time.Time{})
		switch w.st.fate(req.Name) {
		case runs:
			return w.here.Make(ctx, req, id)
		case overtaken:
			old := id
			if id, err = executions.NewID(); err != nil {
				return executions.Result{}, err
			}
			req.Orphaned(old, time.Time{})
			req.Adopted(old, "second@there", time.Time{})
			req.Claimed(id, "second@there", time.Time{})
			return w.here.Make(ctx, req, id)
		}
		req.Released(id, time.Time{}) // and lost by the next one
		if id, err = executions.NewID(); err != nil {
			return executions.Result{}, err
		}
		req.Claimed(id, "second@there", time.Time{})
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
			return executions.Result{}, context.Cause(ctx)
		}
		req.Lost(id, executions.ReasonLost, "worker second@there was lost", time.Time{}, time.Now().Add(300*time.Millisecond))
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return executions.Result{}, context.Cause(ctx)
		}
	}
}

func (st *stage) fate(task string) fate {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := st.taken[task]
	st.taken[task]++
	for _, t := range st.saga.tasks {
		if t.name == task && n < len(t.fates) {
			return t.fates[n]
		}
	}
	return runs
}

// decide approves or rejects a task that waits.
func (st *stage) decide(ctx context.Context, name, task string) {
	i := slices.IndexFunc(st.saga.tasks, func(t sagaTask) bool { return t.name == task })
	t := &st.saga.tasks[i]
	select {
	case <-time.After(t.decides):
	case <-ctx.Done():
		return
	}
	_, err := st.process().ws.Approvals.Resolve(context.WithoutCancel(ctx), name, task, approval.Resolution{Approve: !t.rejects, By: "ann@there", Note: "in " + name})
	var decided *approval.ResolvedError
	if err != nil && !errors.Is(err, approval.ErrNotFound) && !errors.As(err, &decided) {
		st.fault("decide about %s.%s: %v", name, task, err)
	}
}

// start starts a workspace as a process of its own, and ends as s says.
func (st *stage) start(ctx context.Context, name string, s sagaStart) {
	a := st.process()
	time.Sleep(s.after)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	interrupted := errors.New("interrupted")
	var cancelled *workspace.Cancelled
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-time.After(s.at):
		case <-ctx.Done():
			return
		}
		switch s.end {
		case bySignal:
			cancel(interrupted)
		case byCrash:
			a.torn = s.torn
			a.dead.Store(true)
			cancel(errDead)
		case byRequest, byRequestUnwaited:
			var err error
			cancelled, err = st.process().ws.Runner.Cancel(context.WithoutCancel(ctx), name, workspace.CancelOptions{
				By: "ann@there", Reason: "in " + name, NoWait: s.end == byRequestUnwaited, Timeout: time.Minute,
			})
			if err != nil {
				st.fault("cancel %s: %v", name, err)
			}
		}
	})
	began := time.Now()
	res, err := a.ws.Runner.Start(ctx, name, workspace.StartOptions{
		Executor: st.executor(a, st.objects), Concurrency: 2, Force: s.force, FailFast: s.failFast, Filter: s.filter, Process: &events.Process{PID: 1},
		OnEvent: func(e events.Event) {
			if e.Type == events.TaskDeferred {
				wg.Go(func() { st.decide(ctx, name, e.Task) })
			}
		},
		Outstanding: map[bool]int{true: 2}[st.saga.workers],
	})
	if s.end != byRequest {
		cancel(nil)
	}
	took := time.Since(began)
	if s.end == byRequest && took < s.at {
		cancel(nil) // nothing is left to cancel
	}
	wg.Wait()
	switch {
	case a.dead.Load():
		return
	case err != nil:
		if !errors.Is(err, context.Canceled) && !errors.Is(err, interrupted) {
			st.fault("start %s: %v", name, err)
		}
		return
	case res.Run.State == record.RunCancelled && (s.end == byItself || took < s.at):
		st.fault("run %s of %s is cancelled, without a request", res.Run.RunID, name)
	case res.Run.State != record.RunCancelled && s.end == bySignal && took > s.at+time.Second:
		st.fault("run %s of %s goes on for %v after a signal", res.Run.RunID, name, took-s.at)
	}
	if asked := res.Cancelled; (asked != nil) != (res.Run.State == record.RunCancelled && s.end != bySignal) || asked != nil && (asked.By != "ann@there" || asked.Reason != "in "+name) {
		st.fault("run %s of %s is %v, and cancelled by %+v", res.Run.RunID, name, res.Run.State, asked)
	}
	if cancelled != nil && s.end == byRequest {
		st.told(name, res.Run, cancelled)
	}
}

// told demands that each cancellation of a run reports its outcome.
func (st *stage) told(name string, run *record.Run, c *workspace.Cancelled) {
	want := map[record.RunState]workspace.CancelStatus{
		record.RunCancelled: workspace.CancelDone, record.RunCompleted: workspace.CancelCompleted, record.RunFailed: workspace.CancelFailed,
	}[run.State]
	// Run ids of this process only increase, even when the next saga's clock starts again: such a run may seem to be
	// later than its hold.
	if at, err := executions.ParseID(run.RunID); err == nil && at.After(run.CompletedAt) && c.Status == workspace.CancelBefore {
		return
	}
	if c.Status != want && c.Status != workspace.CancelIdle || c.RunID != run.RunID && c.RunID != "" {
		st.fault("run %s of %s is %v; its cancellation reports %+v", run.RunID, name, run.State, *c)
	}
}

// Run implements executions.Runner: "t0 <output> <input> …" runs as the saga says, and the task's inputs become its
// output.
func (st *stage) Run(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	if ctx.Err() != nil {
		return runner.Result{}, fmt.Errorf("not started: %w", context.Cause(ctx))
	}
	script := spec.Argv[len(spec.Argv)-1]
	for _, entry := range spec.Env {
		name, text, _ := strings.Cut(entry, "=")
		script = strings.ReplaceAll(script, "$"+name+" ", text+" ")
		if strings.HasSuffix(script, "$"+name) {
			script = strings.TrimSuffix(script, "$"+name) + text
		}
	}
	words := strings.Fields(script)
	call := st.call(words[0])
	out := filepath.Join(spec.Dir, words[1])
	if err := os.WriteFile(out, []byte(partial), 0o644); err != nil {
		return runner.Result{}, err
	}
	for i, part := range []time.Duration{min(call.takes, spec.OnStartAfter), call.takes - spec.OnStartAfter} {
		select {
		case <-time.After(part):
		case <-ctx.Done():
			return runner.Result{Cancelled: true, ExitCode: 1}, nil
		}
		if i == 0 && call.takes >= spec.OnStartAfter && spec.OnStart != nil {
			spec.OnStart(process.ID{PID: 4711})
		}
	}
	switch {
	case call.suspends:
		return runner.Result{ExitCode: 75}, nil
	case call.fails:
		return runner.Result{ExitCode: 3}, nil
	}
	text := []byte(words[0])
	for _, in := range words[2:] {
		data, err := os.ReadFile(filepath.Join(spec.Dir, in))
		if err != nil {
			return runner.Result{}, err
		}
		text = append(text, data...)
	}
	return runner.Result{}, os.WriteFile(out, text, 0o644)
}

// partial is the output of a stopped command.
const partial = "not all of it"

func (st *stage) call(task string) sagaCall {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := st.calls[task]
	st.calls[task]++
	for _, t := range st.saga.tasks {
		if t.name == task && n < len(t.calls) {
			return t.calls[n]
		}
	}
	return sagaCall{takes: time.Second}
}

// check checks every log against the diagram.
func (st *stage) check(ctx context.Context, walked map[eventstest.Edge]int) {
	for _, ws := range []string{"w0", "w1"} {
		for key, err := range st.records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
			if err != nil {
				st.t.Fatal(err)
			}
			m := eventstest.Machine{Walked: func(e eventstest.Edge, _ int) { walked[e]++ }}
			var log bytes.Buffer
			for e, err := range events.Read(ctx, st.records, ws, key.Sort) {
				if err == nil {
					line, _ := events.AppendLine(nil, &e.Event)
					log.Write(line)
					err = m.Next(&e.Event)
				}
				if err != nil {
					st.fault("run %s of %s: %v\n%s", key.Sort, ws, err, log.Bytes())
					break
				}
			}
			if m.Ended() == "" {
				st.fault("run %s of %s has no end\n%s", key.Sort, ws, log.Bytes())
			}
		}
		pending := map[string]approval.Block{} // a run that ends early leaves its blocks to the next run
		for b, err := range approval.New(st.records, approval.Options{Now: time.Now}).List(ctx, ws, "") {
			if other, ok := pending[b.Task]; err != nil || ok && b.Status == approval.Pending {
				st.fault("after the end of all runs task %s of %s waits for %+v and %+v, %v", b.Task, ws, other, b, err)
			}
			if b.Status == approval.Pending {
				pending[b.Task] = b
			}
		}
		if rec, err := st.records.Get(ctx, refstore.Key{Partition: "CANCEL", Sort: ws}); err == nil {
			st.fault("a request is left: %q", rec.Value)
		}
	}
	if _, err := st.objects.Stat(ctx, objectstore.Sum([]byte(partial))); err == nil {
		st.fault("the output of a command that was stopped is stored")
	}
}
