package executions

import (
	"context"
	"errors"

	"e3/internal/format/record"
)

// SuspendedFor tells whether an execution was suspended by its command in a run of workspace ws here. It is false for
// imported and for unreadable executions.
func (s *Store) SuspendedFor(ctx context.Context, k Key, id, ws string) (bool, error) {
	e, err := s.Get(ctx, k, id)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrMalformed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	imported := e.Metadata != nil || e.Provenance != nil
	return !imported && e.State == record.Failed && e.Detail != nil && Reason(e.Detail.Reason) == ReasonSuspended && e.Detail.Workspace == ws, nil
}
