package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// A pendingError names a task that a workspace does not have yet, since a task makes the list of its items.
type pendingError struct {
	ws, family string
	awaited    []string
	err        error
}

func (e *pendingError) Error() string {
	return fmt.Sprintf("%s has no tasks yet: its items follow from %s", e.family, human.Few(e.awaited))
}

func (e *pendingError) Unwrap() error { return e.err }

// orPending replaces the error that there is no such task or dataset by one that says what is awaited, where the name is that of
// a family whose items are not known. arg is <workspace>.<name>.
func orPending(ctx context.Context, r *repo.Repo, arg string, err error) error {
	var unknown *workspace.UnknownError
	ws, name, ok := strings.Cut(arg, ".")
	if !ok || !errors.As(err, &unknown) || unknown.What != "task" && unknown.What != "dataset" {
		return err
	}
	if family, awaited, fault := r.Workspaces.Datasets.Pending(ctx, ws, name); fault == nil && len(awaited) > 0 {
		return &pendingError{ws, family, awaited, err}
	}
	return err
}
