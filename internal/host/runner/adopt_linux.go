package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

const (
	// handoverLimit bounds the wait for a supervisor's handover; a stopped one does not answer.
	handoverLimit = 5 * time.Second

	// sendLimit bounds the time of sending a message to an adopted supervisor.
	sendLimit = time.Second

	// staleSocket is the age from which a socket that does not listen yet counts as dead.
	staleSocket = time.Hour

	// maxOrphans bounds the number of orphans that a supervisor may announce.
	maxOrphans = 1 << 20
)

var errNoAnswer = errors.New("it does not answer")

// adoption is a supervisor process that this process has adopted.
type adoption struct {
	name  string // name of its socket
	conn  *net.UnixConn
	gone  func(*adoption) // called once, after the end of the supervisor
	ready chan struct{}   // closed when all orphans are known
	done  chan struct{}   // closed when the supervisor is gone

	sending sync.Mutex

	mu        sync.Mutex
	process   handover
	orphans   map[uint64]*Orphan // not released
	complete  bool               // all orphans are known
	elsewhere bool               // another process has adopted the orphans
	closing   bool
	leaving   bool
}

// adoptFrom adopts every supervisor in the folder that the demand allows, except own. If other processes have adopted
// some, and nothing else went wrong, the error is ErrAdopted.
func adoptFrom(ctx context.Context, path string, own map[string]bool, d *demand, gone func(*adoption)) ([]*adoption, error) {
	dir, err := openPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("runner: adopt: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("runner: adopt: %w", err)
	}
	var mu sync.Mutex
	var adopted []*adoption
	var failed []error
	elsewhere := false
	var group sync.WaitGroup
	room := make(chan struct{}, 16)
	for _, name := range names {
		if own[name] || !strings.HasPrefix(name, socketPrefix) && !strings.HasPrefix(name, newPrefix) {
			continue
		}
		room <- struct{}{}
		group.Go(func() {
			defer func() { <-room }()
			a, err := adoptOne(ctx, dir, name, d, gone)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, ErrAdopted):
				elsewhere = true
			case err != nil:
				failed = append(failed, fmt.Errorf("runner: adopt from %s/%s: %w", path, name, err))
			}
			if a != nil {
				adopted = append(adopted, a)
			}
		})
	}
	group.Wait()
	if elsewhere && len(failed) == 0 {
		return adopted, ErrAdopted
	}
	return adopted, errors.Join(failed...)
}

// adoptOne returns nil if the supervisor is gone or its client is alive, and ErrAdopted if another process has adopted
// it.
func adoptOne(ctx context.Context, dir *os.File, name string, d *demand, gone func(*adoption)) (*adoption, error) {
	conn, err := dial(dir, name)
	if conn == nil || err != nil {
		return nil, err
	}
	if !sameUser(conn) {
		conn.Close()
		return nil, errors.New("it belongs to another user")
	}
	a := &adoption{
		name:    name,
		conn:    conn,
		gone:    gone,
		ready:   make(chan struct{}),
		done:    make(chan struct{}),
		orphans: make(map[uint64]*Orphan),
	}
	a.send(appendDemand(nil, d))
	go a.receive()
	timer := time.NewTimer(handoverLimit)
	defer timer.Stop()
	select {
	case <-a.ready:
		return a, nil
	case <-a.done:
		select {
		case <-a.ready: // it is gone already
			return a, nil
		default:
		}
		if a.refused() {
			return nil, ErrAdopted
		}
		return nil, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errNoAnswer
	}
	conn.Close()
	<-a.done
	return nil, err
}

// dial connects to a socket, or removes it if its listener is gone. It returns nil if there is nothing to adopt.
func dial(dir *os.File, name string) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	switch err := unix.Connect(fd, socketAddress(dir, name)); err {
	case nil:
	case unix.ECONNREFUSED:
		return nil, removeDead(dir, name)
	case unix.ENOENT, unix.EAGAIN: // it has ended, or its queue of adopters is full
		return nil, nil
	default:
		return nil, os.NewSyscallError("connect", err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// removeDead removes a socket without a listener.
func removeDead(dir *os.File, name string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && strings.HasPrefix(name, newPrefix) && time.Since(time.Unix(stat.Mtim.Unix())) < staleSocket {
		return nil // its process may be about to listen
	}
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK {
		err = unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	if err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove a dead socket: %w", err)
	}
	return nil
}

// receive handles the supervisor's messages until the supervisor is gone.
func (a *adoption) receive() {
	_ = readFrames(a.conn, maxHandover, a.handle)
	a.conn.Close()

	a.mu.Lock()
	var markers []string
	remaining := make([]*Orphan, 0, len(a.orphans))
	for _, o := range a.orphans {
		remaining = append(remaining, o)
		if !o.hasEnded() && o.marker != "" {
			markers = append(markers, o.marker)
		}
	}
	adopted, closing, handed := a.complete, a.closing || a.leaving, a.process
	why := ErrSupervisorLost
	if a.leaving {
		why = ErrLeft
	}
	a.mu.Unlock()
	if adopted && !closing && len(markers) > 0 && handed.host == process.LocalHost() {
		killLeftovers(int(handed.pid), markers) // the supervisor could not finish its work
	}
	for _, o := range remaining {
		o.settle(Result{}, why)
	}
	close(a.done)
	a.gone(a)
}

func (o *Orphan) hasEnded() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

// handle handles one message: the handover, then the orphans, then their ends.
func (a *adoption) handle(kind messageKind, body []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case kind == kindHandover && a.process.pid == 0:
		h, err := decodeHandover(body)
		if err != nil {
			return err
		}
		if h.pid <= 1 || h.count == 0 || h.count > maxOrphans {
			return fmt.Errorf("%w: %d orphans of process %d", errMessage, h.count, h.pid)
		}
		a.process = *h
	case kind == kindOrphan && a.process.pid != 0 && !a.complete:
		m, err := decodeOrphan(body)
		if err != nil {
			return err
		}
		if a.orphans[m.id] != nil {
			return fmt.Errorf("%w: two orphans %d", errMessage, m.id)
		}
		a.orphans[m.id] = a.orphan(m)
		if len(a.orphans) == int(a.process.count) {
			a.complete = true
			close(a.ready)
		}
	case kind == kindAdopted && a.process.pid == 0:
		a.elsewhere = true
	case kind == kindAdopted: // it is another process's from now on
		a.leaving = true
		return errRead
	case kind == kindEnded && a.complete:
		r, err := decodeReply(kind, body)
		if err != nil {
			return err
		}
		if o := a.orphans[r.id]; o != nil {
			o.settle(r.outcome())
		}
	default:
		return fmt.Errorf("%w: of kind %d", errMessage, kind)
	}
	return nil
}

func (a *adoption) orphan(m *orphanMessage) *Orphan {
	o := &Orphan{Identity: m.identity, State: []byte(m.state), id: m.id, marker: m.marker, from: a, ended: make(chan struct{})}
	if m.pid != 0 {
		h := a.process.host
		o.Process = h.Identify(int(m.pid), m.startTicks)
	}
	return o
}

// send ignores errors, because messages matter only while the supervisor lives.
func (a *adoption) send(frame []byte) {
	a.sending.Lock()
	defer a.sending.Unlock()
	_ = a.conn.SetWriteDeadline(time.Now().Add(sendLimit))
	if _, err := a.conn.Write(frame); err != nil {
		// anything after a partial frame would be malformed; messages that have arrived are still read
		_ = a.conn.CloseWrite()
	}
}

func (a *adoption) extend(until, most time.Duration) {
	a.send(appendExtend(nil, extension{until: until, most: most}))
}

func (a *adoption) cancel(o *Orphan) { a.send(appendCancel(nil, o.id)) }

func (a *adoption) release(o *Orphan) {
	a.mu.Lock()
	known := a.orphans[o.id] == o
	delete(a.orphans, o.id)
	a.mu.Unlock()
	if known {
		a.send(appendRelease(nil, o.Identity))
		o.settle(Result{}, ErrClosed)
	}
}

// all returns the orphans that are not released.
func (a *adoption) all() []*Orphan {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]*Orphan, 0, len(a.orphans))
	for _, o := range a.orphans {
		all = append(all, o)
	}
	return all
}

// refused reports whether another process has adopted the supervisor.
func (a *adoption) refused() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.elsewhere
}

func (a *adoption) socketName() string { return a.name }

// ended reports whether the supervisor is gone.
func (a *adoption) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// leave disconnects from the adopted commands without ending them.
func (a *adoption) leave() {
	a.mu.Lock()
	a.leaving = true
	a.mu.Unlock()
	a.conn.Close()
	<-a.done
}

// close kills all adopted commands, and waits until the supervisor is gone.
func (a *adoption) close() {
	a.mu.Lock()
	a.closing = true
	a.mu.Unlock()
	a.send(appendClose(nil))
	timer := time.NewTimer(shutdownLimit)
	defer timer.Stop()
	select {
	case <-a.done:
	case <-timer.C:
		a.conn.Close()
		<-a.done
	}
}
