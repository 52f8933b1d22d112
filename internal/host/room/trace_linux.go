//go:build amd64 || arm64

package room

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"e3/internal/host/trace"
)

// installTracer adds the last calls before process 2 becomes the command. They install the filter that traces its
// opens, and with looks its tests of paths, and send the filter's listener to the tracer. The execution of the command
// waits for the tracer.
func installTracer(p *program, looks bool) {
	p.step = StepTrace
	filter := storeList(p.memory, trace.Filter(looks))
	prog := store(p.memory, [2]uintptr{filter.n, p.address(filter.at)}) // struct sock_fprog
	p.add(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, trace.ListenerFlags(), prog).how = saves
	p.add(unix.SYS_DUP3, 0, listener, unix.O_CLOEXEC).how = uses

	rights := unix.UnixRights(listener)
	control := p.bytes(rights)
	vector := store(p.memory, [2]uintptr{p.bytes([]byte{0}), 1})                             // struct iovec
	header := store(p.memory, [7]uintptr{0, 0, vector, 1, control, uintptr(len(rights)), 0}) // struct msghdr
	p.add(unix.SYS_SENDMSG, traceFD, header, unix.MSG_NOSIGNAL)
	p.add(unix.SYS_CLOSE_RANGE, traceFD, uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
}

// The layout of the header above is that of struct msghdr on machines with 64 bits.
var _ [unsafe.Sizeof(unix.Msghdr{}) - unsafe.Sizeof([7]uintptr{})]struct{} = [0]struct{}{}
