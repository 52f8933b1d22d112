package workspace_test

import (
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/workspace"
)

// ends puts the record of a success.
func (d *dead) ends(execution string) {
	d.p.t.Helper()
	status := record.Status{
		State: record.Success, ExecutionID: execution, OutputHash: strings.Repeat("0", 64),
		StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400),
	}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: execution}, status.Encode())
}

// notes returns how many notes of executions that went on there are.
func (d *dead) notes() (n int) {
	d.p.t.Helper()
	for _, err := range d.p.repo.Records.List(d.p.ctx, refstore.Query{Partition: "INDEX/late/w"}) {
		if err != nil {
			d.p.t.Fatal(err)
		}
		n++
	}
	return n
}

// A job that waits for a worker when its dead run is closed, since another worker has just given it back, may be begun
// later: the journal tells of that execution, and of no other.
func TestCloseDeadQueued(t *testing.T) {
	for _, when := range []string{"before the run was closed", "afterwards"} {
		t.Run(when, func(t *testing.T) {
			d, claimed := newClaimed(t)
			running := d.attempts
			waits := []workspace.JobAttempt{{Task: "a", Number: 1, Key: d.key.String(), Open: true}}
			if when == "afterwards" {
				d.p.start()
			}
			d.attempts = waits
			d.p.start()
			d.p.start()
			if told, n := d.journal(), d.notes(); told != "" || n != 1 {
				t.Fatalf("while the job waits the journal tells %q, and there are %d notes", told, n)
			}
			next := newID(t)
			d.attempts = running
			d.attempts[0].Execution = next
			d.p.start()
			d.ends(next)
			d.attempts[0].Open = false
			d.p.start()
			d.p.start()
			if told, want := d.journal(), "task.started a, task.completed a"; told != want {
				t.Errorf("the journal tells %q, want %q", told, want)
			}
			if n := d.notes(); n != 0 {
				t.Errorf("%d notes are left", n)
			}
			if strings.Contains(d.events(), "task.failed") {
				t.Errorf("of execution %s, which never began, the run tells: %s", claimed, d.events())
			}
		})
	}
}

// A job that a person has queued again belongs to its dead run: the journal tells what becomes of it.
func TestCloseDeadRetried(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"})
	q := d.p.repo.Queue()
	job := queue.Job{Queue: queue.DefaultQueue, Workspace: "w", Run: d.id, Task: "a", Attempt: 1, TaskHash: d.key.Task.String()}
	job.ID = queue.Identity(&job)
	if _, err := q.Enqueue(t.Context(), &job); err != nil {
		t.Fatal(err)
	}
	claim := func() *queue.Lease {
		t.Helper()
		l, err := q.Only(t.Context(), job.Queue, job.ID, queue.Want{Worker: "ann@lab", NewExecution: executions.NewIDAfter})
		if l == nil || err != nil {
			t.Fatal(l, err)
		}
		return l
	}
	first := claim()
	failed := record.Status{
		State: record.Failed, ExecutionID: first.Job().Execution, ExitCode: 3, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400),
	}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: failed.ExecutionID}, failed.Encode())
	if err := first.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: failed.ExecutionID, ExitCode: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Retry(t.Context(), job.Queue, job.ID); err != nil {
		t.Fatal(err)
	}
	d.p.start()
	second := claim()
	d.ends(second.Job().Execution)
	err := second.Finish(t.Context(), queue.Outcome{
		State: queue.Succeeded, ExecutionID: second.Job().Execution, Output: strings.Repeat("0", 64), Duration: 400 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.p.start()
	d.p.start()
	if told, want := d.journal(), "task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %q, want %q; the run %s", told, want, d.events())
	}
	if n := d.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}
