package executions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/runner"
	"e3/refstore"
)

// handover is the note for the process that finishes the execution after the death of this one. The supervisor keeps it
// (runner.Spec.State), so it says no more than that process needs.
func (b *box) handover() []byte {
	n := note{
		key: b.key, id: b.id, status: &record.Status{State: record.Running, ExecutionID: b.id, StartedAt: b.startedAt}, detail: &record.Detail{},
		logs: b.logs.numbers, sandbox: b.root.Name(), work: b.work.Identity(),
	}
	return n.encode(nil)
}

// HandedOver returns the key of the execution whose command a supervisor has kept with this state (runner.Orphan), and
// when the command began; false if the state is not an execution's.
func HandedOver(state []byte) (key Key, began time.Time, ok bool) {
	n, _ := decodeNote(state)
	if n == nil || n.status == nil {
		return Key{}, time.Time{}, false
	}
	return n.key, n.status.StartedAt, true
}

// readHandover decodes a supervisor's state. It must name this execution or, if resumes, another one of the key.
func readHandover(state []byte, key Key, id string, resumes bool) (*note, error) {
	n, _ := decodeNote(state)
	switch {
	case n == nil || n.status == nil:
		return nil, errors.New("it is no note of a command")
	case resumes == (n.id == id):
		return nil, fmt.Errorf("it is execution %s", n.id)
	case n.key != key:
		return nil, fmt.Errorf("it is of key %s", n.key)
	case !filepath.IsAbs(n.sandbox) || filepath.Clean(n.sandbox) != n.sandbox:
		return nil, fmt.Errorf("its sandbox is %q", n.sandbox)
	}
	return n, nil
}

// Adopt finishes an execution that a dead process of this host began under this id (Make). Its command still runs, or
// has ended without a record. Adopt waits for the end and records it; the logs continue. If the execution is on record
// as ended, Adopt stops the command and returns the recorded result.
//
// If another process has settled the execution meanwhile (Settle), the error wraps refstore.ErrLost and only the
// settled result counts. When Adopt returns, the command has ended and its supervisor is released. Once ctx is done the
// command is stopped; how it had ended by then, or ends, is recorded all the same.
func (x *Executor) Adopt(ctx context.Context, req *Request, id string, o *runner.Orphan) (Result, error) {
	bound, stop := x.bound(context.WithoutCancel(ctx))
	defer stop()
	end, err := x.beginForced(bound, req)
	if err != nil {
		if x.leaseLoss(ctx) == nil {
			o.Release()
		}
		return Result{}, err
	}
	defer end()
	res, err := x.adopt(bound, ctx, NewKey(req.Task, req.Inputs), req, id, o)
	return res, x.withLeaseLoss(ctx, err)
}

// adopt waits under lasting, under which attempt runs a command.
func (x *Executor) adopt(ctx, lasting context.Context, key Key, req *Request, id string, o *runner.Orphan) (_ Result, err error) {
	a := newAttempt(&assignment{x: x, key: key, id: id, req: req}, &sandbox{}, true)
	defer func() { err = a.maskError(err) }()
	stop := func() { // the command still writes, although its end does not count
		stopped, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = o.Wait(stopped)
	}
	defer func() {
		if !a.isLeft(lasting, err) {
			stop() // no effect once the command has ended
			o.Release()
		}
	}()
	n, err := readHandover(o.State, key, id, req.Job.Resumes)
	if err != nil {
		return Result{}, fmt.Errorf("adopt execution %s: the state that its supervisor kept does not fit: %w", id, err)
	}
	a.startedAt = n.status.StartedAt
	if req.Job.Resumes {
		a.begun = n.id
	}
	problem, err := a.reopen(n)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		a.box.drop()
		a.box.in.Close()
	}()
	defer a.close()
	res, ended, err := a.resume(ctx)
	if err != nil || ended {
		return res, err
	}
	if problem != "" {
		// nothing can be collected
	} else if err := a.box.openJournal(); errors.Is(err, errStoring) {
		problem = "the process that began it stands still while it stores what the command has made"
	} else if err != nil {
		return Result{}, fmt.Errorf("adopt execution %s: %w", id, err)
	} else if err := a.box.putBack(ctx); errors.Is(err, errNotRestorable) {
		problem = err.Error()
	} else if err != nil {
		return Result{}, fmt.Errorf("adopt execution %s: put back moved outputs: %w", id, err)
	}
	if problem != "" {
		stop()
		bound, done := x.bound(context.WithoutCancel(ctx))
		defer done()
		return a.record(bound, verdict{state: record.Error, reason: ReasonLost, message: problem}, runner.Result{})
	}
	if req.Started != nil {
		req.Started(id, a.startedAt)
	}
	adopted := x.opts.Now()
	end, runErr := a.await(lasting, o)
	a.box.replaced = !a.box.work.InPlace()
	if !end.Ended.IsZero() {
		a.end.idle = max(adopted.Sub(end.Ended), 0)
	}
	if a.begun != "" && !errors.Is(runErr, runner.ErrLeft) {
		if err := a.logs.copyEarlier(ctx, a.box.root); err != nil {
			return Result{}, fmt.Errorf("adopt execution %s: the logs of %s: %w", id, a.begun, err)
		}
	}
	defer func() {
		if !a.isLeft(lasting, err) { // the sweep removes the rest of the dead process's scratch folder
			_ = a.box.remove()
		}
	}()
	return a.conclude(lasting, end, runErr)
}

// reopen gives the attempt the sandbox in which the execution was begun, with the working directory that the command
// got. problem says why the folder cannot be opened.
func (a *attempt) reopen(n *note) (problem string, err error) {
	gone := "the process that began it is gone, and so is its sandbox " + n.sandbox
	scratch, err := a.x.sandboxes.foreign(filepath.Base(filepath.Dir(n.sandbox)))
	if err != nil {
		return "", err
	}
	if scratch == nil {
		return gone, nil
	}
	a.box.place, err = openPlace(scratch, filepath.Base(n.sandbox))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone, nil
	case err != nil || a.box.work.Identity() != n.work:
		return fmt.Sprintf("its command has put another folder in the place of its working directory in %s", n.sandbox), nil
	}
	a.logs.reopen(a.box.root, "", n.logs)
	return "", nil
}

// foreign opens the scratch folder of another process of this host, which lies beside this process's; nil if it is gone.
func (p *sandboxes) foreign(name string) (*beneath.Dir, error) {
	own, err := p.scratch()
	if err != nil {
		return nil, fmt.Errorf("find sandbox: %w", err)
	}
	beside, err := beneath.Open(filepath.Dir(own))
	if err != nil {
		return nil, fmt.Errorf("find sandbox: %w", err)
	}
	defer beside.Close()
	scratch, err := beside.Confine().Sub(name)
	if err != nil {
		return nil, nil
	}
	return scratch, nil
}

// resume reads the execution's record; done if it has ended. An announced execution stays announced.
func (a *attempt) resume(ctx context.Context) (res Result, done bool, err error) {
	if a.spec, err = a.req.Load(ctx); err != nil {
		return Result{}, false, err
	}
	a.spec = inFolder(a.spec)
	if err := a.x.keepTask(ctx, a.key.Task, false); err != nil {
		return Result{}, false, err
	}
	rec, err := a.x.records.Get(ctx, recordKey(a.key, a.id))
	if errors.Is(err, refstore.ErrNotFound) {
		return Result{}, false, nil
	}
	e, err := decodeFound(a.key, rec, err)
	if bad := (*RecordError)(nil); err != nil && !errors.As(err, &bad) {
		return Result{}, false, fmt.Errorf("execution %s: %w", a.id, err)
	}
	if err != nil || e.State != record.Running {
		res, err := a.x.recorded(ctx, a.key, a.id)
		return res, true, err
	}
	if err := a.claim.resume(ctx, rec.Version); err != nil {
		return Result{}, false, err
	}
	return Result{}, false, a.logs.publish(ctx)
}

// await waits for the end of a command that another process has started. A command that takes long is announced,
// unless it already was.
func (a *attempt) await(ctx context.Context, o *runner.Orphan) (runner.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if a.claim.announced {
		return o.Wait(ctx)
	}
	announced := make(chan error, 1)
	lives := time.AfterFunc(a.x.opts.Announce, func() {
		bound, stop := a.x.bound(context.WithoutCancel(ctx))
		defer stop()
		err := a.announce(bound, o.Process)
		if err != nil && !a.isLeft(bound, err) {
			cancel() // an execution that cannot be recorded must not go on
		}
		announced <- err
	})
	res, err := o.Wait(ctx)
	if lives.Stop() {
		return res, err
	}
	if fault := <-announced; fault != nil && !errors.Is(err, runner.ErrLeft) {
		return runner.Result{}, fault
	}
	return res, err
}
