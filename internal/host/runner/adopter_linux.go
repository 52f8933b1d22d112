package runner

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

const (
	// maxRequest bounds a frame from an adopter.
	maxRequest = maxDemand + 256

	// goneLimit is the time for which an adopter waits for the end of its predecessor's socket. The predecessor is the
	// client or another adopter, whose death may be visible before its sockets end.
	goneLimit = 20 * time.Millisecond

	// endedLimit is the time for which it waits if that socket has ended unnoticed, or if the predecessor is dying: its
	// main thread has ended, and its files close when its last thread has ended.
	endedLimit = 2 * time.Second

	// leaveLimit bounds the time of sending the last messages to an adopter.
	leaveLimit = 200 * time.Millisecond
)

// adopter is the process that has replaced the client of this supervisor process.
type adopter struct {
	conn *net.UnixConn
	fd   int // descriptor of conn, valid until gone
	who  process.ID
	gone chan struct{} // closed when the adopter is gone
	done chan struct{} // closed when write has ended

	mu      sync.Mutex
	more    *sync.Cond
	out     []byte
	writing bool
	closed  bool
	demands bool // the adopter's demand was read
}

// acceptAdopters accepts adopters, one at a time.
func (k *keeper) acceptAdopters() {
	for {
		conn, err := k.listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // for example too many open files
			time.Sleep(20 * time.Millisecond)
		case !sameUser(conn) || !waitGone(k.gone, firstLane, k.client) && !k.dismiss(conn):
			conn.Close()
		case !k.predecessorGone() && !k.dismiss(conn):
			_ = conn.SetWriteDeadline(time.Now().Add(leaveLimit))
			_, _ = conn.Write(appendAdopted(nil))
			conn.Close()
		case !k.handOver(conn):
			conn.Close()
		}
	}
}

// sameUser reports whether the other end of conn is a process of this user.
func sameUser(conn *net.UnixConn) bool {
	peer := peerOf(conn)
	return peer != nil && peer.Uid == uint32(os.Geteuid())
}

// peerOf is the process at the other end of conn; nil if it is unknown.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil
	}
	if ctlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil || err != nil {
		return nil
	}
	return peer
}

// identify identifies a running process; the result is zero if the process has ended, or is invisible here.
func identify(pid int) process.ID {
	id, err := process.Lookup(pid)
	if err != nil {
		return process.ID{}
	}
	return id
}

// waitGone waits shortly for gone and reports whether it is closed. It waits longer if fd, the predecessor's socket,
// has ended, or if who, the predecessor, is dying: an adopter that has seen the predecessor's death must get the
// commands.
func waitGone(gone <-chan struct{}, fd int, who process.ID) bool {
	select {
	case <-gone:
		return true
	default:
	}
	limit := goneLimit
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	if n, err := unix.Poll(fds, 0); n > 0 && err == nil {
		limit = endedLimit
	} else if alive, known := process.Alive(who); known && !alive {
		limit = endedLimit
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		return false
	}
}

func (k *keeper) predecessorGone() bool {
	k.mu.Lock()
	a := k.adopter
	k.mu.Unlock()
	return a == nil || waitGone(a.gone, a.fd, a.who)
}

// handOver makes the other end of conn the adopter, if there is no adopter yet and a command is left.
func (k *keeper) handOver(conn *net.UnixConn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.adopter != nil || k.ending || len(k.commands) == 0 {
		return false
	}
	a := &adopter{conn: conn, gone: make(chan struct{}), done: make(chan struct{})}
	if raw, err := conn.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { a.fd = int(fd) }) != nil {
		return false
	}
	if peer := peerOf(conn); peer != nil {
		a.who = identify(int(peer.Pid))
	}
	a.more = sync.NewCond(&a.mu)
	k.adopter = a
	a.send(appendHandover(nil, &handover{pid: uint32(os.Getpid()), count: uint32(len(k.commands)), host: process.LocalHost()}))
	var ends []byte
	for _, c := range k.commands {
		pid, startTicks := k.identify(c)
		a.send(appendOrphan(nil, &orphanMessage{id: c.id, pid: pid, startTicks: startTicks,
			marker: c.marker, identity: c.identity, state: c.state}))
		if c.end != nil {
			ends = appendReply(ends, c.end)
		}
	}
	a.send(ends)
	go a.write()
	go k.serve(a)
	return true
}

// identify returns the running process of c, or zeros.
func (k *keeper) identify(c *keptCommand) (pid uint32, startTicks uint64) {
	k.reaping.Lock()
	defer k.reaping.Unlock()
	number := int(c.pid.Load())
	if number == 0 {
		return 0, 0
	}
	stat, err := process.ReadStat(number)
	if err != nil || stat.State == 'Z' || stat.State == 'X' {
		return 0, 0
	}
	return uint32(number), stat.StartTicks
}

// serve executes the requests of an adopter until the adopter is gone. Then the commands can be adopted again.
func (k *keeper) serve(a *adopter) {
	_ = readFrames(a.conn, maxRequest, func(kind messageKind, body []byte) error {
		switch kind {
		case kindDemand:
			d, err := decodeDemand(body)
			if err == nil {
				a.mu.Lock()
				a.demands = true
				a.mu.Unlock()
				k.promise(d)
			}
			return err
		case kindCancel:
			id, err := decodeCancel(body)
			if err == nil {
				k.cancel(id)
			}
			return err
		}
		return k.request(kind, body, true)
	})
	k.mu.Lock()
	k.adopter = nil
	k.mu.Unlock()
	close(a.gone)
	a.close()
}

// cancel stops a command for the adopter.
func (k *keeper) cancel(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.commands {
		if c.id == id && c.end == nil {
			c.lane.inbox.post(func() { c.lane.cancel(id) })
		}
	}
}

// send never waits. Messages that a stopped adopter does not read are kept; the number of its commands bounds them.
func (a *adopter) send(frames []byte) {
	a.mu.Lock()
	a.out = append(a.out, frames...)
	a.mu.Unlock()
	a.more.Signal()
}

func (a *adopter) write() {
	defer close(a.done)
	for {
		a.mu.Lock()
		for len(a.out) == 0 && !a.closed {
			a.more.Wait()
		}
		out := a.out
		a.out, a.writing = nil, len(out) > 0
		a.mu.Unlock()
		if len(out) == 0 {
			return
		}
		if _, err := a.conn.Write(out); err != nil {
			a.conn.Close() // this ends serve
			return
		}
		a.mu.Lock()
		a.writing = false
		a.mu.Unlock()
	}
}

// close is called when the adopter is gone.
func (a *adopter) close() {
	a.conn.Close()
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.more.Signal()
}

// finish writes the remaining messages, within leaveLimit.
func (a *adopter) finish() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.more.Signal()
	timer := time.NewTimer(leaveLimit)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
	}
}
