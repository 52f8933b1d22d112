// Command e3 runs pipelines of ordinary commands and never does the same work twice.
//
// Each command parses its arguments, calls one of the packages below, and prints. There
// is no other logic here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"e3/cmd/e3/internal/term"
	_ "e3/internal/host/headroom" // looks at the limits before other packages begin
	"e3/internal/host/runner"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/refstore"
)

func main() { process(newApp()) }

// process is the life of an e3 process.
func process(a *app) {
	runner.Main() // in the process that runs the tasks, this never returns
	debug.SetGCPercent(seldom)
	os.Exit(run(context.Background(), os.Args[1:], a))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, a *app) int {
	finish, err := a.diagnose()
	if err != nil {
		return a.report(err)
	}
	ctx, stop := cancelOnSignal(ctx)
	defer stop()
	ctx, a.lose = context.WithCancelCause(ctx)
	defer a.lose(nil)
	root := newRoot(a)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if fault := finish(); fault != nil {
		a.Warnf("E3_PROFILE: %v", fault)
	}
	if lost := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(lost, refstore.ErrLost) {
		err = lost
	}
	var unrenewed interface{ Unrenewed() error }
	if a.lessee != nil && errors.Is(err, refstore.ErrLost) && errors.As(a.lessee.Held(), &unrenewed) {
		err = fmt.Errorf("%w; the last try to renew the lease failed: %s", err, repo.Because(unrenewed.Unrenewed()))
	}
	if err != nil && !a.parsed { // cobra's own, all about the command line
		err = &usageError{err}
	}
	return a.report(err)
}

// errInterrupted is the cause of a context that a signal has cancelled.
var errInterrupted = errors.New("interrupted")

// oneSignal is for how long more signals count as the first one. "timeout" and other programs that start e3 signal it and its
// process group; so a terminal's Ctrl-C may come twice, too.
const oneSignal = 200 * time.Millisecond

// ending returns the signals that end a command. SIGHUP is none of them if the parent has it ignored, as nohup does: Go would
// catch it all the same.
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

// cancelOnSignal cancels on the first signal, so that commands are stopped and recorded.
// A later one kills this process: its tasks are killed with it.
func cancelOnSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending()...)
	go func() {
		select {
		case <-signals:
			time.AfterFunc(oneSignal, func() { signal.Stop(signals) })
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}
