package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestOneSignalTwice sends two signals at once, as "timeout" does: they count as one, and hurry nothing.
func TestOneSignalTwice(t *testing.T) {
	own := make(chan os.Signal, 2) // both have arrived, and end no test
	signal.Notify(own, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(own)
	var hurry atomic.Pointer[func()]
	do := func() { t.Error("the same signal hurries") }
	hurry.Store(&do)
	ctx, stop := cancelOnSignal(t.Context(), &hurry)
	defer stop()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		<-own
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errInterrupted) {
		t.Errorf("the cause is %v", cause)
	}
}
