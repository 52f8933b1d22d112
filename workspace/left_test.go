package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// leaving is a worker that does not end what it is told to end.
type leaving struct {
	id     string
	key    executions.Key
	cancel func()
}

func (l *leaving) Execute(ctx context.Context, key executions.Key, req *executions.Request) (executions.Result, error) {
	l.key = key
	req.Claimed(l.id, "ann@far", time.UnixMilli(900))
	l.cancel()
	<-ctx.Done()
	return executions.Result{}, fmt.Errorf("%w: %w", context.Cause(ctx), executions.ErrGoesOn)
}

// A cancelled run ends although a worker goes on with an execution: the journal tells how that ends.
func TestCancelledRunLeavesAnExecution(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
	ctx, cancel := context.WithCancelCause(t.Context())
	l := &leaving{id: newID(t), cancel: func() { cancel(errors.New("enough")) }}
	x := executions.NewExecutor(p.repo.Executions, p.repo.Objects, p.repo.Records, p, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: p.repo.Scratch, Now: time.Now, Remote: l,
	})
	open := true
	p.ws.Runner.SetAttempts(func(context.Context, string, string) ([]workspace.JobAttempt, error) {
		return []workspace.JobAttempt{{Task: "t", Number: 1, Key: l.key.String(), Execution: l.id, Worker: "ann@far", Claimed: time.UnixMilli(900), Open: open}}, nil
	})
	was := p.ctx
	p.ctx = ctx
	run := p.start(func(o *workspace.StartOptions) { o.Executor = x }).Run
	p.ctx = was
	if run.State != record.RunCancelled {
		t.Fatalf("the run is %v, want cancelled", run.State)
	}
	d := &dead{p: p, id: run.RunID, key: l.key}
	if got, want := d.events(), "run.started, task.created, task.marked_ready t, task.claimed t, task.abandoned, run.cancelled"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	var m eventstest.Machine
	for e, err := range events.Read(t.Context(), p.repo.Records, "w", run.RunID) {
		if err := errors.Join(err, m.Next(&e.Event)); err != nil {
			t.Error(err)
		}
	}
	if n := d.notes(); n != 1 {
		t.Fatalf("%d notes, want one", n)
	}
	ended := record.Status{State: record.Failed, ExecutionID: l.id, ExitCode: 3, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
	d.put(refstore.Key{Partition: "EXECUTION/" + l.key.String(), Sort: l.id}, ended.Encode())
	open = false
	p.start()
	if told, want := d.journal(), "task.started t, task.failed t"; told != want {
		t.Errorf("the journal tells %q, want %q", told, want)
	}
	for e, err := range events.ReadJournal(t.Context(), p.repo.Records, "w", 0) {
		if err == nil && e.Execution != "" && (e.Execution != l.id || e.Worker != "ann@far" || e.Data.Run != run.RunID) {
			t.Errorf("told is %+v %+v", e, e.Data)
		}
	}
	if n := d.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
	if strings.Contains(d.events(), "task.failed") {
		t.Errorf("the run tells of an end: %s", d.events())
	}
}
