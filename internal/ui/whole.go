package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// everywhere is the feed of the whole repository, for the pages that show all workspaces.
const everywhere = ""

// Bounds of the feed of the whole repository.
const (
	namesPace   = 5 * time.Second  // between two looks for new workspaces, where a look costs nothing
	perRequest  = 10 * time.Second // pause per request of an idle look, if requests are charged for: 360 an hour
	busyRequest = time.Second      // the same while a run is at work
	maxJoined   = 64               // workspaces that are followed by their events; others are found by looking at names
)

// followAll follows all workspaces until ctx ends. Its cursors are of this feed alone: a page that was away is told
// once to load again.
func (at *feed) followAll(ctx context.Context, f *feeds) {
	mine, n := rand.Text(), 0
	tell := func() {
		n++
		at.update(func() { at.cursor, at.heard, at.ready = fmt.Sprintf("all-%s-%d", mine, n), f.now(), true })
	}
	tell()
	var err error
	if _, paced := f.s.Records.(events.Paced); paced {
		err = pollAll(ctx, f, tell)
	} else {
		err = joinAll(ctx, f, tell)
	}
	at.update(func() { at.fault = errors.Join(err, context.Cause(ctx), errFeedEnded) })
}

// joinAll follows the feeds of all workspaces.
func joinAll(ctx context.Context, f *feeds, tell func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	joined := map[string]context.CancelFunc{}
	news := make(chan struct{}, 1)
	known := ""
	for first := true; ; first = false {
		names, err := f.s.Answers.Names(ctx)
		if err != nil {
			return err
		}
		now := strings.Join(names, "\n")
		if now != known && !first {
			tell()
		}
		known = now
		have := map[string]bool{}
		for _, ws := range names {
			have[ws] = true
			if joined[ws] == nil && len(joined) < maxJoined {
				sub, end := context.WithCancel(ctx)
				joined[ws] = end
				go f.relay(sub, ws, news)
			}
		}
		for ws, end := range joined {
			if !have[ws] {
				end()
				delete(joined, ws)
			}
		}
		look := time.NewTimer(namesPace)
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				look.Stop()
				return context.Cause(ctx)
			case <-news:
				tell()
			case <-look.C:
				waiting = false
			}
		}
	}
}

// relay passes on that a workspace has changed, until ctx ends.
func (f *feeds) relay(ctx context.Context, ws string, news chan<- struct{}) {
	for ctx.Err() == nil {
		at, leave := f.join(ws, "")
		shown, first := "", true
		for fault := error(nil); fault == nil && ctx.Err() == nil; {
			var cursor string
			var ready bool
			var changed <-chan struct{}
			if cursor, ready, changed, fault = at.look(); ready && cursor != shown {
				if !first {
					select {
					case news <- struct{}{}:
					default: // it is passed on already
					}
				}
				shown, first = cursor, false
			}
			if ready {
				first = false
			}
			if fault == nil {
				select {
				case <-ctx.Done():
				case <-changed:
				}
			}
		}
		leave()
		pause(ctx, time.Second) // after a fault
	}
}

// pollAll looks at the latest run of each workspace, in a store that charges for each look.
func pollAll(ctx context.Context, f *feeds, tell func()) error {
	known, asked, err := lookAll(ctx, f)
	var changed time.Time
	for err == nil {
		each := perRequest
		if f.now().Sub(changed) < quietTime {
			each = busyRequest
		}
		if !pause(ctx, max(idlePace, time.Duration(asked)*each)) {
			return context.Cause(ctx)
		}
		var now string
		if now, asked, err = lookAll(ctx, f); err == nil && now != known {
			known, changed = now, f.now()
			tell()
		}
	}
	return err
}

// lookAll describes the workspaces with their latest runs, and counts the requests for that.
func lookAll(ctx context.Context, f *feeds) (text string, asked int, err error) {
	names, err := f.s.Answers.Names(ctx)
	if err != nil {
		return "", 0, err
	}
	asked = 1
	var all strings.Builder
	for _, ws := range names {
		asked++
		rec, err := f.s.Runs.Stored(ctx, ws, "")
		if err != nil && !errors.Is(err, runview.ErrNoRun) && !errors.Is(err, refstore.ErrNotFound) {
			return "", 0, err
		}
		fmt.Fprintf(&all, "%s %s %s", ws, rec.Key.Sort, rec.Version)
		if run, bad := record.DecodeRun(rec.Value); bad == nil && run.State == record.RunRunning { // its events tell of approvals, and of its tasks
			asked++
			info, err := f.s.Records.Size(ctx, refstore.Key{Partition: "EVENTS/" + ws, Sort: rec.Key.Sort})
			if err != nil && !errors.Is(err, refstore.ErrNotFound) {
				return "", 0, err
			}
			fmt.Fprintf(&all, " %d", info.Size)
		}
		all.WriteByte('\n')
	}
	return all.String(), asked, nil
}
