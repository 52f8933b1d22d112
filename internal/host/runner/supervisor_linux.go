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

	"e3/internal/host/cgroup"
	"e3/internal/host/process"
	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

const (
	// drainLimit bounds the time for which a command's result waits for the rest of its process group to die. Only a
	// process stuck in the kernel takes that long.
	drainLimit = 2 * time.Second

	// sweepInterval is the interval at which orphans are collected while commands run.
	sweepInterval = time.Second

	// huskInterval is the interval at which the processes of ended rooms are reaped.
	huskInterval = 10 * time.Millisecond

	// closeLimit bounds the time for which a lane waits for its killed commands to end.
	closeLimit = 500 * time.Millisecond

	// shutdownLimit bounds the time for which the supervisor outlives its client.
	shutdownLimit = 10 * time.Second
)

// server is the state that the lanes of the supervisor process share.
//
// Each lane has its own socket, thread and commands: it starts them, waits for them and reports their ends, so that
// lanes do not wait for each other. The thread is locked for ever, because the parent death signal is bound to the
// thread that forked. A lane waits in the kernel, without Go's poller, because a thread that the kernel wakes answers
// sooner than a goroutine that the scheduler wakes.
type server struct {
	null     int // stdin, and discarded output
	children int // the kernel's list of the main thread's children; -1: unavailable

	// reaping is held while processes are reaped, and while a listed process is signalled, so that its pid is not
	// reused meanwhile.
	reaping sync.Mutex

	running atomic.Int32 // lanes that have not ended

	oom    *oomCounter
	limits limits

	commands commands // running ones

	keeper *keeper // keeps the commands that may outlive the client; nil: all commands die with it
}

// laneServer serves one socket. Only its thread uses it.
type laneServer struct {
	*server
	in         laneReader
	out        []byte        // replies for which the socket has no room
	tasks      []*task       // running
	fds        []unix.PollFd // the socket, the inbox, then a process descriptor for each of tasks
	draining   []*task       // reaped commands that may have processes left
	masking    int           // commands whose masked output is still being written
	clientGone bool          // the client has closed the socket
	closing    time.Time     // time at which the lane began to end; zero: not yet
	swept      time.Time     // time of the latest collection of orphans

	inbox inbox // requests of other threads
	slots room.Slots
	husks bool // processes of ended rooms, or control groups, are left to reap

	leaves []*cgroup.Leaf // control groups of ended commands whose last processes are ending
}

// taskFDs is the index in laneServer.fds at which the tasks begin.
const taskFDs = 2

// task is one command, from its start to the end of its process group.
type task struct {
	id       uint64
	pid      int // also the process group's id; safe to signal until reaped
	pidfd    int // -1 where the kernel has none
	marker   string
	room     string
	began    time.Duration // by Elapsed; all processes of the task started later
	grace    time.Duration
	started  time.Time
	announce time.Time    // time to tell the client that the command runs; zero: never
	deadline time.Time    // time to send the next signal; zero: never
	flags    byte         // reason of the stop; 0: the command was not stopped
	pumps    []*pump      // pumps of masked output
	kept     *keptCommand // nil: the command dies with the client

	end        reply     // set once it is reaped
	drainUntil time.Time // time to stop waiting for its remaining processes
	orphaned   bool      // the last pass killed an orphan that may belong to it
	straggler  bool      // the last pass spared an orphan that may belong to it
	resolved   string    // path of the room without links; "" until holds needs it

	// nil: the command runs in the open. Else pid is process 1 of its room, and pidfd is the End of that
	closed *room.Process
	leaf   *cgroup.Leaf // nil: the command has no limits
}

func newServer(null, lanes int) *server {
	s := &server{null: null, children: -1, oom: newOOMCounter(), commands: commands{all: map[*task]struct{}{}}}
	s.running.Store(int32(lanes))
	if fd, err := unix.Open(mainThreadChildren(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.children = fd
	}
	return s
}

func (s *server) newLane(fd int) *laneServer {
	return &laneServer{server: s, in: laneReader{fd: fd}, fds: []unix.PollFd{
		{Fd: int32(fd), Events: unix.POLLIN},
		{Fd: -1, Events: unix.POLLIN},
	}}
}

// serve executes the lane's requests until the client is gone and the commands of the lane have ended. The last lane
// ends the process.
func (l *laneServer) serve() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		// The main thread must not start commands: orphans become its children,
		// so that their list is in one place and usually empty.
		go l.serve()
		select {}
	}
	restoreSlack()
	promptLane()
	// Commands inherit the mask of the thread that starts them.
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil); err != nil {
		fatal(fmt.Errorf("clear the signal mask: %w", err))
	}
	for l.closing.IsZero() || len(l.tasks)+l.masking > 0 && time.Since(l.closing) < closeLimit {
		l.wait()
		if !l.clientGone {
			if err := l.request(); err != nil {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintf(os.Stderr, "%s: %v\n", helperName, err)
				}
				l.hangUp()
			}
		}
		if l.fds[1].Revents != 0 {
			l.inbox.runCalls()
		}
		l.handleDue(time.Now())
	}
	if l.running.Add(-1) == 0 {
		l.finish()
	}
	select {}
}

// wait blocks until a request or the end of a command arrives, or until something is due.
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
	if l.in.pending() && !l.clientGone {
		return &unix.Timespec{}
	}
	if len(l.tasks)+len(l.draining) == 0 && l.closing.IsZero() && !l.husks {
		return nil
	}
	next := sweepInterval
	if l.husks {
		next = huskInterval
	}
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
			next = min(next, 2*time.Millisecond) // the kernel has no pidfd: poll
		}
	}
	for _, t := range l.draining {
		// The interval grows with the time already waited.
		next = min(next, max(time.Millisecond, now.Sub(t.drainUntil.Add(-drainLimit))/4))
	}
	ts := unix.NsecToTimespec(int64(max(next, 0)))
	return &ts
}

// request reads from the socket and executes one request, if a whole one has arrived.
func (l *laneServer) request() error {
	if l.fds[0].Revents&unix.POLLHUP != 0 {
		return io.EOF // the rest of the request does not matter
	}
	if l.fds[0].Revents&unix.POLLOUT != 0 {
		l.flush()
	}
	if l.fds[0].Revents&^unix.POLLOUT != 0 && !l.in.pending() {
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
		l.cancel(id)
		return nil
	default:
		if l.keeper == nil {
			return fmt.Errorf("%w: request of kind %d", errMessage, kind)
		}
		return l.keeper.request(kind, body, false)
	}
}

// cancel stops a command.
func (l *laneServer) cancel(id uint64) {
	for _, t := range l.tasks {
		if t.id == id {
			t.stop(flagCancelled, time.Now())
		}
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
	l.oom.refresh()
	t := &task{id: r.id, pidfd: -1, marker: r.marker, room: r.room, grace: r.grace, started: time.Now(), began: Elapsed()}
	if l.keeper != nil {
		refused := l.keeper.admit(l, t, r)
		if refused == nil && len(r.mask) > 0 {
			if stdout, stderr, refused = t.maskOutput(r, stdout, stderr); refused != nil {
				l.keeper.abandon(t)
			}
		}
		if refused != nil {
			l.send(refused)
			return
		}
	}
	if err := l.start(t, r, [3]int{l.null, stdout, stderr}); err != nil {
		l.refuse(t, err)
		return
	}
	if t.kept != nil {
		t.kept.pid.Store(int64(t.pid))
	}
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

// start starts the process of a command. standard are its descriptors before its redirections.
func (l *laneServer) start(t *task, r *spawnRequest, standard [3]int) error {
	files, err := redirected(r, standard)
	defer files.close()
	if err != nil {
		return err
	}
	if err := l.limit(t, r); err != nil {
		return err
	}
	if r.closed != "" {
		return l.startClosed(t, r, &files)
	}
	l.commands.add(t)
	pid, err := l.startOpen(t, r, &files)
	if err != nil {
		l.commands.remove(t)
		return err
	}
	l.commands.started(t, pid)
	return nil
}

// refuse tells the client that a command could not start.
func (l *laneServer) refuse(t *task, err error) {
	failed := reply{kind: kindFailed, id: t.id, status: uint32(unix.EINVAL)}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		failed.status = uint32(errno)
	}
	if isLimitError(err) {
		failed.flags = flagLimits
	}
	if e, ok := errors.AsType[*room.Error](err); ok {
		failed.flags, failed.pid = flagClosed, uint32(e.Step)
	}
	if l.keeper != nil {
		l.keeper.abandon(t)
	}
	l.dropLeaf(t)
	l.send(&failed)
}

// announce tells the client that t runs.
func (l *laneServer) announce(t *task) {
	t.announce = time.Time{}
	if stat, err := process.ReadStat(t.pid); err == nil {
		l.send(&reply{kind: kindStarted, id: t.id, pid: uint32(t.pid), startTicks: stat.StartTicks})
	}
}

// handleDue reaps the commands that have ended, sends due signals, and reports commands without processes left.
func (l *laneServer) handleDue(now time.Time) {
	for i := 0; i < len(l.tasks); {
		t := l.tasks[i]
		if (t.pidfd < 0 || l.fds[i+taskFDs].Revents != 0) && l.reap(t, now) {
			l.tasks = slices.Delete(l.tasks, i, i+1)
			l.fds = slices.Delete(l.fds, i+taskFDs, i+taskFDs+1)
			if t.closed == nil {
				l.draining = append(l.draining, t)
			}
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
	l.husks = l.slots.Reap()
	if l.removeLeaves(); len(l.leaves) > 0 {
		l.husks = true
	}
	if len(l.draining) > 0 {
		l.drain(now)
	} else if len(l.tasks) > 0 && now.Sub(l.swept) > sweepInterval {
		l.swept = now
		l.oom.refresh()
		l.collectOrphans(nil)
	}
}

// stop sends TERM to t's group; a second call, when the grace is over, kills the group. The first reason counts.
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
	t.signal(unix.SIGTERM)
	t.signal(unix.SIGCONT) // a stopped process could not handle TERM
}

// abort ends t without a grace. The first reason counts.
func (t *task) abort(reason byte) {
	if t.flags == 0 {
		t.flags = reason
	}
	t.deadline = time.Time{}
	t.kill()
}

// kill kills t's process group in one step of the kernel, so that no member escapes by forking.
func (t *task) kill() { t.signal(unix.SIGKILL) }

// signal signals t's process group. Process 1 of a closed room passes signals on.
func (t *task) signal(signal syscall.Signal) {
	if t.leaf != nil && signal == unix.SIGKILL {
		t.leaf.Kill()
	}
	if t.closed != nil {
		_ = unix.Kill(t.pid, signal)
		return
	}
	_ = unix.Kill(-t.pid, signal)
}

// answer reports t once no process of it is left and its masked output is written.
func (l *laneServer) answer(t *task) {
	if len(t.pumps) == 0 {
		l.report(t)
		return
	}
	// The last output may have to wait for a reader.
	l.masking++
	go func() {
		errno := finishPumps(t.pumps)
		l.inbox.post(func() {
			l.masking--
			t.end.maskErrno = errno
			l.report(t)
		})
	}()
}

// report tells the client and the keeper how t ended.
func (l *laneServer) report(t *task) {
	if l.keeper != nil {
		l.keeper.ended(t)
	}
	l.send(&t.end)
}

// send writes a reply. The part that does not fit into the socket is kept, so that a stopped client does not block the
// lane. On an error the client is gone, which the next request shows.
func (l *laneServer) send(r *reply) {
	if len(l.out) > 0 {
		l.out = appendReply(l.out, r)
		return
	}
	var frame [replySize]byte
	if rest := l.write(appendReply(frame[:0], r)); len(rest) > 0 {
		l.out = append(l.out, rest...)
		l.fds[0].Events |= unix.POLLOUT
	}
}

// flush writes the kept replies.
func (l *laneServer) flush() {
	l.out = append(l.out[:0], l.write(l.out)...)
	if len(l.out) == 0 {
		l.fds[0].Events &^= unix.POLLOUT
	}
}

// write returns the bytes that do not fit into the socket.
func (l *laneServer) write(b []byte) []byte {
	for len(b) > 0 {
		n, err := unix.SendmsgN(l.in.fd, b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			b = b[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			if !l.clientGone {
				return b
			}
			// A closing client reads its last replies. Do not wait for the socket any more.
			fds := []unix.PollFd{{Fd: int32(l.in.fd), Events: unix.POLLOUT}}
			if n, err := unix.Poll(fds, int(closeLimit/time.Millisecond)); n == 0 && err == nil {
				_ = unix.Shutdown(l.in.fd, unix.SHUT_RDWR)
				return nil
			}
		default:
			return nil
		}
	}
	return nil
}

// hangUp handles the end of the client in this lane. The other lanes notice by themselves.
func (l *laneServer) hangUp() {
	l.clientGone = true
	l.fds[0].Fd = -1
	l.flush()
	if l.keeper == nil {
		l.shutdown(flagCancelled)
		return
	}
	for _, t := range l.tasks {
		if t.kept == nil {
			t.abort(flagCancelled)
		}
	}
	l.keeper.clientGone()
}

// shutdown kills the commands of the lane and ends it. After the last lane, finish kills the rest.
func (l *laneServer) shutdown(reason byte) {
	l.closing = time.Now()
	for _, t := range l.tasks {
		t.abort(reason)
	}
}

func fatal(err error) {
	fmt.Fprintf(os.Stderr, "%s: %v\n", helperName, err)
	os.Exit(1)
}
