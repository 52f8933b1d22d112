package trace

import "golang.org/x/sys/unix"

const thisArch = unix.AUDIT_ARCH_AARCH64

var openCalls = []openCall{{unix.SYS_OPENAT, 2}}

// oldOpen is no call here.
const oldOpen = -1

// oldLooks are none here.
var oldLooks []uint32
