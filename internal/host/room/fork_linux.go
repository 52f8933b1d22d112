//go:build amd64 || arm64

package room

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These functions are the Go runtime's work around a fork. syscall.ForkExec uses the same functions.

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

// vfork is clone or clone3 (trap, with its first two arguments) for a child that soon executes a file. Until then the child
// uses this process's memory and stack, and this process waits.
func vfork(trap, first, second uintptr) (pid, errno uintptr)

// The states of a command.
const (
	stateMaking uint32 = iota // also the state of a command that was killed
	stateFailed
	stateEnded
)

// A board is the start of a slot's memory. All processes of the slot write to it, except the command, which has no
// access to it.
type board struct {
	keeper struct { // result of making the keeper's room
		failed, step, errno uint32
	}
	reply struct { // the keeper's answer to a request
		pid, errno uint32
	}
	end struct { // of the command
		state, step, errno uint32
		status             uint32 // wait status
		usage              unix.Rusage
	}
	request struct {
		flags             uintptr
		first, second     span      // lists of calls
		sent              uintptr   // number of descriptors in the request
		group             cloneArgs // how process 2 begins in a control group; zero: in the group of process 1
		paths             span      // list of addresses of C strings
		argv, environment uintptr
	}
	mail struct { // buffer of the keeper, to receive descriptors
		header  unix.Msghdr
		vector  unix.Iovec
		data    [8]byte
		control [64]byte
	}
}

// Descriptors of a keeper and of process 1.
const (
	mailFD = 3 // in the keeper: its socket
	endFD  = 3 // in process 1: closed when the command has ended
	sent   = 4 // number of descriptors in each request: 0 to 2 of the command, then the descriptor that becomes endFD
	most   = 6 // with the descriptors of a tracer and of a control group, which take the next numbers

	traceFD  = 4 // in process 1 and 2, in a request with one more descriptor: the socket for the listener
	listener = 9 // in process 2, until it is sent
)

// blocked are all signals: keepers and processes 1 only end by KILL from outside of the room.
var blocked = ^uint64(0)

// A keeping holds what a keeper starts with.
type keeping struct {
	memory unsafe.Pointer // the memory; it begins with the board
	setup  span           // the calls that make the keeper's room
	flags  uintptr
	socket int
	parent int // a process descriptor of this process
}

// fork makes a keeper. It returns only in this process.
//
// The child has a copy of this process's memory, and one thread. It calls nothing that may allocate, lock, grow the
// stack or move memory: hence the directives of all functions below.
//
//go:noinline
//go:norace
//go:nocheckptr
func fork(k *keeping) (pid int, err syscall.Errno) {
	beforeFork()
	child, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, k.flags, 0, 0, 0, 0, 0)
	if child != 0 || errno != 0 {
		afterFork()
		return int(child), errno
	}
	afterForkInChild()
	keep(k)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// keep is the keeper of a slot: it makes the part of the room that its commands share, and a process 1 for each
// request.
//
//go:nosplit
//go:norace
//go:nocheckptr
func keep(k *keeping) {
	b := (*board)(k.memory)
	becomeMortal(k.parent)
	if k.socket != mailFD {
		syscall.RawSyscall(unix.SYS_DUP3, uintptr(k.socket), mailFD, unix.O_CLOEXEC)
	}
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, mailFD+1, uintptr(^uint32(0)), 0)
	if errno := perform(k.memory, k.setup, &b.keeper.step); errno != 0 {
		b.keeper.errno, b.keeper.failed = uint32(errno), 1
		return
	}
	var ready [1]byte
	for {
		syscall.RawSyscall(unix.SYS_WRITE, mailFD, uintptr(unsafe.Pointer(&ready)), 1)
		b.mail.header.Controllen = uint64(len(b.mail.control))
		n, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, mailFD, uintptr(unsafe.Pointer(&b.mail.header)), unix.MSG_CMSG_CLOEXEC)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			return
		}
		child, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, b.request.flags, 0, 0, 0, 0, 0)
		if child == 0 && errno == 0 {
			first(k.memory, k.parent)
			return
		}
		b.reply.pid, b.reply.errno = uint32(child), uint32(errno)
		syscall.RawSyscall(unix.SYS_CLOSE_RANGE, mailFD+1, uintptr(^uint32(0)), 0)
	}
}

// becomeMortal makes this process die with the thread that has started it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func becomeMortal(parent int) {
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&blocked)), 0, 8, 0, 0)
	syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	fd := unix.PollFd{Fd: int32(parent), Events: unix.POLLIN}
	var none unix.Timespec
	n, _, _ := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(&none)), 0, 0, 0)
	if n == 1 {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// first is process 1 of a room: it finishes the room, starts the command and reaps until the command has ended.
//
//go:nosplit
//go:norace
//go:nocheckptr
func first(memory unsafe.Pointer, parent int) {
	b := (*board)(memory)
	// The thread that has started the keeper may have ended meanwhile: then the keeper's socket has ended, too.
	syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0)
	hangUp := unix.PollFd{Fd: mailFD, Events: unix.POLLRDHUP}
	var none unix.Timespec
	if n, _, _ := syscall.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&hangUp)), 1, uintptr(unsafe.Pointer(&none)), 0, 0, 0); n != 0 {
		return
	}
	fds := (*[most]int32)(unsafe.Add(unsafe.Pointer(&b.mail.control), unix.SizeofCmsghdr))
	for to := uintptr(0); to < b.request.sent && to < most; to++ {
		if _, _, errno := syscall.RawSyscall(unix.SYS_DUP3, uintptr(fds[to]), to, 0); errno != 0 {
			b.end.step, b.end.errno, b.end.state = uint32(StepSpawn), uint32(errno), stateFailed
			return
		}
	}
	for fd := uintptr(endFD); fd < b.request.sent; fd++ {
		syscall.RawSyscall(unix.SYS_FCNTL, fd, unix.F_SETFD, unix.FD_CLOEXEC)
	}
	syscall.RawSyscall(unix.SYS_CLOSE_RANGE, b.request.sent, uintptr(^uint32(0)), 0)
	if errno := perform(memory, b.request.first, &b.end.step); errno != 0 {
		b.end.errno, b.end.state = uint32(errno), stateFailed
		return
	}
	command, errno := spawn(memory)
	if errno != 0 {
		b.end.step, b.end.errno, b.end.state = uint32(StepSpawn), uint32(errno), stateFailed
		return
	}
	for fd := uintptr(0); fd < endFD; fd++ {
		syscall.RawSyscall(unix.SYS_CLOSE, fd, 0, 0)
	}
	for !reap(b, command) {
		signal, _, _ := syscall.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&blocked)), 0, 0, 8, 0, 0)
		switch signal {
		case uintptr(unix.SIGTERM), uintptr(unix.SIGCONT):
			// the command leads no group
			if _, _, errno := syscall.RawSyscall(unix.SYS_KILL, -command, signal, 0); errno != 0 {
				syscall.RawSyscall(unix.SYS_KILL, command, signal, 0)
			}
		}
	}
	empty()
	if b.end.state != stateFailed {
		// counted over children
		syscall.RawSyscall(unix.SYS_GETRUSAGE, ^uintptr(0), uintptr(unsafe.Pointer(&b.end.usage)), 0)
		b.end.state = stateEnded
	}
	// From here on this process no longer uses the memory. The kernel dismantles the room while other processes go on.
	syscall.RawSyscall(unix.SYS_CLOSE, endFD, 0, 0)
}

// reap reaps all processes that have ended, and reports whether the command was one of them.
//
//go:nosplit
//go:norace
//go:nocheckptr
func reap(b *board, command uintptr) bool {
	for {
		var status uint32
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&status)), unix.WNOHANG, 0, 0, 0)
		if pid == command && errno == 0 {
			b.end.status = status
			return true
		}
		if pid == 0 || errno != 0 {
			return false
		}
	}
}

// empty kills and reaps whatever the command has left in the room.
//
//go:nosplit
//go:norace
//go:nocheckptr
func empty() {
	for options := uintptr(unix.WALL | unix.WNOHANG); ; {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), 0, options, 0, 0, 0)
		switch {
		case errno != 0 && errno != unix.EINTR:
			return // no process is left
		case pid == 0 && errno == 0:
			syscall.RawSyscall(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGKILL), 0)
			options = unix.WALL
		}
	}
}

// spawn starts process 2. The parent's part returns at once: the child has used its stack frame.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func spawn(memory unsafe.Pointer) (command uintptr, err syscall.Errno) {
	b := (*board)(memory)
	trap, arg, size := uintptr(unix.SYS_CLONE), uintptr(unix.CLONE_VM|unix.CLONE_VFORK)|uintptr(unix.SIGCHLD), uintptr(0)
	if b.request.group.flags != 0 {
		trap, arg, size = unix.SYS_CLONE3, uintptr(unsafe.Pointer(&b.request.group)), unsafe.Sizeof(cloneArgs{})
	}
	pid, errno := vfork(trap, arg, size)
	if pid != 0 || errno != 0 {
		return pid, syscall.Errno(errno)
	}
	second(memory)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// second is process 2 of a room: it becomes the command, or returns.
//
//go:nosplit
//go:norace
//go:nocheckptr
func second(memory unsafe.Pointer) {
	b := (*board)(memory)
	if errno := perform(memory, b.request.second, &b.end.step); errno != 0 {
		b.end.errno, b.end.state = uint32(errno), stateFailed
		return
	}
	failed := syscall.Errno(unix.ENOENT)
	for i := uintptr(0); i < b.request.paths.n; i++ {
		path := *(*uintptr)(unsafe.Add(memory, b.request.paths.at+i*unsafe.Sizeof(i)))
		_, _, errno := syscall.RawSyscall(unix.SYS_EXECVE, path, b.request.argv, b.request.environment)
		if errno == unix.ENOENT || errno == unix.ENOTDIR {
			continue
		}
		failed = errno
		if errno != unix.EACCES {
			break
		}
	}
	b.end.step, b.end.errno, b.end.state = uint32(StepExec), uint32(failed), stateFailed
}

// perform makes a list of calls. It returns the error of the first call that fails, and sets the step of that call.
//
//go:nosplit
//go:norace
//go:nocheckptr
func perform(memory unsafe.Pointer, calls span, step *uint32) syscall.Errno {
	var saved uintptr
	for i := uintptr(0); i < calls.n; i++ {
		c := (*call)(unsafe.Add(memory, calls.at+i*unsafe.Sizeof(call{})))
		arg := c.args[0]
		if c.how&uses != 0 {
			arg = saved
		}
		r, _, errno := syscall.RawSyscall6(c.trap, arg, c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		if errno != 0 && uint32(errno) != c.hint && c.how&ignores == 0 {
			*step = uint32(c.step)
			return errno
		}
		if c.how&saves != 0 {
			saved = r
		}
	}
	return 0
}
