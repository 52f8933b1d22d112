package executions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/internal/format/record"
	"e3/internal/host/bash"
	"e3/internal/host/room"
	"e3/internal/host/runner"
)

// launch runs the attempt's command. A script that is one plain command goes without bash, unless that might show.
// A command that cannot be started so has done nothing that bash would not do again: bash then reports the fault.
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

// launchOnce is launch without copies instead of layers.
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

// search is runner.LookPath, or the executor's memory of it. Programs in the key were looked for just now (checkTools), and the
// command must not get another one.
func (c *command) search() func(command, dir string, env []string) (path string, err error) {
	if slices.ContainsFunc(c.spec.Inputs, func(in record.Input) bool { return in.Kind == record.KindTool }) {
		return runner.LookPath
	}
	return c.x.programs.Look
}
