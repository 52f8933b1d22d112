package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
)

// errRunGone is the cause of a context whose run has no process any more.
var errRunGone = errors.New("the run has no process any more")

// follow prints the logs of a task's attempts as they grow, until the task has ended.
func (l *logs) follow(ctx context.Context, te *runview.TaskExecutions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.r.Workspaces.WatchRun(ctx, l.ws, te.Run.RunID, func() { cancel(errRunGone) })

	attempts := &runview.Attempts{From: 1, Retries: te.Retries}
	if te.Task != nil {
		attempts.From = te.Task.Attempt
	}
	for e, err := range events.Follow(ctx, l.r.Records, l.ws, te.Run.RunID) {
		if err != nil {
			return l.ended(ctx, err)
		}
		if e.Task != l.task || e.Data == nil {
			continue
		}
		switch e.Type {
		case events.TaskStarted:
			if key, ok := executions.ParseKey(e.Data.Key); ok && e.Data.Attempt >= attempts.From {
				if err := l.followExecution(ctx, key, e.Execution); err != nil {
					return l.ended(ctx, err)
				}
			}
		case events.TaskRetryScheduled:
			if e.Data.Attempt >= attempts.From {
				l.a.Notef("[%s]", followingAttempt(e.Data))
			}
		case events.TaskDeferred:
			l.a.Notef("[waits for approval; see: e3 approve --help]")
		case events.TaskResumed:
			l.a.Notef("[approved]")
		}
		if attempts.Last(&e) {
			if e.Type == events.TaskCached || e.Type == events.TaskSkipped {
				return l.settled(ctx)
			}
			return nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return l.ended(ctx, err)
	}
	return nil // the run has ended
}

// settled prints the log of a cached task, or the reason why there is none.
func (l *logs) settled(ctx context.Context) error {
	te, err := l.r.Workspaces.Runs.TaskExecutions(ctx, l.ws, l.task)
	if err != nil {
		return err
	}
	e, err := l.choose(ctx, te, &logsOptions{})
	if err != nil {
		return err
	}
	return l.print(ctx, e)
}

// ended is the error of a follower that was stopped: none after Ctrl-C.
func (l *logs) ended(ctx context.Context, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRunGone):
		l.a.Notef("e3: the run was interrupted: its process is gone")
		return nil
	case cause != nil:
		return &exitError{exitCancelled}
	}
	return err
}

// followExecution prints the logs of an execution until it has ended.
func (l *logs) followExecution(ctx context.Context, key executions.Key, id string) error {
	record := l.r.Workspaces.Runs.Watch(ctx, key, id)
	e, err := record.Begun(ctx)
	if err != nil {
		return err
	}
	out := newLogOutput(l.a, e)
	var copies []*logCopy
	for _, s := range l.streams {
		c := &logCopy{stream: s}
		if c.in, err = l.r.Executions.FollowLog(ctx, key, id, s); err != nil {
			break
		}
		copies = append(copies, c)
		c.done.Go(func() { c.n, c.err = io.Copy(out.stream(s), c.in) })
	}
	if err == nil {
		_, err = record.Ended(ctx)
	}
	for _, c := range copies {
		c.in.Close() // was only read
		c.done.Wait()
		if err == nil && c.err != nil && !errors.Is(c.err, fs.ErrClosed) {
			err = c.err
		}
		if err == nil { // output after the last read
			err = l.copy(ctx, out, e, c.stream, c.n)
		}
	}
	return errors.Join(err, out.close())
}

// logCopy is the state of copying one log.
type logCopy struct {
	stream executions.Stream
	in     io.ReadCloser
	done   sync.WaitGroup
	n      int64
	err    error
}
