package executions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Remote makes executions elsewhere: it submits a request to workers and waits for the result. A failed command is a
// result, not an error. After an error the execution may still begin or go on.
type Remote interface {
	Execute(ctx context.Context, key Key, req *Request) (Result, error)
}

// Working tells whether an unfinished job names this execution as the one being made for it. job is Job.Ref.
type Working func(ctx context.Context, job, executionID string) (bool, error)

// WithJobs returns a store over the same records that asks working about executions made for jobs. An execution whose
// process is gone counts as alive while its job names it, because a worker will finish it or give it up.
func (s *Store) WithJobs(working Working) *Store {
	with := *s
	with.working = working
	return &with
}

// Job returns the Job.Ref of a running execution, "" if it has none. running is false if the execution has ended or
// does not exist.
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

// atWork tells whether an unfinished job names the execution. Without a Working function none does.
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

// unfinished handles the unfinished executions of a key. It closes an execution whose process is gone, and waits for
// an execution that is made for a job. ended tells whether one of these has ended, so that it may be an answer. Any
// other live execution was forced, and is not waited for.
func (x *Executor) unfinished(ctx context.Context, key Key, req *Request, running []string) (ended bool, err error) {
	stop := func() {}
	defer func() { stop() }()
	for _, id := range running {
		told := ""
		for pause := x.polling(""); x.working != nil; ended = true {
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
			if told != job {
				stop()
				told, stop = job, x.waits(ctx, req, Wait{Key: key, Job: job})
			}
			if err := pause.wait(ctx); err != nil {
				return false, err
			}
		}
		if _, err := x.CloseIfDead(ctx, key, id); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// makeNew makes a new execution of a key, here or elsewhere. Elsewhere its id is greater than greatest. A rerun for
// comparison is made here.
func (x *Executor) makeNew(ctx context.Context, key Key, req *Request, id, greatest string) (Result, error) {
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
	if err := x.accept(bound, key, &res); err != nil {
		return Result{}, err
	}
	if x.opts.Sync != nil {
		if err := x.opts.Sync(ctx); err != nil {
			return Result{}, fmt.Errorf("make execution %s durable: %w", res.ExecutionID, err)
		}
	}
	return res, nil
}

// Make executes a request under a given id, for the holder of the job that names the id. It looks nothing up and takes
// no claim on the key, because the submitter of the job has done both. If another process presumes this one dead and
// has settled the execution (Settle), the error wraps refstore.ErrLost and only the settled result counts.
//
// With Job.Identity, and a runner whose commands outlive it, the command continues after this process dies, and Adopt
// finishes the execution.
//
// If ctx ends with a cause that wraps refstore.ErrLost, the command is stopped and nothing is recorded. Any other end
// is recorded as cancelled.
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

// beginForced opens the generation for a forced execution, because its success may replace another in proofs. The
// process that requested it may be gone by then.
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

// distruster is an object store that remembers which objects it has seen elsewhere. An output that is made anew may
// have been lost or damaged there since.
type distruster interface{ Distrust() (end func()) }

// Settle records an error with this reason and message, unless the execution has ended, and returns the recorded
// result. Any later write by the execution's own process conflicts.
func (c *Curator) Settle(ctx context.Context, key Key, inputs []objectstore.Hash, id string, reason Reason, message string) (Result, error) {
	if _, err := ParseID(id); err != nil {
		return Result{}, fmt.Errorf("settle an execution: %w", err)
	}
	if err := c.giveUp(ctx, key, inputs, id, &ending{reason: reason, message: message}); err != nil {
		return Result{}, fmt.Errorf("settle execution %s: %w", id, err)
	}
	return c.recorded(ctx, key, id)
}

// Began returns when the command began; zero if it did not begin or its start is unknown, in which case the record
// has equal times of start and end.
func (e *Execution) Began() time.Time {
	if e.State == record.Error && !e.StartedAt.Before(e.CompletedAt) {
		return time.Time{}
	}
	return e.StartedAt
}

// recorded returns the recorded result of an execution that has ended.
func (c *Curator) recorded(ctx context.Context, key Key, id string) (Result, error) {
	e, err := c.Get(ctx, key, id)
	if errors.Is(err, ErrMalformed) { // a malformed record is not an answer
		return Result{ExecutionID: id, State: record.Error, Message: err.Error()}, nil
	}
	if err != nil {
		return Result{}, err
	}
	res := Result{
		ExecutionID: e.ExecutionID, State: e.State, Message: e.Message, ExitCode: e.ExitCode, Duration: e.CompletedAt.Sub(e.StartedAt), EndedAt: e.CompletedAt,
	}
	if e.Detail != nil {
		res.Reason = Reason(e.Detail.Reason)
	}
	if e.State != record.Success {
		return res, nil
	}
	if err := c.noteSecondSuccess(ctx, key, id); err != nil { // the process that recorded it may have died before this step
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
