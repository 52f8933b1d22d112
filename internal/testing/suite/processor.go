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

// Soon fails the test if something takes longer than the limit by the clock in each of several tries. Other work makes some
// slow, seldom all. try returns how long it took.
func Soon(tb testing.TB, limit time.Duration, try func() time.Duration) {
	tb.Helper()
	const tries = 10
	best := Stuck
	for range tries {
		if best = min(best, try()); best <= limit || tb.Failed() {
			return
		}
	}
	tb.Errorf("it took at least %v in each of %d tries, want at most %v", best, tries, limit)
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
