package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/backoff"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := backoff.Wait(t.Context(), time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("waited %v, %v", time.Since(began), err)
		}
		why := errors.New("the lease is lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if err := backoff.Wait(ctx, time.Hour); !errors.Is(err, why) || time.Since(began) != 2*time.Second {
			t.Errorf("waited %v, %v; want an end after 2 s with the cause", time.Since(began), err)
		}
	})
}

func TestPause(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "first"))
		most := time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "most"))
		attempts := rapid.IntRange(0, 1000).Draw(t, "attempts")
		d := backoff.Pause(first, most, attempts)
		if d < 0 || d > most || attempts < 10 && d > first<<max(attempts-1, 0) {
			t.Errorf("after %d attempts from %v to %v: got %v", attempts, first, most, d)
		}
	})
}
