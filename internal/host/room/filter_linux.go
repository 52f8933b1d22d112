//go:build amd64 || arm64

package room

import (
	"sync"

	"golang.org/x/sys/unix"
)

// deniedCalls fail with EPERM. They change the machine, make namespaces or mounts, or reach past namespaces. Docker and
// Flatpak deny all of these calls to a process without capabilities.
var deniedCalls = []uint32{
	// The kernel's keyrings are in no namespace of a room.
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	// New namespaces would give capabilities in them, which expose more of the kernel to attacks.
	unix.SYS_SETNS,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	// File handles name files outside of the room's mounts.
	unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT,
	// The kernel, its modules, clocks, logs and quotas.
	unix.SYS_ACCT, unix.SYS_BPF, unix.SYS_CLOCK_SETTIME, unix.SYS_DELETE_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_INIT_MODULE, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_QUOTACTL,
	unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG,
	unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT,
	// Measuring other processes, and parts of the kernel with a history of holes.
	unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
}

// missingCalls fail with ENOSYS, so that programs fall back to older calls. The filter cannot read the flags of clone3,
// which lie in memory, and io_uring carries out system calls past the filter.
var missingCalls = []uint32{
	unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}

// newNamespaces are the flags of clone and unshare that make namespaces.
const newNamespaces = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS |
	unix.CLONE_NEWPID | unix.CLONE_NEWUSER | unix.CLONE_NEWUTS | unix.CLONE_NEWTIME

// socketFamilies are the families of sockets that a command may use. Others, such as vsock, reach past the network
// namespace.
var socketFamilies = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// deniedControls put characters into a terminal that a shell outside may read.
var deniedControls = []uint32{unix.TIOCSTI, tiocLinux}

const tiocLinux = 0x541c

// Offsets in struct seccomp_data. Arguments have 64 bits, of which the kernel uses the lower 32 in all calls below.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

// systemCallFilter is the program that the kernel runs before each system call of a command.
var systemCallFilter = sync.OnceValue(func() []unix.SockFilter {
	var f []unix.SockFilter
	op := func(code uint16, k uint32, jt, jf uint8) {
		f = append(f, unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf})
	}
	load := func(offset uint32) { op(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }
	refuse := func(errno unix.Errno) { op(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(errno), 0, 0) }
	allow := func() { op(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW, 0, 0) }
	equal := uint16(unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K)

	load(offsetArch) // programs for another processor, such as 32-bit ones, number their calls in another way
	op(equal, thisArch, 1, 0)
	refuse(unix.ENOSYS)
	load(offsetCall)
	if foreignCalls != 0 {
		op(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, foreignCalls, 0, 1)
		refuse(unix.ENOSYS)
	}
	for _, call := range append(deniedCalls, deniedHere...) {
		op(equal, call, 0, 1)
		refuse(unix.EPERM)
	}
	for _, call := range missingCalls {
		op(equal, call, 0, 1)
		refuse(unix.ENOSYS)
	}
	for _, call := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		op(equal, call, 0, 4)
		load(offsetArgs)
		op(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, newNamespaces, 0, 1)
		refuse(unix.EPERM)
		allow()
	}
	op(equal, unix.SYS_SOCKET, 0, uint8(2*len(socketFamilies)+2))
	load(offsetArgs)
	for _, family := range socketFamilies {
		op(equal, family, 0, 1)
		allow()
	}
	refuse(unix.EAFNOSUPPORT)
	op(equal, unix.SYS_IOCTL, 0, uint8(2*len(deniedControls)+2))
	load(offsetArgs + 8)
	for _, control := range deniedControls {
		op(equal, control, 0, 1)
		refuse(unix.EPERM)
	}
	allow()
	allow()
	return f
})
