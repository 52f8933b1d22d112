package events

import (
	"context"
	"errors"

	"e3/refstore"
)

// earlierRuns returns the recorded runs of a workspace that ended before a filter's time, as far as the order of
// recording tells, without opening a log: a workspace has one run at a time, so a run had ended when the next one of
// the workspace began. Imported runs have no such place; their last events decide.
func earlierRuns(ctx context.Context, streams refstore.Streams, f *Filter) (map[string]bool, error) {
	early := map[string]bool{}
	if f.Since.IsZero() {
		return early, nil
	}
	previous := ""
	for e, err := range ReadJournal(ctx, streams, f.Workspace, 0) {
		switch {
		case errors.As(err, new(*JournalError)):
		case err != nil:
			return nil, err
		case e.Type != RunRecorded || e.Data == nil:
		case e.Data.Reason == ReasonImported:
		default:
			if began, ok := Began(e.Data.Run); ok && previous != "" && began.Before(f.Since.Add(-clockSlack)) {
				early[previous] = true
			}
			previous = e.Data.Run
		}
	}
	return early, nil
}

// skips reports whether no event of a run is selected because the run ended too early, and the number of its last event
// if that was read.
func (r *recordedReader) skips(ctx context.Context, run string) (seq int64, skip bool) {
	if r.earlier[run] {
		return 0, true
	}
	if !r.f.mayBeTooEarly(run) {
		return 0, false
	}
	last, torn, err := source{r.streams, RunRef{r.f.Workspace, run}}.last(ctx)
	if err != nil || last == nil || torn || !last.Type.Ends() || !r.f.tooEarly(last) {
		return 0, false
	}
	return last.Seq, true
}
