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
	"runtime/debug"

	_ "e3/internal/host/headroom" // looks at the limits before other packages begin
	"e3/internal/host/runner"
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
	ctx, stop := cancelOnSignal(ctx, &a.hurry)
	defer stop()
	ctx, a.lose = context.WithCancelCause(ctx)
	defer a.lose(nil)
	root := newRoot(a)
	root.SetArgs(args)
	a.typed = args
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
