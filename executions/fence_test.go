package executions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/refstore"
)

// outcome is the result of a call of Do.
type outcome struct {
	res executions.Result
	err error
}

func (m *machine) begin(ctx context.Context, req *executions.Request) chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := m.Do(ctx, req)
		done <- outcome{res, err}
	}()
	return done
}

// answers checks that a machine that was held up past its lease returns the recorded answer or an error about its
// lease.
func (o outcome) answers(t *testing.T, answer string) {
	t.Helper()
	switch {
	case o.err == nil:
		if o.res.State != record.Success || o.res.ExecutionID != answer {
			t.Errorf("it got %+v, want %s, which is on record, or an error", o.res, answer)
		}
	case !errors.Is(o.err, refstore.ErrLost):
		t.Errorf("it got %v, want that its lease was lost", o.err)
	}
}

// lives are kinds of commands, combined with what a machine learns when it wakes up.
var lives = []struct {
	name string
	as   func(commands) commands
	told bool
}{
	{"short", func(c commands) commands { return c }, false},
	{"short, told", func(c commands) commands { return c }, true},
	{"announced", announced, false},
	{"announced, told", announced, true},
}

// A machine may be held up past its lease at any call. When it resumes, exactly one success is on record, and every
// request in the meantime got it.
func TestPausedHolder(t *testing.T) {
	for _, life := range lives {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after the call %v", life.name, after), func(t *testing.T) {
				var calls []string
				for n := 1; ; n++ {
					s := newSite(t)
					req := s.request(t)
					one := s.machine(t, "one", life.as(writes("of one")))
					one.gate.stopAt, one.gate.after = n, after
					two := s.machine(t, "two", life.as(writes("of two")))
					done := one.begin(t.Context(), req)
					var first outcome
					select {
					case first = <-done:
						one.gate.stop() // it came to its end before, or has only its claim to release
					case <-one.gate.stopped:
					}
					if calls = one.gate.list(); first.res.ExecutionID != "" || len(calls) < n {
						break
					}
					at := calls[n-1]
					one.expire()
					res, err := two.Do(t.Context(), req)
					if err != nil || res.State != record.Success {
						t.Fatalf("held up at %q: the other got %+v, %v", at, res, err)
					}
					if life.told {
						one.tell()
					}
					close(one.gate.resume)
					first = <-done
					if got := s.successes(t, req); !slices.Equal(got, []string{res.ExecutionID}) {
						t.Errorf("held up at %q: successes are %v, want %s; its calls were %v", at, got, res.ExecutionID, one.gate.list())
					}
					if first.answers(t, res.ExecutionID); t.Failed() {
						t.Fatalf("held up at call %d, %q", n, at)
					}
					for _, e := range s.all(t, req) {
						if e.State == record.Running {
							t.Errorf("held up at %q: %s is still on record as running", at, e.ExecutionID)
						}
					}
				}
				if !slices.Contains(calls, "put EXECUTION success") || !slices.Contains(calls, "store output") {
					t.Errorf("it was held up at %v, want at the output and the record as well", calls)
				}
			})
		}
	}
}

// A process that takes over may die too, at any call; then the third fences both. Neither the first nor the second
// becomes an answer beside the third's, in whatever order they wake up.
func TestTakenOverTwice(t *testing.T) {
	for _, life := range lives {
		t.Run(life.name, func(t *testing.T) {
			for n := 1; ; n++ {
				ended := false
				for _, secondFirst := range []bool{false, true} {
					s := newSite(t)
					req := s.request(t)
					one := s.machine(t, "one", life.as(writes("of one")))
					one.gate.stopAt = slices.Index(callsOf(t, life.as), "put EXECUTION success") + 1
					done := one.begin(t.Context(), req)
					<-one.gate.stopped
					one.expire()

					two := s.machine(t, "two", life.as(writes("of two")))
					two.gate.stopAt = n
					done2 := two.begin(t.Context(), req)
					select {
					case <-two.gate.stopped:
						two.expire()
					case o := <-done2:
						ended = true
						if o.err != nil || o.res.State != record.Success {
							t.Fatalf("undisturbed, the second got %+v, %v", o.res, o.err)
						}
						done2 <- o
					}
					three := s.machine(t, "three", life.as(writes("of three")))
					res, err := three.Do(t.Context(), req)
					if err != nil || res.State != record.Success {
						t.Fatalf("the third got %+v, %v", res, err)
					}
					wake := func(m *machine, done chan outcome) {
						if life.told && m.dead {
							m.tell()
						}
						close(m.gate.resume)
						o := <-done
						o.answers(t, res.ExecutionID)
					}
					if secondFirst {
						wake(two, done2)
						wake(one, done)
					} else {
						wake(one, done)
						wake(two, done2)
					}
					if got := s.successes(t, req); !slices.Equal(got, []string{res.ExecutionID}) || t.Failed() {
						t.Fatalf("the second held up at call %d of %v: successes are %v, want %s", n, two.gate.list(), got, res.ExecutionID)
					}
				}
				if ended {
					return
				}
			}
		})
	}
}

// callsOf are the calls of an undisturbed machine.
func callsOf(t *testing.T, as func(commands) commands) []string {
	t.Helper()
	s := newSite(t)
	m := s.machine(t, "alone", as(writes("x")))
	if res, err := m.Do(t.Context(), s.request(t)); err != nil || res.State != record.Success {
		t.Fatalf("got %+v, %v", res, err)
	}
	return m.gate.list()
}

// A claim may contain any text: lines that are no ids are skipped, and an execution that has ended stays as it is.
func TestClaimNamesAnything(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	key := keyOf(req)
	put := func(st *record.Status) {
		t.Helper()
		_, err := s.records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: st.ExecutionID}, Value: st.Encode()})
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	failed, running, absent, torn := newID(t), newID(t), newID(t), newID(t)
	put(&record.Status{State: record.Failed, ExecutionID: failed, StartedAt: now, CompletedAt: now, ExitCode: 3})
	put(&record.Status{State: record.Running, ExecutionID: running, StartedAt: now, PID: 12, BootID: "b"})
	tornKey := refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: torn}
	version, err := s.records.Put(t.Context(), refstore.Record{Key: tornKey, Value: []byte("of a later version")})
	if err != nil {
		t.Fatal(err)
	}
	dead := s.leases.join()
	text := strings.Join([]string{"", failed, "\x00\xff", "../../x", running, strings.ToUpper(absent), absent, absent, "x" + absent, torn, strings.Repeat("y", 1<<16)}, "\n")
	if _, err := dead.TryClaim(t.Context(), claimOfKey(key), []byte(text)); err != nil {
		t.Fatal(err)
	}
	dead.expire()

	res, err := s.machine(t, "one", writes("x")).Do(t.Context(), req)
	if err != nil || res.State != record.Success {
		t.Fatalf("got %+v, %v", res, err)
	}
	states := map[string]record.State{}
	store := executions.NewStore(s.records, s.objects)
	for e, err := range store.List(t.Context(), key) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		states[e.ExecutionID] = e.State
		if e.ExecutionID == absent && (e.Message == "" || e.CompletedAt.IsZero() || len(e.InputHashes) != len(req.Inputs)) {
			t.Errorf("the execution without a record is now %+v", e.Status)
		}
	}
	want := map[string]record.State{failed: record.Failed, running: record.Error, absent: record.Error, res.ExecutionID: record.Success}
	if len(states) != len(want) {
		t.Errorf("on record are %v, want %v", states, want)
	}
	for id, state := range want {
		if states[id] != state {
			t.Errorf("%s is %v, want %v", id, states[id], state)
		}
	}
	rec, err := s.records.Get(t.Context(), tornKey)
	if err != nil || string(rec.Value) != "of a later version" || rec.Version == version {
		t.Errorf("the record that cannot be read is %q under version %s, %v, want its bytes under another than %s", rec.Value, rec.Version, err, version)
	}
}

// faultyOnce fails the first puts.
type faultyOnce struct {
	gatedRecords
	faults int
}

func (f *faultyOnce) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if f.faults > 0 {
		f.faults--
		return refstore.Absent, errDied
	}
	return f.gatedRecords.Put(ctx, r)
}

// A process that cannot fence keeps the claim, so that neither it nor others forget the executions to fence.
func TestFenceFails(t *testing.T) {
	for _, next := range []string{"itself", "another"} {
		t.Run(next, func(t *testing.T) {
			s := newSite(t)
			req := s.request(t)
			one := s.machine(t, "one", writes("of one"))
			one.gate.stopAt = slices.Index(callsOf(t, lives[0].as), "put EXECUTION success") + 1
			done := one.begin(t.Context(), req)
			<-one.gate.stopped
			one.expire()

			two := s.machine(t, "two", writes("of two"))
			records := &faultyOnce{gatedRecords: gatedRecords{s.records, two.gate}, faults: 1}
			two.Executor = executions.NewExecutor(executions.NewStore(records, s.objects), s.objects, two.lessee, writes("of two"),
				executions.Options{Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false }})
			if res, err := two.Do(t.Context(), req); !errors.Is(err, errDied) {
				t.Fatalf("got %+v, %v, want the fault", res, err)
			}
			taker := two
			if next == "another" {
				two.expire()
				taker = s.machine(t, "three", writes("of three"))
			}
			res, err := taker.Do(t.Context(), req)
			if err != nil || res.State != record.Success || res.Cached {
				t.Fatalf("got %+v, %v, want a success of its own", res, err)
			}
			close(one.gate.resume)
			(<-done).answers(t, res.ExecutionID)
			if got := s.successes(t, req); !slices.Equal(got, []string{res.ExecutionID}) {
				t.Errorf("successes are %v, want %s", got, res.ExecutionID)
			}
			taker.Released()
			if hold := s.leases.claims[claimOfKey(keyOf(req))]; hold != nil {
				t.Errorf("the claim is still held, with %q", hold.text)
			}
		})
	}
}

// A machine that learns that its lease is lost stops its command and records nothing. Others close its running record.
func TestLeaseIsLostWhileItRuns(t *testing.T) {
	for _, test := range []struct {
		name string
		lose func(m *machine, cancel context.CancelCauseFunc)
	}{
		{"the leases say so", func(m *machine, _ context.CancelCauseFunc) { m.expire(); m.tell() }},
		{"the run says so", func(m *machine, cancel context.CancelCauseFunc) {
			m.expire()
			cancel(fmt.Errorf("the run was stopped: %w", refstore.ErrLost))
		}},
	} {
		for _, life := range []string{"short", "announced"} {
			t.Run(test.name+", "+life, func(t *testing.T) {
				s := newSite(t)
				req := s.request(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				begun := make(chan struct{})
				command := commands(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
					close(begun)
					<-ctx.Done()
					return runner.Result{}, nil
				})
				if life == "announced" {
					command = announced(command)
				}
				one := s.machine(t, "one", command)
				done := one.begin(ctx, req)
				<-begun
				test.lose(one, cancel)
				if o := <-done; !errors.Is(o.err, refstore.ErrLost) {
					t.Errorf("got %+v, %v, want that the lease was lost", o.res, o.err)
				}
				for _, e := range s.all(t, req) {
					if e.State != record.Running {
						t.Errorf("it left %+v", e.Status)
					}
				}
				res, err := s.machine(t, "two", writes("x")).Do(t.Context(), req)
				if err != nil || res.State != record.Success {
					t.Fatalf("the next got %+v, %v", res, err)
				}
				for _, e := range s.all(t, req) {
					if e.State == record.Running {
						t.Errorf("%s is still on record as running", e.ExecutionID)
					}
				}
			})
		}
	}
}

// A command is stopped if its running record cannot be written.
func TestAnnounceFails(t *testing.T) {
	s := newSite(t)
	command := announced(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
		<-ctx.Done()
		return runner.Result{}, nil
	})
	two := s.machine(t, "one", command)
	records := &faultyOnce{gatedRecords: gatedRecords{s.records, two.gate}, faults: 1}
	two.Executor = executions.NewExecutor(executions.NewStore(records, s.objects), s.objects, two.lessee, command,
		executions.Options{Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false }})
	if res, err := two.Do(t.Context(), s.request(t)); !errors.Is(err, errDied) || errors.Is(err, refstore.ErrLost) {
		t.Errorf("got %+v, %v, want the fault", res, err)
	}
}

// Of many concurrent requests on two machines, one executes.
func TestSingleFlightAmongMachines(t *testing.T) {
	s := newSite(t)
	req := s.request(t)
	asked := make(chan struct{})
	command := func(name string) commands {
		return func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			<-asked
			return writes(name)(ctx, spec)
		}
	}
	machines := []*machine{s.machine(t, "one", command("one")), s.machine(t, "two", command("two"))}
	var all []chan outcome
	for i := range 8 {
		all = append(all, machines[i%2].begin(t.Context(), req))
	}
	close(asked)
	cached := 0
	for _, done := range all {
		o := <-done
		if o.err != nil || o.res.State != record.Success {
			t.Fatalf("got %+v, %v", o.res, o.err)
		}
		if o.res.Cached {
			cached++
		}
	}
	if n := len(s.all(t, req)); n != 1 || cached != 7 {
		t.Errorf("%d executions and %d hits, want 1 and 7", n, cached)
	}
}

// A batch whose lease was lost while it was open changes the generation again, because proofs may have been made
// meanwhile.
func TestGenerationOfLostBatch(t *testing.T) {
	s := newSite(t)
	one, two := s.leases.join(), s.leases.join()
	theirs := executions.NewGeneration(s.records, two)
	end := begin(t, executions.NewGeneration(s.records, one))
	wantGeneration(t, theirs, false)
	one.expire()
	during := wantGeneration(t, theirs, true)
	end()
	if after := wantGeneration(t, theirs, true); after == during {
		t.Errorf("it is still %q", after)
	}
	kept := wantGeneration(t, theirs, true)
	end()
	if after := wantGeneration(t, theirs, true); after != kept {
		t.Errorf("ended twice it went from %q to %q", kept, after)
	}
}

// Reading the generation takes no lock where that is a lease: a batch can begin meanwhile.
func TestGenerationReadTakesNoLease(t *testing.T) {
	s := newSite(t)
	one := s.leases.join()
	lock, err := one.TryLock(t.Context(), "generation", refstore.Shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := executions.NewGeneration(s.records, s.leases.join())
	wantGeneration(t, g, false)
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	wantGeneration(t, g, true)
	if n := len(s.leases.locks["generation"]); n != 0 {
		t.Errorf("%d holders are left", n)
	}
}
