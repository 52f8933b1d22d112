package room

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Spec is a command to start in a room.
type Spec struct {
	Paths []string // files to execute: the first existing one is executed
	Argv  []string
	Env   []string
	Dir   string // working directory, in the room
	Files [3]int // descriptors 0 to 2
	Trace int    // a socket, to which the listener of a trace.Filter is sent; 0: the command is not traced
	Looks bool   // if the command is traced: its tests of paths are traced, too
	Group int    // the folder of a control group of version 2 in which the command begins; 0: the group of this process

	// ReadOnly is a folder that a command in the open cannot change; see StartOpen. Empty: there is none.
	ReadOnly string

	// Foreground keeps the command in the process group of this process, which gets a terminal's signals.
	Foreground bool
}

// A Result is how a command in a room ended.
type Result struct {
	Status syscall.WaitStatus
	Usage  unix.Rusage // summed over the reaped processes of the room
}
