package ui

import (
	"context"
	"fmt"

	"e3/internal/insight/explain"
	"e3/internal/insight/history"
)

// gathered is the past of several tasks that an export reads at once: each reading goes through the events of the
// runs, whatever the number of tasks.
type gathered struct {
	ws       string
	attempts map[string]*history.Found // by task
	explain  *explain.Explainer
}

// maxGathered is the number of tasks whose past is read at once, and then forgotten.
const maxGathered = 200

// gather reads the past of tasks.
func (s *Server) gather(ctx context.Context, ws string, tasks []string) error {
	g := &gathered{ws: ws, attempts: make(map[string]*history.Found, len(tasks)), explain: s.stores.Explain()}
	found, err := s.latest(ctx, ws, tasks)
	if err == nil {
		err = g.explain.Prefetch(ctx, ws, tasks)
	}
	if err != nil {
		return fmt.Errorf("read the past of %d tasks: %w", len(tasks), err)
	}
	for _, t := range found.Tasks {
		one := *found
		one.Tasks = []history.Task{t}
		g.attempts[t.Name] = &one
	}
	s.gathered = g
	return nil
}

// pastOf returns the latest attempts of a task.
func (s *Server) pastOf(ctx context.Context, ws, task string) (*history.Found, error) {
	if g := s.gathered; g != nil && g.ws == ws && g.attempts[task] != nil {
		return g.attempts[task], nil
	}
	return s.latest(ctx, ws, []string{task})
}

func (s *Server) latest(ctx context.Context, ws string, tasks []string) (*history.Found, error) {
	q := history.Query{Workspace: ws, Tasks: tasks, NotStarted: true}
	return history.Latest(ctx, s.stores.history(), q, mostAttempts, func(*history.Attempt) bool { return true })
}

// explainer returns the explainer of a page.
func (s *Server) explainer() *explain.Explainer {
	if s.gathered != nil {
		return s.gathered.explain
	}
	return s.stores.Explain()
}
