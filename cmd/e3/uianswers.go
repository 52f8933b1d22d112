package main

import (
	"context"

	"e3/gc"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/workspace"
)

// uiAnswers are the answers of status, queue and gc.
type uiAnswers struct {
	a       *app
	r       *repo.Repo
	planner *workspace.Planner // remembers, since pages ask again and again
}

func newUIAnswers(a *app, r *repo.Repo) *uiAnswers {
	return &uiAnswers{a, r, r.Workspaces.Planner.Remembering()}
}

// Names implements [ui.Answers].
func (u *uiAnswers) Names(ctx context.Context) ([]string, error) { return u.r.Workspaces.List(ctx) }

// Status implements [ui.Answers].
func (u *uiAnswers) Status(ctx context.Context, ws string) (*workspace.Status, error) {
	return u.planner.Status(ctx, ws)
}

// Queues implements [ui.Answers].
func (u *uiAnswers) Queues(ctx context.Context) (queue.States, error) {
	names, err := u.r.Queue().Queues(ctx)
	if err != nil {
		return queue.States{}, err
	}
	return repo.QueueStates(ctx, u.r, names)
}

// InTurn implements [ui.Answers].
func (u *uiAnswers) InTurn(ctx context.Context, queues ...string) (queue.Rows, []error, error) {
	return u.r.Queue().InTurn(ctx, queues...)
}

// Garbage implements [ui.Answers].
func (u *uiAnswers) Garbage(ctx context.Context) (*gc.Report, error) {
	if err := u.r.OwnsObjects(ctx); err != nil {
		return nil, err
	}
	return gc.Collect(ctx, gcStores(u.a, u.r), gc.Options{DryRun: true})
}
