//go:build unix && !linux

package beneath

import "syscall"

// Nonblock is a flag of OpenFile with which a pipe does not keep the call waiting.
const Nonblock = syscall.O_NONBLOCK
