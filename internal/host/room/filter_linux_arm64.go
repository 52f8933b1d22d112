package room

import "golang.org/x/sys/unix"

const (
	thisArch     = unix.AUDIT_ARCH_AARCH64
	foreignCalls = 0 // none
)

var deniedHere []uint32
