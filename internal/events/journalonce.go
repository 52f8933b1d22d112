package events

import (
	"context"
	"errors"
	"time"

	"e3/refstore"
)

// JournalEnd returns the number of the last event of a workspace's journal, 0 if there is none.
func JournalEnd(ctx context.Context, streams refstore.Streams, workspace string) (int64, error) {
	end, err := journalEnd(ctx, streams, workspace)
	return end.seq, err
}

// AppendJournalOnce is AppendJournal for one event, unless the journal has the same event with a number above after.
// If several processes append the same event, one of them succeeds.
func AppendJournalOnce(ctx context.Context, streams refstore.Streams, workspace string, now func() time.Time, after int64, e Event, same func(*Event) bool) error {
	if !recording {
		return nil
	}
	for {
		end, err := journalEnd(ctx, streams, workspace)
		if err != nil && !errors.Is(err, refstore.ErrConflict) {
			return err
		}
		moved := err != nil // the journal has more events after that end
		for old, err := range ReadJournal(ctx, streams, workspace, after) {
			if damaged := (*JournalError)(nil); errors.As(err, &damaged) {
				continue
			}
			if err != nil {
				return err
			}
			if same(&old) {
				return nil
			}
			after, moved = old.Seq, moved || old.Seq > end.seq
		}
		if !moved {
			if _, err := end.append(ctx, streams, workspace, now, []Event{e}); !errors.Is(err, refstore.ErrConflict) {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
