//go:build linux && !amd64 && !arm64

package room

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Spec is a command to start in a room.
type Spec struct {
	Paths, Argv, Env []string
	Dir              string
	Files            [3]int
	Trace, Group     int
	Foreground       bool
}

// Slots makes no rooms here.
type Slots struct{}

// Process stands for a process of a room: there are none.
type Process struct{ PID, End int }

// Result is how a command in a room ended.
type Result struct {
	Status syscall.WaitStatus
	Usage  unix.Rusage
}

// Start fails.
func (s *Slots) Start(*Room, *Spec) (*Process, error) {
	return nil, &Error{Step: StepFork, Err: unix.ENOSYS}
}

// StartOpen fails.
func StartOpen(*Spec) (int, error) { return 0, &Error{Step: StepTrace, Err: unix.ENOSYS} }

// Close has nothing to do.
func (s *Slots) Close() {}

// Reap has nothing to do.
func (s *Slots) Reap() bool { return false }

// Finish is never called.
func (p *Process) Finish() (Result, error) { return Result{}, &Error{Step: StepFork, Err: unix.ENOSYS} }

// StartDirect starts nothing here.
func StartDirect(*Spec) (pid, pidfd int, err error) { return 0, -1, errors.ErrUnsupported }
