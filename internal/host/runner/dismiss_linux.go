package runner

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A stopped client or adopter keeps its sockets. So an adopter may demand the commands while their owner still exists:
// it names one of the commands that the owner has lost. The supervisor believes this if the owner has sent no word for
// as long as commands may run without one. It then dismisses the owner. When the owner goes on, its runs and waits
// fail with ErrLeft.

// demandLimit is the time for which the supervisor of a silent owner waits for the demand of an adopter.
const demandLimit = time.Second

// errRead ends the reading of frames.
var errRead = errors.New("read")

// dismiss dismisses the client or the adopter if the other end of conn demands this and the demand is valid.
func (k *keeper) dismiss(conn *net.UnixConn) bool {
	if !k.lapsed() {
		return false
	}
	d := readDemand(conn)
	if d == nil || !k.knows(d.lost) || !k.lapsed() {
		return false
	}
	k.mu.Lock()
	a := k.adopter
	k.mu.Unlock()
	if a != nil {
		return a.dismiss() && k.promise(d)
	}
	for _, l := range k.lanes {
		l.inbox.post(l.dismiss)
	}
	return within(k.gone, endedLimit) && k.promise(d)
}

// promise notes the time until which a new owner does not count as silent, although it has extended nothing yet. It
// returns true.
func (k *keeper) promise(d *demand) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.promised = min(d.until, Elapsed()+min(max(d.most, 0), maxFor))
	return true
}

// lapsed reports whether the owner has been silent for too long.
func (k *keeper) lapsed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Elapsed() >= max(k.until, k.promised)
}

// knows reports whether one of the identities is a command's.
func (k *keeper) knows(identities []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, identity := range identities {
		if k.commands[identity] != nil {
			return true
		}
	}
	return false
}

// readDemand reads the first frame of an adopter; nil if the frame is no demand.
func readDemand(conn *net.UnixConn) (d *demand) {
	_ = conn.SetReadDeadline(time.Now().Add(demandLimit))
	defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
	_ = readFrames(conn, maxDemand, func(kind messageKind, body []byte) (err error) {
		if kind == kindDemand {
			d, _ = decodeDemand(body)
		}
		return errRead
	})
	return d
}

// dismiss tells the client of this lane that it is dismissed, and ends it here.
func (l *laneServer) dismiss() {
	if l.clientGone {
		return
	}
	l.out = appendAdopted(l.out)
	l.flush()
	_ = unix.Shutdown(l.in.fd, unix.SHUT_RDWR) // the client can still read what was written
	l.out = nil
	l.hangUp()
}

// dismiss tells an adopter that it is no longer the adopter, and ends its connection. If the message cannot be
// sent, the connection stays, since the adopter would take the supervisor for dead. It spares an adopter whose
// demand was not read yet: this adopter may have a lease.
func (a *adopter) dismiss() bool {
	a.mu.Lock()
	able := a.demands && len(a.out) == 0 && !a.writing && !a.closed
	a.mu.Unlock()
	if !able {
		return false
	}
	_ = a.conn.SetWriteDeadline(time.Now().Add(leaveLimit))
	if _, err := a.conn.Write(appendAdopted(nil)); err != nil {
		_ = a.conn.SetWriteDeadline(time.Time{})
		return false
	}
	a.conn.Close() // this ends serve
	return within(a.gone, endedLimit)
}

// within reports whether c is closed within a time.
func within(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
