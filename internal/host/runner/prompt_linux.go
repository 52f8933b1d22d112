package runner

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Between the end of a short command and the start of the next one, three threads have to run: two of the supervisor
// and one of e3. If the cores are busy, if only with commands, each thread waits for its turn. So these threads ask for
// short turns, which the kernel gives earlier (Linux 6.12 and later). The threads get no more time than others, and
// commands have turns of the usual length.

// promptTurn is the length of a turn of e3's threads: the shortest that the kernel knows.
const promptTurn = 100 * time.Microsecond

// Prompt is for a process that runs commands: its present threads, and threads that they start, will run soon after
// they wake, and are not woken for timers alone (slack_linux.go). It does nothing where the process has a scheduling policy
// of its own, or where the kernel knows no turns.
func Prompt() {
	own()
	names, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, name := range names {
		if thread, err := strconv.Atoi(name.Name()); err == nil {
			promptThread(thread, 0)
			relax(thread)
		}
	}
}

// promptLane is Prompt for the present thread, but not for the processes that it starts: the kernel resets their turns.
// It would also reset a nice value below 0, so a thread with such a value stays as it is.
func promptLane() { promptThread(0, unix.SCHED_FLAG_RESET_ON_FORK) }

func promptThread(thread int, flags uint64) {
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL || attr.Runtime == 0 || flags != 0 && attr.Nice < 0 {
		return
	}
	_ = unix.SchedSetAttr(thread, &unix.SchedAttr{Policy: attr.Policy, Nice: attr.Nice, Flags: flags, Runtime: uint64(promptTurn)}, 0)
}
