package ui

import (
	"context"
	"errors"

	"e3/internal/human"
	"e3/internal/insight/runview"
)

// together names the items that one command has served.
type together struct {
	Items  int
	Run    string   // the run that made them
	Others []string // other items, at most mostTogether, if the run is known
	More   int
}

// mostTogether bounds the other items of a batch that the page of a task names.
const mostTogether = 12

// together finds the items that the command of the shown execution served, nil if it served one.
func (s *Server) together(ctx context.Context, f *frame, b *taskBody) (*together, error) {
	d := b.Execution.Detail
	if d == nil || d.Batch.ID == "" {
		return nil, nil
	}
	t := &together{Items: d.Batch.Items, Run: d.RunID}
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
			t.Others = append(t.Others, o.Task)
		default:
			t.More++
		}
	}
	return t, nil
}
