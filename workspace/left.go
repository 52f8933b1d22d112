package workspace

import (
	"context"
	"errors"

	"e3/internal/events"
)

// noteLeft withdraws and notes the jobs of a run that ends before all of its requests have had their results: the journal tells
// of what its log does not. The jobs say which these are, as those of a dead run do. The requests do not know: one whose
// answer was lost may have made a job, and a worker may have begun that since.
func (r *run) noteLeft(ctx context.Context) error {
	c := newClosing(r.w, r.ws, r.rec.RunID)
	var err error
	if c.attempts, err = withdrawn(ctx, r.w.states, r.ws, c.run); err != nil || len(c.attempts) == 0 {
		return err
	}
	for e, err := range events.Read(ctx, r.w.states.Records, r.ws, c.run) {
		if errors.As(err, new(*events.DamagedError)) {
			continue
		}
		if err != nil {
			return err
		}
		c.read(&e.Event)
	}
	if err := errors.Join(c.followed(ctx), c.awaited(ctx)); err != nil {
		return err
	}
	r.late += len(c.late)
	return nil
}
