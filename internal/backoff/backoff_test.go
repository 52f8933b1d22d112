package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
