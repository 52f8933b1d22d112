//go:build !linux

package runner

import (
	"os"
	"syscall"

	"e3/internal/host/room"
)

// Visit fails: there are no closed rooms.
func Visit(*room.Room, []string, []string, [3]*os.File, <-chan os.Signal) (syscall.WaitStatus, error) {
	var none syscall.WaitStatus
	return none, &room.Error{Step: room.StepFork, Err: syscall.ENOSYS}
}
