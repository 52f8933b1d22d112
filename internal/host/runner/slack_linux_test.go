package runner_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"e3/internal/host/runner"

	"golang.org/x/sys/unix"
)

// ownSlack is what a thread has before any test asks for another slack.
var ownSlack, slackErr = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)

// The timers of e3 and of the supervisor may be late, those of a command are not later than those of e3 when it started.
func TestTimerSlack(t *testing.T) {
	if slackErr != nil {
		t.Skipf("this kernel tells no timer slack: %v; run on Linux with no filter of system calls that refuses prctl", slackErr)
	}
	runner.Prompt()
	if os.Getuid() == 0 { // without CAP_SYS_NICE, a process does not change its other threads
		if most := greatestSlack(t); most <= ownSlack {
			t.Errorf("no thread has a timer slack beyond %d ns", most)
		}
	}
	s := newSupervisor(t)
	for range 3 {
		spec := shell(t, "cat /proc/self/timerslack_ns", t.TempDir())
		if got, want := output(t, s, spec), strconv.Itoa(ownSlack)+"\n"; got != want {
			t.Errorf("a command has a timer slack of %q, and e3 of %q", got, want)
		}
	}
}

// greatestSlack is the greatest timer slack of this process's threads.
func greatestSlack(t *testing.T) (most int) {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if err != nil {
			continue // it has ended
		}
		if ns, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			most = max(most, ns)
		}
	}
	return most
}
