//go:build linux && !amd64 && !arm64

package room

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Slots makes no rooms here.
type Slots struct{}

// Process stands for a process of a room: there are none.
type Process struct{ PID, End int }

// Start fails.
func (s *Slots) Start(*Room, *Spec) (*Process, error) {
	return nil, &Error{Step: StepFork, Err: unix.ENOSYS}
}

// StartOpen fails.
func StartOpen(*Spec) (int, error) { return 0, &Error{Step: StepTrace, Err: unix.ENOSYS} }

// MountsReadOnly reports false.
func MountsReadOnly() bool { return false }

// Close has nothing to do.
func (s *Slots) Close() {}

// Reap has nothing to do.
func (s *Slots) Reap() bool { return false }

// Finish is never called.
func (p *Process) Finish() (Result, error) { return Result{}, &Error{Step: StepFork, Err: unix.ENOSYS} }

// StartDirect starts nothing here.
func StartDirect(*Spec) (pid, pidfd int, err error) { return 0, -1, errors.ErrUnsupported }
