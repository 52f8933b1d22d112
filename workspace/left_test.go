package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// leaving makes requests that end without a result, although a worker has their execution.
type leaving struct {
	id   string
	key  executions.Key
	seen bool         // the run learns of the claim
	end  func() error // of the request
}

func (l *leaving) Execute(_ context.Context, key executions.Key, req *executions.Request) (executions.Result, error) {
	l.key = key
	if l.seen {
		req.Claimed(l.id, "ann@far", time.UnixMilli(900))
	}
	return executions.Result{}, l.end()
}

// A run may end before its jobs have: it was cancelled, or the store failed, and it may not even know of the job that it has
// made. The journal tells how the execution of a worker ends, whether that was before the run's end or after it.
func TestRunLeavesAnExecution(t *testing.T) {
	for name, tt := range map[string]struct {
		seen  bool  // the run has learned of the claim
		fault error // else the run is cancelled
		ended bool  // before the run ended
		want  string
	}{
		"cancelled":                      {seen: true, want: ", task.claimed t, task.abandoned, run.cancelled"},
		"cancelled, and nothing known":   {want: ", task.abandoned, run.cancelled"},
		"cancelled, and ended meanwhile": {ended: true, want: ", task.abandoned, run.cancelled"},
		"a fault":                        {seen: true, fault: errors.New("the store is gone"), want: ", task.claimed t, task.abandoned, run.failed"},
		"a fault, and nothing known":     {fault: errors.New("the store is gone"), want: ", task.failed t e3, run.failed t"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.write("a.txt", "a")
			p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
			ctx, cancel := context.WithCancelCause(t.Context())
			l := &leaving{id: newID(t), seen: tt.seen}
			d := &dead{p: p}
			open := true
			end := func() {
				ended := record.Status{State: record.Failed, ExecutionID: l.id, ExitCode: 3, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
				d.put(refstore.Key{Partition: "EXECUTION/" + l.key.String(), Sort: l.id}, ended.Encode())
				open = false
			}
			l.end = func() error {
				if tt.ended {
					end()
				}
				if tt.fault != nil {
					return tt.fault
				}
				cancel(errors.New("enough"))
				return fmt.Errorf("%w; and the store does not answer", context.Cause(ctx))
			}
			x := executions.NewExecutor(p.repo.Executions, p.repo.Objects, p.repo.Records, p, executions.Options{
				Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: p.repo.Scratch, Now: time.Now, Remote: l,
			})
			p.ws.Runner.SetAttempts(func(context.Context, string, string) ([]workspace.JobAttempt, error) {
				return []workspace.JobAttempt{{Task: "t", Number: 1, Key: l.key.String(), Execution: l.id, Worker: "ann@far", Claimed: time.UnixMilli(900), Open: open}}, nil
			})
			res, err := p.ws.Runner.Start(ctx, "w", workspace.StartOptions{Executor: x, Concurrency: 1})
			if !errors.Is(err, tt.fault) || res == nil {
				t.Fatalf("the run is %+v, %v; want the error %v", res, err, tt.fault)
			}
			d.id, d.key = res.Run.RunID, l.key
			if got, want := d.events(), "run.started, task.created, task.marked_ready t"+tt.want; got != want {
				t.Errorf("events are\n%s\nwant\n%s", got, want)
			}
			var m eventstest.Machine
			for e, err := range events.Read(t.Context(), p.repo.Records, "w", d.id) {
				if err := errors.Join(err, m.Next(&e.Event)); err != nil {
					t.Error(err)
				}
			}
			if !tt.ended {
				if n := d.notes(); n != 1 {
					t.Fatalf("%d notes, want one", n)
				}
				end()
				p.start()
			}
			if told, want := d.journal(), "task.started t, task.failed t"; told != want {
				t.Errorf("the journal tells %q, want %q", told, want)
			}
			for e, err := range events.ReadJournal(t.Context(), p.repo.Records, "w", 0) {
				if err == nil && e.Execution != "" && (e.Execution != l.id || e.Worker != "ann@far" || e.Data.Run != d.id) {
					t.Errorf("told is %+v %+v", e, e.Data)
				}
			}
			if n := d.notes(); n != 0 {
				t.Errorf("%d notes are left", n)
			}
		})
	}
}
