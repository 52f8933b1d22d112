package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/refstore"
	"e3/refstore/lease"
	"e3/workspace"
)

const leaseTTL = 15 * time.Second

// distant is a process on the stage that holds leases, as on a machine of its own.
type distant struct {
	*actor
	leases   *lease.Leases
	executor *executions.Executor
	waiting  []string // calls of Waiting
}

func (st *stage) distant() *distant {
	d := &distant{actor: &actor{Store: st.records}}
	epoch := time.Now()
	d.leases = lease.New(d.actor, lease.Options{
		TTL: leaseTTL, Elapsed: func() time.Duration { return time.Since(epoch) },
		Alive: func(process.ID) (alive, known bool) { return false, false },
	})
	st.mu.Lock()
	st.pids++
	pid := st.pids
	st.mu.Unlock()
	d.ws = workspace.New(workspace.Stores{
		Records: d.actor, Locks: d.leases, Sessions: d.leases, Objects: st.objects, Local: d.actor, Now: time.Now,
		Holder: func() string { return fmt.Sprintf(".process (pid=%d)", pid) },
		Sweep:  func(context.Context) error { return nil },
		Waiting: func(by *workspace.BusyError, most time.Duration) {
			d.waiting = append(d.waiting, fmt.Sprint(by.Holder, " ", most))
		},
	})
	d.executor = executions.NewExecutor(executions.NewStore(d.actor, st.objects), st.objects, d.leases, st, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: func(string) (string, bool) { return "", false },
		Scratch: func() (string, error) { return st.t.TempDir(), nil }, Now: time.Now,
	})
	return d
}

// run starts w0 and returns a function that kills its process.
func (d *distant) run(ctx context.Context) (*started, func()) {
	s := &started{a: d.actor, done: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		defer close(s.done)
		began := time.Now()
		s.res, s.err = d.ws.Runner.Start(ctx, "w0", workspace.StartOptions{Executor: d.executor, Concurrency: 2})
		s.took = time.Since(began)
	}()
	return s, func() { // the process dies
		d.dead.Store(true)
		cancel(errDead)
	}
}

// close stops the leases' goroutines.
func (d *distant) close() { _ = d.leases.Close() } // a dead process cannot end its session

// A live holder is named as soon as it is known to be alive. A command that wants to start waits once for a dead one,
// and reports that.
func TestHolderOfALease(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		first, second, third := st.distant(), st.distant(), st.distant()
		defer func() { first.close(); second.close(); third.close() }()
		run, kill := first.run(t.Context())
		time.Sleep(10 * time.Second)
		began := time.Now()
		_, err := second.ws.Deployer.DeployFile(t.Context(), "w0", st.dir+"/e3.yaml")
		var busy *workspace.BusyError
		if took := time.Since(began); !errors.As(err, &busy) || busy.Holder != "process 2" || took > leaseTTL/2 {
			t.Errorf("a holder that lives: %v after %v", err, took)
		}
		if len(second.waiting) > 1 {
			t.Errorf("the waiter reported %q", second.waiting)
		}
		kill()
		<-run.done
		if run.err == nil {
			t.Errorf("the run of a dead process is %+v", run.res.Run)
		}
		began = time.Now()
		next, _ := third.run(t.Context())
		if got := next.state(); got != "completed" {
			t.Errorf("the next run is %s", got)
		}
		if took := time.Since(began) - 61*time.Second; took > leaseTTL+3*time.Second {
			t.Errorf("the next run had to wait for %v", took)
		}
		if len(third.waiting) != 1 {
			t.Errorf("the waiter reported %q, want one line", third.waiting)
		}
		st.log("w0")
	})
}

// Cancelling the run of a dead process finds within one lease that it was interrupted, and closes it. Until then,
// status shows when the process last renewed its lease.
func TestCancelDeadHolder(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		first, second := st.distant(), st.distant()
		defer func() { first.close(); second.close() }()
		run, kill := first.run(t.Context())
		time.Sleep(10 * time.Second)
		kill()
		<-run.done
		time.Sleep(4 * leaseTTL)
		looker := st.distant()
		defer looker.close()
		status, err := looker.ws.Planner.Status(t.Context(), "w0")
		if err != nil {
			t.Fatal(err)
		}
		if r, b := status.Run, status.Holder; r.Status() != "running" || b == nil || b.Heard != r.Heard || r.Heard.Lease != leaseTTL || time.Since(r.Heard.At) < 4*leaseTTL {
			t.Errorf("the status of a dead run: %s, heard of %+v, held by %+v, want one that was last heard of %v ago", r.Status(), r.Heard, b, 4*leaseTTL)
		}
		began := time.Now()
		c, err := second.ws.Runner.Cancel(t.Context(), "w0", workspace.CancelOptions{By: "ann@there", Timeout: time.Hour, Curator: second.executor.Curator})
		if err != nil || c.Status != workspace.CancelInterrupted || !c.Closed {
			t.Errorf("cancelling a dead run: %+v, %v, want it interrupted and closed", c, err)
		}
		status, err = st.distant().ws.Planner.Status(t.Context(), "w0")
		if err != nil || status.LastRun.Status != "crashed" || status.LastRun.Run != c.RunID || status.Busy != nil {
			t.Errorf("afterwards: %+v, busy %+v, %v, want it crashed, and no holder", status.LastRun, status.Busy, err)
		}
		if took := time.Since(began); took > leaseTTL+3*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := st.begin("w1", nil).state(); got != "completed" {
			t.Errorf("another workspace: %s", got)
		}
		next, _ := second.run(t.Context())
		if got := next.state(); got != "completed" {
			t.Errorf("the next run is %s", got)
		}
		st.noRequest("w0")
		st.log("w0")
	})
}

// A process that cannot renew its lease stops its own run, reports it, and writes nothing more.
func TestLeaseIsLost(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		first := st.distant()
		defer first.close()
		run, _ := first.run(t.Context())
		time.Sleep(10 * time.Second)
		first.dead.Store(true) // disconnected
		began := time.Now()
		<-run.done
		var lost *workspace.LostError
		if !errors.Is(run.err, refstore.ErrLost) || !errors.As(run.err, &lost) || lost.Workspace != "w0" || run.res != nil {
			t.Errorf("the run ends with %+v, %v", run.res, run.err)
		}
		if took := time.Since(began); took > leaseTTL {
			t.Errorf("it went on for %v", took)
		}
		first.dead.Store(false) // connected again
		second := st.distant()
		defer second.close()
		next, _ := second.run(t.Context())
		if got := next.state(); got != "completed" {
			t.Errorf("the next run is %s", got)
		}
		st.log("w0")
	})
}

// A run whose process was presumed dead, without knowing it, does not remove requests that are for its successor.
func TestLostRunLeavesRequests(t *testing.T) {
	onStage(t, slow, func(t *testing.T, st *stage) {
		lost := st.machine(newLeaseTable(), 0)
		ended := make(chan error)
		go func() { ended <- start(t.Context(), lost) }()
		time.Sleep(10 * time.Second)
		lost.session.expire()
		request := &record.Cancellation{Holder: ".process (pid=4711)", Since: time.Now(), By: "ann@there", At: time.Now()}
		key := refstore.Key{Partition: "CANCEL", Sort: "w0"}
		if _, err := st.records.Put(t.Context(), refstore.Record{Key: key, Value: request.Encode()}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, refstore.ErrLost) {
			t.Errorf("the run ends with %v", err)
		}
		if rec, err := st.records.Get(t.Context(), key); err != nil || string(rec.Value) != string(request.Encode()) {
			t.Errorf("the request: %v", err)
		}
	})
}
