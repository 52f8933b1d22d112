package executions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// handover is what a supervisor keeps (runner.Spec.State) for the process that finishes an execution after the death of
// the first one. It stays on its machine.
type handover struct {
	Execution string `json:"execution"`
	Key       string `json:"key"`
	Sandbox   string `json:"sandbox"` // in the scratch directory of the dead process
	Work      string `json:"work"`    // which folder its working directory is (beneath.Dir.Identity)
	Started   int64  `json:"started"` // Unix time in ms
	Stdout    uint64 `json:"stdout"`  // inode numbers of the log files, by which they are recognized
	Stderr    uint64 `json:"stderr"`
}

// handover returns what is needed to finish the attempt.
func (a *attempt) handover() ([]byte, error) {
	h := handover{
		Execution: a.id, Key: a.key.String(), Sandbox: a.box.root.Name(), Work: a.box.work.Identity(), Started: a.startedAt.UnixMilli(),
		Stdout: a.box.logs.numbers[0], Stderr: a.box.logs.numbers[1],
	}
	return json.Marshal(h)
}

// HandedOver returns the key of the execution whose command a supervisor has kept with this state (runner.Orphan), and
// when the command began; false if the state is not an execution's.
func HandedOver(state []byte) (key Key, began time.Time, ok bool) {
	var h handover
	if err := json.Unmarshal(state, &h); err != nil {
		return Key{}, time.Time{}, false
	}
	key, ok = ParseKey(h.Key)
	return key, time.UnixMilli(h.Started), ok
}

// readHandover decodes a supervisor's state. It must name this execution or, if resumes, another one of the key.
func readHandover(state []byte, key Key, id string, resumes bool) (*handover, error) {
	var h handover
	if err := json.Unmarshal(state, &h); err != nil {
		return nil, err
	}
	_, bad := ParseID(h.Execution)
	switch {
	case resumes && (bad != nil || h.Execution == id), !resumes && h.Execution != id:
		return nil, fmt.Errorf("it is execution %.40q", h.Execution)
	case h.Key != key.String():
		return nil, fmt.Errorf("it is of key %.140q", h.Key)
	case !filepath.IsAbs(h.Sandbox) || filepath.Clean(h.Sandbox) != h.Sandbox:
		return nil, fmt.Errorf("its sandbox is %q", h.Sandbox)
	}
	return &h, nil
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

// adopt waits under lasting, as attempt runs a command.
func (x *Executor) adopt(ctx, lasting context.Context, key Key, req *Request, id string, o *runner.Orphan) (_ Result, err error) {
	a := &attempt{x: x, key: key, req: req, id: id, inherited: inherited{adopted: true}}
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
	h, err := readHandover(o.State, key, id, req.Job.Resumes)
	if err != nil {
		return Result{}, fmt.Errorf("adopt execution %s: the state that its supervisor kept does not fit: %w", id, err)
	}
	a.startedAt = time.UnixMilli(h.Started)
	if req.Job.Resumes {
		a.begun = h.Execution
	}
	problem, err := a.reopen(h)
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
	} else if err := a.putBack(ctx); errors.Is(err, errNotRestorable) {
		problem = err.Error()
	} else if err != nil {
		return Result{}, fmt.Errorf("adopt execution %s: put back moved outputs: %w", id, err)
	}
	if problem != "" {
		stop()
		bound, done := x.bound(context.WithoutCancel(ctx))
		defer done()
		return a.finish(bound, verdict{state: record.Error, reason: ReasonLost, message: problem}, runner.Result{})
	}
	if req.Started != nil {
		req.Started(id, a.startedAt)
	}
	adopted := x.opts.Now()
	end, runErr := a.await(lasting, o)
	a.box.replaced = !a.box.work.InPlace()
	if !end.Ended.IsZero() {
		a.idle = max(adopted.Sub(end.Ended), 0)
	}
	if a.begun != "" && !errors.Is(runErr, runner.ErrLeft) {
		if err := a.takeBegunLogs(ctx); err != nil {
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

// reopen gives the attempt the sandbox in which the execution was begun, with the working directory that the command got. It
// says why if that is not there.
func (a *attempt) reopen(h *handover) (problem string, err error) {
	gone := "the process that began it is gone, and so is its sandbox " + h.Sandbox
	scratch, err := a.x.sandboxes.foreign(filepath.Base(filepath.Dir(h.Sandbox)))
	if err != nil {
		return "", err
	}
	a.box = &sandbox{}
	if scratch == nil {
		return gone, nil
	}
	a.box.place, err = openPlace(scratch, filepath.Base(h.Sandbox))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return gone, nil
	case err != nil || a.box.work.Identity() != h.Work:
		return fmt.Sprintf("its command has put another folder in the place of its working directory in %s", h.Sandbox), nil
	}
	a.box.logs.stdout = openNumbered(a.box.root, "stdout", h.Stdout)
	a.box.logs.stderr = openNumbered(a.box.root, "stderr", h.Stderr)
	return "", nil
}

// takeBegunLogs copies the logs that were moved to the record of the execution under which the command was begun.
func (a *attempt) takeBegunLogs(ctx context.Context) error {
	files := [2]**os.File{&a.box.logs.stdout, &a.box.logs.stderr}
	for i, l := range a.logs() {
		if l.file != nil {
			continue
		}
		there, err := a.x.OpenLog(ctx, a.key, a.begun, l.stream, 0)
		if err != nil {
			return err
		}
		defer there.Close()
		f, err := a.box.root.OpenFile(string(l.stream), os.O_CREATE|os.O_TRUNC|os.O_RDWR, a.x.opts.Modes.File())
		if err != nil {
			return err
		}
		*files[i] = f
		if _, err := io.Copy(f, there); err != nil {
			return err
		}
	}
	return nil
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

// openNumbered opens a log file by name if it has this inode number. It returns nil if the store has adopted the file,
// or if the command has removed or replaced it.
func openNumbered(in *beneath.Dir, name string, number uint64) *os.File {
	f, _, err := objectstore.OpenFileIn(in, name)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || fileNumber(info) != number {
		f.Close()
		return nil
	}
	return f
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
	e, err := opened(a.key, rec, err)
	if bad := (*RecordError)(nil); err != nil && !errors.As(err, &bad) {
		return Result{}, false, fmt.Errorf("execution %s: %w", a.id, err)
	}
	if err != nil || e.State != record.Running {
		res, err := a.x.recorded(ctx, a.key, a.id)
		return res, true, err
	}
	a.announced, a.version = true, rec.Version
	if err := a.hold(ctx); err != nil {
		return Result{}, false, err
	}
	return Result{}, false, a.takeLogs(ctx)
}

// await waits for the end of a command that another process has started. A command that takes long is announced,
// unless it already was.
func (a *attempt) await(ctx context.Context, o *runner.Orphan) (runner.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		res runner.Result
		err error
	}
	end := make(chan outcome, 1)
	go func() {
		res, err := o.Wait(ctx)
		end <- outcome{res, err}
	}()
	if !a.announced {
		lives := time.NewTimer(a.x.opts.Announce)
		defer lives.Stop()
		select {
		case e := <-end:
			return e.res, e.err
		case <-lives.C:
		}
		bound, stop := a.x.bound(context.WithoutCancel(ctx))
		defer stop()
		if err := a.announce(bound, o.Process); err != nil {
			if !a.isLeft(bound, err) {
				cancel() // an execution that cannot be recorded must not go on
			}
			if e := <-end; errors.Is(e.err, runner.ErrLeft) {
				return e.res, e.err
			}
			return runner.Result{}, err
		}
	}
	e := <-end
	return e.res, e.err
}
