package ui

import (
	"context"
	"errors"

	"e3/internal/human"
	"e3/internal/insight/runview"
)

// together are the items that one command has served.
type together struct {
	Items  int
	Others []named // the first of them, as far as the run is known
	More   int
}

// named is a task with the address of its page.
type named struct{ Name, URL string }

// mostTogether bounds the other items of a batch that the page of a task names.
const mostTogether = 12

// together finds the items that the command of the shown execution served, nil if it served one.
func (s *Server) together(ctx context.Context, f *frame, b *taskBody) (*together, error) {
	d := b.Execution.Detail
	if d == nil || d.Batch.ID == "" {
		return nil, nil
	}
	t := &together{Items: d.Batch.Items}
	if d.Workspace != f.Workspace || d.RunID == "" {
		return t, nil
	}
	m, err := s.models.run(ctx, f.Workspace, d.RunID)
	var unknown *human.UnknownError
	if errors.Is(err, runview.ErrNoRun) || errors.As(err, &unknown) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	for i := range m.report.Tasks {
		switch o := &m.report.Tasks[i]; {
		case o.Batch != runview.BatchOf(d.Batch) || o.Task == b.Task:
		case len(t.Others) < mostTogether:
			t.Others = append(t.Others, named{human.Line(o.Task), f.To(viewTask, "w", f.Workspace, "t", o.Task, "r", d.RunID)})
		default:
			t.More++
		}
	}
	return t, nil
}
