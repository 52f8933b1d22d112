package parallel_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"e3/internal/parallel"
)

func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 65, 1000} {
		seen := make([]atomic.Int32, n)
		err := parallel.Each(t.Context(), n, func(_ context.Context, k int) error {
			seen[k].Add(1)
			return nil
		})
		if err != nil {
			t.Fatalf("Each of %d: %v", n, err)
		}
		for k := range seen {
			if got := seen[k].Load(); got != 1 {
				t.Errorf("of %d, %d was done %d times, want once", n, k, got)
			}
		}
	}
}

func TestEachStops(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int32
	err := parallel.Each(t.Context(), 1_000_000, func(ctx context.Context, k int) error {
		if calls.Add(1); k == 10 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || calls.Load() == 1_000_000 {
		t.Errorf("Each returned %v after %d calls, want %v and to stop", err, calls.Load(), broken)
	}
}

func TestEachCancelled(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := parallel.Each(ctx, 1_000_000, func(ctx context.Context, k int) error {
		cancel(cause)
		return nil
	})
	if !errors.Is(err, cause) {
		t.Errorf("Each returned %v, want %v", err, cause)
	}
	if n := 0; parallel.Each(ctx, n, nil) == nil {
		t.Error("Each of nothing hides that the context has ended")
	}
}
