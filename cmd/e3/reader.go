package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
)

// errReaderGone is the cause of a context that ended because standard output is a pipe without a reader.
var errReaderGone = fmt.Errorf("%w: the reader of standard output is gone", errInterrupted)

// whileRead calls do with a context that is cancelled when a write to standard output finds that its pipe has no reader any
// more, as in "e3 start | head". So a run ends as at a signal: its commands are stopped and recorded, and its locks are free.
// SIGPIPE, which would kill this process, is caught from then on, also while the error is printed. It is not ignored, since
// commands would inherit that.
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
	if cause := context.Cause(ctx); errors.Is(cause, errReaderGone) {
		return cause
	}
	return err
}

// readPipe is a pipe that must be read.
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
	}
	return n, err
}
