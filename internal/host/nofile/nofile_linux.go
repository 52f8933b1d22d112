//go:build amd64 || arm64

package nofile

import "unsafe" // and no other package: then Go's specification lets this one begin before syscall, whose path comes later in the alphabet

var atStart, known = get()

// AtStart returns the limit with which this process began. known is false if the system does not tell.
func AtStart() (limit Limit, ok bool) { return atStart, known }

// get reads the current limit.
func get() (l Limit, ok bool) {
	const rlimitNoFile = 7
	_, _, errno := rawSyscall6(prlimit64, 0, rlimitNoFile, 0, uintptr(unsafe.Pointer(&l)), 0, 0)
	return l, errno == 0
}

// rawSyscall6 is syscall.RawSyscall6.
//
//go:linkname rawSyscall6 syscall.RawSyscall6
//go:noescape
func rawSyscall6(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2, errno uintptr)
