package repo

import (
	"context"

	"e3/refstore"
)

// OnLost calls lost with the reason once this process has lost its lease on the repository, until ctx is done. It
// returns the lease; nil where the repository needs none.
func (r *Repo) OnLost(ctx context.Context, lost func(error)) refstore.Lessee {
	lessee, ok := r.Records.(refstore.Lessee)
	if !ok {
		return nil
	}
	go func() {
		select {
		case <-lessee.Lost():
			lost(lessee.Held())
		case <-ctx.Done():
		}
	}()
	return lessee
}
