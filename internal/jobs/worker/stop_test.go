package worker

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestOneSignalTwice sends a signal twice, as "timeout" does, to a process that it cancels too: the worker is told to end, and
// must not stop its commands.
func TestOneSignalTwice(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	s := &Server{Signals: []os.Signal{syscall.SIGTERM}, OneSignal: time.Minute}
	drain, work, end := s.requests(ctx, false)
	defer end()
	for range 2 {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-drain
		<-ctx.Done()
	}
	if err := work.Err(); err != nil {
		t.Errorf("a worker that was told to end stops its commands: %v", err)
	}
}

// TestSecondSignal stops the commands, and the first one does if the worker is for one job.
func TestSecondSignal(t *testing.T) {
	for _, atOnce := range []bool{true, false} {
		s := &Server{Signals: []os.Signal{syscall.SIGUSR1}, OneSignal: time.Nanosecond}
		drain, work, end := s.requests(t.Context(), atOnce)
		for range 1 + map[bool]int{false: 1}[atOnce] {
			if work.Err() != nil {
				t.Error("the first signal has stopped the commands")
			}
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			<-drain
		}
		<-work.Done()
		if cause := context.Cause(work); cause != ErrStopped {
			t.Errorf("the cause is %v", cause)
		}
		end()
	}
}
