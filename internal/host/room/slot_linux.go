//go:build amd64 || arm64

package room

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Slots makes rooms. Only one thread may use it. The thread must be locked and must live as long as the keepers and
// rooms, which die with it. They are children of this process.
type Slots struct {
	idle   []*slot
	husks  []int // processes 1 that have reported their end
	doomed []int // keepers that were killed
}

// A slot is a keeper, with the memory that it shares with this process.
type slot struct {
	of     slotKey
	keeper int // its process
	mail   int // the socket
	memory *memory
	own    uintptr // size of the part of the memory that does not belong to a command
}

// slotKey holds what the rooms of one slot have in common.
type slotKey struct {
	base, root, readOnly, shown string // shown encodes the hidden folders and the devices
	network, limited            bool   // limited: commands begin in control groups of their own
}

// A Process is process 1 of a room.
type Process struct {
	PID int // it passes TERM and CONT on to the command's process group; KILL ends everything in the room
	End int // a descriptor that hangs up once the command has ended, or process 1 has been killed

	slots *Slots
	slot  *slot
}

// self is a descriptor of this process, by which keepers notice its end.
var self = sync.OnceValues(func() (int, error) { return unix.PidfdOpen(os.Getpid(), 0) })

// Start starts a command in a room. Its Process must be finished. The reason why the command did not start may also be
// an error of Finish.
func (s *Slots) Start(r *Room, spec *Spec) (*Process, error) {
	if !r.valid() {
		return nil, &Error{Step: StepFolder, Err: unix.EINVAL}
	}
	for {
		l, fresh, err := s.take(r, spec.Group != 0)
		if err != nil {
			return nil, err
		}
		p, err := l.start(r, spec)
		if err == nil {
			p.slots = s
			return p, nil
		}
		s.drop(l)
		if fresh || !errors.Is(err, errKeeper) {
			return nil, err
		}
	}
}

// errKeeper: a keeper has died, for example of a lack of memory.
var errKeeper = errors.New("the process that makes closed rooms has ended")

// take returns an idle slot for the room, or makes one.
func (s *Slots) take(r *Room, limited bool) (l *slot, fresh bool, err error) {
	key := slotKey{base: r.Base, root: r.Root, readOnly: r.ReadOnly, network: r.Network, limited: limited}
	if len(r.Hidden)+len(r.Devices) > 0 {
		key.shown = fmt.Sprintf("%q %q", r.Hidden, r.Devices)
	}
	for i := len(s.idle) - 1; i >= 0; i-- {
		if l := s.idle[i]; l.of == key {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			return l, false, nil
		}
	}
	l, err = newSlot(r, key)
	return l, true, err
}

// maxIdle bounds the slots that wait for a command.
const maxIdle = 16

// giveBack keeps a slot for another command. If a connection lingers in its network, the slot is dropped: the next
// command could find its port taken.
func (s *Slots) giveBack(l *slot) {
	if !l.of.network && l.lingers() {
		s.drop(l)
		return
	}
	l.memory.reset(l.own)
	s.idle = append(s.idle, l)
	if len(s.idle) > maxIdle {
		s.drop(s.idle[0])
		s.idle = s.idle[1:]
	}
}

func (s *Slots) drop(l *slot) {
	_ = unix.Kill(l.keeper, unix.SIGKILL)
	unix.Close(l.mail)
	l.memory.free()
	s.doomed = append(s.doomed, l.keeper)
}

// Reap reaps processes of ended rooms, and reports whether some are left to reap.
func (s *Slots) Reap() bool {
	s.husks, s.doomed = reapAll(s.husks), reapAll(s.doomed)
	return len(s.husks)+len(s.doomed) > 0
}

func reapAll(pids []int) []int {
	kept := pids[:0]
	for _, pid := range pids {
		if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == 0 && err == nil || err == syscall.EINTR {
			kept = append(kept, pid)
		}
	}
	return kept
}

// newSlot starts a keeper and waits until it has made its room.
func newSlot(r *Room, key slotKey) (*slot, error) {
	parent, err := self()
	if err != nil {
		return nil, fmt.Errorf("open this process: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	m, err := newMemory()
	if err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, err
	}
	l := &slot{of: key, mail: pair[0], memory: m}
	m.alloc(unsafe.Sizeof(board{}))
	b := l.board()
	b.mail.vector.Base, b.mail.vector.Len = &b.mail.data[0], uint64(len(b.mail.data))
	b.mail.header.Iov, b.mail.header.Iovlen = &b.mail.vector, 1
	b.mail.header.Control = &b.mail.control[0]
	l.own = m.used

	p := program{memory: m}
	r.shell(&p)
	k := &keeping{memory: m.base, setup: storeList(m, p.calls), flags: key.namespaces(), socket: pair[1], parent: parent}
	pid, errno := fork(k)
	runtime.KeepAlive(k)
	unix.Close(pair[1])
	if errno != 0 {
		unix.Close(pair[0])
		m.free()
		return nil, &Error{Step: StepFork, Err: errno}
	}
	l.keeper = pid
	if err := l.await(); err != nil {
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		failed := b.keeper
		unix.Close(pair[0])
		m.free()
		if failed.failed != 0 {
			return nil, &Error{Step: Step(failed.step), Err: syscall.Errno(failed.errno)}
		}
		return nil, err
	}
	m.reset(l.own)
	return l, nil
}

// namespaces are the namespaces of a keeper.
func (k *slotKey) namespaces() uintptr {
	flags := uintptr(unix.SIGCHLD) | unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWUTS
	// otherwise a command's group would lie outside the namespace, and the kernel would not start the command in it
	if !k.limited {
		flags |= unix.CLONE_NEWCGROUP
	}
	if !k.network {
		flags |= unix.CLONE_NEWNET
	}
	return flags
}

// ownNamespaces are the namespaces of a room. CLONE_PARENT makes process 1 a child of this process instead of the
// keeper.
const ownNamespaces = uintptr(unix.SIGCHLD) | unix.CLONE_PARENT | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC

func (l *slot) board() *board { return (*board)(l.memory.base) }

// await waits until the keeper is ready.
func (l *slot) await() error {
	var ready [1]byte
	for {
		n, err := unix.Read(l.mail, ready[:])
		switch {
		case err == unix.EINTR:
		case err != nil || n == 0:
			return errKeeper
		default:
			return nil
		}
	}
}

// start has the keeper make a room.
func (l *slot) start(r *Room, spec *Spec) (*Process, error) {
	var first, second program
	first.memory, second.memory = l.memory, l.memory
	r.finish(&first)
	r.enter(&second, spec)
	if spec.Trace != 0 {
		installTracer(&second, spec.Looks)
	}
	b := l.board()
	b.end.state, b.reply.pid, b.reply.errno = stateMaking, 0, 0
	q := &b.request
	q.flags = ownNamespaces
	q.first, q.second = storeList(l.memory, first.calls), storeList(l.memory, second.calls)
	var paths []uintptr
	for _, path := range spec.Paths {
		paths = append(paths, l.memory.text(path))
	}
	q.paths = storeList(l.memory, paths)
	q.argv, q.environment = l.memory.vector(spec.Argv), l.memory.vector(spec.Env)
	if l.memory.full {
		return nil, &Error{Step: StepExec, Err: unix.E2BIG}
	}
	end := make([]int, 2)
	if err := unix.Pipe2(end, unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	fds := []int{spec.Files[0], spec.Files[1], spec.Files[2], end[1]}
	if spec.Trace != 0 {
		fds = append(fds, spec.Trace)
	}
	q.group = cloneArgs{}
	if spec.Group != 0 {
		q.group = cloneArgs{
			flags:      unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_INTO_CGROUP,
			exitSignal: uint64(unix.SIGCHLD),
			cgroup:     uint64(len(fds)),
		}
		fds = append(fds, spec.Group)
	}
	q.sent = uintptr(len(fds))
	rights := unix.UnixRights(fds...)
	err := unix.Sendmsg(l.mail, []byte{0}, rights, nil, unix.MSG_NOSIGNAL)
	unix.Close(end[1])
	if err == nil {
		err = l.await()
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", errKeeper, err)
	case b.reply.errno != 0:
		err = &Error{Step: StepFork, Err: syscall.Errno(b.reply.errno)}
	default:
		return &Process{PID: int(b.reply.pid), End: end[0], slot: l}, nil
	}
	unix.Close(end[0])
	return nil, err
}

// Finish returns how the command ended, once End has hung up. No process of the room is left then. If the command did
// not start, the error is an *Error with the reason.
func (p *Process) Finish() (Result, error) {
	unix.Close(p.End)
	b := p.slot.board()
	if b.end.state == stateEnded {
		result := Result{Status: syscall.WaitStatus(b.end.status), Usage: b.end.usage}
		p.slots.husks = append(p.slots.husks, p.PID)
		p.slots.giveBack(p.slot)
		return result, nil
	}
	var result Result
	for {
		if _, err := syscall.Wait4(p.PID, &result.Status, 0, (*syscall.Rusage)(unsafe.Pointer(&result.Usage))); err != syscall.EINTR {
			break
		}
	}
	var err error
	if b.end.state == stateFailed {
		err = &Error{Step: Step(b.end.step), Err: syscall.Errno(b.end.errno)}
	}
	p.slots.giveBack(p.slot)
	return result, err
}

// lingers reports whether the slot's network has connections that have not ended completely.
func (l *slot) lingers() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/sockstat", l.keeper))
	return err == nil && !(strings.Contains(string(text), " orphan 0 ") && strings.Contains(string(text), " tw 0 "))
}

// Close kills the keepers.
func (s *Slots) Close() {
	for _, l := range s.idle {
		s.drop(l)
	}
	s.idle = nil
	for s.Reap() {
		time.Sleep(time.Millisecond)
	}
}

// advice says what to do where rooms cannot be made.
func (e *Error) advice() string {
	if e.Step == StepProc {
		return "inside of a container, /proc is partly hidden: start the container with it unmasked"
	}
	return "they need Linux 5.12 and user namespaces for ordinary users: see the sysctls user.max_user_namespaces, " +
		"kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
}

// Possible reports whether this system can have closed rooms. Whether this machine lets its users make rooms shows when
// a room is made.
func Possible() bool { return true }
