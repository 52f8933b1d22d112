package main

import (
	"context"
	"errors"
	"slices"

	"e3/executions"
	"e3/internal/host/runner"
)

// inRoom runs a program in the closed room of a visit, with the terminal of this process.
func (a *app) inRoom(ctx context.Context, v *executions.Visit, argv, env []string) (int, error) {
	signals, stop := a.passedOn()
	defer stop()
	files, end, err := runner.FilesOf(a.stdin, a.Stdout, a.Stderr)
	if err != nil {
		return 0, err
	}
	env = append(slices.Clip(env), "PWD=/e3/work")
	status, err := runner.Visit(v.Closed, argv, env, files, signals)
	if runner.CannotMount(err) && len(v.Closed.Lower) > 0 {
		if err = v.Copy(ctx); err == nil {
			status, err = runner.Visit(v.Closed, argv, env, files, signals)
		}
	}
	err = errors.Join(err, end())
	var start *runner.StartError
	switch {
	case errors.As(err, &start) && !runner.NoRoom(err):
		return 0, usagef("%v", err)
	case err != nil:
		return 0, err
	}
	return exitStatus(status), nil
}
