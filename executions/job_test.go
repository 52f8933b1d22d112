package executions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// remote makes executions in place of a queue.
type remote func(ctx context.Context, key executions.Key, req *executions.Request) (executions.Result, error)

func (r remote) Execute(ctx context.Context, key executions.Key, req *executions.Request) (executions.Result, error) {
	return r(ctx, key, req)
}

func by(r remote) func(*executions.Options) { return func(o *executions.Options) { o.Remote = r } }

func runsNothing(t *testing.T) commands {
	return func(context.Context, runner.Spec) (runner.Result, error) {
		t.Error("a command ran here")
		return runner.Result{}, errors.New("nothing runs here")
	}
}

// jobs is a queue's answers about its jobs. Each job names one execution.
type jobs struct {
	mu    sync.Mutex
	named map[string]string // execution by job that is not finished
	asked int
	fault error
}

func (j *jobs) set(job, id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.named == nil {
		j.named = map[string]string{}
	}
	j.named[job] = id
}

func (j *jobs) working(ctx context.Context, job, id string) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked++
	return j.fault == nil && j.named[job] == id, errors.Join(j.fault, ctx.Err())
}

// wait waits until the jobs are asked for again.
func (j *jobs) wait(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	before := j.asked
	j.mu.Unlock()
	await(t, "the jobs to be asked for", func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.asked >= before+2
	})
}

// wire has the executor of a machine ask for the jobs.
func (j *jobs) wire(x *executions.Executor) { x.Store = x.WithJobs(j.working) }

const aJob = "default/0123"

// running puts an execution of a job on record, as its worker does.
func (s *site) running(t *testing.T, req *executions.Request, id, job string) {
	t.Helper()
	st := &record.Status{State: record.Running, ExecutionID: id, StartedAt: time.UnixMilli(1), PID: 12, BootID: "b"}
	rec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + keyOf(req).String(), Sort: id}, Value: st.Encode()}
	if job != "" {
		rec.Fields = []refstore.Field{{Name: "job", Value: []byte(job)}}
	}
	if _, err := s.records.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
}

// end replaces an execution's record by that of its end.
func (s *site) end(t *testing.T, req *executions.Request, st *record.Status) {
	t.Helper()
	k := refstore.Key{Partition: "EXECUTION/" + keyOf(req).String(), Sort: st.ExecutionID}
	rec, err := s.records.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	st.StartedAt, st.CompletedAt = time.UnixMilli(1), time.UnixMilli(5)
	if _, err := s.records.Put(t.Context(), refstore.Record{Key: k, Value: st.Encode(), Version: rec.Version}); err != nil {
		t.Fatal(err)
	}
}

func (s *site) field(t *testing.T, req *executions.Request, id, name string) string {
	t.Helper()
	rec, err := s.records.Get(t.Context(), refstore.Key{Partition: "EXECUTION/" + keyOf(req).String(), Sort: id}, name)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := rec.Field(name)
	return string(text)
}

// A remote execution is requested once, under the claim of its key, and its result is the answer.
func TestRemote(t *testing.T) {
	for _, test := range []struct {
		name  string
		force bool
		come  executions.Result
		want  []string
	}{
		{"success", false, executions.Result{ExecutionID: "a", State: record.Success}, []string{"list EXECUTION", "claim", "list EXECUTION", "elsewhere", "release"}},
		{"failure", false, executions.Result{ExecutionID: "a", State: record.Failed, ExitCode: 3}, []string{"list EXECUTION", "claim", "list EXECUTION", "elsewhere", "release"}},
		{"forced", true, executions.Result{ExecutionID: "a", State: record.Success}, []string{"get INDEX", "put INDEX", "list keys of EXECUTION", "elsewhere", "confirm"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			req.Force = test.force
			var m *machine
			synced := 0
			m = s.machine(t, "one", runsNothing(t), by(func(_ context.Context, key executions.Key, got *executions.Request) (executions.Result, error) {
				if key != keyOf(req) || got.Task != req.Task || got.Name != req.Name || got.RunID != req.RunID || got.Force != req.Force || got.After != "" {
					t.Errorf("asked for %v, %+v", key, got)
				}
				for _, h := range s.leases.claims {
					if len(h.text) > 0 {
						t.Errorf("the claim says %q, want nothing", h.text)
					}
				}
				return test.come, gatedErr(m.gate, "elsewhere", func() error { return nil })
			}), func(o *executions.Options) { o.Sync = func(context.Context) error { synced++; return nil } })
			res, err := m.Do(t.Context(), req)
			if err != nil || res != test.come || synced != 1 {
				t.Errorf("got %+v, %v, synced %d times, want %+v and once", res, err, synced, test.come)
			}
			if diff := cmp.Diff(test.want, m.requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A known answer needs no worker, and a rerun for comparison runs locally.
func TestNotRemote(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	m := s.machine(t, "one", writes("x"), by(func(context.Context, executions.Key, *executions.Request) (executions.Result, error) {
		t.Error("asked elsewhere")
		return executions.Result{}, errors.New("no worker is there")
	}))
	first, err := m.Make(t.Context(), req, newID(t))
	if err != nil || first.State != record.Success {
		t.Fatalf("got %+v, %v", first, err)
	}
	if res, err := m.Do(t.Context(), req); err != nil || !res.Cached || res.ExecutionID != first.ExecutionID {
		t.Errorf("got %+v, %v, want %s", res, err, first.ExecutionID)
	}
	res, err := m.Rerun(t.Context(), req, &executions.Hit{ExecutionID: first.ExecutionID, Output: first.Output})
	if err != nil || res.Cached || res.Output != first.Output {
		t.Errorf("run again: %+v, %v", res, err)
	}
}

// A machine that loses its lease while it waits for a job returns that error. The process that takes over has nothing
// to fence.
func TestRemoteLosesLease(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	waits := make(chan struct{})
	one := s.machine(t, "one", nil, by(func(ctx context.Context, _ executions.Key, _ *executions.Request) (executions.Result, error) {
		close(waits)
		<-ctx.Done()
		return executions.Result{}, context.Cause(ctx)
	}))
	done := one.begin(t.Context(), req)
	<-waits
	one.expire()
	res, err := s.machine(t, "two", writes("x")).Do(t.Context(), req)
	if err != nil || res.State != record.Success {
		t.Fatalf("the other got %+v, %v", res, err)
	}
	one.tell()
	if o := <-done; !errors.Is(o.err, refstore.ErrLost) {
		t.Errorf("it got %+v, %v, want that its lease was lost", o.res, o.err)
	}
	if all := s.all(t, req); len(all) != 1 || all[0].ExecutionID != res.ExecutionID {
		t.Errorf("on record are %d executions, want that of the other", len(all))
	}
}

// Every request for a key waits for its execution that runs for a job, even if the job's run is gone.
func TestWaitsForAnothersJob(t *testing.T) {
	out := objectstore.Sum([]byte("x"))
	ends := []struct {
		name   string
		end    record.Status
		cached bool
	}{
		{"success", record.Status{State: record.Success, OutputHash: out.String()}, true},
		{"failure", record.Status{State: record.Failed, ExitCode: 4}, true},
		{"error", record.Status{State: record.Error, Message: "lost"}, false},
	}
	for _, where := range []string{"here", "elsewhere"} {
		for _, test := range ends {
			t.Run(where+", "+test.name, func(t *testing.T) {
				s := newSite(t)
				if _, err := objectstore.PutBytes(t.Context(), s.objects, []byte("x")); err != nil {
					t.Fatal(err)
				}
				req := s.request(t)
				req.Policy = &record.Policy{Suspend: 4}
				id := newID(t)
				s.running(t, req, id, aJob)
				var q jobs
				q.set(aJob, id)
				fresh := executions.Result{ExecutionID: "new", State: record.Success}
				m := s.machine(t, "one", writes("x"))
				if where == "elsewhere" {
					m = s.machine(t, "one", runsNothing(t), by(func(context.Context, executions.Key, *executions.Request) (executions.Result, error) {
						return fresh, nil
					}))
				}
				q.wire(m.Executor)
				done := m.begin(t.Context(), req)
				q.wait(t)
				if got := s.all(t, req); len(got) != 1 || got[0].State != record.Running {
					t.Errorf("while it waits %d executions are on record", len(got))
				}
				end := test.end
				end.ExecutionID = id
				s.end(t, req, &end)
				o := <-done
				if o.err != nil || o.res.Cached != test.cached || (o.res.ExecutionID == id) != test.cached {
					t.Fatalf("got %+v, %v, want it from %s: %v", o.res, o.err, id, test.cached)
				}
				switch {
				case test.end.State == record.Failed && o.res.Reason != executions.ReasonSuspended:
					t.Errorf("the reason of the failure is %q", o.res.Reason)
				case !test.cached && o.res.State != record.Success:
					t.Errorf("got %+v, want a success of its own", o.res)
				}
			})
		}
	}
}

// An execution whose job has ended, or names another execution, is dead. A request that waits for a job can be
// cancelled.
func TestJobThatEndedLeavesItsExecution(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	id := newID(t)
	s.running(t, req, id, aJob)
	var q jobs
	q.set(aJob, id)
	m := s.machine(t, "one", writes("x"))
	q.wire(m.Executor)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := m.begin(ctx, req)
	q.wait(t)
	cancel(enough)
	if o := <-done; !errors.Is(o.err, enough) && !errors.Is(o.err, context.Canceled) {
		t.Errorf("cancelled: %+v, %v", o.res, o.err)
	}
	done = m.begin(t.Context(), req)
	q.set(aJob, newID(t))
	o := <-done
	if o.err != nil || o.res.Cached || o.res.State != record.Success {
		t.Errorf("got %+v, %v, want a success of its own", o.res, o.err)
	}
	e, err := m.Get(t.Context(), keyOf(req), id)
	if err != nil || e.State != record.Error || !strings.Contains(e.Message, "stale") {
		t.Errorf("the other is %+v, %v", e, err)
	}
}

// If the queue cannot be read, no execution is closed, and the request gets the error.
func TestJobThatCannotBeAskedFor(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	id := newID(t)
	s.running(t, req, id, aJob)
	q := jobs{fault: errors.New("throttled")}
	m := s.machine(t, "one", runsNothing(t))
	q.wire(m.Executor)
	if res, err := m.Do(t.Context(), req); !errors.Is(err, q.fault) {
		t.Errorf("got %+v, %v", res, err)
	}
	if closed, err := m.CloseIfDead(t.Context(), keyOf(req), id); closed || !errors.Is(err, q.fault) {
		t.Errorf("closed %v, %v", closed, err)
	}
	if alive, err := m.Alive(t.Context(), keyOf(req), id); !errors.Is(err, q.fault) {
		t.Errorf("alive %v, %v", alive, err)
	}
	if e, err := m.Get(t.Context(), keyOf(req), id); err != nil || e.State != record.Running {
		t.Errorf("on record is %+v, %v", e, err)
	}
}

// An execution that a job keeps alive is not closed, replaced or pruned. Without a Working function jobs keep nothing alive.
func TestJobKeepsAlive(t *testing.T) {
	for _, test := range []struct {
		name  string
		job   string // of the record
		named bool   // the unfinished job names the execution
		wired bool
		alive bool
	}{
		{"a job that is not finished", aJob, true, true, true},
		{"a job that is over", aJob, false, true, false},
		{"no job", "", true, true, false},
		{"no Working function", aJob, true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			records := mem.New()
			id := newID(t)
			st := statusOf(id, record.Running, "")
			rec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + importKey.String(), Sort: id}, Value: st.Encode()}
			if test.job != "" {
				rec.Fields = []refstore.Field{{Name: "job", Value: []byte(test.job)}}
			}
			if _, err := records.Put(t.Context(), rec); err != nil {
				t.Fatal(err)
			}
			var q jobs
			if test.named {
				q.set(aJob, id)
			}
			store := executions.NewStore(records, &memory{})
			if test.wired {
				store = store.WithJobs(q.working)
			}
			c := executions.NewCurator(store, records, time.Now)
			if alive, err := c.Alive(t.Context(), importKey, id); alive != test.alive || err != nil {
				t.Errorf("alive: %v, %v", alive, err)
			}
			want := executions.Overwritten
			if test.alive {
				want = executions.SkippedRunning
			}
			in := incoming(id, record.Success, "", "")
			if out, err := c.Decide(t.Context(), in); out == executions.SkippedRunning != test.alive || err != nil {
				t.Errorf("an import would be: %v, %v, want %v", out, err, want)
			}
			closed, err := c.CloseIfDead(t.Context(), importKey, id)
			if closed == test.alive || err != nil {
				t.Errorf("closed: %v, %v", closed, err)
			}
			if out, err := c.Import(t.Context(), in); out != want || err != nil {
				t.Errorf("imported: %v, %v, want %v", out, err, want)
			}
			rec, err = records.Get(t.Context(), rec.Key, "job")
			if job, _ := rec.Field("job"); err != nil || (string(job) == aJob) != test.alive {
				t.Errorf("beside it is job %q, %v", job, err)
			}
		})
	}
}

// A worker records a job's attempt under the id that the job names, and with the job's name while it runs.
func TestMake(t *testing.T) {
	for _, test := range []struct {
		name  string
		c     commands
		force bool
		job   string // beside the record at the end
		want  []string
	}{
		{"short", writes("x"), false, "", []string{"store output", "put EXECUTION success", "list keys of EXECUTION"}},
		{"announced", announced(writes("x")), false, aJob, []string{
			"put EXECUTION running", "store output", "append LOG stdout.txt", "seal LOG stdout.txt",
			"put EXECUTION success", "list keys of EXECUTION",
		}},
		{"forced", writes("x"), true, "", []string{"get INDEX", "put INDEX", "store output", "put EXECUTION success", "confirm"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			req.Job.Ref, req.Force = aJob, test.force
			m := s.machine(t, "worker", test.c)
			id := newID(t)
			res, err := m.Make(t.Context(), req, id)
			if err != nil || res.State != record.Success || res.ExecutionID != id || res.Cached {
				t.Fatalf("got %+v, %v", res, err)
			}
			if diff := cmp.Diff(test.want, m.gate.list()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if job := s.field(t, req, id, "job"); job != test.job {
				t.Errorf("its job is %q, want %q", job, test.job)
			}
			if _, err := m.Make(t.Context(), req, id); !errors.Is(err, refstore.ErrLost) {
				t.Errorf("made again under the same id: %v", err)
			}
			if _, err := m.Make(t.Context(), req, "../x"); err == nil {
				t.Error("made under a name that is no id")
			}
		})
	}
}

// A command that is stopped because its worker has lost the job leaves no record.
func TestMakeStopped(t *testing.T) {
	for name, as := range map[string]func(commands) commands{"short": func(c commands) commands { return c }, "announced": announced} {
		for _, cause := range []error{refstore.ErrLost, errors.New("drained")} {
			t.Run(name+", "+cause.Error(), func(t *testing.T) {
				s := newSite(t)
				req := s.request(t)
				req.Job.Ref = aJob
				ctx, cancel := context.WithCancelCause(t.Context())
				m := s.machine(t, "worker", as(func(ctx context.Context, _ runner.Spec) (runner.Result, error) {
					cancel(cause)
					<-ctx.Done()
					return runner.Result{}, nil
				}))
				id := newID(t)
				res, err := m.Make(ctx, req, id)
				if errors.Is(cause, refstore.ErrLost) {
					if !errors.Is(err, refstore.ErrLost) {
						t.Errorf("got %+v, %v", res, err)
					}
					for _, e := range s.all(t, req) {
						if e.State != record.Running {
							t.Errorf("on record is %v", e.State)
						}
					}
					return
				}
				if err != nil || res.Reason != executions.ReasonCancelled {
					t.Errorf("got %+v, %v", res, err)
				}
			})
		}
	}
}

// The first holder of a job may be held up at any call while the next one settles its execution and makes another. Then
// one of the two executions is the job's answer, both holders agree which, and the other is an error.
func TestTwoHoldersOfAJob(t *testing.T) {
	for name, as := range map[string]func(commands) commands{"short": func(c commands) commands { return c }, "announced": announced} {
		for _, after := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				for n := 1; ; n++ {
					s := newSite(t)
					req := s.request(t)
					req.Job.Ref = aJob
					ids := []string{newID(t), newID(t)}
					one := s.machine(t, "one", as(writes("of one")))
					one.gate.stopAt, one.gate.after = n, after
					done := make(chan outcome, 1)
					go func() {
						res, err := one.Make(t.Context(), req, ids[0])
						done <- outcome{res, err}
					}()
					var first outcome
					select {
					case first = <-done:
						if first.err != nil || n <= len(one.gate.list()) {
							t.Fatalf("undisturbed: %+v, %v", first.res, first.err)
						}
						return
					case <-one.gate.stopped:
					}
					at := one.gate.list()[n-1]
					two := s.machine(t, "two", as(writes("of two")))
					settled, err := two.Settle(t.Context(), keyOf(req), req.Inputs, ids[0], executions.ReasonLost, "the worker is gone")
					if err != nil {
						t.Fatal(err)
					}
					answer := ids[0]
					switch {
					case settled.State == record.Success && settled.ExecutionID == ids[0] && !settled.Output.IsZero() && settled.Size == 6:
					case settled.State == record.Error && settled.Reason == executions.ReasonLost && settled.Message == "the worker is gone":
						answer = ids[1]
						if res, err := two.Make(t.Context(), req, ids[1]); err != nil || res.State != record.Success {
							t.Fatalf("the second made %+v, %v", res, err)
						}
					default:
						t.Fatalf("held up at %q: it is settled as %+v", at, settled)
					}
					close(one.gate.resume)
					first = <-done
					if first.err == nil && answer != ids[0] || first.err != nil && (answer == ids[0] || !errors.Is(first.err, refstore.ErrLost)) {
						t.Errorf("held up at %q: the first got %+v, %v, the answer is %s", at, first.res, first.err, answer)
					}
					if got := s.successes(t, req); !slices.Equal(got, []string{answer}) {
						t.Errorf("held up at %q: successes are %v, want %s", at, got, answer)
					}
					if answer == ids[1] {
						again, err := one.Settle(t.Context(), keyOf(req), req.Inputs, ids[0], executions.ReasonCancelled, "once more")
						if err != nil || again != settled {
							t.Errorf("settled again it is %+v, %v, want %+v", again, err, settled)
						}
					}
				}
			})
		}
	}
}

// Settle leaves an execution that has ended unchanged, and returns its result.
func TestSettle(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	out, err := objectstore.PutBytes(t.Context(), s.objects, []byte("made"))
	if err != nil {
		t.Fatal(err)
	}
	m := s.machine(t, "one", nil)
	for _, test := range []struct {
		name   string
		st     *record.Status // on record, unless torn or absent
		torn   bool
		want   executions.Result // but for its id
		reason string            // beside the record
	}{
		{"absent", nil, false, executions.Result{State: record.Error, Reason: executions.ReasonOOM, Message: "says Slurm"}, "oom"},
		{"running", &record.Status{State: record.Running, PID: 12, BootID: "b"}, false,
			executions.Result{State: record.Error, Reason: executions.ReasonOOM, Message: "says Slurm"}, "oom"},
		{"success", &record.Status{State: record.Success, OutputHash: out.String()}, false,
			executions.Result{State: record.Success, Output: out, Size: 4, Duration: time.Second}, ""},
		{"failure", &record.Status{State: record.Failed, ExitCode: 5}, false, executions.Result{State: record.Failed, ExitCode: 5, Duration: time.Second}, ""},
		{"error", &record.Status{State: record.Error, Message: "no"}, false, executions.Result{State: record.Error, Message: "no", Duration: time.Second}, ""},
		{"torn", nil, true, executions.Result{State: record.Error}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := newID(t)
			k := refstore.Key{Partition: "EXECUTION/" + keyOf(req).String(), Sort: id}
			var value []byte
			if test.torn {
				value = []byte("torn")
			}
			if test.st != nil {
				st := *test.st
				st.ExecutionID, st.StartedAt = id, time.UnixMilli(1000)
				if st.State != record.Running {
					st.CompletedAt = time.UnixMilli(2000)
				}
				value = st.Encode()
			}
			if value != nil {
				if _, err := s.records.Put(t.Context(), refstore.Record{Key: k, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.Settle(t.Context(), keyOf(req), req.Inputs, id, executions.ReasonOOM, "says Slurm")
			if err != nil {
				t.Fatal(err)
			}
			want := test.want
			want.ExecutionID = id
			if test.torn {
				want.Message = got.Message // the decoder's error
			}
			if test.want.Duration == 0 {
				got.Duration = 0
			}
			got.EndedAt = time.Time{}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the result (-want +got):\n%s", diff)
			}
			if e, err := m.Get(t.Context(), keyOf(req), id); err == nil && test.reason != "" && (e.Detail == nil || e.Detail.Reason != test.reason) {
				t.Errorf("beside the record is %+v, want the reason %q", e.Detail, test.reason)
			}
		})
	}
	if _, err := m.Settle(t.Context(), keyOf(req), nil, "no id", "", ""); err == nil {
		t.Error("settled what is no id")
	}
}

// If a worker recorded a second success of a key but died before it voided proofs of the first, Settle voids them.
func TestSettledSuccessVoidsProofs(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	m := s.machine(t, "one", writes("x"))
	for range 2 {
		if _, err := m.Make(t.Context(), req, newID(t)); err != nil {
			t.Fatal(err)
		}
	}
	g := executions.NewGeneration(s.records, s.leases.join())
	before := wantGeneration(t, g, true)
	if _, err := m.Settle(t.Context(), keyOf(req), nil, s.successes(t, req)[0], executions.ReasonLost, ""); err != nil {
		t.Fatal(err)
	}
	if after := wantGeneration(t, g, true); after == before {
		t.Errorf("the generation is still %q", after)
	}
}

// The reason that is recorded for each end of a job's command.
func TestReasonsOfJobs(t *testing.T) {
	for _, test := range []struct {
		name   string
		res    runner.Result
		err    error
		policy *record.Policy
		want   executions.Result // State, Reason, ExitCode and part of Message
		local  executions.Reason // of a command without a job, if it differs
	}{
		{"memory used up", runner.Result{OOM: true, Signal: 9, ExitCode: -1, PeakRSS: 3 << 30}, nil, nil,
			executions.Result{State: record.Error, Reason: executions.ReasonOOM, Message: "memory was used up (the largest process had 3.0 GiB)"}, ""},
		{"memory of a child used up", runner.Result{OOM: true, ExitCode: 137}, nil, nil,
			executions.Result{State: record.Error, Reason: executions.ReasonOOM, Message: "memory was used up"}, ""},
		{"timed out, while memory was used up", runner.Result{OOM: true, TimedOut: true, Signal: 9}, nil, &record.Policy{Timeout: time.Second},
			executions.Result{State: record.Error, Reason: executions.ReasonTimeout, Message: "timed out"}, ""},
		{"suspended", runner.Result{ExitCode: 75}, nil, &record.Policy{Suspend: 75}, executions.Result{State: record.Failed, Reason: executions.ReasonSuspended, ExitCode: 75}, ""},
		{"another code", runner.Result{ExitCode: 76}, nil, &record.Policy{Suspend: 75}, executions.Result{State: record.Failed, ExitCode: 76}, ""},
		{"no code to suspend with", runner.Result{ExitCode: 76}, nil, &record.Policy{}, executions.Result{State: record.Failed, ExitCode: 76}, ""},
		{"lease expired", runner.Result{Cancelled: true}, runner.ErrExpired, nil,
			executions.Result{State: record.Error, Reason: executions.ReasonLost, Message: "without word from their owner"}, ""},
		{"the supervisor was killed", runner.Result{}, runner.ErrSupervisorLost, nil,
			executions.Result{State: record.Error, Reason: executions.ReasonLost, Message: "supervisor"}, executions.ReasonSignal},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			req.Policy, req.Job.Ref = test.policy, aJob
			m := s.machine(t, "one", func(context.Context, runner.Spec) (runner.Result, error) { return test.res, test.err })
			id := newID(t)
			got, err := m.Make(t.Context(), req, id)
			if err != nil || got.State != test.want.State || got.Reason != test.want.Reason || got.ExitCode != test.want.ExitCode ||
				!strings.Contains(got.Message, test.want.Message) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
			if e, err := m.Get(t.Context(), keyOf(req), id); err != nil || e.Detail == nil || e.Detail.Reason != string(test.want.Reason) {
				t.Errorf("on record is %+v, %v", e, err)
			}
			if test.local == "" {
				return
			}
			req.Job.Ref = ""
			if got, err := m.Make(t.Context(), req, newID(t)); err != nil || got.State != test.want.State || got.Reason != test.local {
				t.Errorf("without a job: %+v, %v", got, err)
			}
		})
	}
}

// durables is a store that records its syncs as calls.
type durables struct {
	gatedRecords
}

func (d durables) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return gated(d.g, "put synced "+kind(r.Key), func() (refstore.Version, error) { return d.Store.Put(ctx, r) })
}

func (d durables) Sync(context.Context) error { return errors.New("must not be called") }

// An execution for a run on another host is durable before it is on record. For the same host the run's own syncfs
// suffices.
func TestDurableElsewhere(t *testing.T) {
	for _, test := range []struct {
		name, host string
		want       []string
	}{
		{"same host", "here", []string{"store output", "put EXECUTION success", "list keys of EXECUTION"}},
		{"not said", "", []string{"store output", "put EXECUTION success", "list keys of EXECUTION"}},
		{"another host", "there", []string{"store output", "sync", "put synced EXECUTION", "list keys of EXECUTION"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			req.Job.Ref, req.Job.Host = aJob, test.host
			g := &gate{}
			fault := false
			objects := gatedObjects{s.objects, g}
			x := executions.NewExecutor(executions.NewStore(durables{gatedRecords{s.records, g}}, objects), objects, gatedLeases{s.leases.join(), g}, writes("x"), executions.Options{
				Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false }, Host: "here",
				Sync: func(context.Context) error {
					return gatedErr(g, "sync", func() error {
						if fault {
							return errNoRoute
						}
						return nil
					})
				},
			})
			if res, err := x.Make(t.Context(), req, newID(t)); err != nil || res.State != record.Success {
				t.Fatalf("got %+v, %v", res, err)
			}
			if diff := cmp.Diff(test.want, g.list()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if fault = true; test.host == "there" {
				id := newID(t)
				if _, err := x.Make(t.Context(), req, id); !errors.Is(err, errNoRoute) {
					t.Errorf("it could not be synced: %v", err)
				}
				if _, err := x.Get(t.Context(), keyOf(req), id); !errors.Is(err, executions.ErrNotFound) {
					t.Errorf("it is on record: %v", err)
				}
			}
		})
	}
}
