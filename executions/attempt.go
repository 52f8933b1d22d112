package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// execute makes one new execution. Once the lease is lost it records nothing.
func (x *Executor) execute(ctx context.Context, key Key, req *Request, id string) (Result, error) {
	bound, stop := x.bound(ctx)
	defer stop()
	res, err := x.attempt(bound, ctx, key, req, id)
	return res, x.withLeaseLoss(bound, err)
}

// withLeaseLoss adds the loss of the lease to an error that a store returned because of it.
func (x *Executor) withLeaseLoss(ctx context.Context, err error) error {
	if lost := x.leaseLoss(ctx); lost != nil && err != nil && !errors.Is(err, refstore.ErrLost) {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return err
}

// keepTask protects the object of a task that is about to run, because the record will name it. If only this machine
// still has the object, it is put again. Where objects are presumed to exist, a kept task is not looked for, which
// saves a request for each task.
func (x *Executor) keepTask(ctx context.Context, task objectstore.Hash, kept bool) error {
	if kept && x.presumes {
		return nil
	}
	there, err := x.objects.Refresh(ctx, task)
	if err != nil || there {
		return err
	}
	data, err := objectstore.ReadAll(ctx, x.objects, task, record.MaxTask)
	if err == nil {
		_, err = objectstore.PutBytes(ctx, x.objects, data)
	}
	if err != nil {
		return fmt.Errorf("task object: %w", err)
	}
	return nil
}

// attempt stages the inputs, runs the command, collects the outputs and records the end. ctx ends with the lease;
// lasting does not. A command that may outlive this process runs under lasting, and is left to its supervisor.
func (x *Executor) attempt(ctx, lasting context.Context, key Key, req *Request, id string) (_ Result, err error) {
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	spec, err := req.Load(ctx)
	if err != nil {
		return Result{}, err
	}
	if x.opts.Storable != nil {
		if err := x.opts.Storable(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := x.keepTask(ctx, key.Task, req.Kept); err != nil {
		return Result{}, err
	}
	sandbox, err := x.sandboxes.acquire()
	if err != nil {
		return Result{}, err
	}
	defer x.sandboxes.release(sandbox)
	a := newAttempt(&assignment{x: x, key: key, id: id, req: req, spec: inFolder(spec)}, sandbox, false)
	defer func() { // before another command gets the sandbox
		if !a.isLeft(ctx, err) {
			a.releaseCommand()
		}
	}()
	defer a.close()
	defer func() { err = a.maskError(err) }()

	if err := a.openImage(ctx); err != nil {
		return Result{}, err
	}
	if err := a.openEnvironment(ctx); err != nil {
		return Result{}, err
	}
	env, err := a.box.stage(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("stage inputs: %w", err)
	}
	if req.Job.Identity == "" {
		lasting = ctx
	}
	end := perform(ctx, lasting, a, env)
	if end.fault != nil {
		return Result{}, end.fault
	}
	return a.conclude(ctx, end.res, end.err)
}

// An attempt is one execution while it is being made, by one goroutine. It connects the parts, each of which does its
// own work: the box stages and collects, the logs and the claim are what others see of it, the verdict is its end. Its
// command (batch.go) may serve other attempts too.
type attempt struct {
	*assignment
	box   *box
	logs  commandLogs
	claim claim
	end   endTime
}

// newAttempt returns an attempt in a sandbox. adopted: a dead process began the execution.
func newAttempt(of *assignment, in *sandbox, adopted bool) *attempt {
	return &attempt{
		assignment: of, box: &box{assignment: of, sandbox: in},
		logs: commandLogs{assignment: of, files: &in.logs, adopted: adopted}, claim: claim{assignment: of},
	}
}

func (a *attempt) close() {
	a.logs.stop()
	a.claim.release()
}

// noteBegin notes in the sandbox that the command is about to start.
func (a *attempt) noteBegin() error {
	a.box.logs.used = true // until they are known to be empty
	if err := a.box.writeNote(a.beginNote(a.box.logs.numbers)); err != nil {
		return fmt.Errorf("note that execution %s begins: %w", a.id, err)
	}
	return nil
}

// tellStart tells that the command is about to start.
func (a *attempt) tellStart() {
	if a.batch.Items > 0 && a.req.InBatch != nil {
		a.req.InBatch(a.batch)
	}
	if a.req.Started != nil {
		a.req.Started(a.id, a.startedAt)
	}
}

// announce records a command that lives long enough to be seen, and puts its logs in place so that they can be
// followed. Until then there is nothing to clean up.
func (a *attempt) announce(ctx context.Context, p process.ID) error {
	if err := a.claim.announce(ctx, p); err != nil || !a.claim.announced {
		return err
	}
	return a.logs.publish(ctx)
}

// conclude records the end of the command.
func (a *attempt) conclude(ctx context.Context, res runner.Result, runErr error) (Result, error) {
	x, id := a.x, a.id
	before := x.suspended()
	a.end.lapse = func() time.Duration { return x.suspended() - before }
	if errors.Is(runErr, runner.ErrLeft) {
		return Result{}, fmt.Errorf("execution %s goes on without this process: %w", id, runErr)
	}
	if lost := x.leaseLoss(ctx); lost != nil {
		return Result{}, fmt.Errorf("the end of execution %s is not on record: %w", id, lost)
	}
	if held := a.req.Job.Held; held != nil {
		if err := held(); err != nil {
			return Result{}, fmt.Errorf("the end of execution %s is left to its next worker: %w: %w", id, runner.ErrLeft, err)
		}
	}
	var why *StopError
	stopped := errors.As(context.Cause(ctx), &why)
	// The command has ended. Its end is recorded even if the run is being cancelled, unless the lease is lost.
	ctx, stop := x.bound(context.WithoutCancel(ctx))
	defer stop()
	v := a.judge(res, runErr)
	if v.state == record.Success && v.err == nil {
		v = a.box.judgeOutputs(ctx)
	}
	v = a.judgeItem(v, res.ExitCode)
	if stopped && v.reason == ReasonCancelled {
		v.message = why.Error()
	}
	switch {
	case errors.Is(v.err, errNotRun), errors.Is(v.err, runner.ErrNotStarted):
		a.box.eraseNote()
		return Result{}, v.err
	case errors.Is(v.err, errStoring):
		return Result{}, fmt.Errorf("execution %s: %w: %w", id, runner.ErrLeft, v.err)
	case v.err != nil:
		a.recordFault(ctx, res, v.err)
		return Result{}, v.err
	}
	end, err := a.record(ctx, v, res)
	if err != nil {
		end, err = a.recordAnew(ctx, v, res, err)
	}
	if err != nil {
		a.recordFault(ctx, res, err)
		return Result{}, err
	}
	a.noteEnd()
	a.box.keepFolder(&end)
	return end, nil
}

// A StopError ends a command; its text goes into the execution's record.
type StopError struct{ Err error }

func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *StopError) Unwrap() error { return e.Err }

// noteEnd notes that the end of the execution is on record.
func (a *attempt) noteEnd() {
	if n := a.endNote(); n.ofRun() {
		a.x.untold.keep(a.x.opts.Scratch, n)
	}
	a.box.eraseNote()
}

// recordFault records an error for a command whose real end is hidden by a fault of e3. If recording fails too, the
// note of the begun command stays, and the next start records it.
func (a *attempt) recordFault(ctx context.Context, res runner.Result, fault error) {
	if errors.Is(fault, refstore.ErrLost) {
		return // the process that fenced this one records it
	}
	v := verdict{state: record.Error, message: fmt.Sprintf("e3 could not go on: %v", fault)}
	if _, err := a.record(ctx, v, res); err == nil {
		a.noteEnd()
	}
}

// record writes the record. A short execution with small logs is written at once with them. An announced one is
// replaced by a compare-and-swap.
func (a *attempt) record(ctx context.Context, v verdict, res runner.Result) (Result, error) {
	v.message = a.mask(v.message)
	status := v.endStatus(a.assignment, a.end.at(a.x.opts.Now(), a.startedAt), res)
	detail := a.detail(res)
	detail.Reason, detail.BytesOut = string(v.reason), v.output.Size
	logs, err := a.keepLogs(ctx, res)
	if err != nil {
		return Result{}, fmt.Errorf("keep logs of execution %s: %w", a.id, err)
	}
	detail.Logs = a.logs.sums(ctx, logs)
	opened, err := a.box.openedField()
	if err != nil {
		return Result{}, err
	}
	fields := append(append(logs, opened...), v.endFields(a.assignment, status, detail)...)
	// A lost lease fences the record only if another process has taken the claim. If none has, a collection may have
	// removed the outputs as garbage of a dead session.
	if lost := a.x.leaseLoss(ctx); lost != nil {
		return Result{}, fmt.Errorf("execution %s has ended, and its end is not on record: %w", a.id, lost)
	}
	put, err := a.durably(ctx)
	if err != nil {
		return Result{}, err
	}
	rec := refstore.Record{Key: recordKey(a.key, a.id), Value: status.Encode(), Fields: fields, Version: a.claim.version}
	if _, err := put(ctx, rec); err != nil {
		return Result{}, a.claim.recordError(err)
	}
	if v.state == record.Success && !a.req.Force {
		if err := a.x.noteSecondSuccess(ctx, a.key, a.id); err != nil {
			return Result{}, err
		}
	}
	if a.x.opts.Sync != nil && a.req.Job.Ref == "" {
		if err := a.x.opts.Sync(ctx); err != nil {
			return Result{}, fmt.Errorf("make execution %s durable: %w", a.id, err)
		}
	}
	return v.result(a.assignment, status), nil
}

// keepLogs stores the complete logs, either in streams or in the record fields that it returns. They are stored
// before the record says that the execution has ended.
func (a *attempt) keepLogs(ctx context.Context, res runner.Result) ([]refstore.Field, error) {
	if !a.claim.announced {
		fields, err := a.logs.short()
		switch {
		case err != nil || fields != nil:
			return fields, err
		case a.logs.needRecord():
			err = a.announce(ctx, process.ID{PID: res.PID})
		default:
			err = a.logs.startPump(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, a.logs.finish(ctx)
}

// durably returns how to put the record. A run on this host makes a plain put durable itself. A run on another host
// relies on the record and cannot sync it, so earlier writes are synced first, and the record as it is put.
func (a *attempt) durably(ctx context.Context) (func(context.Context, refstore.Record) (refstore.Version, error), error) {
	if a.x.opts.Sync == nil || a.req.Job.Host == "" || a.req.Job.Host == a.x.opts.Host {
		return a.x.records.Put, nil
	}
	if err := a.x.opts.Sync(ctx); err != nil {
		return nil, fmt.Errorf("make execution %s durable: %w", a.id, err)
	}
	put, _ := a.x.Curator.durably()
	return put, nil
}

// Where claims are leases, another process may find this one dead and record the end of an execution that goes on here.
// This process may be back before another has taken its workspace. Keys are content, so the result of the command is as
// good as any. The given-up execution keeps its recorded end, and the result is recorded under a new execution, whose
// detail names the first.

// recordAnew records a command's end under a new execution, if another process has given up the first one; otherwise
// it returns cause. If this process has lost its lease, nothing is recorded.
func (a *attempt) recordAnew(ctx context.Context, v verdict, res runner.Result, cause error) (Result, error) {
	for range 3 { // each time it was found dead again
		given, err := a.claim.givenUp(ctx)
		if err != nil || given == nil {
			return Result{}, cause
		}
		now, err := a.x.Lookup(ctx, a.key)
		if err != nil {
			return Result{}, err
		}
		id, err := NewIDAfter(now.greatest)
		if err != nil {
			return Result{}, err
		}
		a.claim.abandon()
		a.logs.restart()
		req := *a.req
		req.Attempt++
		if req.Lost != nil {
			req.Lost(a.id, ReasonLost, given.Message, given.CompletedAt, time.Time{})
		}
		if now.Hit != nil && !req.Force { // another process has made the result
			return hit(now.Hit), nil
		}
		a.begun, a.id, a.req = a.id, id, &req
		var end Result
		if end, cause = a.record(ctx, v, res); cause == nil {
			return end, nil
		}
	}
	return Result{}, fmt.Errorf("execution %s was found dead again and again: %w", a.id, cause)
}

// suspended returns the time that this process has spent without its lease so far.
func (x *Executor) suspended() time.Duration {
	if l, ok := x.lessee.(interface{ Suspended() time.Duration }); ok {
		return l.Suspended()
	}
	return 0
}
