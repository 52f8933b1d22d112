package main

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestOneSignalTwice sends a signal twice, as "timeout" does: the second one must not kill the process.
func TestOneSignalTwice(t *testing.T) {
	ctx, stop := cancelOnSignal(t.Context(), new(atomic.Pointer[func()]))
	defer stop()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		t.Errorf("the cause is %v", cause)
	}
}
