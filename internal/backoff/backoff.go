// Package backoff waits between the attempts of a loop.
package backoff

import (
	"context"
	"time"
)

// Wait waits for d. It returns the cause of ctx if that ends first.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
