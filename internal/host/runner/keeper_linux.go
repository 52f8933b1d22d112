package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

const (
	// maxUncollected is the number of ends that are kept for a client that does not release them.
	maxUncollected = 1000

	// strayLimit bounds the search for processes of expired commands.
	strayLimit = 2 * time.Second

	// socketInterval is the interval at which a supervisor without a client checks that its socket still has its name.
	socketInterval = 5 * time.Second
)

// errIdentity is the errno of a command whose identity is in use.
const errIdentity = unix.EEXIST

// keeper manages the commands that may outlive the client of this supervisor process. Once the client is gone, it ends
// the process when all of them are released or their time is over.
//
// Lanes call it; it posts its requests to their inboxes.
type keeper struct {
	*server
	lanes    []*laneServer
	listener *net.UnixListener
	socketPlace
	timer  *os.File // becomes readable when the time is over
	client process.ID
	gone   chan struct{}

	mu          sync.Mutex
	clients     int           // lanes whose client is alive; gone is closed at 0
	until       time.Duration // the end of the time, by Elapsed
	retain      time.Duration // the further time for which lasting commands run, and ends are kept
	promised    time.Duration // the end of the adopter's lease, by the adopter's word and by Elapsed
	term        uint64        // the number of times that the time has expired
	expired     bool          // the time has expired, and has not been extended since
	retainOver  bool          // the time of lasting commands has expired, too
	commands    map[string]*keptCommand
	plain       int            // commands without an identity
	uncollected []*keptCommand // commands that ended unreleased, oldest first; some may have been released since
	adopter     *adopter
	ending      bool
}

// socketPlace is the place at which adopters find the socket.
type socketPlace struct {
	dir  int    // the folder
	name string // name of the socket in the folder
}

// keptCommand is a command with an identity, from its start until its release.
type keptCommand struct {
	identity, state, marker string
	id                      uint64
	term                    uint64 // the keeper's term when it started
	lasting                 bool   // it may run after the keeper's time
	lane                    *laneServer
	pid                     atomic.Int64 // 0 before the start and once it is reaped; set to 0 under reaping
	end                     *reply       // nil: the command runs. Under keeper.mu
}

// keep makes s outlive its client. first is the first descriptor of k.
func (s *server) keep(k *keeping, lanes []*laneServer, first int) error {
	file := os.NewFile(uintptr(first), "listener")
	listener, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("listen for adopters: %w", err)
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	for _, l := range lanes {
		if err := l.inbox.open(); err != nil {
			return err
		}
		l.fds[1].Fd = int32(l.inbox.fd)
	}
	s.keeper = &keeper{
		server:      s,
		lanes:       lanes,
		listener:    listener.(*net.UnixListener),
		socketPlace: socketPlace{dir: first + 1, name: k.name},
		timer:       os.NewFile(uintptr(timer), "timer"),
		client:      identify(k.client),
		gone:        make(chan struct{}),
		clients:     len(lanes),
		until:       k.until,
		retain:      k.retain,
		commands:    make(map[string]*keptCommand),
	}
	s.keeper.arm()
	go s.keeper.watch()
	go s.keeper.acceptAdopters()
	return nil
}

// admit admits a command that is about to start, or returns the refusal.
func (k *keeper) admit(l *laneServer, t *task, r *spawnRequest) (refused *reply) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.identity == "" {
		k.plain++
		return nil
	}
	if k.ending || k.expired || Elapsed() >= k.until {
		return &reply{kind: kindFailed, id: r.id, status: uint32(unix.ETIMEDOUT), flags: flagExpired}
	}
	if other := k.commands[r.identity]; other != nil && other.end == nil {
		return &reply{kind: kindFailed, id: r.id, status: uint32(errIdentity)}
	}
	// The request's strings share one copy of the whole request.
	t.kept = &keptCommand{identity: strings.Clone(r.identity), state: strings.Clone(r.state), marker: strings.Clone(r.marker), id: r.id, term: k.term, lane: l, lasting: r.flags&flagLasting != 0}
	k.commands[t.kept.identity] = t.kept
	return nil
}

// abandon removes an admitted command that did not start.
func (k *keeper) abandon(t *task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range t.pumps {
		p.close()
	}
	if t.kept == nil {
		k.plain--
	} else {
		k.forget(t.kept)
	}
}

// forget removes a command. Under mu.
func (k *keeper) forget(c *keptCommand) {
	if k.commands[c.identity] == c {
		delete(k.commands, c.identity)
	}
	c.state = ""
}

// ended keeps the end of a command until it is released.
func (k *keeper) ended(t *task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.kept == nil {
		k.plain--
		return
	}
	end := t.end
	t.kept.end = &end
	if k.adopter != nil {
		k.adopter.send(appendReply(nil, &end))
	}
	if k.clients == 0 {
		return
	}
	k.uncollected = append(k.uncollected, t.kept)
	if len(k.uncollected) > maxUncollected {
		k.forget(k.uncollected[0])
		k.uncollected = slices.Delete(k.uncollected, 0, 1)
	}
}

// request executes a request of the client or of an adopter.
func (k *keeper) request(kind messageKind, body []byte, adopter bool) error {
	switch kind {
	case kindExtend:
		e, err := decodeExtend(body)
		if err == nil {
			k.extend(e)
		}
		return err
	case kindRelease:
		identity, err := decodeRelease(body)
		if err == nil {
			k.release(identity, adopter)
		}
		return err
	case kindClose:
		k.mu.Lock()
		defer k.mu.Unlock()
		k.finishAll(flagCancelled)
		return nil
	default:
		return fmt.Errorf("%w: request of kind %d", errMessage, kind)
	}
}

func (k *keeper) extend(e extension) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := Elapsed()
	if now >= k.until {
		k.expire() // the extension comes too late for the commands that run now
	}
	if until := min(e.until, now+min(max(e.most, 0), maxFor)); until > k.until {
		k.until = until
		k.expired = k.expired && now >= until
		k.retainOver = k.retainOver && k.expired
		k.arm()
	}
}

// arm sets the timer to the end of the time or, once the time has expired, to the end of the retention. Under mu, or
// before k is shared.
func (k *keeper) arm() {
	next := k.until
	if k.expired {
		next += k.retain
	}
	switch {
	case k.clients == 0: // see isReachable
		next = min(next, Elapsed()+socketInterval)
	case k.retainOver: // until it is extended
		return
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(next), 1))}
	conn, err := k.timer.SyscallConn()
	if err != nil {
		return // closed: the process ends
	}
	_ = conn.Control(func(fd uintptr) {
		if err := unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
			fatal(fmt.Errorf("set the time for which commands may run: %w", err))
		}
	})
}

// watch handles each expiry of the timer.
func (k *keeper) watch() {
	var expirations [8]byte
	for {
		if _, err := k.timer.Read(expirations[:]); err != nil && !errors.Is(err, unix.ECANCELED) {
			fatal(fmt.Errorf("wait for the time for which commands may run: %w", err))
		}
		k.mu.Lock()
		switch {
		case k.clients == 0 && k.adopter == nil && !k.isReachable():
			k.finishAll(flagExpired | flagCancelled)
		case Elapsed() >= k.until:
			k.expire()
		default:
			k.arm()
		}
		k.mu.Unlock()
	}
}

// isReachable reports whether an adopter can find this process: its socket still has its name in the folder. Under mu.
func (k *keeper) isReachable() bool {
	var stat unix.Stat_t
	return unix.Fstatat(k.dir, k.name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// expire kills the commands with an identity; it kills lasting commands only after the retention. Without a client this
// process ends then, or earlier if no command is left. Under mu.
func (k *keeper) expire() {
	all := Elapsed() >= k.until+k.retain
	switch {
	case k.ending:
		return
	case k.clients == 0 && (all || len(k.commands) == 0):
		k.finishAll(flagExpired | flagCancelled)
		return
	}
	if !k.expired {
		k.expired = true
		k.term++
		go k.killStrays(k.until)
	} else if !all || k.retainOver {
		k.arm()
		return
	}
	k.retainOver = all
	term := k.term
	for _, l := range k.lanes {
		l.inbox.post(func() { l.expire(term, all) })
	}
	k.arm()
}

// expire kills the lane's commands with an identity that started before the term; it kills lasting commands only if all
// is set.
func (l *laneServer) expire(term uint64, all bool) {
	for _, t := range l.tasks {
		if t.kept != nil && t.kept.term < term && (all || !t.kept.lasting) {
			t.abort(flagExpired | flagCancelled)
		}
	}
}

// killStrays kills the remaining processes of expired commands, even processes with their own session and no marker,
// while no other command runs to which they could belong.
func (k *keeper) killStrays(until time.Duration) {
	pause := time.Millisecond
	for end := Elapsed() + strayLimit; Elapsed() < end; time.Sleep(pause) {
		k.mu.Lock()
		done := k.plain > 0 || k.until != until
		running := false
		for _, c := range k.commands {
			running = running || c.end == nil
			done = done || c.end == nil && c.lasting && !k.retainOver
		}
		if !done {
			done = !k.killOrphans() && !running
		}
		k.mu.Unlock()
		if done {
			return
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// release removes an ended command; with kill, also a running one. The client's release may come late, when another
// command has the identity.
func (k *keeper) release(identity string, kill bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.commands[identity]
	if c == nil || c.end == nil && !kill {
		return
	}
	k.forget(c)
	if c.end == nil {
		c.lane.inbox.post(func() { c.lane.kill(c.id) })
	}
	k.settle()
}

// kill ends a command without a grace.
func (l *laneServer) kill(id uint64) {
	for _, t := range l.tasks {
		if t.id == id {
			t.abort(flagCancelled)
		}
	}
}

// clientGone is called by each lane when its client is gone.
func (k *keeper) clientGone() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.clients--; k.clients == 0 {
		close(k.gone)
		k.uncollected = nil
		k.settle()
	}
}

// settle ends the process if nothing is left to adopt. Under mu.
func (k *keeper) settle() {
	switch {
	case k.clients > 0:
	case len(k.commands) == 0:
		k.finishAll(flagCancelled)
	case Elapsed() >= k.until:
		k.expire()
	default:
		k.arm()
	}
}

// finishAll kills everything and ends the process. Under mu.
func (k *keeper) finishAll(reason byte) {
	if k.ending {
		return
	}
	k.ending = true
	_ = unix.Unlinkat(k.dir, k.name, 0)
	k.listener.Close()
	for _, l := range k.lanes {
		l.inbox.post(func() { l.shutdown(reason) })
	}
}

// finishAdopter sends the last messages to an adopter, at the end of the process.
func (k *keeper) finishAdopter() {
	k.mu.Lock()
	a := k.adopter
	k.mu.Unlock()
	if a != nil {
		a.finish()
	}
}

// inbox holds requests of other threads to a lane's thread.
type inbox struct {
	fd int // an eventfd

	mu    sync.Mutex
	calls []func()
}

func (b *inbox) open() (err error) {
	b.fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return os.NewSyscallError("eventfd", err)
}

func (b *inbox) post(call func()) {
	b.mu.Lock()
	b.calls = append(b.calls, call)
	b.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	if _, err := unix.Write(b.fd, one[:]); err != nil && err != unix.EAGAIN {
		fatal(fmt.Errorf("wake a lane: %w", err))
	}
}

// runCalls executes the posted calls. Only the lane's thread uses it.
func (b *inbox) runCalls() {
	var count [8]byte
	_, _ = unix.Read(b.fd, count[:])
	b.mu.Lock()
	calls := b.calls
	b.calls = nil
	b.mu.Unlock()
	for _, call := range calls {
		call()
	}
}
