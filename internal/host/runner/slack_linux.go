package runner

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The Go runtime has a monitor thread, which checks every 20 µs whether another thread is blocked, even while the
// supervisor waits for a short command. The kernel may delay a timer by the thread's slack. With a greater slack the
// monitor thread wakes a tenth as often, and costs a tenth. A process inherits the slack of the thread that started it,
// so the supervisor is started with a great slack. Its lanes go back to the slack of e3, which commands then inherit. The
// threads of e3 itself get a great slack while they run commands, where the kernel lets a process change its other
// threads (CAP_SYS_NICE).

// supervisorSlack is the slack of e3's threads while they run commands, and of the supervisor's threads other than lanes.
// None of their work has to be on time to the millisecond.
const supervisorSlack = time.Millisecond

// slackVariable tells the supervisor the slack of e3, in nanoseconds.
const slackVariable = "E3_TIMER_SLACK"

// own is the slack that e3 was started with, in nanoseconds; 0 where the kernel tells none.
var own = sync.OnceValue(func() int {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || ns <= 0 {
		return 0
	}
	return ns
})

// relax gives a thread of e3 a great slack. The slack of a process with a real-time policy is always 0.
func relax(thread int) {
	if own := own(); own > 0 && own < int(supervisorSlack) {
		_ = os.WriteFile("/proc/"+strconv.Itoa(thread)+"/timerslack_ns", strconv.AppendInt(nil, int64(supervisorSlack), 10), 0)
	}
}

// withSlack calls start on a thread with supervisorSlack, with the environment entry that restoreSlack needs.
func withSlack(start func(entry string) (*os.Process, error)) (*os.Process, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, present := own(), 0
	if own > 0 {
		present, _ = unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	}
	if own == 0 || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(supervisorSlack), 0, 0, 0) != nil {
		return start(slackVariable + "=0")
	}
	defer unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(present), 0, 0, 0)
	return start(slackVariable + "=" + strconv.Itoa(own))
}

// restoreSlack gives this thread of the supervisor, and with it the commands that it starts, the slack of e3.
func restoreSlack() {
	if own, err := strconv.Atoi(os.Getenv(slackVariable)); err == nil && own > 0 {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(own), 0, 0, 0)
	}
}
