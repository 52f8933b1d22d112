package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"e3/internal/host/process"
)

// MaxState bounds Spec.State, in bytes.
const MaxState = 64 << 10

const (
	maxIdentity = 1 << 10 // bytes of Spec.Identity
	maxFor      = 30 * 24 * time.Hour
)

// ErrExpired is returned when a command with an Identity was killed, or not started, because its supervisor was not
// extended in time. The command is gone; its effects may not be relied on.
var ErrExpired = errors.New("runner: the time for which commands may run without word from their owner was over; they were killed")

// ErrLeft is returned by Run and Orphan.Wait when Leave was called first, or another process has adopted the command
// (Adopt). The command may still run.
var ErrLeft = errors.New("runner: the command was left to its supervisor")

// ErrAdopted is returned by Adopt when another process has adopted the commands of a dead one.
var ErrAdopted = errors.New("runner: another process has adopted commands of a dead process")

// Outlive makes the supervisor process outlive this process, so that another one can adopt its commands. It concerns
// only commands with an Identity. On systems other than Linux nothing outlives this process.
type Outlive struct {
	// Dir is the folder of the sockets by which supervisors are found. It belongs to this host, this
	// user and one repository, and is made with mode 0700.
	Dir string

	// For is the time for which commands may run after New or the last Extend or ExtendFrom, by a clock that runs while
	// the machine sleeps. Then they are killed without a grace, even if this process is only stopped or has lost its
	// lease. Lasting commands (Spec.Lasting) continue.
	For time.Duration

	// Retain is the further time for which lasting commands may run. Once this process is gone, all results are
	// kept for an adopter for this time, too. Then the supervisor kills the remaining commands and ends. It also
	// ends when the socket is removed from Dir. Zero retains nothing.
	Retain time.Duration

	// Keep are files, such as locks, that the supervisor process holds open while it lives. This process may close its
	// own descriptors, but not before a Run has started the supervisor.
	Keep []*os.File
}

func (o *Outlive) validate() error {
	switch {
	case o == nil:
		return nil
	case !absolute(o.Dir):
		return fmt.Errorf("runner: the folder of the supervisors' sockets, %q, is not absolute", o.Dir)
	case o.For <= 0 || o.Retain < 0 || o.For+o.Retain > maxFor:
		return fmt.Errorf("runner: commands cannot outlive their process for %v and %v; give up to %v", o.For, o.Retain, maxFor)
	}
	return nil
}

// outlives reports whether the spec's command continues without this process.
func (s *Supervisor) outlives(spec *Spec) bool {
	return s.options.Outlive != nil && spec.Identity != ""
}

// extension tells how long commands may run.
type extension struct {
	until time.Duration // end of the time, by Elapsed
	most  time.Duration // upper bound of the time left from now
}

// demand is the first message of an adopter: the time until which it may have commands run, and the commands that their
// owner has lost.
type demand struct {
	extension
	lost []string // identities
}

// Extend lets commands with an Identity, adopted ones included, run for Outlive.For from now on. Without Outlive it
// does nothing.
func (s *Supervisor) Extend() error { return s.ExtendFrom(Elapsed()) }

// ExtendFrom is Extend with a time that counts from an earlier reading of Elapsed. After the renewal of a lease, this
// is a reading before the request. It never shortens the time.
func (s *Supervisor) ExtendFrom(at time.Duration) error {
	if s.options.Outlive == nil {
		return nil
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.until = max(s.until, min(at, Elapsed())+s.options.Outlive.For)
	until, b := s.until, s.backend
	adopted := make([]*adoption, 0, len(s.adopted))
	for a := range s.adopted {
		adopted = append(adopted, a)
	}
	s.mu.Unlock()
	// If a message cannot be sent, the supervisor is gone; runs and waits report that.
	if b != nil {
		b.extend(until, s.options.Outlive.For)
	}
	for _, a := range adopted {
		a.extend(until, s.options.Outlive.For)
	}
	return nil
}

// Release drops the end of a command with an Identity, once the caller has recorded it. Until then, also after Run has
// returned, the supervisor keeps the end for an adopter, up to the last thousand. The release reaches the supervisor
// with the next Run or Extend. A running command is not affected.
func (s *Supervisor) Release(identity string) {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	if b != nil && s.options.Outlive != nil {
		b.releaseKept(identity)
	}
}

// Adopt adopts the commands of dead processes, whether the commands have ended or not. It adopts every supervisor in
// Outlive.Dir whose client is gone, unless another process has adopted it. From now on Extend extends them, and Close
// kills them. A command that this process may not continue must be released at once.
//
// The error, which may come with orphans, names supervisors that did not answer; the sockets of dead supervisors are
// removed. If all supervisors answered, but other processes have adopted some, whose commands may run, the error is
// ErrAdopted.
//
// lost are identities of commands that this process knows to be lost by their owner. If a supervisor has such a
// command, and its owner has not extended it in time, all its commands are adopted although the owner lives: the
// owner is stopped, or cannot renew its lease. The owner's runs and waits then fail with ErrLeft.
func (s *Supervisor) Adopt(ctx context.Context, lost ...string) ([]*Orphan, error) {
	if s.options.Outlive == nil {
		return nil, nil
	}
	s.mu.Lock()
	closed, until, own := s.closed, s.until, make(map[string]bool) // names of sockets
	if s.backend != nil {
		own[s.backend.socketName()] = true
	}
	for a := range s.adopted {
		own[a.socketName()] = true
	}
	s.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	adopted, err := adoptFrom(ctx, s.options.Outlive.Dir, own, &demand{extension{until, s.options.Outlive.For}, lost}, s.forget)
	var orphans []*Orphan
	s.mu.Lock()
	closed = s.closed
	for _, a := range adopted {
		if !closed && !a.ended() {
			s.adopted[a] = struct{}{}
		}
		orphans = append(orphans, a.all()...)
	}
	s.mu.Unlock()
	if closed { // meanwhile
		for _, a := range adopted {
			a.close()
		}
		return nil, ErrClosed
	}
	return orphans, err
}

// Leave leaves commands with an Identity to their supervisor process, as the death of this process would. A later
// process, or another Supervisor of this one, can adopt them. Current runs and waits fail with ErrLeft, and commands
// without an Identity are killed. Later Runs fail with ErrClosed. Without Outlive, or where nothing outlives this
// process, it is Close.
func (s *Supervisor) Leave() error {
	if s.options.Outlive == nil {
		return s.Close()
	}
	s.mu.Lock()
	b, adopted := s.backend, s.adopted
	s.closed, s.left, s.backend, s.adopted = true, true, nil, nil
	s.mu.Unlock()
	for a := range adopted {
		a.leave()
	}
	if b == nil {
		return nil
	}
	return b.leave()
}

// Left reports whether commands, or their kept ends, may outlive this process: Leave was called, or another process has
// adopted them. The commands' folders then stay.
func (s *Supervisor) Left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left || s.backend != nil && s.backend.hasLeft()
}

// forget removes an adopted supervisor that has ended.
func (s *Supervisor) forget(a *adoption) {
	s.mu.Lock()
	delete(s.adopted, a)
	s.mu.Unlock()
}

// Orphan is an adopted command. Its methods are safe for concurrent use.
type Orphan struct {
	Identity string
	State    []byte

	// Process is the running process; zero if it had ended when it was adopted.
	Process process.ID

	id     uint64
	marker string
	from   *adoption

	once   sync.Once
	ended  chan struct{} // closed when result and err are set
	result Result
	err    error
}

// Wait waits for the end of the command and returns the same as Run. The timeout still counts. When ctx is done the
// command is stopped, and Wait still waits for its end. The error is ErrSupervisorLost if the supervisor ended, and
// ErrClosed if the command was released before its end.
func (o *Orphan) Wait(ctx context.Context) (Result, error) {
	select {
	case <-o.ended:
	default:
		select {
		case <-o.ended:
		case <-ctx.Done():
			o.from.cancel(o)
			<-o.ended
		}
	}
	return o.result, o.err
}

// Expired tells whether the command had been killed before it was adopted, as its time was over: nothing is left to continue.
func (o *Orphan) Expired() bool {
	if o.Process != (process.ID{}) {
		return false
	}
	<-o.ended
	return errors.Is(o.err, ErrExpired)
}

// Release drops the command, once the caller has recorded its end; it cannot be adopted any more. A running command is
// killed. A supervisor ends when all its orphans are released.
func (o *Orphan) Release() { o.from.release(o) }

func (o *Orphan) settle(result Result, err error) {
	o.once.Do(func() {
		o.result, o.err = result, err
		close(o.ended)
	})
}

func (spec *Spec) validateIdentity() error {
	switch {
	case len(spec.Identity) > maxIdentity:
		return &StartError{Op: OpSpec, Path: spec.Argv[0], Err: syscall.EINVAL,
			detail: fmt.Sprintf("its identity has %d bytes, more than %d", len(spec.Identity), maxIdentity)}
	case len(spec.State) > MaxState:
		return &StartError{Op: OpSpec, Path: spec.Argv[0], Err: syscall.EINVAL,
			detail: fmt.Sprintf("its state has %d bytes, more than %d", len(spec.State), MaxState)}
	case spec.Identity != "" && len(spec.Marker) > maxIdentity:
		return &StartError{Op: OpSpec, Path: spec.Argv[0], Err: syscall.EINVAL,
			detail: fmt.Sprintf("its marker has %d bytes, more than %d", len(spec.Marker), maxIdentity)}
	}
	return nil
}
