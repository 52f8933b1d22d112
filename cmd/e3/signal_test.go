package main

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// TestOneSignalTwice sends a signal twice, as "timeout" does: the second one must neither kill the process, nor have a worker
// stop its commands.
func TestOneSignalTwice(t *testing.T) {
	ctx, stop := cancelOnSignal(t.Context())
	defer stop()
	drain, work, end := watchSignals(ctx, false)
	defer end()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-drain
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		t.Errorf("the cause is %v", cause)
	}
	if err := work.Err(); err != nil {
		t.Errorf("a worker that was told to end stops its commands: %v", err)
	}
}
