package executions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/refstore"
)

// A command is the process that serves an assignment, or several of one batch, from what the runner is told to its end.
type command struct {
	*assignment                                         // of the first item, by which the runner knows the command
	box         *box                                    // in which it runs
	items       []*assignment                           // that it serves; mostly the first alone
	begin       func() error                            // notes that they begin, right before it starts
	announce    func(context.Context, process.ID) error // puts them on record as running
}

// run starts the command and waits for it.
func (c *command) run(ctx context.Context, env []string) (runner.Result, error) {
	var announceErr error
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.killOnLost(cancel)()
	spec := runner.Spec{
		Argv: c.box.argv(), Env: env, Dir: c.box.work.Name(),
		Stdout: c.box.logs.stdout, Stderr: c.box.logs.stderr, Room: c.box.root.Name(),
		Marker: marker(c.id), Grace: c.x.opts.Grace, Mask: c.secrets(),
		OnStart: func(p process.ID) {
			bound, stop := c.x.bound(context.WithoutCancel(ctx))
			defer stop()
			if announceErr = c.announce(bound, p); announceErr != nil && !c.isLeft(bound, announceErr) {
				cancel(nil) // an execution that cannot be recorded must not go on
			}
		},
		OnStartAfter: c.x.opts.Announce,
	}
	var unready error
	if c.spec.Room.Closed {
		c.box.closed = true
		if spec.Closed, unready = c.box.closedRoom(); unready != nil && c.req.Job.Ref != "" { // another worker may have it
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, unready)
		}
	}
	if err := c.traceOpens(ctx, &spec); err != nil {
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if c.req.Policy != nil {
		spec.Timeout = c.req.Policy.Timeout * time.Duration(len(c.items))
	}
	c.setLimits(&spec)
	if c.req.Job.Identity != "" {
		spec.State, spec.Identity, spec.Lasting = c.box.handover(), c.req.Job.Identity, c.req.keeps()
	}
	otherTool := c.checkTools(ctx, spec.Closed)
	if otherTool != nil && c.req.Job.Ref != "" { // another worker may have them
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, otherTool)
	}
	if err := c.begin(); err != nil {
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if err := cmp.Or(unready, otherTool, c.unset()); err != nil {
		return runner.Result{}, err
	}
	res, err := c.launch(ctx, spec)
	c.box.inhabited = res.Straggler || err != nil
	if cause := context.Cause(ctx); err == nil && res.Cancelled && errors.Is(cause, errOnLost) {
		return res, cause
	}
	if announceErr != nil && !errors.Is(err, runner.ErrLeft) {
		return runner.Result{}, announceErr
	}
	if err == nil && c.req.Job.FailureGrace > 0 && !res.Success() && !res.TimedOut && !res.OOM {
		grace := time.NewTimer(c.req.Job.FailureGrace)
		defer grace.Stop()
		select {
		case <-ctx.Done():
			res.Cancelled = true
		case <-grace.C:
		}
	}
	return res, err
}

// errNotRun is wrapped if no command has run, so that there is nothing to record.
var errNotRun = errors.New("the command was not started")

// errOnLost ends a command whose policy does not let it outlast a lease. Its text is recorded.
var errOnLost = errors.New("the store did not answer for as long as a lease lasts, and the policy of the task has its command end then")

// killOnLost cancels a command with errOnLost when the lease is suspended, if the policy says so. For a job the
// supervisor does that.
func (c *command) killOnLost(cancel context.CancelCauseFunc) (stop func()) {
	o, ok := c.x.lessee.(refstore.Outlasting)
	if !ok || c.req.keeps() || c.req.Job.Identity != "" {
		return func() {}
	}
	return o.OnSuspension(func(s refstore.Suspension) {
		if !s.Over {
			cancel(errOnLost)
		}
	})
}

// keeper is a runner that keeps the end of a command with an identity until Release.
type keeper interface{ Release(identity string) }

// isLeft tells whether the supervisor keeps the command, or its end, after an error: this process has lost its lease or
// left the command.
func (a *assignment) isLeft(ctx context.Context, err error) bool {
	return err != nil && a.req.Job.Identity != "" && (errors.Is(err, runner.ErrLeft) || a.x.leaseLoss(ctx) != nil)
}

// releaseCommand has the supervisor forget the command.
func (a *assignment) releaseCommand() {
	if k, ok := a.x.runner.(keeper); ok && a.req.Job.Identity != "" {
		k.Release(a.req.Job.Identity)
	}
}
