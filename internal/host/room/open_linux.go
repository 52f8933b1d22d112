//go:build amd64 || arm64

package room

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Descriptors of a process that becomes a command in the open room. They follow the descriptors of the command.
const (
	heldFiles  = hold // three
	heldSocket = hold + 3
	heldEnd    = hold + 4
)

// StartOpen starts a command that sees the whole machine, as a child of this thread: a traced one, or one with a folder
// that it cannot change. Its first file is executed. The command dies with the thread. It returns once the command is
// executed; the execution of a traced command waits for the tracer. If it fails, the error is an *Error. Unless this
// process is privileged, a traced command cannot gain rights by executing a file.
//
// A folder of Spec.ReadOnly is mounted read-only, in a mount namespace of the command, if this process is privileged
// (MountsReadOnly). Mounts of the machine go on to appear there. Where this cannot be done, the command starts without.
//
// The child has a copy of this process's memory. If the child shared this memory, as with syscall.ForkExec, this thread
// would wait for the tracer, another thread of this process, while it holds resources of the scheduler.
func StartOpen(spec *Spec) (pid int, err error) {
	if spec.ReadOnly != "" && !MountsReadOnly() {
		without := *spec
		without.ReadOnly, spec = "", &without
	}
	m, err := newMemory()
	if err != nil {
		return 0, err
	}
	defer m.free()
	m.alloc(unsafe.Sizeof(board{}))
	end := make([]int, 2)
	if err := unix.Pipe2(end, unix.O_CLOEXEC); err != nil {
		return 0, os.NewSyscallError("pipe", err)
	}
	defer unix.Close(end[0])
	b := (*board)(m.base)
	p := program{memory: m}
	enterOpen(&p, spec, end[1])
	q := &b.request
	q.second = storeList(m, p.calls)
	q.paths = storeList(m, []uintptr{m.text(spec.Paths[0])})
	q.argv, q.environment = m.vector(spec.Argv), m.vector(spec.Env)
	if m.full {
		unix.Close(end[1])
		return 0, &Error{Step: StepExec, Err: unix.E2BIG}
	}
	b.end.state = stateMaking
	flags := uintptr(unix.SIGCHLD)
	if spec.ReadOnly != "" {
		flags |= unix.CLONE_NEWNS
	}
	pid, errno := forkOpen(m.base, flags)
	runtime.KeepAlive(m)
	unix.Close(end[1])
	if errno != 0 && spec.ReadOnly != "" { // something around this process forbids it
		without := *spec
		without.ReadOnly = ""
		return StartOpen(&without)
	}
	if errno != 0 {
		return 0, &Error{Step: StepSpawn, Err: errno}
	}
	var none [1]byte
	for err = unix.EINTR; err == unix.EINTR; { // wait until the command is executed, or has failed
		_, err = unix.Read(end[0], none[:])
	}
	if b.end.state == stateFailed {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		return 0, &Error{Step: Step(b.end.step), Err: syscall.Errno(b.end.errno)}
	}
	return pid, nil
}

// enterOpen adds the calls of a child before it becomes the command.
func enterOpen(p *program, spec *Spec, end int) {
	p.step = StepSpawn
	if spec.Group != 0 {
		p.add(unix.SYS_OPENAT, uintptr(spec.Group), p.text("cgroup.procs"), unix.O_WRONLY|unix.O_CLOEXEC).how = saves
		p.add(unix.SYS_WRITE, 0, p.text("0"), 1).how = uses // this process
		p.add(unix.SYS_CLOSE, 0).how = uses
	}
	p.add(unix.SYS_SETPGID, 0, 0)
	p.add(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL))
	for i, fd := range spec.Files {
		p.add(unix.SYS_DUP3, uintptr(fd), uintptr(heldFiles+i), unix.O_CLOEXEC)
	}
	if spec.Trace != 0 {
		p.add(unix.SYS_DUP3, uintptr(spec.Trace), heldSocket, unix.O_CLOEXEC)
	}
	p.add(unix.SYS_DUP3, uintptr(end), heldEnd, unix.O_CLOEXEC)
	for i := range spec.Files {
		p.add(unix.SYS_DUP3, uintptr(heldFiles+i), uintptr(i), 0)
	}
	if spec.Trace != 0 {
		p.add(unix.SYS_DUP3, heldSocket, traceFD, unix.O_CLOEXEC)
	}
	if limit := lowered(); limit != nil {
		p.add(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, store(p.memory, *limit), 0)
	}
	if spec.ReadOnly != "" { // in a mount namespace of its own
		p.mount("none", "/", "", unix.MS_REC|unix.MS_SLAVE, "").how = ignores
		p.bind(spec.ReadOnly, spec.ReadOnly).how = ignores
		p.restrict(spec.ReadOnly, unix.MOUNT_ATTR_RDONLY).how = ignores
	}
	p.step = StepEnter
	p.add(unix.SYS_CHDIR, p.text(spec.Dir))
	if spec.Trace == 0 {
		return
	}
	if !privileged() {
		p.step = StepRights
		p.add(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	installTracer(p, spec.Looks)
}

// MountsReadOnly reports whether StartOpen can keep a command from changing a folder whatever the modes of its files.
func MountsReadOnly() bool { return privileged() }

// privileged reports whether this process may install a filter of system calls without giving up rights.
var privileged = sync.OnceValue(func() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
})

// forkOpen makes a child that becomes the command of the board's request. It returns only in this process; see fork.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkOpen(memory unsafe.Pointer, flags uintptr) (pid int, err syscall.Errno) {
	beforeFork()
	child, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if child != 0 || errno != 0 {
		afterFork()
		return int(child), errno
	}
	afterForkInChild()
	second(memory)
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
