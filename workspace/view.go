package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"e3/dataflow"
	"e3/dataflow/plan"
	"e3/internal/format/record"
	"e3/internal/host/git"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// View is the read-only part of workspaces that explanations and comparisons need.
type View struct {
	asked
	datasets *Datasets
	planner  *Planner
}

// View returns the view of these workspaces.
func (w *Workspaces) View() View { return View{asked{w.States}, w.Datasets, w.Planner} }

// List returns the names of all workspaces in order.
func (v View) List(ctx context.Context) ([]string, error) { return v.w.List(ctx) }

// Leaves returns the inputs and outputs of a workspace that have a value, by name.
func (v View) Leaves(ctx context.Context, ws string) (inputs, outputs map[string]record.Leaf, err error) {
	rows, err := v.datasets.Names(ctx, ws)
	if err != nil {
		return nil, nil, err
	}
	inputs, outputs = map[string]record.Leaf{}, map[string]record.Leaf{}
	for i := range rows {
		switch row := &rows[i]; {
		case row.Kind == record.LeafUnassigned:
		case row.Output:
			outputs[row.Name] = row.Leaf
		default:
			inputs[row.Name] = row.Leaf
		}
	}
	return inputs, outputs, nil
}

// Head returns the commit that git has checked out where the workspace's package file is.
func (v View) Head(ctx context.Context, ws string) (string, error) {
	link, err := v.w.links.remembered(ctx, ws)
	if err != nil {
		return "", err
	}
	if link == nil {
		return "", fmt.Errorf("HEAD: workspace %s follows no package file on this machine", ws)
	}
	switch at, err := git.Read(filepath.Dir(link.File)); {
	case err != nil:
		return "", fmt.Errorf("HEAD of %s: %w", link.File, err)
	case at.Commit == "":
		return "", fmt.Errorf("HEAD of %s: git has no commit yet", link.File)
	default:
		return at.Commit, nil
	}
}

// Next evaluates the next start: see Planner.Next.
func (v View) Next(ctx context.Context, ws string) (*plan.Next, error) {
	return v.planner.Next(ctx, ws)
}

// IsCurrent reports whether an output is current: see Planner.Status.
func (v View) IsCurrent(ctx context.Context, ws, task string) (bool, error) {
	st, err := v.planner.Status(ctx, ws)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(st.Datasets, func(d DatasetRow) bool { return d.Task == task && d.Freshness == dataflow.Current }), nil
}

// asked implements runview.Runs.
type asked struct{ w *States }

func (a asked) State(ctx context.Context, ws string) (*record.WorkspaceState, error) {
	s, err := a.w.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	return &s.WorkspaceState, nil
}

// Queued is a task of a run that waits for a worker.
type Queued = runview.Queued

// Queued is Stores.Queued.
func (a asked) Queued(ctx context.Context, ws, run string) ([]Queued, error) {
	if a.w.Stores.Queued == nil {
		return nil, nil
	}
	return a.w.Stores.Queued(ctx, ws, run)
}

// Expected implements runview.Workspaces.
func (a asked) Expected(ctx context.Context, ws string) func(task string) time.Duration {
	durations, _ := (&proofs{states: a.w}).durations(ctx, ws)
	return func(task string) time.Duration { return durations[task] }
}

// AtWork reports whether the workspace's holder is the run's process. The lock is taken before a run begins, so a
// holder that came later is another process.
func (a asked) AtWork(ctx context.Context, ws string, run *record.Run) (bool, refstore.Heard, error) {
	b, err := a.w.Busy(ctx, ws)
	if err != nil || b == nil || b.Holder != "" && (b.Operation != record.Dataflow || b.Since.After(run.StartedAt)) {
		return false, refstore.Heard{}, err
	}
	return true, b.Heard, nil
}
