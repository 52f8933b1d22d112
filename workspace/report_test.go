package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
	"e3/workspace"
)

// tasks is "name state" for every task of the latest run.
func tasks(t *testing.T, p *place) (*runview.Report, string) {
	t.Helper()
	r, err := p.ws.Runs.Report(p.ctx, "w", "")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, task := range r.Tasks {
		list = append(list, fmt.Sprint(task.Task, " ", task.State))
	}
	return r, strings.Join(list, ", ")
}

// The report of a finished run lists every task with its result.
func TestReport(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:",
		"  good: {in: [a], out: o, run: cat $a}",
		"  bad: {in: [a], out: o, run: fail 7, retries: 2}",
		"  after: {in: {x: bad}, out: p, run: cat}",
		"  calm: {out: o, run: cat}")
	if _, err := p.ws.Runs.Report(p.ctx, "w", ""); !errors.Is(err, runview.ErrNoRun) {
		t.Errorf("before the first run: %v", err)
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.Runs.Report(p.ctx, "v", ""); !errors.As(err, &unknown) {
		t.Errorf("an unknown workspace: %v", err)
	}
	p.start()
	r, got := tasks(t, p)
	if want := "good success, bad failed, calm success, after skipped"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if bad := r.Tasks[1]; bad.Attempt != 3 || bad.ExitCode != 7 || bad.Key == "" || bad.ExecutionID == "" {
		t.Errorf("the failure is %+v", bad)
	}
	if after := r.Tasks[3]; after.Because != "bad" || after.ExecutionID != "" {
		t.Errorf("the skipped task is %+v", after)
	}
	if r.Status() != "failed" || r.Done != 3 || r.Total != 4 {
		t.Errorf("%s, %d of %d", r.Status(), r.Done, r.Total)
	}

	// After a repair: a proven task has no event of its own, but still a duration.
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:",
		"  good: {in: [a], out: o, run: cat $a}", "  bad: {in: [a], out: o, run: cat $a}", "  calm: {out: o, run: cat}")
	p.start()
	p.start()
	r, got = tasks(t, p)
	if want := "good cached, bad cached, calm cached"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, task := range r.Tasks {
		if task.Key == "" || task.StartedAt.IsZero() {
			t.Errorf("the execution of %s was not found: %+v", task.Task, task)
		}
	}
	// After a deployment with another command, the report uses the run's own package.
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  good: {in: [a], out: o, run: cat $a $a}")
	if r, _ = tasks(t, p); r.Tasks[0].Key == "" {
		t.Errorf("after a deploy: %+v", r.Tasks[0])
	}
}

// A run recorded as running is live only if a process has held the workspace since before it began.
func TestRunLiveness(t *testing.T) {
	p := newPlace(t)
	p.deploy("tasks: {t: {out: o, run: cat}}")
	began := time.Now().Truncate(time.Millisecond)
	id := "018f3b4c-9a2d-7def-8abc-123456789012"
	run := &record.Run{RunID: id, WorkspaceName: "w", PackageRef: "p@0.0.0", StartedAt: began, State: record.RunRunning, InputSnapshot: strings.Repeat("0", 64)}
	if _, err := p.repo.Records.Put(p.ctx, refstore.Record{Key: refstore.Key{Partition: "DATAFLOW/w", Sort: id}, Value: run.Encode()}); err != nil {
		t.Fatal(err)
	}
	log := events.Create(p.repo.Records, "w", id, time.Now)
	log.Emit(events.Event{Type: events.RunStarted})
	log.Emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 3}})
	log.Emit(events.Event{Type: events.TaskStarted, Task: "t", Execution: id, Data: &events.Data{Key: "k", Attempt: 1}})
	log.Emit(events.Event{Type: events.TaskCached, Task: "u"})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		lock *record.LockState // nil: no holder
		want string
		task runview.TaskState
	}{
		{"no holder", nil, "interrupted", runview.TaskInterrupted},
		{"its process", &record.LockState{Operation: record.Dataflow, AcquiredAt: began, Holder: "x"}, "running", runview.TaskRunning},
		{"a later process", &record.LockState{Operation: record.Dataflow, AcquiredAt: began.Add(time.Second), Holder: "x"}, "interrupted", runview.TaskInterrupted},
		{"a deploy", &record.LockState{Operation: record.Deployment, AcquiredAt: began, Holder: "x"}, "interrupted", runview.TaskInterrupted},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.lock != nil {
				lock, err := p.repo.Records.TryLock(p.ctx, "workspace/w", refstore.Exclusive, test.lock.Encode())
				if err != nil {
					t.Fatal(err)
				}
				defer lock.Unlock()
			}
			r, err := p.ws.Runs.Report(p.ctx, "w", "")
			if err != nil {
				t.Fatal(err)
			}
			if r.Status() != test.want || len(r.Tasks) != 2 || r.Tasks[0].State != test.task {
				t.Errorf("%s, tasks %+v; want %s, %s", r.Status(), r.Tasks, test.want, test.task)
			}
			if r.Done != 1 || r.Total != 3 {
				t.Errorf("%d of %d, want 1 of 3", r.Done, r.Total)
			}
		})
	}
}

// The error describes the holder of the workspace.
func TestBusyWords(t *testing.T) {
	p := newPlace(t)
	for holder, want := range map[string]string{
		`.process (pid=12, bootId="b", startTime=3, command="e3 start . \"x\"")`: `process 12 (e3 start . "x")`,
		`.process (pid=12, bootId="b", startTime=3)`:                             "process 12",
		`.process (pid=x)`: `.process (pid=x)`,
		`somebody`:         `somebody`,
		`.process (`:       `.process (`,
	} {
		lock, err := p.repo.Records.TryLock(p.ctx, "workspace/w", refstore.Exclusive, (&record.LockState{Holder: holder}).Encode())
		if err != nil {
			t.Fatal(err)
		}
		busy, err := p.ws.Busy(p.ctx, "w")
		if err != nil || busy == nil || busy.Holder != want {
			t.Errorf("%s: busy %+v, %v; want %s", holder, busy, err, want)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// The executions of a task are found through its latest run, and each by a prefix of its id.
func TestTaskExecutions(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks:", "  t: {in: [a], out: o, run: cat $a}", "  late: {in: {x: t}, out: p, run: cat}")
	te, err := p.ws.Runs.TaskExecutions(p.ctx, "w", "t")
	if err != nil || te.Run != nil || te.Task != nil || len(te.Known) != 0 {
		t.Fatalf("before the first run: %+v, %v", te, err)
	}
	only := func(o *workspace.StartOptions) { o.Filter = "t" }
	p.start(only)
	p.write("a.txt", "2")
	p.start(only)
	p.start(only, func(o *workspace.StartOptions) { o.Force = true })
	if te, err = p.ws.Runs.TaskExecutions(p.ctx, "w", "t"); err != nil {
		t.Fatal(err)
	}
	if len(te.Known) != 2 || te.Known[0].ExecutionID != te.Task.ExecutionID || te.Known[1].ExecutionID > te.Known[0].ExecutionID {
		t.Errorf("known are %d, latest first; the task is %+v", len(te.Known), te.Task)
	}
	p.write("a.txt", "1")
	p.start(only)
	first, err := p.ws.Runs.TaskExecutions(p.ctx, "w", "t")
	if err != nil || len(first.Known) != 1 {
		t.Fatalf("on the first input: %+v, %v", first, err)
	}
	// An execution on other inputs is found as well.
	id := te.Known[0].ExecutionID
	e, err := p.ws.Runs.FindExecution(p.ctx, first, id[:len(id)-1])
	if err != nil || e.ExecutionID != id {
		t.Errorf("FindExecution = %+v, %v; want %s", e, err, id)
	}
	var unknown *workspace.UnknownError
	if _, err := p.ws.Runs.FindExecution(p.ctx, first, "ffffffff"); !errors.As(err, &unknown) {
		t.Errorf("an unknown execution: %v", err)
	}
	// For a pruned execution, the error says when, by whom and why.
	curator := executions.NewCurator(p.repo.Executions, p.repo.Records, func() time.Time { return time.Now().Add(-75 * time.Hour) })
	if n, err := curator.Prune(p.ctx, e.Key.Task, []executions.Victim{e.Victim()}, "ann@lab", "older than 30d"); n != 1 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	_, err = p.ws.Runs.FindExecution(p.ctx, first, id[:len(id)-1])
	if want := "execution " + id + " was pruned 3 days ago by ann@lab (older than 30d)"; err == nil || err.Error() != want {
		t.Errorf("of a pruned execution: %v, want %s", err, want)
	}
	if late, err := p.ws.Runs.TaskExecutions(p.ctx, "w", "late"); err != nil || late.Task != nil || len(late.Known) != 0 {
		t.Errorf("a task without a part in the run: %+v, %v", late, err)
	}
	_, err = p.ws.Runs.TaskExecutions(p.ctx, "w", "tt")
	if !errors.As(err, &unknown) {
		t.Fatalf("an unknown task: %v", err)
	}
	if diff := cmp.Diff([]string{"late", "t"}, slices.Sorted(slices.Values(unknown.Known))); diff != "" {
		t.Errorf("known tasks differ (-want +got):\n%s", diff)
	}
}

// A cancelled run is reported as such.
func TestReportCancelled(t *testing.T) {
	p := newPlace(t)
	p.deploy("tasks:", "  t: {out: o, run: cat}", "  u: {in: {x: t}, out: p, run: cat}")
	ctx, cancel := context.WithCancel(p.ctx)
	p.run = func(context.Context, string, string) int {
		cancel()
		return 1
	}
	p.ctx = ctx
	p.start()
	p.ctx = t.Context()
	r, got := tasks(t, p)
	if r.Status() != "cancelled" || got != "t error, u skipped" || r.Tasks[0].Message != "cancelled" {
		t.Errorf("%s: %s, %+v", r.Status(), got, r.Tasks)
	}
}
