package executions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// inlineLog is the size up to which a finished log is written together with its record.
const inlineLog = 64 << 10

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
// still has the object, it is put again. Where objects are presumed to exist, one that something else keeps is not
// looked for: that would be a request for each task.
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
	spec = inFolder(spec)
	if x.opts.Storable != nil {
		if err := x.opts.Storable(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := x.keepTask(ctx, key.Task, req.Kept); err != nil {
		return Result{}, err
	}
	box, err := x.sandboxes.acquire()
	if err != nil {
		return Result{}, err
	}
	defer x.sandboxes.release(box)
	a := &attempt{x: x, key: key, req: req, spec: spec, id: id, box: box}
	defer func() { // before another command gets the sandbox
		if !a.isLeft(ctx, err) {
			a.releaseCommand()
		}
	}()
	defer a.close()
	defer func() { err = a.maskError(err) }()

	if err := openImage(ctx, a); err != nil {
		return Result{}, err
	}
	env, err := a.stage(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("stage inputs: %w", err)
	}
	if req.Job.Identity == "" {
		lasting = ctx
	}
	res, runErr, err := perform(ctx, lasting, a, env)
	if err != nil {
		return Result{}, err
	}
	return a.conclude(ctx, res, runErr)
}

// admitted runs the command once it may start. A fault means that it may not.
func admitted(ctx, lasting context.Context, a *attempt, env []string) (res runner.Result, err, fault error) {
	release := func(bool) {}
	if a.req.Admit != nil {
		if release, fault = a.req.Admit(ctx); fault != nil {
			return res, nil, fault
		}
	}
	now := a.x.opts.Now().Truncate(time.Millisecond) // in the record's precision, so that durations agree everywhere
	for _, m := range served(a) {
		m.startedAt = now
	}
	res, err = a.run(lasting, env)
	a.box.replaced = !a.box.work.InPlace()
	for _, m := range served(a) {
		m.box.replaced = a.box.replaced
	}
	release(a.shared == nil && (err != nil || !res.Success())) // a batch that fails is tried item by item
	runtime.Gosched()                                          // the next command starts before this one's end is recorded
	return res, err, nil
}

// conclude records the end of the command.
func (a *attempt) conclude(ctx context.Context, res runner.Result, runErr error) (Result, error) {
	x, id := a.x, a.id
	before := x.suspended()
	a.lapse = func() time.Duration { return x.suspended() - before }
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
	out := ofBatch(a, a.judge(ctx, res, runErr))
	if stopped && out.reason == ReasonCancelled {
		out.message = why.Error()
	}
	switch {
	case errors.Is(out.err, errNotRun), errors.Is(out.err, runner.ErrNotStarted):
		a.eraseNote()
		return Result{}, out.err
	case errors.Is(out.err, errStoring):
		return Result{}, fmt.Errorf("execution %s: %w: %w", id, runner.ErrLeft, out.err)
	case out.err != nil:
		a.recordFault(ctx, res, out.err)
		return Result{}, out.err
	}
	end, err := a.finish(ctx, out, res)
	if err != nil {
		end, err = finishAnew(ctx, a, out, res, err)
	}
	if err != nil {
		a.recordFault(ctx, res, err)
		return Result{}, err
	}
	a.noteEnd()
	a.eraseNote()
	keepFolder(a, &end)
	return end, nil
}

// A StopError is a cause for which a command ends whose text the execution's record keeps.
type StopError struct{ Err error }

func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *StopError) Unwrap() error { return e.Err }

// errNotRun is wrapped if no command has run, so that there is nothing to record.
var errNotRun = errors.New("the command was not started")

// recordFault records an error for a command whose real end is hidden by a fault of e3. If recording fails too, the
// note of the begun command stays, and the next start records it.
func (a *attempt) recordFault(ctx context.Context, res runner.Result, fault error) {
	if errors.Is(fault, refstore.ErrLost) {
		return // the process that fenced this one records it
	}
	v := verdict{state: record.Error, message: fmt.Sprintf("e3 could not go on: %v", fault)}
	if _, err := a.finish(ctx, v, res); err == nil {
		a.noteEnd()
		a.eraseNote()
	}
}

// attempt is one execution while it is being made, by one goroutine.
type attempt struct {
	x         *Executor
	key       Key
	req       *Request
	spec      *record.Task
	id        string
	box       *sandbox
	texts     []string // the command's names for its inputs
	startedAt time.Time
	announced bool
	version   refstore.Version
	claim     refstore.Lock
	pump      *logPump             // nil if the store adopts the log files
	report    string               // the file that takes what a traced command opens; "": it is not traced
	shared    *shared              // its command serves the items of other attempts too; nil: it does not
	lapse     func() time.Duration // for how long the command has ended and the lease did not stand; nil: not at all
	moved     bool                 // its item's folder is in the sandbox of the batch's command
	inherited
	attemptImage
}

// inherited is what an attempt has from a process that began it and is dead, or was given up.
type inherited struct {
	adopted   bool          // a dead process began it
	begun     string        // the earlier execution under which its command was begun, since given up; else ""
	abandoned *leftover     // from its note, if it is closed for a dead process; else nil
	idle      time.Duration // for which the end of its command had waited for this process
}

// run starts the command and waits for it.
func (a *attempt) run(ctx context.Context, env []string) (runner.Result, error) {
	var announceErr error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer a.killOnLost(cancel)()
	spec := runner.Spec{
		Argv: a.argv(), Env: env, Dir: a.box.work.Name(),
		Stdout: a.box.logs.stdout, Stderr: a.box.logs.stderr, Room: a.box.root.Name(),
		Marker: marker(a.id), Grace: a.x.opts.Grace, Mask: a.secrets(),
		OnStart: func(p process.ID) {
			bound, stop := a.x.bound(context.WithoutCancel(ctx))
			defer stop()
			if announceErr = announceAll(bound, a, p); announceErr != nil && !a.isLeft(bound, announceErr) {
				cancel(nil) // an execution that cannot be recorded must not go on
			}
		},
		OnStartAfter: a.x.opts.Announce,
	}
	var unready error
	if a.spec.Room.Closed {
		a.box.closed = true
		if spec.Closed, unready = closedRoom(a); unready != nil && a.req.Job.Ref != "" { // another worker may have it
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, unready)
		}
	}
	if err := traceOpens(ctx, a, &spec); err != nil {
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if a.req.Policy != nil {
		spec.Timeout = a.req.Policy.Timeout * time.Duration(len(served(a)))
	}
	setLimits(a, &spec)
	if a.req.Job.Identity != "" {
		var err error
		if spec.State, err = a.handover(); err != nil {
			return runner.Result{}, fmt.Errorf("hand execution %s over to the supervisor: %w", a.id, err)
		}
		spec.Identity, spec.Lasting = a.req.Job.Identity, a.req.keeps()
	}
	otherTool := checkTools(ctx, a, spec.Closed)
	if otherTool != nil && a.req.Job.Ref != "" { // another worker may have them
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, otherTool)
	}
	for _, m := range served(a) {
		m.box.logs.used = true // until they are known to be empty
		if err := m.note(); err != nil {
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
		}
	}
	for _, m := range served(a) {
		if m.shared != nil && m.req.InBatch != nil {
			m.req.InBatch(batchOf(m))
		}
		if m.req.Started != nil { // from here on the execution gets a record, whichever process is killed
			m.req.Started(m.id, m.startedAt)
		}
	}
	if err := cmp.Or(unready, otherTool, a.unset()); err != nil {
		return runner.Result{}, err
	}
	res, err := a.launch(ctx, spec)
	for _, m := range served(a) {
		m.box.inhabited = res.Straggler || err != nil
	}
	if cause := context.Cause(ctx); err == nil && res.Cancelled && errors.Is(cause, errOnLost) {
		return res, cause
	}
	if announceErr != nil && !errors.Is(err, runner.ErrLeft) {
		return runner.Result{}, announceErr
	}
	if err == nil && a.req.Job.FailureGrace > 0 && !res.Success() && !res.TimedOut && !res.OOM {
		grace := time.NewTimer(a.req.Job.FailureGrace)
		defer grace.Stop()
		select {
		case <-ctx.Done():
			res.Cancelled = true
		case <-grace.C:
		}
	}
	return res, err
}

// keeper is a runner that keeps the end of a command with an identity until Release.
type keeper interface{ Release(identity string) }

// isLeft tells whether the supervisor keeps the command, or its end, after an error: this process has lost its lease or
// left the command.
func (a *attempt) isLeft(ctx context.Context, err error) bool {
	return err != nil && a.req.Job.Identity != "" && (errors.Is(err, runner.ErrLeft) || a.x.leaseLoss(ctx) != nil)
}

func (a *attempt) releaseCommand() {
	if k, ok := a.x.runner.(keeper); ok && a.req.Job.Identity != "" {
		k.Release(a.req.Job.Identity)
	}
}

// announceAll announces the attempts that the command serves.
func announceAll(ctx context.Context, a *attempt, p process.ID) error {
	for _, m := range served(a) {
		if err := m.announce(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// announce records a command that lives long enough to be seen, and puts its logs in place so that they can be
// followed. Until then there is nothing to clean up.
func (a *attempt) announce(ctx context.Context, p process.ID) error {
	if err := a.hold(ctx); err != nil {
		return err
	}
	status := a.status(record.Running)
	status.PID, status.PIDStartTime, status.BootID = int64(p.PID), int64(p.StartTime), p.BootID
	var err error
	a.version, err = a.x.records.Put(ctx, refstore.Record{
		Key: recordKey(a.key, a.id), Value: status.Encode(), Fields: a.fields(),
	})
	if err != nil {
		if given, _ := givenUp(ctx, a); given != nil { // its end will be that of another execution
			a.close()
			a.claim, a.version = nil, refstore.Absent
			return nil
		}
		return a.recordError(err)
	}
	a.announced = true
	return a.takeLogs(ctx)
}

// hold takes the execution's claim, which shows that it is alive. The claim of an adopted execution may still be held
// by a process that checks it, or by its first process, which is asleep and presumed dead. Then only the job shows that
// the execution is alive.
func (a *attempt) hold(ctx context.Context) error {
	claim, err := a.x.claims.TryClaim(ctx, executionClaim(a.id), nil)
	if a.adopted && errors.Is(err, refstore.ErrClaimed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim execution %s: %w", a.id, err)
	}
	a.claim = claim
	return nil
}

// takeLogs puts the log files where they can be followed, or begins to copy them there.
func (a *attempt) takeLogs(ctx context.Context) error {
	adopter, ok := a.x.records.(streamAdopter)
	if !ok {
		return a.startPump(ctx)
	}
	for _, log := range a.logs() {
		err := adopt(ctx, adopter, logKey(a.key, a.id, log.stream), log.file)
		if errors.Is(err, syscall.EXDEV) { // the sandbox is on another file system
			return a.startPump(ctx)
		}
		if err != nil {
			return fmt.Errorf("keep %s of execution %s: %w", log.stream, a.id, err)
		}
	}
	a.box.logs.moved = true
	return nil
}

// log is a file that a command writes to. file is nil if an adopted execution has lost it.
type log struct {
	stream Stream
	file   *os.File
}

func (a *attempt) logs() [2]log {
	return [2]log{{Stdout, a.box.logs.stdout}, {Stderr, a.box.logs.stderr}}
}

// fields are the side fields of a running execution's record.
func (a *attempt) fields() []refstore.Field {
	fields := []refstore.Field{{Name: fieldDetail, Value: a.detail(runner.Result{}).Encode()}}
	if a.req.Job.Ref != "" {
		fields = append(fields, refstore.Field{Name: fieldJob, Value: []byte(a.req.Job.Ref)})
	}
	return fields
}

// recordError explains why the record could not be written. Where claims are leases, or another worker can take the
// job over, a conflict means that this process was presumed dead.
func (a *attempt) recordError(err error) error {
	if (a.x.leased != nil || a.req.Job.Ref != "") && errors.Is(err, refstore.ErrConflict) {
		return fmt.Errorf("execution %s was given up by another process, so its result does not count: %w: %w", a.id, refstore.ErrLost, err)
	}
	return fmt.Errorf("record execution %s: %w", a.id, err)
}

func (a *attempt) close() {
	if a.pump != nil {
		a.pump.stop()
	}
	if a.claim != nil {
		a.claim.Unlock()
	}
}

func (a *attempt) status(state record.State) *record.Status {
	return &record.Status{State: state, ExecutionID: a.id, StartedAt: a.startedAt, InputHashes: hexes(a.req.Inputs)}
}

func (a *attempt) detail(res runner.Result) *record.Detail {
	if a.abandoned != nil {
		return a.abandoned.detail
	}
	return &record.Detail{
		Attempt: a.req.Attempt, Worker: a.x.opts.Worker, RunID: a.req.RunID, Workspace: a.req.Workspace, Task: a.req.Name,
		UserCPU: res.UserCPU, SystemCPU: res.SystemCPU, PeakRSS: res.PeakRSS, BytesIn: a.req.InputBytes,
		Signal: signalName(res.Signal), Version: a.x.opts.Version, Begun: a.begun, Batch: batchOf(a),
	}
}

// verdict is the recorded meaning of a command's end.
type verdict struct {
	state   record.State
	output  objectstore.Info
	message string
	reason  Reason
	err     error // a fault of e3, not of the command
}

// outputHash is the hash of a success's output, else "".
func (v *verdict) outputHash() string {
	if v.state != record.Success {
		return ""
	}
	return v.output.Hash.String()
}

// judge decides what the end of the command means. Outputs are collected only after exit 0.
func (a *attempt) judge(ctx context.Context, res runner.Result, runErr error) verdict {
	var start *runner.StartError
	var unset *unsetError
	var lacking *roomError
	switch {
	case errors.As(runErr, &start):
		return verdict{state: record.Error, reason: ReasonStart, message: start.Error() + adviceInImage(a, start)}
	case errors.As(runErr, &lacking):
		return verdict{state: record.Error, reason: ReasonStart, message: lacking.Error()}
	case errors.As(runErr, &unset):
		return verdict{state: record.Error, reason: ReasonStart, message: unset.Error()}
	case errors.Is(runErr, ErrOtherTool) && a.req.Job.Ref == "":
		return verdict{state: record.Error, reason: ReasonStart, message: runErr.Error() + ": start again, which reads the programs anew"}
	case a.req.Job.Ref != "" && (errors.Is(runErr, runner.ErrExpired) || errors.Is(runErr, runner.ErrSupervisorLost)):
		return verdict{state: record.Error, reason: ReasonLost, message: runErr.Error()}
	case errors.Is(runErr, errOnLost):
		return verdict{state: record.Error, reason: ReasonLost, message: runErr.Error()}
	case errors.Is(runErr, runner.ErrSupervisorLost): // the supervisor has killed it, or had not started it
		return verdict{state: record.Error, reason: ReasonSignal, message: runErr.Error()}
	case runErr != nil && !res.Cancelled:
		return verdict{err: runErr}
	case res.Cancelled:
		return verdict{state: record.Error, reason: ReasonCancelled, message: "cancelled"}
	case res.TimedOut:
		return verdict{state: record.Error, reason: ReasonTimeout, message: fmt.Sprintf("timed out after %v", a.req.Policy.Timeout*time.Duration(len(served(a))))}
	case res.OOM && (res.Signal != 0 || res.ExitCode != 0): // a command that exits with 0 survived the loss of a child
		return verdict{state: record.Error, reason: ReasonOOM, message: outOfMemory(a, &res)}
	case res.Signal != 0:
		return verdict{state: record.Error, reason: ReasonSignal, message: "killed by signal " + signalName(res.Signal)}
	case res.ExitCode != 0:
		return verdict{state: record.Failed, reason: a.req.failure(int64(res.ExitCode))}
	}
	info, err := a.collect(ctx)
	var bad *OutputError
	if errors.As(err, &bad) {
		return verdict{state: record.Error, reason: ReasonOutput, message: bad.Error()}
	}
	return verdict{state: record.Success, output: info, err: err}
}

// finish writes the record. A short execution with small logs is written at once with them. An announced one is
// replaced by a compare-and-swap.
func (a *attempt) finish(ctx context.Context, v verdict, res runner.Result) (Result, error) {
	v.message = a.mask(v.message)
	end := divide(a, ends(a), &res)
	status := a.status(v.state)
	status.CompletedAt = end
	status.Message = v.message
	if v.state == record.Failed {
		status.ExitCode = int64(res.ExitCode)
	}
	detail := a.detail(res)
	detail.Reason, detail.BytesOut = string(v.reason), v.output.Size
	logs, err := a.keepLogs(ctx, res)
	if err != nil {
		return Result{}, err
	}
	detail.Logs = a.logSums(ctx, logs)
	opened, err := openedField(a)
	if err != nil {
		return Result{}, err
	}
	fields := append(append(logs, opened...), refstore.Field{Name: fieldDetail, Value: detail.Encode()})
	status.OutputHash = v.outputHash()
	if key := a.x.opts.Key; key != nil {
		s := sign(key, statementOf(a.key, status, detail.BytesOut))
		fields = append(fields, refstore.Field{Name: fieldSignature, Value: s.Encode()})
	}
	if v.state == record.Success {
		fields = append(fields, outputField(status))
		if other := a.req.against; other != nil && other.Output != v.output.Hash {
			fields = append(fields, refstore.Field{Name: fieldRejected, Value: (&record.Rejection{
				Rejected: true, By: a.x.opts.Worker, At: status.CompletedAt,
				Reason: fmt.Sprintf("run again to verify execution %s, it gave another output", other.ExecutionID),
			}).Encode()})
		}
	}
	// A lost lease fences the record only if another process has taken the claim. If none has, a collection may have
	// removed the outputs as garbage of a dead session.
	if lost := a.x.leaseLoss(ctx); lost != nil {
		return Result{}, fmt.Errorf("execution %s has ended, and its end is not on record: %w", a.id, lost)
	}
	put, err := a.durably(ctx)
	if err != nil {
		return Result{}, err
	}
	_, err = put(ctx, refstore.Record{Key: recordKey(a.key, a.id), Value: status.Encode(), Fields: fields, Version: a.version})
	if err != nil {
		return Result{}, a.recordError(err)
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
	return Result{
		ExecutionID: a.id, State: v.state, Output: v.output.Hash, Size: v.output.Size,
		Message: v.message, ExitCode: status.ExitCode, Reason: v.reason,
		Duration: status.CompletedAt.Sub(a.startedAt), EndedAt: status.CompletedAt, Batch: batchOf(a),
	}, nil
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

// keepLogs stores the complete logs, either in streams or in the record fields that it returns. They are stored
// before the record says that the execution has ended.
func (a *attempt) keepLogs(ctx context.Context, res runner.Result) ([]refstore.Field, error) {
	var fields []refstore.Field
	var err error
	if !a.announced {
		fields, err = a.shortLogs()
		_, files := a.x.records.(streamAdopter)
		switch {
		case err != nil || fields != nil:
		case files: // a folder without a record would be swept, so the record comes first
			err = a.announce(ctx, process.ID{PID: res.PID})
		default:
			err = a.startPump(ctx)
		}
	}
	if err == nil && a.pump != nil {
		err = a.pump.finish(ctx)
	}
	if err != nil {
		err = fmt.Errorf("keep logs of execution %s: %w", a.id, err)
	}
	return fields, err
}

// shortLogs returns the logs as fields of the record, without empty ones. It returns nil if one is too long for a
// field.
func (a *attempt) shortLogs() ([]refstore.Field, error) {
	fields := []refstore.Field{}
	for _, log := range a.logs() {
		if log.file == nil {
			continue
		}
		info, err := log.file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() == 0 {
			continue
		}
		if info.Size() > inlineLog {
			return nil, nil
		}
		text := make([]byte, info.Size())
		if _, err := log.file.ReadAt(text, 0); err != nil && err != io.EOF {
			return nil, err
		}
		fields = append(fields, refstore.Field{Name: string(log.stream), Value: text})
	}
	a.box.logs.used = len(fields) > 0
	return fields, nil
}

// streamAdopter is a store whose streams are plain files: a rename turns a log that is still being written into the
// stream.
type streamAdopter interface {
	AdoptStream(ctx context.Context, key refstore.Key, path string) error
}

// adopt makes the file of a log the stream of its execution. A command can reach the file's name: if it has deleted
// or replaced the file, there is no log.
func adopt(ctx context.Context, s streamAdopter, key refstore.Key, f *os.File) error {
	if f == nil {
		return nil
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(f.Name()); err != nil || !os.SameFile(mine, there) {
		return nil
	}
	return s.AdoptStream(ctx, key, f.Name())
}

// signalName is the number and the system's word for it: "9 (killed)".
func signalName(s syscall.Signal) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%d (%v)", int(s), s)
}

// marker is the environment entry by which stray children of an execution are recognized.
func marker(id string) string { return "E3_EXECUTION=" + id }
