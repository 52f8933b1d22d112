package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processorsOfChildren is the processor time of all ended processes below this one.
func processorsOfChildren() time.Duration {
	// Processes that outlive their parent, such as the supervisors of workers, become this process's children.
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reapOrphans waits for processes that have outlived their parents. There must be no others.
func reapOrphans() {
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR {
			return
		}
	}
}
