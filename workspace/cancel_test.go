package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// slow is a task that takes a minute, and a task that reads its output.
var slow = saga{tasks: []sagaTask{
	{name: "t0", calls: []sagaCall{{takes: time.Minute}, {takes: time.Minute}, {takes: time.Minute}}},
	{name: "t1", reads: []string{"t0"}},
}}

// A started is a start of a workspace that runs beside the test.
type started struct {
	a    *actor
	done chan struct{}
	res  *workspace.RunResult
	err  error
	took time.Duration
}

func (st *stage) begin(name string, change func(*actor, *workspace.StartOptions)) *started {
	s := &started{a: st.process(), done: make(chan struct{})}
	o := workspace.StartOptions{Executor: st.executor(s.a, st.objects), Concurrency: 2, Process: &events.Process{PID: 1}}
	if change != nil {
		change(s.a, &o)
	}
	go func() {
		defer close(s.done)
		began := time.Now()
		s.res, s.err = s.a.ws.Runner.Start(st.t.Context(), name, o)
		s.took = time.Since(began)
	}()
	return s
}

// state waits for the end of a run and returns its state, or the error of a start without a run.
func (s *started) state() string {
	<-s.done
	if s.res == nil {
		return fmt.Sprint(s.err)
	}
	return s.res.Run.State.String()
}

func (st *stage) cancel(name string, change func(*workspace.CancelOptions)) *workspace.Cancelled {
	st.t.Helper()
	o := workspace.CancelOptions{By: "ann@there", Reason: "wrong input"}
	if change != nil {
		change(&o)
	}
	c, err := st.process().ws.Runner.Cancel(st.t.Context(), name, o)
	if err != nil {
		st.t.Fatal(err)
	}
	return c
}

// log returns the events of a workspace's runs, and checks them against the diagram.
func (st *stage) log(name string) (list []events.Event) {
	st.t.Helper()
	for key, err := range st.records.ListStreams(st.t.Context(), refstore.Query{Partition: "EVENTS/" + name}) {
		if err != nil {
			st.t.Fatal(err)
		}
		var m eventstest.Machine
		for e, err := range events.Read(st.t.Context(), st.records, name, key.Sort) {
			if err == nil {
				err = m.Next(&e.Event)
			}
			if err != nil {
				st.t.Fatal(err)
			}
			list = append(list, e.Event)
		}
		if m.Ended() == "" {
			st.t.Errorf("the log of %s has no end", key.Sort)
		}
	}
	return list
}

func types(list []events.Event) string {
	var words []string
	for _, e := range list {
		words = append(words, strings.TrimPrefix(strings.TrimSpace(string(e.Type)+" "+e.Task), "task."))
	}
	return strings.Join(words, ", ")
}

func (st *stage) noRequest(name string) {
	st.t.Helper()
	if _, err := st.records.Get(st.t.Context(), refstore.Key{Partition: "CANCEL", Sort: name}); !errors.Is(err, refstore.ErrNotFound) {
		st.t.Errorf("the request is still there: %v", err)
	}
}

// onStage runs a test in a synctest bubble.
func onStage(t *testing.T, s saga, test func(t *testing.T, st *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStage(t, &s, false)) })
}

func TestCancelRun(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		run := st.begin("w0", nil)
		time.Sleep(10 * time.Second)
		c := st.cancel("w0", nil)
		if got := run.state(); got != "cancelled" || run.err != nil {
			t.Fatalf("the run is %s, %v", got, run.err)
		}
		if run.took > 11*time.Second {
			t.Errorf("it took %v from the request to the end", run.took-10*time.Second)
		}
		if want := (workspace.Cancelled{Workspace: "w0", Status: workspace.CancelDone, RunID: run.res.Run.RunID, By: "ann@there", Reason: "wrong input"}); !reflect.DeepEqual(*c, want) {
			t.Errorf("the cancellation reports %+v, want %+v", *c, want)
		}
		if by := run.res.Cancelled; by == nil || by.Error() != "cancelled by ann@there: wrong input" {
			t.Errorf("the run knows of %v", by)
		}
		log := st.log("w0")
		if got, want := types(log), "run.started, created, marked_ready t0, started t0, failed t0, skipped t1, run.cancelled"; got != want {
			t.Errorf("events are %s\nwant       %s", got, want)
		}
		if d := log[len(log)-1].Data; d.By != "ann@there" || d.Message != "wrong input" {
			t.Errorf("the end says %+v", d)
		}
		if d := log[4].Data; d.Reason != "cancelled" {
			t.Errorf("the task ended as %+v", d)
		}
		st.noRequest("w0")
	})
}

// The first of two requests counts as the one that cancelled; both callers learn of it.
func TestCancelTwice(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		run := st.begin("w0", nil)
		time.Sleep(10 * time.Second)
		var told [2]*workspace.Cancelled
		var wg sync.WaitGroup
		for i := range told {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 3 * time.Millisecond) // before the run has ended
				told[i] = st.cancel("w0", func(o *workspace.CancelOptions) { o.By = fmt.Sprint("user", i) })
			})
		}
		wg.Wait()
		if got := run.state(); got != "cancelled" {
			t.Errorf("the run is %s", got)
		}
		if first, second := *told[0], *told[1]; first.Status != workspace.CancelDone || first.By != "user0" ||
			!reflect.DeepEqual(second, first) && second.Status != workspace.CancelIdle {
			t.Errorf("they report %+v and %+v", first, second)
		}
		st.noRequest("w0")
	})
}

// The result depends on the workspace's holder: none, a run, or an operation that must not be disturbed.
func TestCancelWhat(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		if c := st.cancel("w0", nil); c.Status != workspace.CancelIdle {
			t.Errorf("an idle workspace: %+v", *c)
		}
		ws := st.process().ws
		var unknown *workspace.UnknownError
		if _, err := ws.Runner.Cancel(t.Context(), "w9", workspace.CancelOptions{}); !errors.As(err, &unknown) {
			t.Errorf("no workspace: %v", err)
		}
		for _, op := range []record.Operation{record.Deployment, record.Removal} {
			unlock := st.lock("w0", op)
			var busy *workspace.BusyError
			for name, do := range map[string]func() error{
				"cancel": func() error { _, err := ws.Runner.Cancel(t.Context(), "w0", workspace.CancelOptions{}); return err },
				"remove": func() error { return ws.Runner.RemoveForce(t.Context(), "w0", workspace.CancelOptions{}) },
			} {
				if err := do(); !errors.As(err, &busy) || busy.Operation != op {
					t.Errorf("%s of a workspace that is held for %v: %v", name, op, err)
				}
			}
			unlock()
		}
		if _, err := ws.State(t.Context(), "w0"); err != nil {
			t.Error(err)
		}
		st.noRequest("w0")
	})
}

// lock holds a workspace as an unresponsive process.
func (st *stage) lock(name string, op record.Operation) (unlock func()) {
	st.t.Helper()
	state := record.LockState{Operation: op, Holder: ".process (pid=4711)", AcquiredAt: time.Now()}
	l, err := st.records.TryLock(st.t.Context(), "workspace/"+name, refstore.Exclusive, state.Encode())
	if err != nil {
		st.t.Fatal(err)
	}
	return func() { l.Unlock() }
}

// An unresponsive holder is named after a while. The request stays, but only for this holder.
func TestCancelUnresponsive(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		unlock := st.lock("w0", record.Dataflow)
		var named []string
		began := time.Now()
		o := workspace.CancelOptions{By: "ann@there", Timeout: time.Minute, Patience: 5 * time.Second, OnWait: func(e *workspace.BusyError) {
			named = append(named, fmt.Sprint(time.Since(began).Round(time.Second), " ", e.Holder))
		}}
		_, err := st.process().ws.Runner.Cancel(t.Context(), "w0", o)
		var unheard *workspace.UnresponsiveError
		if !errors.As(err, &unheard) || unheard.Busy.Holder != "process 4711" || unheard.After != time.Minute {
			t.Fatalf("after the timeout: %v", err)
		}
		if got := strings.Join(named, ", "); got != "5s process 4711" {
			t.Errorf("the holder is named as %s", got)
		}
		if _, err := st.records.Get(t.Context(), refstore.Key{Partition: "CANCEL", Sort: "w0"}); err != nil {
			t.Errorf("the request: %v", err)
		}
		unlock()
		if got := st.begin("w0", nil).state(); got != "completed" {
			t.Errorf("the run after it is %s", got)
		}
		st.noRequest("w0")
	})
}

// A request for another hold of the lock or another run, or an unreadable one, is removed and stops no run.
func TestCancelStale(t *testing.T) {
	for name, value := range map[string][]byte{
		"another process": (&record.Cancellation{Holder: ".process (pid=4711)", Since: time.Now(), By: "ann"}).Encode(),
		"another run":     (&record.Cancellation{Run: "r", Holder: ".process (pid=4711)", Since: time.Now(), By: "ann"}).Encode(),
		"unreadable":      []byte("oops"),
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, slow, func(t *testing.T, st *stage) {
				put := func() {
					if _, err := st.records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "CANCEL", Sort: "w0"}, Value: value}); err != nil {
						t.Fatal(err)
					}
				}
				put()
				run := st.begin("w0", nil)
				time.Sleep(time.Second)
				st.noRequest("w0")
				put() // while it runs
				if got := run.state(); got != "completed" {
					t.Errorf("the run is %s, %v", got, run.err)
				}
				st.noRequest("w0")
			})
		})
	}
}

// The times at which a run may be cancelled.
func TestCancelMoments(t *testing.T) {
	flaky := saga{tasks: []sagaTask{
		{name: "t0", retries: 2, backoff: 100, calls: []sagaCall{{fails: true}, {fails: true}}}, {name: "t1", reads: []string{"t0"}},
	}}
	// once cancels the run at the first write of a record of the partition for which due is true. The writer waits
	// meanwhile.
	once := func(st *stage, a *actor, partition string, due func() bool) {
		var first sync.Once
		a.puts = func(key refstore.Key) {
			if strings.HasPrefix(key.Partition, partition) && due() {
				first.Do(func() {
					st.cancel("w0", func(o *workspace.CancelOptions) { o.NoWait = true })
					time.Sleep(5 * time.Second)
				})
			}
		}
	}
	for _, test := range []struct {
		name  string
		saga  saga
		start func(st *stage, a *actor, o *workspace.StartOptions)
		after time.Duration // 0: start itself cancels the run
		state string
		want  string // events
	}{
		{
			"before the run's record", slow, func(st *stage, _ *actor, o *workspace.StartOptions) {
				o.OnWork = sync.OnceFunc(func() {
					st.cancel("w0", func(o *workspace.CancelOptions) { o.NoWait = true })
					time.Sleep(5 * time.Second)
				})
			}, 0, "cancelled by ann@there: wrong input", "",
		},
		{
			"between the record and the first event", slow, func(st *stage, a *actor, _ *workspace.StartOptions) {
				once(st, a, "DATAFLOW/", func() bool { return true })
			},
			0, "cancelled", "run.started, created, marked_ready t0, abandoned, run.cancelled",
		},
		{
			"between two attempts", flaky, nil, 50 * time.Second, "cancelled",
			"run.started, created, marked_ready t0, started t0, failed t0, retry_scheduled t0, skipped t1, run.cancelled",
		},
		{
			"in the second attempt", flaky, func(st *stage, _ *actor, _ *workspace.StartOptions) {
				st.saga.tasks[0].calls = []sagaCall{{fails: true}, {takes: time.Hour}}
			}, 150 * time.Second, "cancelled",
			"run.started, created, marked_ready t0, started t0, failed t0, retry_scheduled t0, started t0, failed t0, skipped t1, run.cancelled",
		},
		{
			"while inputs are staged", slow, func(st *stage, a *actor, o *workspace.StartOptions) {
				o.Executor = st.executor(a, &stuck{st.objects})
			}, 10 * time.Second, "cancelled", "run.started, created, marked_ready t0, abandoned, run.cancelled",
		},
		{
			"while the last result is published", slow, func(st *stage, a *actor, o *workspace.StartOptions) {
				o.Publish = workspace.Final
				var done atomic.Bool
				o.OnEvent = func(e events.Event) {
					if e.Type == events.TaskCompleted && e.Task == "t1" {
						done.Store(true)
					}
				}
				once(st, a, "WORKSPACE", done.Load)
			}, 0, "completed", "run.started, created, marked_ready t0, started t0, completed t0, marked_ready t1, started t1, completed t1, run.completed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			onStage(t, test.saga, func(t *testing.T, st *stage) {
				run := st.begin("w0", func(a *actor, o *workspace.StartOptions) {
					if test.start != nil {
						test.start(st, a, o)
					}
				})
				var told *workspace.Cancelled
				if test.after > 0 {
					time.Sleep(test.after)
					told = st.cancel("w0", nil)
				}
				if got := run.state(); got != test.state {
					t.Errorf("it is %s, %v, want %s", got, run.err, test.state)
				}
				if told != nil && string(told.Status) != test.state {
					t.Errorf("the cancellation reports %+v", *told)
				}
				if test.after > 0 && run.took > test.after+2*time.Second {
					t.Errorf("it went on for %v", run.took-test.after)
				}
				if got := types(st.log("w0")); got != test.want {
					t.Errorf("events are %s\nwant       %s", got, test.want)
				}
				if got := st.begin("w0", nil).state(); got != "completed" {
					t.Errorf("the next run is %s", got)
				}
				st.noRequest("w0")
			})
		})
	}
}

// stuck is an object store whose copies out of it never finish.
type stuck struct{ *objectstore.Dir }

func (s *stuck) Materialize(ctx context.Context, _ objectstore.Hash, _ objectstore.Folder, _ string, _ executions.FileMode) error {
	<-ctx.Done()
	return fmt.Errorf("copy: %w", ctx.Err())
}

// A run that waits for an execution of another workspace stops at once; the other run continues.
func TestCancelWhileWaitingForAnother(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		works := st.begin("w0", nil)
		time.Sleep(time.Second)
		waits := st.begin("w1", nil)
		time.Sleep(time.Second)
		c := st.cancel("w1", nil)
		if got := waits.state(); got != "cancelled" || c.Status != workspace.CancelDone || waits.took > 2*time.Second {
			t.Errorf("the one that waits is %s after %v, and said to be %s", got, waits.took, c.Status)
		}
		if got := works.state(); got != "completed" {
			t.Errorf("the one that works is %s", got)
		}
		if got, want := types(st.log("w1")), "run.started, created, marked_ready t0, abandoned, run.cancelled"; got != want {
			t.Errorf("events are %s\nwant       %s", got, want)
		}
	})
}

// A process that finds a run dead withdraws its queued jobs. If a run has begun after the jobs were listed, it is not
// dead: it is the one to cancel.
func TestWithdrawn(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		var run *started
		var calls []string
		ws := func(a *actor, meanwhile func()) *workspace.Workspaces {
			a.ws.Withdraw = func(ctx context.Context, ws, run string, dead func(context.Context) error) (int, error) {
				if run != "" {
					run = "its run"
				}
				calls = append(calls, ws+" "+run)
				meanwhile()
				if dead != nil {
					if err := dead(ctx); err != nil {
						return 0, err
					}
				}
				return 6, nil
			}
			return a.ws
		}
		nothing := func() {}
		if c, err := ws(st.process(), nothing).Runner.Cancel(t.Context(), "w0", workspace.CancelOptions{}); err != nil || c.Status != workspace.CancelIdle || c.Withdrawn != 6 {
			t.Errorf("an idle workspace: %+v, %v", c, err)
		}
		c, err := ws(st.process(), func() {
			run = st.begin("w0", nil)
			time.Sleep(time.Second)
		}).Runner.Cancel(t.Context(), "w0", workspace.CancelOptions{By: "me"})
		if err != nil || c.Status != workspace.CancelDone || c.Withdrawn != 0 {
			t.Errorf("one that is begun meanwhile: %+v, %v", c, err)
		}
		if got := run.state(); got != "cancelled" {
			t.Errorf("the run that has begun meanwhile is %s", got)
		}

		// A run whose process dies. The next start closes it, and executes its tasks itself.
		var dead *actor
		run = st.begin("w0", func(a *actor, _ *workspace.StartOptions) { dead = a })
		time.Sleep(time.Second)
		dead.dead.Store(true)
		<-run.done
		if again := st.begin("w0", func(a *actor, _ *workspace.StartOptions) { ws(a, nothing) }); again.state() != "completed" {
			t.Errorf("the next run is %s", again.state())
		}
		if err := ws(st.process(), nothing).Cleaner.Remove(t.Context(), "w0"); err != nil {
			t.Error(err)
		}
		if got, want := strings.Join(calls, ", "), "w0 , w0 , w0 its run, w0 "; got != want {
			t.Errorf("withdrawn were %q, want %q", got, want)
		}
	})
}

// A store without notices is polled every second.
func TestCancelByPolling(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		a := st.process()
		silent := workspace.New(workspace.Stores{
			Records: struct{ workspace.Records }{a}, Locks: a, Objects: st.objects, Local: a, Now: time.Now,
			Holder: func() string { return "me" }, Sweep: func(context.Context) error { return nil },
		})
		done := make(chan *workspace.RunResult)
		go func() {
			res, err := silent.Runner.Start(t.Context(), "w0", workspace.StartOptions{Executor: st.executor(a, st.objects), Concurrency: 1})
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		time.Sleep(10 * time.Second)
		began := time.Now()
		c := st.cancel("w0", nil)
		if took := time.Since(began); c.Status != workspace.CancelDone || took > 1200*time.Millisecond {
			t.Errorf("after %v it is %s", took, c.Status)
		}
		if res := <-done; res.Run.State != record.RunCancelled {
			t.Errorf("the run is %v", res.Run.State)
		}
	})
}

// A run with nothing to do looks for a request once.
func TestCancelCostsNothing(t *testing.T) {
	onStage(t, saga{tasks: []sagaTask{{name: "t0"}}}, func(t *testing.T, st *stage) {
		looks := func() (n int) {
			var mu sync.Mutex
			run := st.begin("w0", func(a *actor, _ *workspace.StartOptions) {
				a.gets = func(key refstore.Key) {
					mu.Lock()
					defer mu.Unlock()
					if key.Partition == "CANCEL" {
						n++
					}
				}
			})
			if got := run.state(); got != "completed" {
				t.Fatalf("the run is %s, %v", got, run.err)
			}
			return n
		}
		looks()
		ws := st.process().ws
		if err := ws.Deployer.Deploy(t.Context(), "w0", st.register()); err != nil { // a registered package needs no reading of files
			t.Fatal(err)
		}
		looks()
		if n := looks(); n != 1 {
			t.Errorf("an unchanged run looks %d times for a request, want once", n)
		}
	})
}

// register builds the package of the stage and registers it.
func (st *stage) register() workspace.PackageRef {
	st.t.Helper()
	ws := st.process().ws
	built, err := ws.Deployer.Build(st.t.Context(), filepath.Join(st.dir, "e3.yaml"), nil)
	if err != nil {
		st.t.Fatal(err)
	}
	ref := workspace.PackageRef{Name: built.Package.Name, Version: built.Package.Version, Hash: built.Hash}
	if err := ws.Packages.Add(st.t.Context(), ref); err != nil {
		st.t.Fatal(err)
	}
	return ref
}

// A workspace that is started again and again can be removed, and nothing is left of it.
func TestRemoveForce(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		ctx := t.Context()
		run := st.begin("w0", nil)
		time.Sleep(time.Second)
		var busy *workspace.BusyError
		if err := st.process().ws.Cleaner.Remove(ctx, "w0"); !errors.As(err, &busy) || busy.Operation != record.Dataflow {
			t.Errorf("without force: %v", err)
		}
		// Start it again at once, a few times.
		var starter sync.WaitGroup
		starter.Go(func() {
			for range 3 {
				<-run.done
				run = st.begin("w0", nil)
				if how := run.state(); how != "cancelled" && !strings.Contains(how, "cancelled by ann@there") {
					t.Errorf("a start in between is %s", how)
				}
			}
		})
		if err := st.process().ws.Runner.RemoveForce(ctx, "w0", workspace.CancelOptions{By: "ann@there"}); err != nil {
			t.Fatal(err)
		}
		starter.Wait()
		if how := st.begin("w0", nil).state(); !strings.Contains(how, "there is no workspace") {
			t.Errorf("a start of what was removed: %s", how)
		}
		if _, err := st.process().ws.State(ctx, "w0"); !errors.Is(err, workspace.ErrNotFound) {
			t.Errorf("the workspace: %v", err)
		}
		st.log("w0") // its events stay readable
		for rec, err := range st.records.List(ctx, refstore.Query{Partition: "DATAFLOW/w0"}) {
			t.Errorf("the run %s is left, %v", rec.Key.Sort, err)
		}
		st.noRequest("w0")
		if got := st.begin("w1", nil).state(); got != "completed" {
			t.Errorf("the other workspace's run is %s", got)
		}
	})
}
