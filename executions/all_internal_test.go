package executions

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// numbers yields 0 to n-1, and then a fault if there is one.
func numbers(n int, fault error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		if fault != nil {
			yield(0, fault)
		}
	}
}

func TestInOrder(t *testing.T) {
	broken, odd := errors.New("broken"), errors.New("odd")
	for _, n := range []int{1, 2, 7} {
		var now, most atomic.Int32
		each := func(ctx context.Context, i int) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for {
					if m := most.Load(); now.Load()+1 <= m || most.CompareAndSwap(m, now.Load()+1) {
						break
					}
				}
				now.Add(1)
				defer now.Add(-1)
				for k := range i % 40 {
					if rand.IntN(20) == 0 {
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(rand.IntN(100)) * time.Microsecond):
						}
					}
					var err error
					if i == 5 && k == 2 {
						err = odd // does not end the list
					}
					if !yield(100*i+k, err) {
						return
					}
				}
			}
		}
		var want []int
		for i := range 100 {
			for k := range i % 40 {
				want = append(want, 100*i+k)
			}
		}
		var got []int
		var faults []error
		for v, err := range inOrder(t.Context(), n, numbers(100, broken), each) {
			if err != nil {
				faults = append(faults, err)
			}
			if !errors.Is(err, broken) {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) || !slices.Equal(faults, []error{odd, broken}) {
			t.Errorf("%d at a time: got %d values, faults %v, want %d in order and %v", n, len(got), faults, len(want), []error{odd, broken})
		}
		if int(most.Load()) > n+1 {
			t.Errorf("%d were read at a time, want at most %d and the one that the caller waits for", most.Load(), n)
		}
		for range inOrder(t.Context(), n, numbers(100, nil), each) {
			break
		}
		if left := now.Load(); left != 0 {
			t.Errorf("%d at a time: %d go on after the caller has left", n, left)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var last error
		seen := 0
		for _, err := range inOrder(ctx, n, numbers(100, nil), func(ctx context.Context, i int) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				if ctx.Err() != nil {
					yield(0, ctx.Err())
					return
				}
				yield(i, nil)
			}
		}) {
			if last = err; seen == 10 {
				cancel()
			}
			seen++
		}
		cancel()
		if !errors.Is(last, context.Canceled) {
			t.Errorf("%d at a time, cancelled: the last error is %v, want %v", n, last, context.Canceled)
		}
	}
}
