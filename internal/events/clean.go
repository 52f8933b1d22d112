package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/format/moment"
	"e3/refstore"
)

// CleanOptions select the logs to remove.
type CleanOptions struct {
	Workspace string    // only of this workspace; "": of all, including removed ones
	Before    time.Time // only of runs that ended before
	// Keep decides which of these runs keep their events. It is called right before the removal.
	Keep   func(ctx context.Context, run RunRef) (bool, error)
	DryRun bool // remove nothing
}

// CleanedRun is a run whose events were, or would be, removed.
type CleanedRun struct {
	RunRef
	EndedAt moment.Time `json:"endedAt"`
	Events  int64       `json:"events"`
	Bytes   int64       `json:"bytes"`
}

// Cleaned is a removal of events, or what it would remove.
type Cleaned struct {
	DryRun bool         `json:"dryRun"`
	Before moment.Time  `json:"before"` // the runs ended before then; null: all are kept
	Runs   []CleanedRun `json:"runs"`
	Events int64        `json:"events"`
	Bytes  int64        `json:"bytes"`
}

// Add adds removed runs.
func (c *Cleaned) Add(runs []CleanedRun) {
	c.Runs = append(c.Runs, runs...)
	for i := range runs {
		c.Events += runs[i].Events
		c.Bytes += runs[i].Bytes
	}
}

// Clean removes the logs of runs that ended long ago, each as a whole. It returns the runs, also beside an error. An
// unfinished run keeps its events, even if its process is dead: they are needed to close it. Clean skips logs of runs
// whose id shows that they began later, and reads only the ends of the others.
func Clean(ctx context.Context, streams refstore.Streams, o CleanOptions) ([]CleanedRun, error) {
	runs, err := Runs(ctx, streams, o.Workspace)
	if err != nil {
		return nil, err
	}
	var cleaned []CleanedRun
	for _, run := range runs {
		if began, ok := Began(run.Run); ok && !began.Before(o.Before) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return cleaned, fmt.Errorf("clean events: %w", context.Cause(ctx))
		}
		c, err := clean(ctx, streams, run, &o)
		if err != nil {
			return cleaned, fmt.Errorf("clean events of run %s of workspace %s: %w", run.Run, run.Workspace, err)
		}
		if c != nil {
			cleaned = append(cleaned, *c)
		}
	}
	return cleaned, nil
}

// clean removes the log of one run. It returns nil if the log stays or no longer exists.
func clean(ctx context.Context, streams refstore.Streams, run RunRef, o *CleanOptions) (*CleanedRun, error) {
	end, err := End(ctx, streams, run.Workspace, run.Run)
	if err != nil || end == nil || !end.Time.Before(o.Before) {
		return nil, err
	}
	key := streamKey(run.Workspace, run.Run)
	info, err := streams.Size(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if keep, err := o.Keep(ctx, run); err != nil || keep {
		return nil, err
	}
	if !o.DryRun {
		err := streams.Remove(ctx, key)
		if errors.Is(err, refstore.ErrNotFound) {
			return nil, nil // another process has removed it
		}
		if err != nil {
			return nil, err
		}
	}
	return &CleanedRun{RunRef: run, EndedAt: moment.At(end.Time), Events: end.Seq, Bytes: info.Size}, nil
}
