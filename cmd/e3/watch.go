package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"e3/internal/human"
	"e3/internal/watch"
	"e3/workspace"
)

// The values of --watch.
const (
	watchFinish = "finish" // a run that is at work ends before the next begins
	watchStop   = "stop"   // it is cancelled
)

// watchPollVariable has --watch look at files instead of asking the system to notify.
const watchPollVariable = "E3_WATCH_POLL"

// round is the result of one run of a watch, for its line.
type round struct {
	res *workspace.RunResult
}

// runWatch runs a workspace again and again, whenever its package file or a file of its inputs has changed. It ends with
// the exit code of the last run.
func runWatch(ctx context.Context, a *app, location, ws string, o *startOptions) error {
	file := o.file
	if file == "" {
		var err error
		if file, ws, err = followedFile(ctx, a, location, ws); err != nil {
			return err
		}
	}
	poll, _ := strconv.ParseBool(a.Getenv(watchPollVariable))
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	w, err := watch.New(file, watch.Options{Poll: poll, Polling: func(err error) {
		a.Warnf("the system does not notify of changes (%v); e3 looks at the files each second instead", err)
	}})
	if err != nil {
		return err
	}
	defer w.Close()
	code, because := exitOK, "begun"
	for {
		began := a.Now()
		o.round = &round{}
		changed, err := playRound(ctx, a, location, ws, o, w)
		if ctx.Err() != nil {
			return err
		}
		if code = exitCode(err); o.round.res == nil && !errors.Is(err, watch.ErrChanged) {
			a.report(err)
		}
		a.roundLine(o, because, code, began)
		if changed == nil {
			if changed, err = w.Next(ctx); err != nil {
				return exitWith(code)
			}
		}
		because = fewPaths(filepath.Dir(file), changed) + " changed"
	}
}

// followedFile is the package file of a workspace, which is returned too: the only one need not be named.
func followedFile(ctx context.Context, a *app, location, ws string) (file, named string, err error) {
	r, err := a.openToRead(ctx, location)
	if err != nil {
		return "", "", err
	}
	defer r.Close()
	if ws, err = a.named(ctx, r, ws); err != nil {
		return "", "", err
	}
	st, err := r.Workspaces.Planner.Status(ctx, ws)
	if err != nil {
		return "", "", err
	}
	if st.File == "" {
		return "", "", usagef("workspace %s follows no package file on this machine, so there is nothing to watch; deploy one with: e3 start -f e3.yaml %s", ws, ws)
	}
	return st.File, ws, nil
}

// playRound runs the workspace once. With --watch=stop it watches meanwhile, and returns the files whose change has ended
// the run.
func playRound(ctx context.Context, a *app, location, ws string, o *startOptions, w *watch.Watcher) ([]string, error) {
	if o.watch != watchStop {
		return nil, startOnce(ctx, a, location, ws, o)
	}
	changed, err := w.During(ctx, func(ctx context.Context) error { return startOnce(ctx, a, location, ws, o) })
	if changed != nil && exitCode(err) == exitCancelled {
		err = fmt.Errorf("%w: %w", watch.ErrChanged, err)
	}
	return changed, err
}

// roundLine prints the line of a round.
func (a *app) roundLine(o *startOptions, because string, code int, began time.Time) {
	if a.JSON || o.progress == "none" {
		return
	}
	text := fmt.Sprintf("not run, exit code %d", code)
	if res := o.round.res; res != nil {
		text = fmt.Sprintf("run %s %s (%s)", human.Short(res.Run.RunID), res.Run.State, counts(res.Run.State, res.Run.Summary))
	}
	fmt.Fprintf(a.Stdout, "%s  %s: %s, %s\n", began.Local().Format("15:04:05"), human.Line(because), text, human.Duration(a.Now().Sub(began)))
}

// fewPaths names the first of some files.
func fewPaths(base string, paths []string) string {
	if len(paths) == 0 {
		return "something"
	}
	name := paths[0]
	if rel, err := filepath.Rel(base, name); err == nil {
		name = rel
	}
	if n := len(paths) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", name, n)
	}
	return name
}
