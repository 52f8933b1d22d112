package main

import (
	"context"
	"errors"
	"strings"

	"e3/executions"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// executionArg is an argument that names an execution: <id> or @<id>, or <workspace>.<task>@<id>, or <workspace>.<task>. The
// beginning of an id is sufficient.
type executionArg struct {
	ws, task string // "" where only an id is given
	id       string // "" where none is given
}

// inExecution calls do with an argument that names an execution. In the repository's only workspace a task needs no workspace.
// "add" and "ffff" may be the name of a task as well as the beginning of an id: the task is meant if there is one. "@add" is
// always an id.
func (a *app) inExecution(ctx context.Context, r *repo.Repo, arg string, do func(executionArg) error) error {
	ws, err := taskLikeID(ctx, r, arg)
	if err != nil {
		return err
	}
	if ws != "" {
		return do(executionArg{ws: ws, task: arg})
	}
	return a.inOnly(ctx, r, arg, func(name string) error {
		parsed, err := parseExecution(name)
		if err != nil {
			return err
		}
		return do(parsed)
	})
}

// taskLikeID returns the repository's only workspace if it has a task of a name that may also be an execution's id, else "".
func taskLikeID(ctx context.Context, r *repo.Repo, name string) (string, error) {
	if !isID(name) || len(name) == idLength || !notation.ValidName(name) {
		return "", nil
	}
	names, err := r.Workspaces.List(ctx)
	if err != nil || len(names) != 1 {
		return "", err
	}
	_, err = r.Workspaces.Runs.TaskExecutions(ctx, names[0], name)
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) || errors.Is(err, workspace.ErrNotDeployed) {
		return "", nil
	}
	return names[0], err
}

// onExecution makes a command whose only argument is an execution.
func (a *app) onExecution(open opener, do func(context.Context, *repo.Repo, executionArg) error, name string) runFunc {
	return a.on(open, func(ctx context.Context, r *repo.Repo, args []string) error {
		return a.inExecution(ctx, r, args[0], func(arg executionArg) error { return do(ctx, r, arg) })
	}, name)
}

func parseExecution(s string) (executionArg, error) {
	var arg executionArg
	if id, ok := strings.CutPrefix(s, "@"); ok && isID(id) {
		return executionArg{id: id}, nil
	}
	name := s
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		name, arg.id = s[:i], s[i+1:]
		if !isID(arg.id) {
			return arg, usagef("%q is not <workspace>.<task>@<execution>: an execution has an id like 018f3b4c-9a2d-…, see: e3 logs <repo> %s --list", s, human.Quoted(name))
		}
	} else if isID(s) {
		return executionArg{id: s}, nil
	}
	ws, path, err := dataset(name)
	if errors.Is(err, errUnnamed) {
		return arg, unnamed(s, "the id of an execution, nor <workspace>.<task>")
	}
	if err != nil || path.Entry != "" {
		return arg, usagef("%q is neither the id of an execution nor <workspace>.<task>", s)
	}
	arg.ws, arg.task = ws, path.Name
	return arg, nil
}

const idLength = 36 // of an execution, in full

// isID reports whether s may be an execution's id, or the beginning of one.
func isID(s string) bool {
	return s != "" && len(s) <= idLength && strings.Trim(s, "0123456789abcdefABCDEF-") == ""
}

// find finds the execution that the argument names; without an id the task's execution in the latest run.
func (arg executionArg) find(ctx context.Context, a *app, r *repo.Repo) (*executions.Execution, error) {
	if arg.ws == "" {
		e, err := r.Executions.Locate(ctx, arg.id)
		var pruned *executions.PrunedError
		switch {
		case errors.As(err, &pruned):
			pruned.Now = a.Now()
		case errors.Is(err, executions.ErrNotFound):
			err = usagef("there is no execution %q", arg.id)
		}
		return e, err
	}
	te, err := r.Workspaces.Runs.TaskExecutions(ctx, arg.ws, arg.task)
	if err != nil {
		return nil, err
	}
	if arg.id != "" {
		return r.Workspaces.Runs.FindExecution(ctx, te, arg.id)
	}
	if e := te.Current(); e != nil {
		return e, nil
	}
	l := &logs{a: a, r: r, ws: arg.ws, task: arg.task}
	return nil, l.none(te)
}
