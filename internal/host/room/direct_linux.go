//go:build amd64 || arm64

package room

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"e3/internal/host/nofile"

	"golang.org/x/sys/unix"
)

// noClone3 is set once the kernel has refused to start a command by clone3.
var noClone3 atomic.Bool

// lowered is the limit of open files for commands; nil: the limit of this process.
var lowered = sync.OnceValue(func() *nofile.Limit {
	var present unix.Rlimit
	limit, known := nofile.AtStart()
	if known && unix.Getrlimit(unix.RLIMIT_NOFILE, &present) == nil && present.Cur != limit.Soft && present.Max == limit.Hard {
		return &limit
	}
	return nil
})

// cloneArgs is struct clone_args. Kernels before 5.7 know the fields up to tls, and take the others as long as they are 0.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// An opening holds what a child needs to become a command. It holds only addresses, as the child must not allocate.
type opening struct {
	clone             cloneArgs
	pidfd             int32
	path, dir         *byte
	argv, environment **byte
	files             [3]uintptr
	limit             *nofile.Limit
	parent            uintptr
	mask              uint64 // an empty signal mask
	errno             syscall.Errno
}

// StartDirect starts a command outside of a room, as the leader of a process group that dies with this thread. It does what
// syscall.ForkExec does with a fifth of the system calls: the kernel itself resets the signals, and an error comes back
// through the memory that parent and child share. The command begins with no signal blocked.
//
// If nothing was tried, the error is errors.ErrUnsupported; then ForkExec can start the command. Spec has one path.
func StartDirect(spec *Spec) (pid, pidfd int, err error) {
	if noClone3.Load() || len(spec.Paths) != 1 || min(spec.Files[0], spec.Files[1], spec.Files[2]) < len(spec.Files) {
		return 0, -1, errors.ErrUnsupported
	}
	o := &opening{limit: lowered(), parent: uintptr(os.Getpid())}
	o.clone = cloneArgs{
		flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND,
		exitSignal: uint64(unix.SIGCHLD),
		pidfd:      uint64(uintptr(unsafe.Pointer(&o.pidfd))),
	}
	if spec.Group != 0 {
		o.clone.flags |= unix.CLONE_INTO_CGROUP
		o.clone.cgroup = uint64(spec.Group)
	}
	for i, fd := range spec.Files {
		o.files[i] = uintptr(fd)
	}
	argv, err := syscall.SlicePtrFromStrings(spec.Argv)
	if err != nil {
		return 0, -1, err
	}
	environment, err := syscall.SlicePtrFromStrings(spec.Env)
	if err != nil {
		return 0, -1, err
	}
	o.argv, o.environment = &argv[0], &environment[0]
	if o.path, err = syscall.BytePtrFromString(spec.Paths[0]); err != nil {
		return 0, -1, err
	}
	if spec.Dir != "" {
		if o.dir, err = syscall.BytePtrFromString(spec.Dir); err != nil {
			return 0, -1, err
		}
	}
	syscall.ForkLock.Lock()
	child, errno := vforkDirect(o)
	afterFork()
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(o)
	switch errno {
	case 0:
	case unix.ENOSYS, unix.EINVAL, unix.EPERM: // an old kernel, or a filter in front of it
		if spec.Group == 0 { // else the control group may be at fault
			noClone3.Store(true)
		}
		return 0, -1, errors.ErrUnsupported
	default:
		return 0, -1, errno
	}
	if o.errno != 0 {
		unix.Close(int(o.pidfd))
		for {
			if _, err := unix.Wait4(int(child), nil, 0, nil); err != unix.EINTR {
				return 0, -1, o.errno
			}
		}
	}
	return int(child), int(o.pidfd), nil
}

// vforkDirect starts the child. The parent's part returns at once: the child has used its stack frame. The caller calls afterFork.
//
//go:noinline
//go:norace
//go:nocheckptr
func vforkDirect(o *opening) (pid uintptr, err syscall.Errno) {
	beforeFork()
	pid, errno := vfork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&o.clone)), unsafe.Sizeof(o.clone))
	if pid != 0 || errno != 0 {
		return pid, syscall.Errno(errno)
	}
	o.errno = become(o)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// become turns the child into the command, or returns why it cannot.
//
//go:nosplit
//go:norace
//go:nocheckptr
func become(o *opening) syscall.Errno {
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETPGID, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&o.mask)), 0, 8, 0, 0); errno != 0 {
		return errno
	}
	if o.dir != nil {
		if _, _, errno := syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(o.dir)), 0, 0); errno != 0 {
			return errno
		}
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if parent, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); parent != o.parent {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0) // the child died before it could be watched
	}
	for to := uintptr(0); to < uintptr(len(o.files)); to++ {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, o.files[to], to, 0); errno != 0 {
			return errno
		}
	}
	if o.limit != nil {
		syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(o.limit)), 0, 0, 0)
	}
	_, _, errno := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(o.path)), uintptr(unsafe.Pointer(o.argv)), uintptr(unsafe.Pointer(o.environment)))
	return errno
}
