package executions

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Remote makes executions elsewhere: it puts a request before those who execute, and waits for what comes of it. A command that
// fails is a result. Where ctx ends because this process lost its lease, what was begun goes on.
type Remote interface {
	Execute(ctx context.Context, key Key, req *Request) (Result, error)
}

// Working tells whether a job has not finished and names this execution as the one that is being made for it. job is Request.Job.
type Working func(ctx context.Context, job, executionID string) (bool, error)

// WithJobs returns a store over the same records that asks working about executions which were made for jobs: one whose process
// is gone is alive for as long as its job says so, because somebody is going to finish it or to give it up.
func (s *Store) WithJobs(working Working) *Store {
	with := *s
	with.working = working
	return &with
}

// Job returns what a running execution is made for: Request.Job, "" if for no job. running is false of one that has ended, and of one
// that is not there.
func (s *Store) Job(ctx context.Context, k Key, id string) (job string, running bool, err error) {
	rec, err := s.records.Get(ctx, recordKey(k, id), fieldJob)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("execution %s: %w", id, err)
	}
	status, err := record.DecodeStatus(rec.Value)
	return jobField(rec), err == nil && status.State == record.Running, nil
}

func jobField(rec refstore.Record) string {
	job, _ := rec.Field(fieldJob)
	return string(job)
}

// atWork tells whether a job that is not finished names the execution. Without anybody to ask nothing does.
func (s *Store) atWork(ctx context.Context, job, id string) (bool, error) {
	if job == "" || s.working == nil {
		return false, nil
	}
	works, err := s.working(ctx, job, id)
	if err != nil {
		return false, fmt.Errorf("execution %s of job %s: %w", id, job, err)
	}
	return works, nil
}

// unfinished sees to executions of a key that had not ended: one whose process is gone is closed, one that is made for a job is waited for. It
// returns true if one of these has ended, so that it may be an answer. Others that are alive were forced, and are nobody's answer yet.
func (x *Executor) unfinished(ctx context.Context, key Key, running []string) (ended bool, err error) {
	for _, id := range running {
		for pause := newBackoff(x.claims); x.working != nil; ended = true {
			job, runs, err := x.Job(ctx, key, id)
			if err != nil {
				return false, err
			}
			if !runs {
				ended = true
				break
			}
			works, err := x.atWork(ctx, job, id)
			if err != nil {
				return false, err
			}
			if !works {
				break
			}
			if err := pause.wait(ctx); err != nil {
				return false, err
			}
		}
		if _, err := x.Bury(ctx, key, id); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// begin makes a new execution of a key: here, or elsewhere, where it gets an id of its own that is greater than the greatest. One that is compared with another is made here, by whom compares.
func (x *Executor) begin(ctx context.Context, key Key, req *Request, id, greatest string) (Result, error) {
	if x.opts.Remote == nil || req.against != nil {
		return x.execute(ctx, key, req, id)
	}
	bound, stop := x.bound(ctx)
	defer stop()
	asked := *req
	asked.After = greatest
	res, err := x.opts.Remote.Execute(bound, key, &asked)
	if err != nil {
		return res, err
	}
	if x.opts.Sync != nil {
		if err := x.opts.Sync(ctx); err != nil {
			return Result{}, fmt.Errorf("make execution %s durable: %w", res.ExecutionID, err)
		}
	}
	return res, nil
}

// Make executes a request under an id that others know: it is named by a job, whose holder calls this. Nothing is looked up and no claim on
// the key is taken, as whoever has put the job there has done both. If others have settled the execution meanwhile (Settle), because
// they take this process for dead, the error wraps refstore.ErrLost and nothing of it counts; Settle tells what counts.
//
// With Request.Identity a command goes on when this process dies, if the runner's commands outlive it, and Adopt finishes it.
//
// A ctx that ends with a cause that wraps refstore.ErrLost stops the command, and nothing is recorded; any other end is on record as
// cancelled.
func (x *Executor) Make(ctx context.Context, req *Request, id string) (Result, error) {
	if _, err := ParseID(id); err != nil {
		return Result{}, fmt.Errorf("make an execution: %w", err)
	}
	end, err := x.beginForced(ctx, req)
	if err != nil {
		return Result{}, err
	}
	defer end()
	return x.execute(ctx, NewKey(req.Task, req.Inputs), req, id)
}

// beginForced opens the generation for an execution that is forced: its success may take the place of another in proofs, and the
// process that has asked for it may be gone by then.
func (x *Executor) beginForced(ctx context.Context, req *Request) (end func(), err error) {
	if !req.Force {
		return func() {}, nil
	}
	d, ok := x.objects.(distruster)
	if !ok {
		return x.generation.Begin(ctx)
	}
	trust := d.Distrust()
	settle, err := x.generation.Begin(ctx)
	if err != nil {
		trust()
		return nil, err
	}
	return func() {
		trust()
		settle()
	}, nil
}

// distruster is an object store that remembers what it has seen elsewhere, and believes what that says. What is made anew may have
// been lost there, or damaged.
type distruster interface{ Distrust() (end func()) }

// Settle makes an execution an error, with this reason and message, unless it has ended, and returns how it stands then. From then on
// whatever somebody may still record of it conflicts.
func (c *Curator) Settle(ctx context.Context, key Key, inputs []objectstore.Hash, id string, reason Reason, message string) (Result, error) {
	if _, err := ParseID(id); err != nil {
		return Result{}, fmt.Errorf("settle an execution: %w", err)
	}
	if err := c.giveUp(ctx, key, inputs, id, &ending{reason: reason, message: message}); err != nil {
		return Result{}, fmt.Errorf("settle execution %s: %w", id, err)
	}
	return c.standing(ctx, key, id)
}

// standing is the result that is on record of an execution which has ended.
func (c *Curator) standing(ctx context.Context, key Key, id string) (Result, error) {
	e, err := c.Get(ctx, key, id)
	if errors.Is(err, ErrMalformed) { // it is no answer to anybody
		return Result{ExecutionID: id, State: record.Error, Message: err.Error()}, nil
	}
	if err != nil {
		return Result{}, err
	}
	res := Result{
		ExecutionID: e.ExecutionID, State: e.State, Message: e.Message, ExitCode: e.ExitCode, Duration: e.CompletedAt.Sub(e.StartedAt),
	}
	if e.Detail != nil {
		res.Reason = Reason(e.Detail.Reason)
	}
	if e.State != record.Success {
		return res, nil
	}
	if err := c.overtaken(ctx, key, id); err != nil { // who recorded it may have died before he looked
		return Result{}, err
	}
	if res.Output, err = objectstore.ParseHash(e.OutputHash); err == nil {
		res.Size, err = c.outputSize(ctx, e, res.Output)
	}
	if err != nil {
		return Result{}, fmt.Errorf("execution %s: %w", e.ExecutionID, err)
	}
	return res, nil
}
