package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

func TestCancel(t *testing.T) {
	why := errors.New("interrupted")
	for _, test := range []struct {
		name  string
		after time.Duration
		want  string
		state record.RunState
	}{
		{"at once", 0, "a=abandoned b=abandoned c=abandoned", record.RunCancelled},
		{"in the first", 30 * time.Second, "a=failed b=skipped c=skipped", record.RunCancelled},
		{"in the second", 90 * time.Second, "a=succeeded b=failed c=skipped", record.RunCancelled},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				if test.after == 0 {
					cancel(why)
				} else {
					time.AfterFunc(test.after, func() { cancel(why) })
				}
				g := graphOf(t, flow("a", "b: a", "c: b"))
				policy(g.Package, "b", record.Policy{Retries: 5})
				w := newWorld()
				w.behave = func(string, int64) behaviour { return behaviour{takes: time.Minute} }
				began := time.Now()
				out := run(ctx, t, g, w, nil)
				wantStates(t, g, out, test.want)
				if out.State != test.state {
					t.Errorf("the run is %v, want %v", out.State, test.state)
				}
				if took := time.Since(began); took > test.after+recording {
					t.Errorf("it went on for %v", took-test.after)
				}
			})
		})
	}
}

// Calling off between two attempts ends the wait at once; the task has failed.
func TestCancelDuringBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		pkg := flow("a", "b: a")
		policy(pkg, "a", record.Policy{Retries: 1, Backoff: time.Hour})
		g := graphOf(t, pkg)
		w := newWorld()
		w.behave = func(string, int64) behaviour { return behaviour{fails: true} }
		began := time.Now()
		out := run(ctx, t, g, w, nil)
		wantStates(t, g, out, "a=failed b=skipped")
		if out.State != record.RunCancelled || time.Since(began) != time.Minute || len(w.ran) != 1 {
			t.Errorf("it was %v after %v and %d attempts", out.State, time.Since(began), len(w.ran))
		}
	})
}

// Executors, stores and file systems end with the context's error, others with its cause.
func TestCancelErrors(t *testing.T) {
	for name, fault := range map[string]func(ctx context.Context) error{
		"cause": context.Cause,
		"error": func(ctx context.Context) error { return fmt.Errorf("stage inputs: %w", ctx.Err()) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			g := graphOf(t, flow("a", "b"))
			x := doFunc(func(ctx context.Context, req *executions.Request) (executions.Result, error) {
				cancel(errors.New("interrupted"))
				<-ctx.Done()
				return executions.Result{}, fault(ctx)
			})
			out, err := dataflow.Run(ctx, g, newWorld().objects, x, dataflow.Options{Inputs: oneInput, Concurrency: 2})
			if err != nil || out.State != record.RunCancelled {
				t.Errorf("the run is %v, %v, want cancelled", out.State, err)
			}
			wantStates(t, g, out, "a=abandoned b=abandoned")
		})
	}
}

type doFunc func(context.Context, *executions.Request) (executions.Result, error)

func (f doFunc) Do(ctx context.Context, req *executions.Request) (executions.Result, error) {
	return f(ctx, req)
}

// A run that was called off when all was done is a completed one.
func TestCancelAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld()
	g := graphOf(t, flow("a"))
	out := run(ctx, t, g, w, func(o *dataflow.Options) {
		o.Emit = func(e events.Event) {
			if e.Type == events.TaskCompleted {
				cancel()
			}
		}
	})
	if out.State != record.RunCompleted {
		t.Errorf("the run is %v", out.State)
	}
}

// A request for an execution of a worker may end without a result, because the run was cancelled or the store is at fault: its
// worker may go on, so no event tells of an end.
func TestNoEndOfWhatAWorkerHas(t *testing.T) {
	for _, fault := range []error{nil, errors.New("the store is gone")} {
		t.Run(fmt.Sprintf("fault %v", fault), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			g := graphOf(t, flow("a", "b"))
			x := doFunc(func(ctx context.Context, req *executions.Request) (executions.Result, error) {
				req.Claimed("execution of "+req.Name, "ann@far", time.Now())
				if req.Name == "a" {
					req.Started("execution of a", time.Now())
				} else if fault == nil {
					cancel(errors.New("interrupted"))
				}
				if fault != nil {
					return executions.Result{}, fault
				}
				<-ctx.Done()
				return executions.Result{}, fmt.Errorf("%w: the job was told to end, and has not", context.Cause(ctx))
			})
			log := &emitted{}
			out, err := dataflow.Run(ctx, g, newWorld().objects, x, dataflow.Options{Inputs: oneInput, Concurrency: 2, Emit: log.emit})
			want := record.RunCancelled
			if fault != nil {
				want = record.RunFailed
			}
			if !errors.Is(err, fault) || out.State != want {
				t.Errorf("the run is %v, %v, want %v, %v", out.State, err, want, fault)
			}
			wantStates(t, g, out, "a=abandoned b=abandoned")
			if log.has(events.TaskFailed) {
				t.Errorf("an end is told: %v, %v", log.of("a"), log.of("b"))
			}
		})
	}
}
