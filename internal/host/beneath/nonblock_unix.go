//go:build unix && !linux

package beneath

import "syscall"

// Nonblock is a flag of OpenFile with which a pipe does not keep the call waiting.
const Nonblock = syscall.O_NONBLOCK

// Folder is a flag of OpenFile with which it opens folders alone, and nothing keeps it waiting.
const Folder = syscall.O_DIRECTORY
