package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"e3/internal/host/cgroup"
	"e3/internal/host/headroom"
	"e3/internal/host/process"
	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// backend is e3's side of one supervisor process. It ends with that process and is not restarted; the Supervisor makes
// a new one.
type backend struct {
	process *os.Process
	crash   *os.File // the process's stderr, in memory: it says why the process ended
	lanes   []*lane
	keeping *keeping // nil: the supervisor ends with this process
	nextID  atomic.Uint64
	done    chan struct{} // closed when the process is gone and err is set
	leaving chan struct{} // closed by leave, and when another process has adopted the commands
	left    sync.Once     // closes leaving
	limited atomic.Bool   // a command had limits

	mu      sync.Mutex
	calls   map[uint64]*call
	release []byte // frames to send before the next request
	closing bool
	err     error // why later runs must fail
}

// lane is one socket to the supervisor. There each lane has a thread, so that lanes do not wait for each other.
type lane struct {
	file *os.File
	conn syscall.RawConn
	busy atomic.Int32 // runs in flight that were sent on this lane

	mu  sync.Mutex
	buf []byte
}

// call is one run in flight.
type call struct {
	lane    *lane
	marker  string
	replies chan reply // has room for both replies that a run can get
}

func startBackend(options Options, until time.Duration) (*backend, error) {
	// Threads in which goroutines wait for the disk, threads of the supervisor, and a process for each command.
	if err := headroom.Threads(runtime.GOMAXPROCS(0) + 24 + 3*options.Spawners); err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	crashFD, err := unix.MemfdCreate("e3-supervisor-stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	b := &backend{
		crash:   os.NewFile(uintptr(crashFD), "supervisor stderr"),
		done:    make(chan struct{}),
		leaving: make(chan struct{}),
		calls:   make(map[uint64]*call),
	}
	if options.Outlive != nil {
		if b.keeping, err = newKeeping(options.Outlive, until); err != nil {
			b.free()
			return nil, err
		}
		defer b.keeping.closeFiles()
	}
	files := []*os.File{null, null, b.crash}
	defer func() {
		for _, file := range files[firstLane:][:len(b.lanes)] {
			file.Close()
		}
	}()
	for range options.Spawners {
		ours, theirs, err := newLane()
		if err != nil {
			b.free()
			return nil, err
		}
		b.lanes = append(b.lanes, ours)
		files = append(files, theirs)
	}
	if b.keeping != nil {
		files = append(files, b.keeping.files...)
	}

	// Two threads more than lanes, since lanes wait in system calls most of the time.
	env := []string{"GOMAXPROCS=" + strconv.Itoa(len(b.lanes)+2)}
	if options, ok := os.LookupEnv("GORACE"); ok { // options of the race detector, if the program was built with it
		env = append(env, "GORACE="+options)
	}
	b.process, err = withSlack(func(slack string) (*os.Process, error) {
		return os.StartProcess("/proc/self/exe", helperArgs(len(b.lanes), b.keeping), &os.ProcAttr{
			Dir:   "/",
			Env:   append(env, slack),
			Files: files,
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err != nil {
		b.free()
		if b.keeping != nil {
			b.keeping.removeSocket()
		}
		return nil, err
	}
	go b.receive()
	return b, nil
}

func newLane() (ours *lane, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(pair[1]), "supervisor lane")
	// The socket does not block, so that waiting costs a goroutine and no thread.
	if err := unix.SetNonblock(pair[0], true); err != nil {
		unix.Close(pair[0])
		theirs.Close()
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	ours = &lane{file: os.NewFile(uintptr(pair[0]), "lane")}
	if ours.conn, err = ours.file.SyscallConn(); err != nil {
		ours.file.Close()
		theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

func (b *backend) free() {
	b.crash.Close()
	for _, l := range b.lanes {
		l.file.Close()
	}
}

func (b *backend) gone() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// run returns a bare syscall.Errno if the command could not start.
func (b *backend) run(ctx context.Context, path string, spec *Spec, host func() process.Host) (Result, error) {
	var mask []string
	if b.keeping != nil {
		mask = spec.Mask
	}
	closed, err := spec.closed()
	if err != nil {
		return Result{}, err
	}
	traced, err := spec.traced()
	if err != nil {
		return Result{}, err
	}
	limits, err := spec.limits()
	if limits != "" {
		b.limited.Store(true)
	}
	if err != nil {
		return Result{}, err
	}
	texts := []string{spec.Identity, string(spec.State), path, spec.Dir, spec.Marker, spec.Room, closed, spec.ReadOnly, traced, limits}
	if argumentBytes(spec)+stringBytes(mask)+stringBytes(texts)+redirectBytes(spec.Redirects)+8*(len(spec.Argv)+len(spec.Env)+len(mask)+64) > maxFrame {
		return Result{}, syscall.E2BIG
	}
	request := spawnRequest{
		id:            b.nextID.Add(1),
		timeout:       spec.Timeout,
		grace:         spec.Grace,
		announceAfter: spec.OnStartAfter,
		path:          path,
		dir:           spec.Dir,
		marker:        spec.Marker,
		room:          spec.Room,
		closed:        closed,
		readOnly:      spec.ReadOnly,
		traced:        traced,
		limits:        limits,
		argv:          spec.Argv,
		env:           spec.Env,
		mask:          mask,
		redirects:     spec.Redirects,
		identity:      spec.Identity,
		state:         string(spec.State),
	}
	var fds [2]int
	files := request.attach(spec, fds[:0])
	c := &call{lane: b.leastBusy(), marker: spec.Marker, replies: make(chan reply, 2)}
	released, err := b.register(request.id, c)
	if err != nil {
		return Result{}, err
	}
	defer b.unregister(request.id, c)

	if err := c.lane.sendSpawn(released, &request, files); err != nil {
		return Result{}, b.sendFailed(err)
	}
	cancelled := ctx.Done()
	for {
		select {
		case r, ok := <-c.replies:
			switch {
			case !ok:
				<-b.done
				return Result{}, b.err
			case r.kind == kindStarted:
				h := host()
				spec.OnStart(h.Identify(int(r.pid), r.startTicks))
			case r.kind == kindFailed && r.flags&flagExpired != 0:
				return Result{}, ErrExpired
			case r.kind == kindFailed && syscall.Errno(r.status) == errIdentity:
				return Result{}, &StartError{Op: OpSpec, Path: spec.Argv[0], Err: errIdentity,
					detail: fmt.Sprintf("another command with the identity %q still runs", spec.Identity)}
			case r.kind == kindFailed && r.flags&flagClosed != 0:
				return Result{}, explainClosed(&room.Error{Step: room.Step(r.pid), Err: syscall.Errno(r.status)}, spec)
			case r.kind == kindFailed && r.flags&flagLimits != 0:
				return Result{}, unlimited(spec, syscall.Errno(r.status))
			case r.kind == kindFailed:
				return Result{}, syscall.Errno(r.status)
			default:
				return r.outcome()
			}
		case <-b.leaving:
			return Result{}, ErrLeft
		case <-cancelled:
			cancelled = nil
			// A failure to send means that the supervisor is gone, and all commands with it; the closed channel
			// reports that.
			_ = c.lane.sendCancel(request.id)
		}
	}
}

// attach sets the flags for the spec's files and returns their descriptors.
func (r *spawnRequest) attach(spec *Spec, fds []int) []int {
	if spec.OnStart != nil {
		r.flags |= flagAnnounce
	}
	if spec.Lasting {
		r.flags |= flagLasting
	}
	// Fd also makes a descriptor blocking, which commands expect.
	if spec.Stdout != nil {
		r.flags |= flagStdout
		fds = append(fds, int(spec.Stdout.Fd()))
	}
	switch {
	case spec.Stderr == nil:
	case spec.Stderr == spec.Stdout:
		r.flags |= flagMerged
	default:
		r.flags |= flagStderr
		fds = append(fds, int(spec.Stderr.Fd()))
	}
	return fds
}

func (r *reply) result() Result {
	status := syscall.WaitStatus(r.status)
	result := Result{
		PID:       int(r.pid),
		ExitCode:  status.ExitStatus(), // -1 when signalled
		TimedOut:  r.flags&flagTimedOut != 0,
		Cancelled: r.flags&flagCancelled != 0,
		Core:      status.CoreDump(),
		OOM:       r.flags&flagOOM != 0,
		Limit:     r.flags&flagLimit != 0,
		Straggler: r.flags&flagStraggler != 0,
		UserCPU:   r.userCPU,
		SystemCPU: r.systemCPU,
		PeakRSS:   r.peakRSS,
		Started:   time.Unix(0, r.started),
		Ended:     time.Unix(0, r.ended),
	}
	if status.Signaled() {
		result.Signal = status.Signal()
	}
	return result
}

// outcome is the result of Run for the end of a command.
func (r *reply) outcome() (Result, error) {
	var err error
	switch {
	case r.flags&flagExpired != 0:
		err = ErrExpired
	case r.maskErrno != 0:
		err = fmt.Errorf("runner: write masked output: %w", syscall.Errno(r.maskErrno))
	}
	return r.result(), err
}

// leastBusy spreads the runs over the lanes, so that starts seldom wait for each other.
func (b *backend) leastBusy() *lane {
	best := b.lanes[0]
	for _, l := range b.lanes[1:] {
		if l.busy.Load() < best.busy.Load() {
			best = l
		}
	}
	best.busy.Add(1)
	return best
}

// register adds a call and returns the release frames to send before its request.
func (b *backend) register(id uint64, c *call) (released []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && !b.closing {
		b.calls[id] = c
		released, b.release = b.release, nil
		return released, nil
	}
	c.lane.busy.Add(-1)
	if b.closing {
		return nil, ErrClosed
	}
	return nil, b.err
}

func (b *backend) unregister(id uint64, c *call) {
	c.lane.busy.Add(-1)
	b.mu.Lock()
	delete(b.calls, id)
	b.mu.Unlock()
}

// sendFailed returns the reason why a request could not be sent.
func (b *backend) sendFailed(err error) error {
	if b.hasLeft() {
		return ErrLeft
	}
	if err == unix.EPIPE || err == unix.ECONNRESET || b.gone() {
		select {
		case <-b.done:
			return b.err
		case <-b.leaving:
			return ErrLeft
		}
	}
	return fmt.Errorf("runner: send to the supervisor process: %w", err)
}

// sendSpawn sends a request, after the frames before it.
func (l *lane) sendSpawn(before []byte, r *spawnRequest, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = appendSpawn(append(l.buf[:0], before...), r)
	err := l.send(rights)
	if cap(l.buf) > 256<<10 {
		l.buf = nil // drop the memory of a huge argument list
	}
	return err
}

func (l *lane) sendCancel(id uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = appendCancel(l.buf[:0], id)
	return l.send(nil)
}

// sendFrame sends a frame without descriptors.
func (l *lane) sendFrame(frame []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf[:0], frame...)
	return l.send(nil)
}

// send writes buf whole, with the rights attached to its first byte.
func (l *lane) send(rights []byte) error {
	rest := l.buf
	var failed error
	err := l.conn.Write(func(fd uintptr) bool {
		for len(rest) > 0 {
			n, err := unix.SendmsgN(int(fd), rest, rights, nil, unix.MSG_NOSIGNAL)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
				continue
			case err != nil:
				failed = err
				return true
			}
			rest, rights = rest[n:], nil
		}
		return true
	})
	if failed == nil {
		failed = err
	}
	return failed
}

// receive delivers replies until the supervisor process is gone.
func (b *backend) receive() {
	ends := make(chan error, len(b.lanes))
	for _, l := range b.lanes {
		go func() { ends <- b.receiveLane(l) }()
	}
	var state *os.ProcessState
	var waitErr error
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		state, waitErr = b.process.Wait()
		// Its last messages can still be read. Then comes the end of file, unless a command has inherited the other end
		// of a socket.
		for _, l := range b.lanes {
			_ = l.file.SetDeadline(time.Now().Add(time.Second))
		}
	}()
	cause := io.EOF
	for range b.lanes {
		if err := <-ends; err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded) && !b.hasLeft() {
			cause = err
			_ = b.process.Kill()
		}
	}
	select {
	case <-gone:
	case <-b.leaving:
		for _, l := range b.lanes {
			l.file.Close()
		}
		<-gone // every child of this process is waited for
	}
	if b.hasLeft() { // its commands do not belong to this client any more
		b.free()
		return
	}
	b.finish(cause, state, waitErr)
}

func (b *backend) receiveLane(l *lane) error {
	buf := make([]byte, 64*replySize)
	filled := 0
	for {
		n, err := l.file.Read(buf[filled:])
		filled += n
		rest := buf[:filled]
		for err == nil {
			kind, body, tail, _, ok, frameErr := splitFrame(rest)
			if err = frameErr; err != nil || !ok {
				break
			}
			rest = tail
			if kind == kindAdopted {
				b.dismissed()
				return io.EOF
			}
			var r reply
			if r, err = decodeReply(kind, body); err == nil {
				b.deliver(r)
			}
		}
		if err != nil {
			return err
		}
		filled = copy(buf, rest)
	}
}

// deliver never blocks, because a call has room for the one start and the one end of a run.
func (b *backend) deliver(r reply) {
	b.mu.Lock()
	c := b.calls[r.id]
	b.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case c.replies <- r:
	default:
	}
}

// finish fails the remaining runs after the end of the process.
func (b *backend) finish(cause error, state *os.ProcessState, waitErr error) {
	b.mu.Lock()
	markers := make([]string, 0, len(b.calls))
	for _, c := range b.calls {
		if c.marker != "" {
			markers = append(markers, c.marker)
		}
	}
	closing := b.closing
	b.mu.Unlock()

	err := ErrClosed
	if !closing || waitErr != nil || !state.Success() {
		// The supervisor could not finish its work, so the rest is done here.
		killLeftovers(b.process.Pid, markers)
		if b.limited.Load() {
			cgroup.Sweep()
		}
	}
	if !closing {
		err = fmt.Errorf("%w (%s)", ErrSupervisorLost, b.deathNote(cause, state, waitErr))
	}

	b.mu.Lock()
	b.err = err
	for _, c := range b.calls {
		close(c.replies)
	}
	b.mu.Unlock()
	b.free()
	close(b.done)
}

// deathNote describes the end of the process, with the first line of its stderr.
func (b *backend) deathNote(cause error, state *os.ProcessState, waitErr error) string {
	text := "unknown"
	switch {
	case waitErr != nil:
		text = waitErr.Error()
	case state != nil:
		text = fmt.Sprintf("pid %d, %s", b.process.Pid, state)
	}
	if !errors.Is(cause, io.EOF) {
		text += ", " + cause.Error()
	}
	words := make([]byte, 2048)
	n, _ := b.crash.ReadAt(words, 0)
	if line, _, _ := bytes.Cut(bytes.TrimSpace(words[:n]), []byte("\n")); len(line) > 0 {
		text += ": " + strings.ToValidUTF8(string(line), "?")
	}
	return text
}

func (b *backend) hasLeft() bool {
	select {
	case <-b.leaving:
		return true
	default:
		return false
	}
}

// dismissed is called when another process has adopted the commands. A later run begins another supervisor.
func (b *backend) dismissed() {
	b.mu.Lock()
	if b.err == nil {
		b.err = ErrLeft
	}
	b.mu.Unlock()
	b.left.Do(func() { close(b.leaving) })
}

// leave closes the sockets without a message, as the death of this process would.
func (b *backend) leave() error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	b.left.Do(func() { close(b.leaving) })
	for _, l := range b.lanes {
		l.file.Close()
	}
	return nil
}

func (b *backend) close() error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	if b.keeping != nil {
		// This message tells the supervisor that the client is not dead. If it cannot be sent, the supervisor is gone.
		_ = b.lanes[0].sendFrame(appendClose(nil))
	}
	for _, l := range b.lanes {
		// To the supervisor a half-closed socket looks like the death of this process, but the supervisor's last
		// replies still arrive.
		_ = l.conn.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
	select {
	case <-b.done:
	case <-b.leaving: // another process has the commands
	}
	return nil
}
