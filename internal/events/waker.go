package events

import (
	"context"
	"fmt"
	"time"

	"e3/refstore"
)

// recheck is how often a follower looks for new workspaces and runs, if looking is cheap; appends wake it.
const recheck = 250 * time.Millisecond

// looks returns how often a follower looks for changes that do not wake it.
func looks(streams refstore.Streams) time.Duration {
	if p, ok := streams.(Paced); ok {
		return max(recheck, p.StreamPace())
	}
	return recheck
}

// A waker lets a follower wait for changes.
type waker struct {
	streams refstore.Streams
	watched map[string]bool // partitions
	wake    chan struct{}
	recheck time.Duration
}

func newWaker(streams refstore.Streams) *waker {
	return &waker{streams: streams, watched: map[string]bool{}, wake: make(chan struct{}, 1), recheck: looks(streams)}
}

// watchRuns wakes when a log of a workspace changes.
func (w *waker) watchRuns(ctx context.Context, workspace string) error {
	return w.watch(ctx, streamKey(workspace, "").Partition, "events of workspace "+workspace)
}

// watchJournal wakes when the journal of a workspace changes.
func (w *waker) watchJournal(ctx context.Context, workspace string) error {
	return w.watch(ctx, JournalPartition(workspace), "the journal of workspace "+workspace)
}

func (w *waker) watch(ctx context.Context, partition, what string) error {
	if w.watched[partition] {
		return nil
	}
	c, err := w.streams.WatchStreams(ctx, partition)
	if err != nil {
		return fmt.Errorf("follow %s: %w", what, err)
	}
	w.watched[partition] = true
	go func() {
		for range c { // closed when ctx ends
			select {
			case w.wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		}
	}()
	return nil
}

// wait waits for a change, the end of the pause or of the context, or the closing of until, which may be nil.
func (w *waker) wait(ctx context.Context, pause time.Duration, until <-chan struct{}) {
	again := time.NewTimer(pause)
	defer again.Stop()
	select {
	case <-ctx.Done():
	case <-w.wake:
	case <-again.C:
	case <-until:
	}
}
