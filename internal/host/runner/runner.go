// Package runner runs ordinary commands so that no child outlives its run, at the lowest cost per process.
//
// On Linux the commands are not children of e3 itself. A [Supervisor] re-executes the running binary as a second
// process, in a session of its own. This process adopts orphans (a child subreaper) and starts commands on request.
// So every command, and all that it starts, descends from that process. When e3 ends in any way, the supervisor's
// sockets report end of file, and it kills all descendants, also those with a session of their own. When the
// supervisor is killed instead, the kernel kills its direct children (the parent death signal). Then e3 kills the
// rest of its session and all processes with a marker of a running command, and the current runs fail with
// [ErrSupervisorLost]. The next Run starts another supervisor.
//
// With [Outlive] the supervisor process and the commands with an identity continue after e3 dies, until another process
// adopts them, but only for the time granted by Extend. See outlive.go.
//
// The binary must call [Main] before anything else, and so must TestMain of every package whose tests run commands.
//
// When a command ends, its remaining processes are killed, even those that left its group: the supervisor has adopted
// all of them. While other commands run, an orphan is matched by its process group, the marker in its environment, or
// its open files in [Spec.Room]. An orphan without any of these lives until all commands that began before it have
// ended. Until then the commands to which it may belong end with [Result.Straggler].
//
// Out of reach are a command that kills every process of its user (kill -9 -1), processes that run as another user
// (sudo), processes that a daemon starts for a command (at, containers), and a process that left its group and
// dropped the marker, if the supervisor process itself was killed.
//
// Other systems have no such adoption. The note in group_other.go lists the gaps there.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"e3/internal/host/cgroup"
	"e3/internal/host/process"
	"e3/internal/host/room"
	"e3/internal/host/trace"
)

// DefaultGrace is the default time between TERM and KILL.
const DefaultGrace = 5 * time.Second

var (
	// ErrClosed is returned by Run after Close.
	ErrClosed = errors.New("runner: closed")

	// ErrNotStarted is wrapped by errors of Run, other than StartError, if no command ran.
	ErrNotStarted = errors.New("runner: not started")

	// ErrSupervisorLost is returned when the supervising process ended while the command ran. The command has been
	// killed; its effects are unknown.
	ErrSupervisorLost = errors.New("runner: the supervisor process ended unexpectedly; its tasks were killed")
)

// Options configure a Supervisor. The zero value is ready to use.
type Options struct {
	// Grace is the time between TERM and KILL for a Spec that names none.
	// Zero means DefaultGrace.
	Grace time.Duration

	// Spawners bounds the number of commands that are being started, not of those that run, at the same time. Zero
	// means one per usable CPU, at most 8.
	Spawners int

	// Outlive, if set, lets commands with an Identity outlive this process.
	Outlive *Outlive
}

// Spec is a command to run.
type Spec struct {
	// Argv is the command and its arguments. A command without a slash is looked
	// up in the PATH of Env; a relative one with a slash is relative to Dir.
	Argv []string

	// Path is the file to execute, as LookPath returns it. Empty: the file is looked up by Argv[0].
	Path string

	// Redirects are carried out in order before the command starts, beginning with Stdout, Stderr and the empty
	// standard input. They need a system on which Supervisor.Redirects is true. If a redirection fails, the command
	// does not start.
	Redirects []Redirect

	// Dir is the working directory; it must be absolute.
	Dir string

	// Env is the whole environment, passed exactly as given.
	Env []string

	// Stdout and Stderr receive the command's output; nil discards it. They may be the same file. The command writes
	// to them directly, so they must stay open until Run returns. Standard input is always empty.
	Stdout, Stderr *os.File

	// Marker is the entry of Env ("NAME=value") that identifies the processes of this command. Processes that left its
	// process group and still carry the marker are killed when the command ends. If it is empty, nothing is searched
	// for.
	Marker string

	// Room, if set, is a folder that only this command and its descendants use: a descendant of the supervisor with its
	// working directory or an open file in there belongs to this command.
	Room string

	// Closed, if set, is the closed room in which the command runs. Dir is then the path outside of the room's working
	// directory, and Argv[0] is looked up in the room. No process of the command outlives the command, whatever it
	// does.
	Closed *room.Room

	// ReadOnly, if set, is a folder that the command cannot change if it runs in the open as root: it is mounted
	// read-only then. Other users are kept out by the modes of its files. A Closed room has its own.
	ReadOnly string

	// Trace, if set, asks for a report of the files that the command opens. It needs a system on which trace.Possible
	// is true.
	Trace *trace.Look

	// Limits, if set, bound the command and all that it starts, and Result tells their total use. They need a system on
	// which cgroup.Check finds limits.
	Limits *cgroup.Limits

	// Timeout stops the command when it runs longer. Zero means no limit.
	Timeout time.Duration

	// Grace is the time from TERM to KILL after a timeout or a cancellation.
	// Zero means Options.Grace; a negative value kills at once.
	Grace time.Duration

	// Mask lists secret values; all their Forms are masked. If it is not empty, the output passes through a MaskWriter
	// to Stdout and Stderr: in the supervisor if it may outlive this process, else in this process.
	Mask []string

	// OnStart, if set, is called with the identity of the running process, by
	// the goroutine that called Run. It should return quickly.
	OnStart func(process.ID)

	// OnStartAfter delays OnStart; a command that ends earlier is not announced. This makes short commands cheaper.
	OnStartAfter time.Duration

	// Identity, with Options.Outlive, lets the command outlive this process, under a name that no other live command of
	// the Supervisor has (up to 1 KiB). Its end is kept until Release. Without an identity, or without Outlive, the
	// command dies with this process.
	Identity string

	// Lasting, with an Identity, lets the command run for Outlive.Retain longer if this process does not extend it in
	// time.
	Lasting bool

	// State tells an adopter what it needs to know about a command with an Identity. The supervisor keeps it in memory
	// and does not interpret it. Up to MaxState bytes.
	State []byte
}

// Result is how a command ended.
type Result struct {
	PID      int
	ExitCode int            // -1 when a signal ended the command
	Signal   syscall.Signal // the signal that ended it, or 0
	Core     bool           // it left a core dump. Never set outside of Linux

	// TimedOut and Cancelled say that the command was told to stop, and why; the
	// first reason counts. The command may still have ended with any code.
	TimedOut, Cancelled bool

	// OOM says that memory ran out and the kernel killed the command; or it killed a child of the command, a shell,
	// which then exited with 137. Never set outside of Linux.
	OOM bool

	// Limit says that the memory ran out because the command reached Spec.Limits.Memory.
	Limit bool

	// Straggler says that a descendant of the command may be alive. It is stuck in the kernel, or has left the group
	// and the Room and dropped the marker, so that it may belong to another running command. Always set outside of
	// Linux.
	Straggler bool

	// UserCPU and SystemCPU cover the command and the children that it waited for; with Limits they cover all processes
	// that it started.
	UserCPU, SystemCPU time.Duration

	// PeakRSS is the largest resident set of any one process among them, in
	// bytes. On Linux it is never less than the supervisor's own (a few MiB),
	// which the kernel counts as the process's before it executes the command. With Limits it is the peak of all
	// processes together, with the files that the kernel cached for them.
	PeakRSS int64

	Started, Ended time.Time
}

// Success reports whether the command ended by itself with exit code 0.
func (r Result) Success() bool {
	return r.ExitCode == 0 && r.Signal == 0 && !r.TimedOut && !r.Cancelled
}

// Supervisor runs commands. It is safe for concurrent use.
type Supervisor struct {
	options Options
	host    func() process.Host

	mu      sync.Mutex
	closed  bool
	backend *backend      // nil until the first Run; replaced if its process is gone
	left    bool          // an earlier backend belongs to another process
	until   time.Duration // the end, by Elapsed, of the time of commands with an Identity
	adopted map[*adoption]struct{}
}

// New returns a Supervisor. It starts no process: Prepare or the first Run does.
func New(options Options) (*Supervisor, error) {
	if options.Grace < 0 || options.Spawners < 0 {
		return nil, fmt.Errorf("runner: negative option in %+v", options)
	}
	if isHelper() {
		return nil, errors.New("runner: this process was started as a supervisor, but main or TestMain does not call runner.Main first")
	}
	if err := options.Outlive.validate(); err != nil {
		return nil, err
	}
	options.Grace = cmp.Or(options.Grace, DefaultGrace)
	options.Spawners = cmp.Or(options.Spawners, min(runtime.GOMAXPROCS(0), 8))
	s := &Supervisor{options: options, host: sync.OnceValue(process.LocalHost)}
	if options.Outlive != nil {
		s.until = Elapsed() + options.Outlive.For
		s.adopted = make(map[*adoption]struct{})
	}
	return s, nil
}

// Run starts the command, waits for its end and returns how it ended. When ctx is done the command is stopped (TERM,
// then KILL after the grace) and Run still waits for its end, which the Result shows as Cancelled.
//
// When Run returns, the command's process group and the processes that left it are gone, so that their files no longer
// change, unless Result.Straggler is set. Run waits at most two seconds for a process that is stuck in the kernel.
//
// The error is nil whenever the command ran to a known end, successful or not. It is a *StartError when the command
// could not start (nothing ran), ctx's error when ctx was done before the start, ErrSupervisorLost or ErrClosed. An
// error from writing masked output comes with the Result; so does ErrExpired, with a cancelled Result.
func (s *Supervisor) Run(ctx context.Context, spec Spec) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, context.Cause(ctx))
	}
	if err := spec.validate(); err != nil {
		return Result{}, err
	}
	path := spec.Path
	if path == "" && spec.Closed == nil {
		var err error
		if path, err = LookPath(spec.Argv[0], spec.Dir, spec.Env); err != nil {
			return Result{}, err
		}
	}
	switch {
	case spec.Grace == 0:
		spec.Grace = s.options.Grace
	case spec.Grace < 0:
		spec.Grace = 0
	}
	if !s.outlives(&spec) {
		spec.Identity, spec.State = "", nil
	}
	if len(spec.Mask) == 0 || masksInSupervisor && s.options.Outlive != nil {
		return s.run(ctx, path, &spec)
	}
	return s.runMasked(ctx, path, &spec)
}

// run runs a validated command whose output needs no masking in this process.
func (s *Supervisor) run(ctx context.Context, path string, spec *Spec) (Result, error) {
	b, err := s.connect()
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	result, err := b.run(ctx, path, spec, s.host)
	runtime.KeepAlive(spec.Stdout)
	runtime.KeepAlive(spec.Stderr)
	return result, explainStart(err, path, spec)
}

// Prepare returns at once, and starts the supervising process while the caller prepares its first Run. If the start
// fails, the first Run tries again and reports the error.
func (s *Supervisor) Prepare() { go s.connect() }

// connect returns the live backend, or starts one.
func (s *Supervisor) connect() (*backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if s.backend != nil && !s.backend.gone() {
		return s.backend, nil
	}
	s.left = s.left || s.backend != nil && s.backend.hasLeft()
	b, err := startBackend(s.options, s.until)
	if err != nil {
		return nil, fmt.Errorf("runner: start the supervisor process: %w", err)
	}
	s.backend = b
	return b, nil
}

// Close kills all commands, without a grace, and waits until they are gone. Runs in flight end as Cancelled. Later
// Runs fail with ErrClosed. Closing again does nothing.
func (s *Supervisor) Close() error {
	s.mu.Lock()
	b := s.backend
	s.closed = true
	s.backend = nil
	adopted := s.adopted
	s.adopted = nil
	s.mu.Unlock()
	for a := range adopted {
		a.close()
	}
	if b == nil {
		return nil
	}
	err := b.close()
	if b.hasLeft() {
		s.mu.Lock()
		s.left = true
		s.mu.Unlock()
	}
	return err
}

// validate refuses a Spec that no system can execute.
func (spec *Spec) validate() error {
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return &StartError{Op: OpSpec, Err: syscall.EINVAL, detail: "the command is empty"}
	}
	name := spec.Argv[0]
	if !absolute(spec.Dir) {
		return &StartError{Op: OpSpec, Path: name, Err: syscall.EINVAL,
			detail: fmt.Sprintf("the working directory %q is not absolute", spec.Dir)}
	}
	if strings.IndexByte(spec.Dir, 0) >= 0 {
		return &StartError{Op: OpSpec, Path: name, Err: syscall.EINVAL, detail: "the working directory contains a NUL byte"}
	}
	for i, arg := range spec.Argv {
		if strings.IndexByte(arg, 0) >= 0 {
			return &StartError{Op: OpSpec, Path: name, Err: syscall.EINVAL,
				detail: fmt.Sprintf("argument %d contains a NUL byte", i)}
		}
	}
	for _, entry := range spec.Env {
		if strings.IndexByte(entry, 0) >= 0 {
			variable, _, _ := strings.Cut(entry, "=")
			return &StartError{Op: OpSpec, Path: name, Err: syscall.EINVAL,
				detail: fmt.Sprintf("environment variable %q contains a NUL byte", variable)}
		}
	}
	if spec.Closed != nil && !room.Possible() {
		return closedError(spec, room.ErrUnavailable)
	}
	if spec.Trace != nil && !trace.Possible() {
		return untraced(spec, trace.ErrUnavailable)
	}
	if spec.Timeout < 0 || spec.OnStartAfter < 0 {
		return &StartError{Op: OpSpec, Path: name, Err: syscall.EINVAL, detail: "a duration is negative"}
	}
	if err := spec.validateRedirects(); err != nil {
		return err
	}
	return spec.validateIdentity()
}
