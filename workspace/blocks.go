package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
)

// Approvals are the decisions that tasks of workspaces wait for.
type Approvals struct {
	states *States
	blocks *approval.Blocks
}

// runBlocks are the blocks of a run, which holds the workspace. Its first block removes those of earlier runs, which have ended;
// so a run without blocks pays nothing.
type runBlocks struct {
	*approval.Blocks
	mu      sync.Mutex
	cleaned bool
}

// Create makes a block.
func (b *runBlocks) Create(ctx context.Context, want approval.Block) (approval.Block, error) {
	if err := b.clean(ctx, want.Workspace, want.Run); err != nil {
		return approval.Block{}, err
	}
	return b.Blocks.Create(ctx, want)
}

func (b *runBlocks) clean(ctx context.Context, ws, run string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cleaned {
		return nil
	}
	err := b.Remove(ctx, ws, run)
	b.cleaned = err == nil
	return err
}

// Deferred returns the blocks that wait for approval in the current run of a workspace; none if no run is at work.
func (w *Approvals) Deferred(ctx context.Context, ws string) ([]approval.Block, error) {
	r, err := w.states.Runs.Summary(ctx, ws)
	if errors.Is(err, runview.ErrNoRun) {
		_, err = w.states.State(ctx, ws)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return w.deferred(ctx, ws, r)
}

// deferred is that of a run.
func (w *Approvals) deferred(ctx context.Context, ws string, r *runview.Report) ([]approval.Block, error) {
	if r == nil || !r.Live {
		return nil, nil
	}
	var waiting []approval.Block
	for b, err := range w.blocks.List(ctx, ws, r.RunID) {
		if errors.Is(err, approval.ErrMalformed) {
			continue // the run finds that out by itself
		}
		if err != nil {
			return nil, fmt.Errorf("look for what waits for approval: %w", err)
		}
		if b.Status == approval.Pending {
			waiting = append(waiting, b)
		}
	}
	return waiting, nil
}

// NotWaitingError says that a task does not wait for approval.
type NotWaitingError struct {
	Workspace string
	Task      string
	Run       string   // the one at work; "" where there is none
	Others    []string // tasks of it that wait
}

func (e *NotWaitingError) Error() string {
	text := fmt.Sprintf("%s.%s does not wait for approval", e.Workspace, e.Task)
	switch {
	case e.Run == "":
		return text + ": no run of the workspace is in progress"
	case len(e.Others) > 0:
		return text + "; what waits is " + strings.Join(e.Others, ", ")
	}
	return text + ", and nothing else does"
}

// Unwrap makes errors.Is(err, approval.ErrNotFound) true.
func (e *NotWaitingError) Unwrap() error { return approval.ErrNotFound }

// Resolve decides about a task that waits for approval in the workspace's latest run. Changed is false where that was decided already in
// that run. Errors are an *UnknownError, a *NotWaitingError, and a *approval.ResolvedError where it was decided otherwise.
func (w *Approvals) Resolve(ctx context.Context, ws, task string, res approval.Resolution) (b approval.Block, changed bool, err error) {
	r, err := w.states.Runs.Summary(ctx, ws)
	if err != nil && !errors.Is(err, runview.ErrNoRun) {
		return approval.Block{}, false, err
	}
	if err != nil { // of a workspace that is not here either
		return approval.Block{}, false, w.notWaiting(ctx, ws, task, nil)
	}
	b, err = w.blocks.Get(ctx, ws, r.RunID, task)
	if errors.Is(err, approval.ErrNotFound) || err == nil && b.Status == approval.Pending && !r.Live {
		return approval.Block{}, false, w.notWaiting(ctx, ws, task, r)
	}
	if err != nil {
		return approval.Block{}, false, err
	}
	b, changed, err = w.blocks.Resolve(ctx, ws, r.RunID, task, b.ID, res)
	if errors.Is(err, approval.ErrNotFound) { // it was approved, and something later waits already
		return approval.Block{}, false, w.notWaiting(ctx, ws, task, r)
	}
	return b, changed, err
}

// notWaiting says why a task does not wait, and if need be that there is none of that name.
func (w *Approvals) notWaiting(ctx context.Context, ws, task string, r *runview.Report) error {
	state, err := w.states.State(ctx, ws)
	if err != nil {
		return err
	}
	if state.Deployed {
		pkg, err := w.states.Packages.Load(ctx, state.PackageHash)
		if err != nil {
			return err
		}
		known := make([]string, len(pkg.Tasks))
		for i := range pkg.Tasks {
			known[i] = pkg.Tasks[i].Name
		}
		if !slices.Contains(known, task) {
			return &UnknownError{What: "task", Name: task, Known: known}
		}
	}
	e := &NotWaitingError{Workspace: ws, Task: task}
	if r != nil && r.Live {
		e.Run = r.RunID
		waiting, err := w.deferred(ctx, ws, r)
		if err != nil {
			return err
		}
		for i := range waiting {
			e.Others = append(e.Others, ws+"."+waiting[i].Task)
		}
	}
	return e
}
