package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
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

// A reader of standard output that is missed cancels what is at work, and leaves what has ended as it was.
func TestReaderGone(t *testing.T) {
	failed := &exitError{exitFailed}
	for _, test := range []struct {
		name  string
		ended func(context.Context) error
		want  error
		told  bool
	}{
		{"completed", func(context.Context) error { return nil }, nil, true},
		{"failed", func(context.Context) error { return failed }, failed, true},
		{"cancelled", func(context.Context) error { return &exitError{exitCancelled} }, errReaderGone, false},
		{"interrupted", func(ctx context.Context) error { return ctx.Err() }, errReaderGone, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			r.Close()
			var said strings.Builder
			a := &app{}
			a.Stdout, a.Stderr = w, &said
			err = a.whileRead(t.Context(), func(ctx context.Context) error {
				if _, err := fmt.Fprintln(a.Stdout, "Run completed"); err != nil {
					t.Errorf("a write without a reader: got %v, want it dropped", err)
				}
				if ctx.Err() == nil {
					t.Error("the context goes on without a reader")
				}
				if err := unread(ctx).Err(); err != nil {
					t.Errorf("what follows the run has a context with %v, want none", err)
				}
				return test.ended(ctx)
			})
			if err != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if told := strings.Contains(said.String(), "reader of standard output"); told != test.told {
				t.Errorf("standard error says %q; want the missing reader told: %v", said.String(), test.told)
			}
		})
	}
}
