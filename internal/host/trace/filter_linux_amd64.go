package trace

import "golang.org/x/sys/unix"

const thisArch = unix.AUDIT_ARCH_X86_64

var openCalls = []openCall{{unix.SYS_OPENAT, 2}, {unix.SYS_OPEN, 1}}

// oldOpen is the number of the call without a folder.
const oldOpen = unix.SYS_OPEN

// oldLooks test a path, and have no folder.
var oldLooks = []uint32{unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS}
