package runner_test

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// The supervisor's timers may be late, those of a command are not later than e3's own.
func TestTimerSlack(t *testing.T) {
	own, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		t.Skipf("this kernel tells no timer slack: %v", err)
	}
	s := newSupervisor(t)
	for range 3 {
		spec := shell(t, "cat /proc/self/timerslack_ns", t.TempDir())
		if got, want := output(t, s, spec), strconv.Itoa(own)+"\n"; got != want {
			t.Errorf("a command has a timer slack of %q, and e3 of %q", got, want)
		}
	}
}
