//go:build amd64 || arm64

package trace

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, of little-endian machines.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

// notReading are flags of opens that read no existing content: the open is of a path only, makes or empties the file,
// or makes a file without a name.
const notReading = unix.O_PATH | unix.O_CREAT | unix.O_TRUNC | (unix.O_TMPFILE &^ unix.O_DIRECTORY)

// Filter is the program by which the kernel hands calls to a tracer: opens for reading, executions and changes of the
// working directory and, with looks, tests of paths. The program has no state, so commands share it.
func Filter(looks bool) []unix.SockFilter {
	if looks {
		return looking()
	}
	return opening()
}

var (
	opening = sync.OnceValue(func() []unix.SockFilter { return newFilter(false) })
	looking = sync.OnceValue(func() []unix.SockFilter { return newFilter(true) })
)

// ListenerFlags are the flags for the installation of Filter. From Linux 5.19 on, a signal does not interrupt a call
// that the tracer has taken. Before, a tracer makes some calls fail with EINTR.
func ListenerFlags() uintptr {
	if Uninterrupted() {
		return unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	return unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
}

// Uninterrupted tells whether the kernel knows these flags. It installs no filter: if the kernel knows the flags, it
// fails because the filter is missing.
var Uninterrupted = sync.OnceValue(func() bool {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0)
	return errno == unix.EFAULT
})

func newFilter(looks bool) []unix.SockFilter {
	var f []unix.SockFilter
	op := func(code uint16, k uint32, jt, jf uint8) {
		f = append(f, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
	}
	load := func(offset uint32) { op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
	give := func(action uint32) { op(unix.BPF_RET|unix.BPF_K, action, 0, 0) }
	equal := uint16(unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K)

	load(offsetArch) // programs for another processor are not traced
	op(equal, thisArch, 1, 0)
	give(unix.SECCOMP_RET_ALLOW)
	load(offsetCall)
	whole := wholeCalls
	if looks {
		whole = slices.Concat(wholeCalls, oldLooks)
	}
	for _, call := range whole {
		op(equal, call, 0, 1)
		give(unix.SECCOMP_RET_USER_NOTIF)
	}
	for _, open := range openCalls {
		op(equal, open.call, 0, 6)
		load(offsetArgs + 8*open.flags)
		op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, notReading, 3, 0)
		op(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.O_ACCMODE, 0, 0)
		op(equal, unix.O_WRONLY, 1, 0)
		give(unix.SECCOMP_RET_USER_NOTIF)
		give(unix.SECCOMP_RET_ALLOW)
	}
	for _, call := range lookCalls {
		if !looks {
			break
		}
		op(equal, call, 0, 4)
		load(offsetArgs)
		op(equal, workingDirectory, 1, 0)
		// a file of an open folder, or an open file: the program knows that the file exists
		give(unix.SECCOMP_RET_ALLOW)
		give(unix.SECCOMP_RET_USER_NOTIF)
	}
	give(unix.SECCOMP_RET_ALLOW)
	return f
}

// workingDirectory is unix.AT_FDCWD as the kernel passes it.
const workingDirectory = 1<<32 + unix.AT_FDCWD

// wholeCalls are handed to the tracer whatever their arguments. The flags of openat2 lie in memory.
var wholeCalls = []uint32{unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_OPENAT2}

// lookCalls test a path, relative to the folder in their first argument.
var lookCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2}

// openCall is a system call that opens a file, and the number of the argument with its flags.
type openCall struct{ call, flags uint32 }
