// Package backoff waits between the attempts of a loop.
package backoff

import (
	"context"
	"math/rand/v2"
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

// Pause is the time to wait after a number of failed attempts. It is random, so that clients that failed together do not
// repeat together, and at most first, doubled after each attempt but the first, and never above most.
func Pause(first, most time.Duration, attempts int) time.Duration {
	if doubled := max(attempts-1, 0); first <= most>>doubled {
		most = first << doubled
	}
	return rand.N(most + 1)
}
