package executions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/bash"
	"e3/internal/host/cgroup"
	"e3/internal/host/process"
	"e3/internal/host/room"
	"e3/internal/host/runner"
	"e3/internal/human"
	"e3/refstore"
)

// A command is the process that serves an assignment, or several of one batch.
type command struct {
	*assignment                                         // the first item's: the runner knows the command by it
	box         *box                                    // in which it runs
	items       []*assignment                           // the assignments that it serves; mostly the first alone
	begin       func() error                            // notes right before the start that the executions begin
	announce    func(context.Context, process.ID) error // records the executions as running
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
		spec.Closed, unready = c.box.closedRoom()
	}
	if c.noEnvironment != nil {
		unready = c.noEnvironment
	}
	if err := c.givenBack(unready); err != nil {
		return runner.Result{}, err
	}
	spec.ReadOnly = c.environment
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
	if otherTool != nil && c.req.Job.Ref != "" { // another worker may have the programs
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, otherTool)
	}
	if err := c.begin(); err != nil {
		return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
	}
	if c.noEnvironment != nil {
		if err := c.noEnvironment.showLog(c.box.logs.stderr, c.mask); err != nil {
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
		}
	}
	if err := cmp.Or(unready, otherTool, c.unset()); err != nil {
		return runner.Result{}, err
	}
	res, err := c.launch(ctx, spec)
	c.box.inhabited = res.Straggler || err != nil
	if err := c.givenBack(err); err != nil {
		return runner.Result{}, err
	}
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

// OfMachine tells whether an error says that a command was not started because this machine lacks what the task needs:
// a program, an environment, or a closed room. Another machine may have it.
func OfMachine(err error) bool {
	var lacking *roomError
	return errors.Is(err, ErrOtherTool) || errors.Is(err, ErrNoEnvironment) || runner.NoRoom(err) || errors.As(err, &lacking) && lacking.here
}

// givenBack returns the error of a job that another worker may be able to execute, and that therefore leaves no record.
func (a *assignment) givenBack(err error) error {
	if a.req.Job.Ref == "" || !OfMachine(err) {
		return nil
	}
	return fmt.Errorf("%w: %w", errNotRun, err)
}

// errOnLost ends a command whose policy does not let it outlast a lease. Its text is recorded.
var errOnLost = errors.New("stopped: the store was unreachable for a whole lease, and on_lost is kill")

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

// isLeft tells whether err means that the supervisor keeps a job's command or its end: this process has lost its
// lease or left the command.
func (a *assignment) isLeft(ctx context.Context, err error) bool {
	return err != nil && a.req.Job.Identity != "" && (errors.Is(err, runner.ErrLeft) || a.x.leaseLoss(ctx) != nil)
}

// releaseCommand has the supervisor forget the command.
func (a *assignment) releaseCommand() {
	if k, ok := a.x.runner.(keeper); ok && a.req.Job.Identity != "" {
		k.Release(a.req.Job.Identity)
	}
}

// launch runs the attempt's command. A script that is one plain command runs without bash, unless a program could
// notice. If the command cannot be started without bash, nothing has happened yet: bash then runs the script and
// reports the fault.
func (c *command) launch(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	if len(c.box.lent) > 0 {
		if err := c.box.unmark(); err != nil {
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
		}
	}
	res, err := c.launchOnce(ctx, spec)
	if len(c.box.lent) > 0 && runner.CannotMount(err) {
		if err := c.box.copyLayers(ctx); err != nil {
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
		}
		unlayered := *spec.Closed
		unlayered.Lower, unlayered.Scratch = nil, ""
		spec.Closed = &unlayered
		return c.launchOnce(ctx, spec)
	}
	return res, err
}

// launchOnce is launch without the second try, in which copies replace layers.
func (c *command) launchOnce(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	p, ok := c.plain(spec.Env)
	if !ok {
		if spec.Closed == nil && len(c.spec.Argv) > 0 {
			spec.Path, _ = c.search()(spec.Argv[0], spec.Dir, spec.Env) // Run says what is wrong
		}
		return c.x.runner.Run(ctx, spec)
	}
	direct := spec
	direct.Path, direct.Argv, direct.Env, direct.Redirects = p.Path, p.Argv, p.Env, p.Redirects
	res, err := c.x.runner.Run(ctx, direct)
	var start *runner.StartError
	switch {
	case errors.As(err, &start):
		if err := c.box.anotherRoom(); err != nil {
			return runner.Result{}, fmt.Errorf("%w: %w", errNotRun, err)
		}
		return c.x.runner.Run(ctx, spec)
	case err != nil || res.Signal == 0 || res.TimedOut || res.Cancelled:
		return res, err
	}
	code, line, ok := p.Died(res.PID, res.Signal, res.Core)
	if !ok {
		return res, nil
	}
	res.ExitCode, res.Signal = code, 0
	if _, err := spec.Stderr.WriteString(c.mask(line)); err != nil {
		return res, fmt.Errorf("log the end of execution %s: %w", c.id, err)
	}
	return res, nil
}

// plain returns what bash would execute for the attempt's script, if that is one plain command. A command that may
// outlive this process keeps its bash, because only this process can say what bash would have said of its end.
func (c *command) plain(env []string) (*bash.Process, bool) {
	if c.box.traced {
		return nil, false // redirections of the supervisor are not traced
	}
	if c.spec.Argv != nil || c.x.bash == nil || c.image != nil || c.req.Job.Identity != "" {
		return nil, false
	}
	command := bash.Parse(c.script())
	if command == nil || !c.x.bash.Known() {
		return nil, false
	}
	if !c.spec.Room.Closed {
		return command.Bind(env, c.box.real, c.search())
	}
	// With redirections bash would name a process of the room.
	p, ok := command.Bind(env, room.Work, runner.LookPath)
	return p, ok && len(p.Redirects) == 0
}

// search returns runner.LookPath, or the executor's memory of its answers. For programs in the key the memory is not
// used: checkTools has just looked them up, and the command must not get another one.
func (c *command) search() func(command, dir string, env []string) (path string, err error) {
	if slices.ContainsFunc(c.spec.Inputs, func(in record.Input) bool { return in.Kind == record.KindTool }) {
		return runner.LookPath
	}
	return c.x.programs.Look
}

// A limiter is a runner that enforces limits. Limits returns the result of cgroup.Check for its commands.
type limiter interface{ Limits() error }

// limits tells whether commands can have limits here.
func (x *Executor) limits() error {
	if l, ok := x.runner.(limiter); ok {
		return l.Limits()
	}
	return fmt.Errorf("%w: the runner cannot", cgroup.ErrUnavailable)
}

// setLimits gives a command the limits of its policy that this machine can enforce. A limit that cannot be enforced
// is told once, and the command runs without it.
func (c *command) setLimits(spec *runner.Spec) {
	p := c.req.Policy
	if p == nil || !p.Limits {
		return
	}
	err := c.x.limits()
	some := err == nil || cgroup.IsLack(err)
	if err != nil && c.x.opts.Unlimited != nil {
		c.x.unlimited.Do(func() {
			what := "them"
			if some {
				what = "some of their limits"
			}
			c.x.opts.Unlimited(fmt.Errorf("tasks with limits run without %s: %w", what, err))
		})
	}
	if some {
		spec.Limits = &cgroup.Limits{Memory: p.Memory, CPU: p.CPU}
	}
}

// outOfMemory is the message about a command that ran out of memory.
func (a *assignment) outOfMemory(res *runner.Result) string {
	p := a.req.Policy
	if res.Limit && p != nil {
		return fmt.Sprintf("out of memory: its limit is %s, set by resources.memory in the package file", human.Bytes(p.Memory))
	}
	text := "killed by the system because memory was used up"
	switch {
	case res.PeakRSS <= 0:
	case p != nil && p.Limits && a.x.limits() == nil:
		text += fmt.Sprintf(" (the command had %s)", human.Bytes(res.PeakRSS))
	default:
		text += fmt.Sprintf(" (the largest process had %s)", human.Bytes(res.PeakRSS))
	}
	return text
}
