package runner

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// reap reaps t if it has ended, and kills the rest of its group. Reaping comes last, because until then the group's
// number cannot be reused.
func (l *laneServer) reap(t *task, now time.Time) bool {
	if t.closed != nil {
		l.reapClosed(t, now)
		return true
	}
	if t.pidfd < 0 && !hasEnded(t.pid) {
		return false
	}
	t.kill()
	var status syscall.WaitStatus
	var usage syscall.Rusage
	l.reaping.Lock()
	got, err := wait4(t.pid, &status, syscall.WNOHANG, &usage)
	if got == t.pid {
		l.commands.remove(t)
		if t.kept != nil {
			t.kept.pid.Store(0)
		}
	}
	l.reaping.Unlock()
	if err != nil {
		fatal(fmt.Errorf("wait for process %d: %w", t.pid, err))
	}
	if got != t.pid {
		return false
	}
	if t.pidfd >= 0 {
		unix.Close(t.pidfd)
	}
	t.end = reply{
		kind:      kindEnded,
		flags:     t.flags,
		id:        t.id,
		pid:       uint32(t.pid),
		status:    uint32(status),
		userCPU:   time.Duration(usage.Utime.Nano()),
		systemCPU: time.Duration(usage.Stime.Nano()),
		peakRSS:   int64(usage.Maxrss) << 10,
		started:   t.started.UnixNano(),
		ended:     now.UnixNano(),
	}
	if t.flags == 0 && l.oom.killed(status, t.started) {
		t.end.flags |= flagOOM
	}
	t.drainUntil = now.Add(drainLimit)
	return true
}

// hasEnded reports whether a child has ended, without reaping it.
func hasEnded(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

func wait4(pid int, status *syscall.WaitStatus, options int, usage *syscall.Rusage) (int, error) {
	for {
		got, err := syscall.Wait4(pid, status, options, usage)
		if err != syscall.EINTR {
			return got, err
		}
	}
}

// drain reports the reaped commands that have no process left, or whose drainLimit is over.
func (l *laneServer) drain(now time.Time) {
	l.collectOrphans(l.draining)
	l.draining = slices.DeleteFunc(l.draining, func(t *task) bool {
		gone := t.isGone()
		if l.closing.IsZero() && !gone && now.Before(t.drainUntil) {
			return false
		}
		if t.straggler || !gone {
			t.end.flags |= flagStraggler
		}
		l.count(t, syscall.WaitStatus(t.end.status))
		l.answer(t)
		return true
	})
}

// isGone reports whether a reaped command has no process left. The number of a process group is in use while the group
// has members. If another command gets the number of an empty group, the report is only delayed.
func (t *task) isGone() bool {
	return !t.orphaned && unix.Kill(-t.pid, 0) == unix.ESRCH && (t.leaf == nil || t.leaf.Empty())
}

// killOrphans kills the adopted processes and reports whether it found one.
func (s *server) killOrphans() bool {
	s.reaping.Lock()
	defer s.reaping.Unlock()
	found := false
	for _, pid := range s.orphans() {
		if got, _ := wait4(pid, nil, syscall.WNOHANG, nil); got == pid {
			continue
		}
		found = true
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return found
}

// orphans lists the adopted processes. They are children of the main thread, which starts no command, so the list is
// usually empty. If the kernel does not keep the list, orphans are only reaped once the client is gone.
func (s *server) orphans() []int {
	if s.children < 0 {
		return nil
	}
	var buf [1024]byte
	n, err := unix.Pread(s.children, buf[:], 0)
	if err != nil || n <= 0 {
		return nil
	}
	text := buf[:n]
	if n == len(buf) {
		text, _ = os.ReadFile(mainThreadChildren())
	}
	return appendPIDs(nil, text)
}

func mainThreadChildren() string {
	return fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())
}

// killChildren kills every child of this process.
func (s *server) killChildren() {
	s.reaping.Lock()
	defer s.reaping.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// finish kills and reaps until no child is left, and ends the process. Killing once is not enough, because the children
// of killed processes become orphans.
func (s *server) finish() {
	pause := time.Millisecond
	for deadline := time.Now().Add(shutdownLimit); time.Now().Before(deadline); time.Sleep(pause) {
		for {
			var status syscall.WaitStatus
			got, err := wait4(-1, &status, syscall.WNOHANG, nil)
			if err == syscall.ECHILD {
				s.limits.close()
				if s.keeper != nil {
					s.keeper.finishAdopter()
				}
				os.Exit(0)
			}
			if got <= 0 {
				break
			}
		}
		s.killChildren()
		pause = min(2*pause, 20*time.Millisecond)
	}
	fatal(fmt.Errorf("after %s some processes have not ended; they are stuck in the kernel or belong to another user", shutdownLimit))
}
