package runner_test

import (
	"strconv"
	"testing"

	"e3/internal/host/runner"

	"golang.org/x/sys/unix"
)

// ownSlack is what a thread has before any test asks for another slack.
var ownSlack, slackErr = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)

// The timers of e3 and of the supervisor may be late, those of a command are not later than those of e3 when it started.
func TestTimerSlack(t *testing.T) {
	if slackErr != nil {
		t.Skipf("this kernel tells no timer slack: %v", slackErr)
	}
	runner.Prompt()
	s := newSupervisor(t)
	for range 3 {
		spec := shell(t, "cat /proc/self/timerslack_ns", t.TempDir())
		if got, want := output(t, s, spec), strconv.Itoa(ownSlack)+"\n"; got != want {
			t.Errorf("a command has a timer slack of %q, and e3 of %q", got, want)
		}
	}
}
