package executions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"e3/internal/record"
	"e3/internal/runner"
	"e3/objectstore"
	"e3/refstore"
)

// inlineLog is the size up to which a finished log is written together with its record.
const inlineLog = 64 << 10

// execute makes one new execution: stage, run, collect, record.
func (x *Executor) execute(ctx context.Context, key Key, req *Request) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	spec, err := req.Load(ctx)
	if err != nil {
		return Result{}, err
	}
	// The record is going to name the task, longer than whoever asks for it.
	if _, err := x.objects.Refresh(ctx, key.Task); err != nil {
		return Result{}, err
	}
	id, err := NewID()
	if err != nil {
		return Result{}, err
	}
	box, err := x.sandboxes.acquire()
	if err != nil {
		return Result{}, err
	}
	defer x.sandboxes.release(box)
	a := &attempt{x: x, key: key, req: req, spec: spec, id: id, box: box}
	defer a.close()

	env, err := a.stage(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("stage inputs: %w", err)
	}
	release := func(bool) {}
	if req.Admit != nil {
		if release, err = req.Admit(ctx); err != nil {
			return Result{}, err
		}
	}
	a.startedAt = x.opts.Now().Truncate(time.Millisecond) // as it is on record: durations agree everywhere
	res, runErr := a.run(ctx, env)
	release(runErr != nil || !res.Success())
	// From here on the command has ended: what it did is recorded even when the run is
	// being cancelled.
	ctx = context.WithoutCancel(ctx)
	out := a.judge(ctx, res, runErr)
	if out.err != nil {
		return Result{}, out.err
	}
	return a.finish(ctx, out, res)
}

// attempt is one execution while it is being made, by one goroutine.
type attempt struct {
	x         *Executor
	key       Key
	req       *Request
	spec      *record.Task
	id        string
	box       *sandbox
	texts     []string // what the command calls its inputs by
	startedAt time.Time
	announced bool
	version   refstore.Version
	claim     refstore.Lock
}

// run starts the command and waits for it.
func (a *attempt) run(ctx context.Context, env []string) (runner.Result, error) {
	var announceErr error
	spec := runner.Spec{
		Argv: a.argv(), Env: env, Dir: a.box.work,
		Stdout: a.box.stdout, Stderr: a.box.stderr,
		Marker: marker(a.id), Grace: a.x.opts.Grace, Mask: a.secrets(),
		OnStart:      func(p runner.Process) { announceErr = a.announce(context.WithoutCancel(ctx), p) },
		OnStartAfter: a.x.opts.Announce,
	}
	if a.req.Policy != nil {
		spec.Timeout = a.req.Policy.Timeout
	}
	if a.req.Started != nil {
		a.req.Started(a.id)
	}
	a.box.logsUsed = true // until they are seen to be empty
	res, err := a.x.runner.Run(ctx, spec)
	if announceErr != nil {
		return res, announceErr
	}
	return res, err
}

// announce puts a command that lives long enough to be seen on record, with its logs in
// place so that they can be followed. Until then it leaves nothing to clean up.
func (a *attempt) announce(ctx context.Context, p runner.Process) error {
	claim, err := a.x.claims.TryClaim(executionClaim(a.id))
	if err != nil {
		return fmt.Errorf("claim execution %s: %w", a.id, err)
	}
	a.claim = claim
	status := a.status(record.Running)
	status.PID, status.PIDStartTime, status.BootID = int64(p.PID), int64(p.StartTime), p.BootID
	a.version, err = a.x.records.Put(ctx, refstore.Record{
		Key: recordKey(a.key, a.id), Value: status.Encode(),
		Fields: []refstore.Field{{Name: fieldDetail, Value: a.detail(runner.Result{}).Encode()}},
	})
	if err != nil {
		return fmt.Errorf("record execution %s: %w", a.id, err)
	}
	a.announced = true
	for _, log := range []struct {
		stream Stream
		file   *os.File
	}{{Stdout, a.box.stdout}, {Stderr, a.box.stderr}} {
		if err := a.x.publishLog(ctx, logKey(a.key, a.id, log.stream), log.file); err != nil {
			return fmt.Errorf("keep %s of execution %s: %w", log.stream, a.id, err)
		}
	}
	a.box.logsTaken = true
	return nil
}

func (a *attempt) close() {
	if a.claim != nil {
		a.claim.Unlock()
	}
}

func (a *attempt) status(state record.State) *record.Status {
	s := &record.Status{State: state, ExecutionID: a.id, StartedAt: a.startedAt, InputHashes: make([]string, len(a.req.Inputs))}
	for i, h := range a.req.Inputs {
		s.InputHashes[i] = h.String()
	}
	return s
}

func (a *attempt) detail(res runner.Result) *record.Detail {
	return &record.Detail{
		Attempt: a.req.Attempt, Worker: a.x.opts.Worker, RunID: a.req.RunID, Workspace: a.req.Workspace, Task: a.req.Name,
		UserCPU: res.UserCPU, SystemCPU: res.SystemCPU, PeakRSS: res.PeakRSS, BytesIn: a.req.InputBytes,
		Signal: signalName(res.Signal), Version: a.x.opts.Version,
	}
}

// verdict is what became of the command.
type verdict struct {
	state   record.State
	output  objectstore.Info
	message string
	reason  Reason
	err     error // of ours, not the command's
}

// judge decides what the end of the command means; outputs are taken only after exit 0.
func (a *attempt) judge(ctx context.Context, res runner.Result, runErr error) verdict {
	var start *runner.StartError
	switch {
	case errors.As(runErr, &start):
		return verdict{state: record.Error, reason: ReasonStart, message: start.Error()}
	case runErr != nil && !res.Cancelled:
		return verdict{err: runErr}
	case res.Cancelled:
		return verdict{state: record.Error, reason: ReasonCancelled, message: "cancelled"}
	case res.TimedOut:
		return verdict{state: record.Error, reason: ReasonTimeout, message: fmt.Sprintf("timed out after %v", a.req.Policy.Timeout)}
	case res.Signal != 0:
		return verdict{state: record.Error, reason: ReasonSignal, message: "killed by signal " + signalName(res.Signal)}
	case res.ExitCode != 0:
		return verdict{state: record.Failed}
	}
	info, err := a.collect(ctx)
	var bad *OutputError
	if errors.As(err, &bad) {
		return verdict{state: record.Error, reason: ReasonOutput, message: bad.Error()}
	}
	return verdict{state: record.Success, output: info, err: err}
}

// finish writes the record. A short, quiet execution costs one directory made aside and
// renamed into place; one that was announced is compared and swapped.
func (a *attempt) finish(ctx context.Context, v verdict, res runner.Result) (Result, error) {
	status := a.status(v.state)
	status.CompletedAt = a.x.opts.Now().Truncate(time.Millisecond)
	status.Message = v.message
	if v.state == record.Failed {
		status.ExitCode = int64(res.ExitCode)
	}
	detail := a.detail(res)
	detail.Reason, detail.BytesOut = string(v.reason), v.output.Size
	fields := []refstore.Field{{Name: fieldDetail, Value: detail.Encode()}}
	if v.state == record.Success {
		status.OutputHash = v.output.Hash.String()
		fields = append(fields, outputField(status))
		if other := a.req.against; other != nil && other.Output != v.output.Hash {
			fields = append(fields, refstore.Field{Name: fieldRejected, Value: (&record.Rejection{
				Rejected: true, By: a.x.opts.Worker, At: status.CompletedAt,
				Reason: fmt.Sprintf("run again to verify execution %s, it gave another output", other.ExecutionID),
			}).Encode()})
		}
	}
	if !a.announced {
		logs, err := a.shortLogs()
		if err != nil {
			return Result{}, fmt.Errorf("keep logs of execution %s: %w", a.id, err)
		}
		if logs == nil {
			if err := a.announce(ctx, runner.Process{PID: res.PID}); err != nil {
				return Result{}, err
			}
		}
		fields = append(fields, logs...)
	}
	_, err := a.x.records.Put(ctx, refstore.Record{Key: recordKey(a.key, a.id), Value: status.Encode(), Fields: fields, Version: a.version})
	if err != nil {
		return Result{}, fmt.Errorf("record execution %s: %w", a.id, err)
	}
	if v.state == record.Success && !a.req.Force {
		if err := a.x.overtaken(ctx, a.key, a.id); err != nil {
			return Result{}, err
		}
	}
	if a.x.opts.Sync != nil {
		if err := a.x.opts.Sync(ctx); err != nil {
			return Result{}, fmt.Errorf("make execution %s durable: %w", a.id, err)
		}
	}
	return Result{
		ExecutionID: a.id, State: v.state, Output: v.output.Hash, Size: v.output.Size,
		Message: v.message, ExitCode: status.ExitCode, Reason: v.reason,
		Duration: status.CompletedAt.Sub(a.startedAt),
	}, nil
}

// shortLogs returns the logs as fields of the record: none for a log that is empty; nil
// when one is too long for that.
func (a *attempt) shortLogs() ([]refstore.Field, error) {
	fields := []refstore.Field{}
	for _, log := range []struct {
		stream Stream
		file   *os.File
	}{{Stdout, a.box.stdout}, {Stderr, a.box.stderr}} {
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
	a.box.logsUsed = len(fields) > 0
	return fields, nil
}

// streamAdopter is a store whose streams are plain files: a log that is still being
// written becomes the stream by a rename.
type streamAdopter interface {
	AdoptStream(ctx context.Context, key refstore.Key, path string) error
}

// publishLog makes the file of a log the stream of its execution. A command can reach the
// file's name: one that has deleted or replaced it has no log.
func (x *Executor) publishLog(ctx context.Context, key refstore.Key, f *os.File) error {
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(f.Name()); err != nil || !os.SameFile(mine, there) {
		return nil
	}
	if s, ok := x.records.(streamAdopter); ok {
		return s.AdoptStream(ctx, key, f.Name())
	}
	return fmt.Errorf("%T cannot take over a log file", x.records)
}

// signalName is the number and the system's word for it: "9 (killed)".
func signalName(s syscall.Signal) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%d (%v)", int(s), s)
}

// marker is the environment entry by which stray children of an execution are known.
func marker(id string) string { return "E3_EXECUTION=" + id }
