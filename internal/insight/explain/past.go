package explain

import (
	"context"
	"slices"

	"e3/internal/events"
	"e3/internal/insight/history"
)

// past holds attempts of a task, the latest first by their ids.
type past struct {
	list []history.Attempt
	// from is the id of a run: attempts that older runs made and no later run used are missing; "": no attempt is
	// missing.
	from string
}

// recent returns the attempts of a task that were made or used in the latest runs, the latest first by their ids.
func (x *Explainer) recent(ctx context.Context, ws, task string) (past, error) {
	x.mu.Lock()
	p, ok := x.attempts[[2]string{ws, task}]
	tasks := []string{task}
	if _, among := slices.BinarySearch(x.together, task); among {
		tasks = x.together
	}
	x.mu.Unlock()
	if ok {
		return p, nil
	}
	if err := x.prefetch(ctx, ws, tasks); err != nil {
		return past{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attempts[[2]string{ws, task}], nil
}

// search passes the recent attempts of a task to found; if that returns false, it passes all attempts.
func (x *Explainer) search(ctx context.Context, ws, task string, found func(past) (bool, error)) error {
	p, err := x.recent(ctx, ws, task)
	if err != nil {
		return err
	}
	if ok, err := found(p); ok || err != nil || p.from == "" {
		return err
	}
	if err := x.fetch(ctx, ws, "", []string{task}); err != nil {
		return err
	}
	if p, err = x.recent(ctx, ws, task); err != nil {
		return err
	}
	_, err = found(p)
	return err
}

// Prefetch reads the recent history of many tasks at once, for Miss or Why. A question about one of them that leads into
// another workspace reads all of them there.
func (x *Explainer) Prefetch(ctx context.Context, ws string, tasks []string) error {
	x.mu.Lock()
	x.together = slices.Sorted(slices.Values(tasks))
	x.mu.Unlock()
	return x.prefetch(ctx, ws, tasks)
}

func (x *Explainer) prefetch(ctx context.Context, ws string, tasks []string) error {
	x.mu.Lock()
	from, ok := x.from[ws]
	x.mu.Unlock()
	if !ok {
		runs, err := events.Runs(ctx, x.Records, ws)
		if err != nil {
			return err
		}
		if n := len(runs) - recentRuns; n > 0 {
			from = runs[n].Run
		}
		x.mu.Lock()
		x.from[ws] = from
		x.mu.Unlock()
	}
	return x.fetch(ctx, ws, from, tasks)
}

// fetch reads the attempts of tasks from a run on.
func (x *Explainer) fetch(ctx context.Context, ws, from string, tasks []string) error {
	found, err := history.Find(ctx, x.Stores.Stores, history.Query{Workspace: ws, Tasks: tasks, From: from})
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range found.Tasks {
		sortByID(t.Attempts)
		x.attempts[[2]string{ws, t.Name}] = past{t.Attempts, from}
	}
	return nil
}
