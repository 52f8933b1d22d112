package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/human"
	"e3/workspace"
)

// checkWait checks --wait. A limit that is written behind a blank is an argument: the flag may stand without one.
func (o *startOptions) checkWait(args []string) error {
	if o.wait == "" {
		return nil
	}
	if most, err := time.ParseDuration(o.wait); err != nil || most < 0 {
		return usagef("--wait takes a duration, as --wait=10m, not %q%s", o.wait, likelyDuration(o.wait))
	}
	for _, arg := range args {
		if _, err := time.ParseDuration(arg); err == nil {
			return usagef("to wait at most %s, write it with an equals sign: --wait=%[1]s", arg)
		}
	}
	return nil
}

// startOnce is runStart of a copy of the options, repeated while the workspace is busy if --wait says so. A start that
// finds its workspace busy has done nothing that another one does not do again.
func startOnce(ctx context.Context, a *app, location, ws string, o *startOptions) error {
	most, _ := time.ParseDuration(o.wait) // checked before
	said := ""
	for until := time.Now().Add(most); ; {
		once := *o
		err := runStart(ctx, a, location, ws, &once)
		var busy *workspace.BusyError
		if o.wait == "" || !errors.As(err, &busy) {
			return err
		}
		waiting, stop := ctx, func() {}
		if most > 0 {
			waiting, stop = context.WithDeadline(ctx, until)
		}
		last := busy
		fault := awaitFree(waiting, a, location, busy.Workspace, o, func(e *workspace.BusyError) {
			if last = e; e.Error() == said {
				return
			}
			said = e.Error()
			a.Notef("%s%s; waiting until it is free", human.Line(said), also(human.Unheard(e.Heard.At, e.Heard.Lease, a.Now())))
		})
		expired := errors.Is(waiting.Err(), context.DeadlineExceeded)
		stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case expired:
			return fmt.Errorf("%w; waited for %v", last, most)
		case fault != nil:
			return fault
		}
	}
}

// awaitFree waits for the workspace of a start. It opens the repository for reading alone: a session that writes would
// hold garbage collections up for as long.
func awaitFree(ctx context.Context, a *app, location, ws string, o *startOptions, tell func(*workspace.BusyError)) error {
	if o.file != "" {
		found, wanted, err := findRepository(a, location, o.file)
		if err != nil {
			return err
		}
		location = cmp.Or(found, wanted)
	}
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	return r.Workspaces.AwaitFree(ctx, ws, tell)
}
