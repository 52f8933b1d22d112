package suite

import (
	"syscall"
	"testing"
	"time"
)

// Stuck is how long a test waits for an event that is sure to come, before it fails instead of waiting for ever. It bounds
// nothing: beside other work, what takes a moment can take minutes.
const Stuck = 10 * time.Minute

// ProcessorTime is how long processors have worked for this process so far, in whatever thread.
func ProcessorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Cheap does something, and fails the test if that took more processor time than the limit. Time by the clock depends on
// what else the machine does. The test must not be parallel: the processors work for one test at a time then.
func Cheap(tb testing.TB, limit time.Duration, do func()) {
	tb.Helper()
	began := ProcessorTime(tb)
	do()
	if used := ProcessorTime(tb) - began; used > limit {
		tb.Errorf("it took %v of processor time, want at most %v", used.Round(time.Millisecond), limit)
	}
}
