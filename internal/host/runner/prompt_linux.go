package runner

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Between the end of a short command and the start of the next one, three threads have to run: two of the supervisor's and
// e3's own. On a machine whose cores are busy, with the commands at the least, each of them waits for its turn. So these
// threads ask for short turns, which the kernel gives earlier (Linux 6.12 and later). It does not give them more time than
// others get, and commands have turns of the usual length.

// promptTurn is the length of a turn of e3's threads: the shortest that the kernel knows.
const promptTurn = 100 * time.Microsecond

// Prompt has the present threads of this process, and those that they start, run soon after they wake, for a process that
// runs commands. It does nothing where the process has a scheduling policy of its own, or where the kernel knows no turns.
func Prompt() {
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, name := range names {
		if thread, err := strconv.Atoi(name.Name()); err == nil {
			promptThread(thread, 0)
		}
	}
}

// promptLane is Prompt for the present thread, but not for the processes that it starts: the kernel resets their turns.
// It would reset a nice value below 0 as well, so such a thread stays as it is.
func promptLane() { promptThread(0, unix.SCHED_FLAG_RESET_ON_FORK) }

func promptThread(thread int, flags uint64) {
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime == 0 || flags != 0 && attr.Nice < 0 {
		return
	}
	_ = unix.SchedSetAttr(thread, &unix.SchedAttr{Policy: attr.Policy, Nice: attr.Nice, Flags: flags, Runtime: uint64(promptTurn)}, 0)
}
