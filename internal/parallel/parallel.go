// Package parallel spreads work over the processors.
package parallel

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// part is how many numbers in a row one goroutine takes: what is done for each may be little.
const part = 64

// Each calls do for 0 to n-1, in no order, from as many goroutines as there are processors, until one fails: ctx ends then. It returns
// the first error.
func Each(ctx context.Context, n int, do func(ctx context.Context, k int) error) error {
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < n && inner.Err() == nil; from += part {
		g.Go(func() error {
			for k := from; k < min(from+part, n) && inner.Err() == nil; k++ {
				if err := do(inner, k); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// AtMost is Each for work that waits more than it computes: at most limit calls are under way at a time. 0 is Each.
func AtMost(ctx context.Context, limit, n int, do func(ctx context.Context, k int) error) error {
	if limit == 0 {
		return Each(ctx, n, do)
	}
	g, inner := errgroup.WithContext(ctx)
	g.SetLimit(limit)
	for k := 0; k < n && inner.Err() == nil; k++ {
		g.Go(func() error { return do(inner, k) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
