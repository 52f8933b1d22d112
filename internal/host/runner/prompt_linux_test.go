package runner_test

import (
	"testing"

	"e3/internal/host/process"
	"e3/internal/host/runner"

	"golang.org/x/sys/unix"
)

// usual is what a thread has before any test asks for short turns.
var usual, usualErr = unix.SchedGetAttr(0, 0)

// Commands have turns of the usual length, whatever the threads have that start them.
func TestPrompt(t *testing.T) {
	if usualErr != nil || usual.Policy != unix.SCHED_NORMAL || usual.Runtime == 0 {
		t.Skipf("threads have no turns of a length here (%v): run this on Linux 6.12 or later, with the usual policy", usualErr)
	}
	runner.Prompt()
	s := newSupervisor(t)
	for range 3 { // by each lane
		var command *unix.SchedAttr
		spec := shell(t, "sleep 0.2", t.TempDir())
		spec.OnStart = func(p process.ID) { command, _ = unix.SchedGetAttr(p.PID, 0) }
		output(t, s, spec)
		if command == nil || command.Runtime != usual.Runtime || command.Flags != usual.Flags || command.Nice != usual.Nice {
			t.Errorf("a command has %+v, want %+v", command, usual)
		}
	}
}
