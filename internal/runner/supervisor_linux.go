package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drainLimit bounds how long a command's result waits for the rest of its
	// process group to die. Only a process stuck in the kernel takes that long.
	drainLimit = 2 * time.Second

	// sweepInterval is how often orphans are collected while commands run.
	sweepInterval = time.Second

	// closeLimit bounds how long a lane waits for its killed commands to end
	// before the rest is killed too.
	closeLimit = 500 * time.Millisecond

	// shutdownLimit bounds how long the supervisor outlives its client.
	shutdownLimit = 10 * time.Second
)

// server is what the lanes of the supervisor process share.
//
// Each lane has a socket, a thread and commands of its own: it starts them, waits
// for them and answers for them, so that lanes do not wait for each other. The
// thread is locked for ever, because the parent death signal is bound to the
// thread that forked. Waiting is done in the kernel, without Go's poller: there is
// nothing else to do meanwhile, and a thread that the kernel wakes answers sooner
// than a goroutine that the scheduler wakes.
type server struct {
	null     int // for standard input, and for output that is not wanted
	children int // the kernel's list of the main thread's children; -1: not kept

	// reaping is held while processes are collected, and while a listed process
	// is signalled, whose pid could otherwise be reused meanwhile.
	reaping sync.Mutex

	running atomic.Int32 // lanes whose client has not gone away
}

// laneServer serves one socket. Only its thread uses it.
type laneServer struct {
	*server
	in       laneReader
	tasks    []*task       // running
	fds      []unix.PollFd // the socket, then a process descriptor for each of tasks
	draining []*task       // reaped, but something of them may be left
	closing  time.Time     // when the client was found gone; zero: it is there
	swept    time.Time     // when orphans were last collected
}

// task is one command, from its start to the end of its process group.
type task struct {
	id       uint64
	pid      int // also the process group's id; safe to signal until reaped
	pidfd    int // -1 where the kernel has none
	marker   string
	grace    time.Duration
	started  time.Time
	announce time.Time // when to tell the client that it runs; zero: never
	deadline time.Time // when to send the next signal; zero: never
	flags    byte      // why it was told to stop; 0: it was not

	end        reply     // once it is reaped
	drainUntil time.Time // when to give up waiting for the rest
	orphaned   bool      // an orphan with its marker was seen alive
}

func newServer(null, lanes int) *server {
	s := &server{null: null, children: -1}
	s.running.Store(int32(lanes))
	if fd, err := unix.Open(mainThreadChildren(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.children = fd
	}
	return s
}

// serveLane carries out one lane's requests until the client goes away and the
// commands of the lane have ended. The last lane ends the process.
func (s *server) serveLane(fd int) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread must not start commands: orphans become its children,
		// so that their list is in one place and usually empty.
		go s.serveLane(fd)
		select {}
	}
	// Commands inherit the mask of the thread that starts them.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		fatal(fmt.Errorf("clear the signal mask: %w", err))
	}
	l := &laneServer{server: s, in: laneReader{fd: fd}}
	l.fds = []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for l.closing.IsZero() || len(l.tasks) > 0 && time.Since(l.closing) < closeLimit {
		l.wait()
		if l.closing.IsZero() {
			if err := l.request(); err != nil {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintf(os.Stderr, "%s: %v\n", helperName, err)
				}
				l.shutdown()
			}
		}
		l.look(time.Now())
	}
	if s.running.Add(-1) == 0 {
		s.finish()
	}
	select {}
}

// wait blocks until a request or the end of a command arrives, or until something
// is due.
func (l *laneServer) wait() {
	timeout := l.timeout(time.Now())
	for i := range l.fds {
		l.fds[i].Revents = 0
	}
	_, err := unix.Ppoll(l.fds, timeout, nil)
	if err != nil && err != unix.EINTR {
		fatal(fmt.Errorf("wait for requests: %w", err))
	}
}

// timeout is the time until something is due; nil if nothing is.
func (l *laneServer) timeout(now time.Time) *unix.Timespec {
	if l.in.pending() && l.closing.IsZero() {
		return &unix.Timespec{}
	}
	if len(l.tasks)+len(l.draining) == 0 {
		return nil
	}
	next := sweepInterval
	if !l.closing.IsZero() {
		next = closeLimit / 10
	}
	for _, t := range l.tasks {
		for _, due := range []time.Time{t.announce, t.deadline} {
			if !due.IsZero() {
				next = min(next, due.Sub(now))
			}
		}
		if t.pidfd < 0 {
			next = min(next, 2*time.Millisecond) // the kernel cannot say; keep asking
		}
	}
	for _, t := range l.draining {
		// Patience grows with the time that it has already taken.
		next = min(next, max(time.Millisecond, now.Sub(t.drainUntil.Add(-drainLimit))/4))
	}
	ts := unix.NsecToTimespec(int64(max(next, 0)))
	return &ts
}

// request takes what has arrived and carries out one request, if one is whole.
func (l *laneServer) request() error {
	if l.fds[0].Revents&unix.POLLHUP != 0 {
		return io.EOF // whatever it still wanted
	}
	if l.fds[0].Revents != 0 && !l.in.pending() {
		if err := l.in.fill(); err != nil {
			return err
		}
	}
	kind, body, ok, err := l.in.next()
	if err != nil || !ok {
		return err
	}
	switch kind {
	case kindSpawn:
		r, err := decodeSpawn(body)
		if err != nil {
			return err
		}
		fds, err := l.in.takeDescriptors(r.descriptors())
		if err != nil {
			return err
		}
		l.spawn(r, fds)
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil
	case kindCancel:
		id, err := decodeCancel(body)
		if err != nil {
			return err
		}
		for _, t := range l.tasks {
			if t.id == id {
				t.stop(flagCancelled, time.Now())
			}
		}
		return nil
	default:
		return fmt.Errorf("%w: request of kind %d", errMessage, kind)
	}
}

// spawn starts a command.
func (l *laneServer) spawn(r *spawnRequest, fds []int) {
	stdout, stderr := l.null, l.null
	if r.flags&flagStdout != 0 {
		stdout, fds = fds[0], fds[1:]
	}
	if r.flags&flagStderr != 0 {
		stderr = fds[0]
	} else if r.flags&flagMerged != 0 {
		stderr = stdout
	}
	t := &task{id: r.id, pidfd: -1, marker: r.marker, grace: r.grace, started: time.Now()}
	pid, err := syscall.ForkExec(r.path, r.argv, &syscall.ProcAttr{
		Dir:   r.dir,
		Env:   r.env,
		Files: []uintptr{uintptr(l.null), uintptr(stdout), uintptr(stderr)},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &t.pidfd},
	})
	if err != nil {
		var errno syscall.Errno
		if !errors.As(err, &errno) {
			errno = unix.EINVAL
		}
		l.send(&reply{kind: kindFailed, id: r.id, status: uint32(errno)})
		return
	}
	t.pid = pid
	if r.timeout > 0 {
		t.deadline = t.started.Add(r.timeout)
	}
	if r.flags&flagAnnounce != 0 {
		t.announce = t.started.Add(r.announceAfter)
		if r.announceAfter == 0 {
			l.announce(t)
		}
	}
	l.tasks = append(l.tasks, t)
	l.fds = append(l.fds, unix.PollFd{Fd: int32(t.pidfd), Events: unix.POLLIN})
}

// announce tells the client that t runs.
func (l *laneServer) announce(t *task) {
	t.announce = time.Time{}
	if stat, err := readProcStat(t.pid); err == nil {
		l.send(&reply{kind: kindStarted, id: t.id, pid: uint32(t.pid), startTicks: stat.startTicks})
	}
}

// look does what is due: collects the commands that have ended, sends signals,
// answers for commands of which nothing is left.
func (l *laneServer) look(now time.Time) {
	for i := 0; i < len(l.tasks); {
		t := l.tasks[i]
		if (t.pidfd < 0 || l.fds[i+1].Revents != 0) && l.reap(t, now) {
			l.tasks = slices.Delete(l.tasks, i, i+1)
			l.fds = slices.Delete(l.fds, i+1, i+2)
			l.draining = append(l.draining, t)
			continue
		}
		i++
		if !t.announce.IsZero() && !now.Before(t.announce) {
			l.announce(t)
		}
		if !t.deadline.IsZero() && !now.Before(t.deadline) {
			t.stop(flagTimedOut, now)
		}
	}
	if len(l.draining) > 0 {
		l.drain(now)
	} else if len(l.tasks) > 0 && now.Sub(l.swept) > sweepInterval {
		l.swept = now
		l.collectOrphans(nil)
	}
}

// stop asks t's group to end; called again when the grace is over, it ends the
// group. The first reason counts.
func (t *task) stop(reason byte, now time.Time) {
	again := t.flags != 0
	if again && now.Before(t.deadline) {
		return // a cancellation during the grace changes nothing
	}
	if !again {
		t.flags = reason
	}
	if again || t.grace <= 0 {
		t.deadline = time.Time{}
		t.kill()
		return
	}
	t.deadline = now.Add(t.grace)
	_ = unix.Kill(-t.pid, unix.SIGTERM)
	_ = unix.Kill(-t.pid, unix.SIGCONT) // a stopped process could not handle TERM
}

// kill ends t's process group. The kernel does this in one step: no member can
// fork its way out.
func (t *task) kill() { _ = unix.Kill(-t.pid, unix.SIGKILL) }

// send writes a reply. When that fails the client is gone, which the next request
// shows.
func (l *laneServer) send(r *reply) {
	var frame [replySize]byte
	b := appendReply(frame[:0], r)
	for len(b) > 0 {
		n, err := unix.SendmsgN(l.in.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		b = b[n:]
	}
}

// shutdown is called when the client is gone. The other lanes notice by themselves;
// what is left after the last one is killed by finish.
func (l *laneServer) shutdown() {
	l.closing = time.Now()
	l.fds[0].Fd = -1
	for _, t := range l.tasks {
		if t.flags == 0 {
			t.flags = flagCancelled
		}
		t.kill()
	}
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", helperName, err)
	os.Exit(1)
}
