package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
	"e3/internal/repo"
)

// errInterrupted is the cause of a context that a signal has cancelled.
var errInterrupted = errors.New("interrupted")

// oneSignal is for how long more signals count as the first one. "timeout" and other programs that start e3 signal it
// and its process group; so a terminal's Ctrl-C may come twice, too.
const oneSignal = 200 * time.Millisecond

// ending returns the signals that end a command. SIGHUP is none of them if the parent has it ignored, as nohup does:
// Go would catch it all the same.
var ending = sync.OnceValue(func() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) {
		return []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	return []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
})

// sayStopping says on a terminal, once a signal has come, what e3 waits for, until the returned function is called.
func sayStopping(ctx context.Context, a *app, grace time.Duration) (end func() bool) {
	if term.Of(a.Stderr) == nil {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errInterrupted) {
			a.Notef("Stopping: commands have %s to end; Ctrl-C again kills them", human.Duration(grace))
		}
	})
}

// cancelOnSignal cancels on the first signal, so that commands are stopped and recorded. The second one hurries, if the
// command can: what hurry holds then is called. Any later one kills this process: its tasks are killed with it.
func cancelOnSignal(ctx context.Context, hurry *atomic.Pointer[func()]) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, ending()...)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		cancel(errInterrupted)
		select {
		case <-time.After(oneSignal):
		case <-ended:
			return
		}
		select {
		case <-signals: // the first one again
		default:
		}
		if do := hurry.Load(); do != nil {
			select {
			case <-signals:
			case <-ended:
				return
			}
			signal.Stop(signals)
			(*do)()
			return
		}
		signal.Stop(signals)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(ended)
		cancel(nil)
	}
}

// killOnSignal makes the second signal kill the commands of this process, after which the run is recorded as after the
// first, with its true end.
func killOnSignal(a *app, r *repo.Repo) {
	kill := func() {
		a.Notef("Killing the commands; Ctrl-C again ends e3 at once, and leaves the run to the next start")
		if err := r.KillCommands(); err != nil {
			a.Warnf("kill the commands: %v", err)
		}
	}
	a.hurry.Store(&kill)
}

// passedOn are the signals that this process passes on to a program that has its terminal, until stop is called. An
// interrupt is one of them only where there is no terminal: that sends Ctrl-C to both.
func (a *app) passedOn() (signals <-chan os.Signal, stop func()) {
	passed := make(chan os.Signal, 1)
	signal.Notify(passed, syscall.SIGTERM, syscall.SIGHUP)
	interrupts := passed
	if term.Of(a.Stdout) != nil {
		interrupts = make(chan os.Signal, 1)
	}
	signal.Notify(interrupts, os.Interrupt)
	return passed, func() {
		signal.Stop(passed)
		signal.Stop(interrupts)
	}
}

// errReaderGone is the cause of a context that ended because standard output is a pipe without a reader.
var errReaderGone = fmt.Errorf("%w: the reader of standard output is gone", errInterrupted)

// whileRead calls do with a context that is cancelled when a write to standard output finds that its pipe has no
// reader any more, as in "e3 start | head". So a run ends as at a signal: its commands are stopped and recorded, and
// its locks are free. If it had ended before, its exit code stays. SIGPIPE, which would kill this process, is caught from then on, also while the error is
// printed. It is not ignored, since commands would inherit that.
func (a *app) whileRead(ctx context.Context, do func(context.Context) error) error {
	out, ok := a.Stdout.(*os.File)
	if !ok {
		return do(ctx)
	}
	if info, err := out.Stat(); err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return do(ctx)
	}
	caught := make(chan os.Signal, 1) // never read: the failed write tells which pipe it is
	signal.Notify(caught, syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.Stdout = &readPipe{out, cancel}
	defer func() { a.Stdout = out }()
	err := do(ctx)
	exit, ended := errors.AsType[*exitError](err)
	switch cause := context.Cause(ctx); {
	case !errors.Is(cause, errReaderGone):
		return err
	case err == nil || ended && exit.code != exitCancelled:
		a.Notef("The reader of standard output was gone before the last lines; the run had ended")
		return err
	default:
		return cause
	}
}

// unread returns a context for what follows a run: that needs no reader of standard output.
func unread(ctx context.Context) context.Context {
	if errors.Is(context.Cause(ctx), errReaderGone) {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// readPipe is a pipe that must be read. A write without a reader ends the context, and is no other fault.
type readPipe struct {
	*os.File
	gone context.CancelCauseFunc
}

// WriteString keeps the file's own from being called past Write.
func (p *readPipe) WriteString(s string) (int, error) { return p.Write([]byte(s)) }

func (p *readPipe) Write(b []byte) (int, error) {
	n, err := p.File.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		p.gone(errReaderGone)
		return len(b), nil
	}
	return n, err
}
