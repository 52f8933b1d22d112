package executions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/refstore"
	"e3/refstore/lease"
)

// beats is a lease's connection to its store, which can be cut.
type beats struct {
	refstore.Store
	cut  atomic.Bool
	slow atomic.Int64 // how long a deletion takes, in ns
}

var errNoRoute = errors.New("no route to host")

func (b *beats) Get(ctx context.Context, k refstore.Key, fields ...string) (refstore.Record, error) {
	if b.cut.Load() {
		return refstore.Record{}, errNoRoute
	}
	return b.Store.Get(ctx, k, fields...)
}

func (b *beats) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if b.cut.Load() {
		return refstore.Absent, errNoRoute
	}
	return b.Store.Put(ctx, r)
}

func (b *beats) Delete(ctx context.Context, k refstore.Key, v refstore.Version) error {
	if b.cut.Load() {
		return errNoRoute
	}
	time.Sleep(time.Duration(b.slow.Load())) // of a bubble
	return b.Store.Delete(ctx, k, v)
}

const ttl = 15 * time.Second

// leasedMachine is a machine with real leases.
type leasedMachine struct {
	*executions.Executor
	beats  *beats
	gate   *gate
	leases *lease.Leases
}

func (s *site) leasedMachine(t *testing.T, c commands) *leasedMachine {
	t.Helper()
	start := time.Now()
	l := &leasedMachine{beats: &beats{Store: s.records}, gate: &gate{stopped: make(chan struct{}), resume: make(chan struct{})}}
	leases := lease.New(l.beats, lease.Options{
		TTL: ttl, Elapsed: func() time.Duration { return time.Since(start) },
		Alive: func(process.ID) (alive, known bool) { return false, false },
	})
	l.leases = leases
	t.Cleanup(func() { leases.Close() }) // fails if it was cut off
	l.Executor = executions.NewExecutor(executions.NewStore(gatedRecords{s.records, l.gate}, s.objects), s.objects, leases, c, executions.Options{
		Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false },
	})
	return l
}

func (l *leasedMachine) begin(ctx context.Context, req *executions.Request) chan outcome {
	return (&machine{Executor: l.Executor}).begin(ctx, req)
}

// A machine that is cut off stops its command before its lease expires, and another takes over afterwards.
func TestCutOffMachine(t *testing.T) {
	for _, life := range []string{"not on record", "announced"} {
		t.Run(life, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				req := s.request(t)
				var stopped time.Duration
				start := time.Now()
				command := commands(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
					<-ctx.Done()
					stopped = time.Since(start)
					return runner.Result{}, nil
				})
				if life == "announced" {
					command = announced(command)
				}
				one := s.leasedMachine(t, command)
				done := one.begin(t.Context(), req)
				synctest.Wait()
				one.beats.cut.Store(true)
				res, err := s.leasedMachine(t, writes("x")).Do(t.Context(), req)
				if err != nil || res.State != record.Success {
					t.Fatalf("the other got %+v, %v", res, err)
				}
				if took := time.Since(start); took < ttl*4/5 || took > ttl*3/2 {
					t.Errorf("it took over after %v, want a lease of %v", took, ttl)
				}
				o := <-done
				if !errors.Is(o.err, refstore.ErrLost) || stopped > ttl {
					t.Errorf("the first got %+v, %v, after %v", o.res, o.err, stopped)
				}
				if got := s.successes(t, req); !slices.Equal(got, []string{res.ExecutionID}) {
					t.Errorf("successes are %v, want %s", got, res.ExecutionID)
				}
			})
		})
	}
}

// A machine's record arrives after its lease has expired, and also after the lease of a successor that was interrupted.
func TestLateRecord(t *testing.T) {
	for _, life := range []struct {
		name string
		as   func(commands) commands
	}{
		{"short", func(c commands) commands { return c }},
		{"announced", announced},
	} {
		t.Run(life.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				req := s.request(t)
				late := func(holdUp string) (*leasedMachine, chan outcome) {
					l := s.leasedMachine(t, life.as(writes(holdUp)))
					l.gate.stopAt = slices.Index(callsOfLeased(t, life.as), holdUp) + 1
					done := l.begin(t.Context(), req)
					select {
					case <-l.gate.stopped:
					case o := <-done:
						t.Fatalf("it was not held up at %q: %+v, %v, %v", holdUp, o.res, o.err, l.gate.list())
					}
					l.beats.cut.Store(true)
					return l, done
				}
				one, first := late("put EXECUTION success")
				two := s.leasedMachine(t, life.as(writes("y")))
				two.gate.stopAt = 2 // the read of the first one's execution
				second := two.begin(t.Context(), req)
				<-two.gate.stopped
				two.beats.cut.Store(true)
				res, err := s.leasedMachine(t, life.as(writes("z"))).Do(t.Context(), req)
				if err != nil || res.State != record.Success {
					t.Fatalf("the third got %+v, %v", res, err)
				}
				close(one.gate.resume)
				close(two.gate.resume)
				(<-first).answers(t, res.ExecutionID)
				if o := <-second; o.err == nil && o.res.ExecutionID != res.ExecutionID {
					t.Errorf("the second got %+v, want an error or %s", o.res, res.ExecutionID)
				}
				if got := s.successes(t, req); !slices.Equal(got, []string{res.ExecutionID}) {
					t.Errorf("successes are %v, want %s", got, res.ExecutionID)
				}
			})
		})
	}
}

// callsOfLeased are the calls of an undisturbed machine.
func callsOfLeased(t *testing.T, as func(commands) commands) []string {
	t.Helper()
	s := newSite(t)
	l := s.leasedMachine(t, as(writes("x")))
	if res, err := l.Do(t.Context(), s.request(t)); err != nil || res.State != record.Success {
		t.Fatalf("got %+v, %v", res, err)
	}
	return l.gate.list()
}

// The batch of a machine that was cut off does not block others for ever, and its late writes change the generation.
func TestGenerationOverLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		start := time.Now()
		join := func(b *beats) *lease.Leases {
			l := lease.New(b, lease.Options{
				TTL: ttl, Elapsed: func() time.Duration { return time.Since(start) },
				Alive: func(process.ID) (alive, known bool) { return false, false },
			})
			t.Cleanup(func() { l.Close() })
			return l
		}
		line := &beats{Store: s.records}
		end := begin(t, executions.NewGeneration(s.records, join(line)))
		theirs := executions.NewGeneration(s.records, join(&beats{Store: s.records}))
		wantGeneration(t, theirs, false)
		time.Sleep(10 * ttl)
		wantGeneration(t, theirs, false)
		line.cut.Store(true)
		var during string
		for quiet := false; !quiet; {
			time.Sleep(ttl / 10)
			var err error
			if during, quiet, err = theirs.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if time.Since(start) > 20*ttl {
				t.Fatal("the lost batch is still open")
			}
			if !quiet { // the next batch marks the holder dead
				begin(t, theirs)()
			}
		}
		end()
		if after := wantGeneration(t, theirs, true); after == during {
			t.Errorf("it is still %q", after)
		}
	})
}

// A sessionLocker has the kernel's locks, and a session that must be renewed to keep objects.
type sessionLocker struct {
	refstore.Locker
	lost chan struct{}
}

func (t sessionLocker) Lost() <-chan struct{} { return t.lost }

func (t sessionLocker) Held() error { return heldUntil(t.lost) }

// A machine that has lost its session cannot keep outputs, so its command ends although its claim is still held.
func TestLostBesideLocksOfKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		me := sessionLocker{s.records, make(chan struct{})}
		began := make(chan struct{})
		command := commands(func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			close(began)
			<-ctx.Done()
			return runner.Result{}, nil
		})
		x := executions.NewExecutor(executions.NewStore(s.records, s.objects), s.objects, me, command, executions.Options{
			Path: "/bin", Now: time.Now, Scratch: scratch(t), Getenv: func(string) (string, bool) { return "", false },
		})
		req := s.request(t)
		done := (&machine{Executor: x}).begin(t.Context(), req)
		<-began
		close(me.lost)
		if o := <-done; !errors.Is(o.err, refstore.ErrLost) {
			t.Errorf("got %+v, %v, want ErrLost", o.res, o.err)
		}
		if got := s.successes(t, req); len(got) > 0 {
			t.Errorf("successes are %v, want none", got)
		}
	})
}

// A success is told before its claim is released, since nothing waits for the claim: its release is a request. A failure
// is told after it, since its retry takes the claim again. The end of the session waits for the release.
func TestSuccessBeforeRelease(t *testing.T) {
	for name, command := range map[string]commands{"success": writes("x"), "failure": exits(1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				one := s.leasedMachine(t, command)
				one.beats.slow.Store(int64(time.Second))
				began := time.Now()
				res, err := one.Do(t.Context(), s.request(t))
				if err != nil || (res.State == record.Success) != (name == "success") {
					t.Fatalf("got %+v, %v", res, err)
				}
				took := time.Since(began)
				if err := one.leases.Close(); err != nil {
					t.Fatal(err)
				}
				claims := 0
				for partition := range 256 {
					for r, err := range s.records.List(t.Context(), refstore.Query{Partition: fmt.Sprintf("LEASE/claims/%02x", partition)}) {
						t.Logf("left: %q", r.Value)
						if claims++; err != nil {
							t.Fatal(err)
						}
					}
				}
				released := 0
				if name == "failure" {
					released = 1
				}
				if int(took/time.Second) != released || claims > 0 {
					t.Errorf("told after %v, %d claims are left; want a release of a second to be waited for: %v", took, claims, released == 1)
				}
			})
		})
	}
}

// A command ends while the store does not answer. Its execution ends then too, and not an hour later, when that can be recorded.
func TestEndInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		made := writes("x")
		one := s.leasedMachine(t, func(ctx context.Context, spec runner.Spec) (runner.Result, error) {
			time.Sleep(time.Minute)
			return made(ctx, spec)
		})
		one.leases.Outlast(24 * time.Hour)
		req := s.request(t)
		req.Job.Held = func() error { return one.leases.Confirm(t.Context()) }
		began := time.Now()
		done := one.begin(t.Context(), req)
		time.Sleep(5 * time.Second)
		one.beats.cut.Store(true)
		time.Sleep(time.Hour)
		one.beats.cut.Store(false)
		o := <-done
		if o.err != nil {
			t.Fatal(o.err)
		}
		if took := o.res.Duration; took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("it took %v, want a minute", took)
		}
		if ended := o.res.EndedAt.Sub(began); ended > time.Minute+time.Second || time.Since(began) < time.Hour {
			t.Errorf("it has ended after %v, and that is known after %v", ended, time.Since(began))
		}
	})
}
