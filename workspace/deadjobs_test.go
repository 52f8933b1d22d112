package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
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

// The attempts of a task are told in the order of their numbers, each once, though the clock of the first one's worker was
// ahead of the second one's.
func TestCloseDeadSkewed(t *testing.T) {
	for _, told := range []int{0, 1, 2} {
		t.Run(fmt.Sprintf("%d ends told", told), func(t *testing.T) {
			d := newDead(t)
			d.run(record.RunRunning)
			later, ahead := newID(t), newID(t)
			d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: ahead}, (&record.Status{
				State: record.Error, ExecutionID: ahead, Message: "lost", StartedAt: time.UnixMilli(900), CompletedAt: time.UnixMilli(950),
			}).Encode())
			d.ends(later)
			at := func(typ events.Type, id string, number int64) events.Event {
				return events.Event{Type: typ, Task: "a", Execution: id, Data: &events.Data{Key: d.key.String(), Attempt: number}}
			}
			list := []events.Event{
				{Type: events.RunStarted}, {Type: events.TaskCreated, Data: &events.Data{Tasks: 1}}, {Type: events.TaskMarkedReady, Task: "a"},
				at(events.TaskClaimed, ahead, 1), at(events.TaskStarted, ahead, 1), at(events.TaskFailed, ahead, 1), at(events.TaskRetryScheduled, "", 2),
				at(events.TaskClaimed, later, 2), at(events.TaskStarted, later, 2), at(events.TaskCompleted, later, 2),
			}
			d.log(list[:[]int{3, 7, 10}[told]]...)
			first := workspace.JobAttempt{Task: "a", Number: 1, Execution: ahead, Worker: "ann@lab", Key: d.key.String(), Open: true, Lost: true}
			second := workspace.JobAttempt{Task: "a", Number: 2, Execution: later, Worker: "bob@lab", Key: d.key.String(), Open: true}
			d.attempts = []workspace.JobAttempt{second, first}
			d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
				if run != d.id {
					return nil, nil
				}
				return slices.Clone(d.attempts), nil
			})
			d.p.start()
			d.p.start()
			d.attempts[0].Open, d.attempts[1].Open = false, false
			d.p.start()
			if told := d.journal(); told != "" {
				t.Errorf("the journal tells %q", told)
			}
			want := "task.claimed a, task.started a, task.failed a, task.retry_scheduled a, task.claimed a, task.started a, task.completed a, run.failed"
			if got := strings.ReplaceAll(d.events(), " crashed", ""); !strings.HasSuffix(got, want) {
				t.Errorf("events are\n%s\nwant\n%s", got, want)
			}
			if n := d.notes(); n != 0 {
				t.Errorf("%d notes are left", n)
			}
		})
	}
}

// A retry by a person and one of the run may have the same number, if they came at the same time: all is told, once.
func TestCloseDeadSameNumber(t *testing.T) {
	d, first := newClaimed(t)
	d.ends(first)
	for range 2 {
		id := newID(t)
		d.ends(id)
		a := d.attempts[0]
		a.Number, a.Execution = 2, id
		d.attempts = append(d.attempts, a)
	}
	d.p.start()
	for i := range d.attempts {
		d.attempts[i].Open = false
	}
	d.p.start()
	d.p.start()
	ended := map[string]int{}
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err == nil && e.Type == events.TaskCompleted {
			ended[e.Execution]++
		}
	}
	for e, err := range events.ReadJournal(d.p.ctx, d.p.repo.Records, "w", 0) {
		if err == nil && e.Type == events.TaskCompleted {
			ended[e.Execution]++
		}
	}
	for _, a := range d.attempts {
		if ended[a.Execution] != 1 {
			t.Errorf("the end of %s is told %d times: %s; the journal %s", a.Execution, ended[a.Execution], d.events(), d.journal())
		}
	}
	if n := d.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A failed is a job whose command has failed, and its run.
type failed struct {
	*dead
	q   *queue.Queue
	job queue.Job
}

// newFailed makes a job that has failed, and whose run tells of nothing but the task; ends says how it has ended, "" if its process died.
func newFailed(t *testing.T, ends events.Type) *failed {
	t.Helper()
	d := newDead(t)
	f := &failed{dead: d, q: d.p.repo.Queue()}
	list := []events.Event{
		{Type: events.RunStarted}, {Type: events.TaskCreated, Data: &events.Data{Tasks: 1}}, {Type: events.TaskMarkedReady, Task: "a"},
	}
	job := queue.Job{Queue: queue.DefaultQueue, Workspace: "w", Run: d.id, Task: "a", Attempt: 1, TaskHash: d.key.Task.String()}
	job.ID = queue.Identity(&job)
	if _, err := f.q.Enqueue(t.Context(), &job); err != nil {
		t.Fatal(err)
	}
	f.job = job
	l := f.claim()
	status := record.Status{
		State: record.Failed, ExecutionID: l.Job().Execution, ExitCode: 3, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400),
	}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: status.ExecutionID}, status.Encode())
	if err := l.Finish(t.Context(), queue.Outcome{State: queue.Failed, ExecutionID: status.ExecutionID, ExitCode: 3}); err != nil {
		t.Fatal(err)
	}
	if ends == "" {
		d.run(record.RunRunning)
	} else {
		d.run(record.RunFailed)
		about := &events.Data{Key: d.key.String(), Attempt: 1}
		list = append(list, events.Event{Type: events.TaskClaimed, Task: "a", Execution: status.ExecutionID, Data: about},
			events.Event{Type: events.TaskStarted, Task: "a", Execution: status.ExecutionID, Data: about},
			events.Event{Type: events.TaskFailed, Task: "a", Execution: status.ExecutionID, Data: about}, events.Event{Type: ends})
	}
	d.log(list...)
	return f
}

func (f *failed) claim() *queue.Lease {
	f.p.t.Helper()
	l, err := f.q.Only(f.p.ctx, f.job.Queue, f.job.ID, queue.Want{Worker: "ann@lab", NewExecution: executions.NewIDAfter})
	if l == nil || err != nil {
		f.p.t.Fatal(l, err)
	}
	return l
}

// succeeds is a worker that executes the job.
func (f *failed) succeeds() {
	f.p.t.Helper()
	l := f.claim()
	f.ends(l.Job().Execution)
	err := l.Finish(f.p.ctx, queue.Outcome{
		State: queue.Succeeded, ExecutionID: l.Job().Execution, Output: strings.Repeat("0", 64), Duration: 400 * time.Millisecond,
	})
	if err != nil {
		f.p.t.Fatal(err)
	}
}

// A job that a person has queued again belongs to its dead run: the run tells how it had failed, and the journal that it
// was queued again, and what became of it.
func TestCloseDeadRetried(t *testing.T) {
	f := newFailed(t, "")
	if _, err := repo.RetryJob(t.Context(), f.p.repo, &f.job); err != nil {
		t.Fatal(err)
	}
	f.p.start()
	f.succeeds()
	f.p.start()
	f.p.start()
	if told, want := f.journal(), "job.retried a, task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %q, want %q; the run %s", told, want, f.events())
	}
	if got, want := f.events(), "run.started, task.created, task.marked_ready a, task.claimed a crashed, task.started a crashed, "+
		"task.failed a crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	if n := f.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// While a run is at work, no failure of an earlier one is queued again: that run executes the task by itself, if it needs it.
func TestRetryBesideARun(t *testing.T) {
	f := newFailed(t, events.RunFailed)
	state := record.LockState{Operation: record.Dataflow, Holder: "another start", AcquiredAt: time.Now()}
	run, err := f.p.repo.Records.TryLock(t.Context(), "workspace/w", refstore.Exclusive, state.Encode())
	if err != nil {
		t.Fatal(err)
	}
	var refused *queue.TransitionError
	if _, err := repo.RetryJob(t.Context(), f.p.repo, &f.job); !errors.As(err, &refused) || !refused.Answered {
		t.Errorf("beside a run: %v, want that it is refused", err)
	}
	if n := f.notes(); n != 0 {
		t.Errorf("%d notes of what did not happen", n)
	}
	if err := run.Unlock(); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.RetryJob(t.Context(), f.p.repo, &f.job); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A dead run is closed between the note of a retry and the retry: the journal tells of both the retry and what follows.
func TestCloseDeadBeforeRetry(t *testing.T) {
	f := newFailed(t, "")
	note, err := workspace.NoteRetry(t.Context(), f.p.ws.States, "w", &workspace.Retry{
		Run: f.id, Task: "a", Key: f.key.String(), Attempt: 2, After: f.finished().Outcome.ExecutionID, Number: 1, By: "eve@far", At: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	f.p.start()
	if told, n := f.journal(), f.notes(); told != "" || n != 1 {
		t.Fatalf("of what did not happen yet the journal tells %q, and there are %d notes", told, n)
	}
	if _, err := f.q.Retry(t.Context(), f.job.Queue, f.job.ID); err != nil {
		t.Fatal(err)
	}
	if err := note.Tell(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.succeeds()
	f.p.start()
	f.p.start()
	if told, want := f.journal(), "job.retried a, task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %q, want %q", told, want)
	}
	if n := f.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A job of a run that has ended is queued again: the journal tells by whom, and what becomes of it, once each, whatever
// process dies in between.
func TestRetried(t *testing.T) {
	for _, dies := range []string{"no process dies", "the retry dies before it has told", "the retry dies before the job is queued"} {
		t.Run(dies, func(t *testing.T) {
			f := newFailed(t, events.RunFailed)
			curator := executions.NewCurator(f.p.repo.Executions, f.p.repo.Records, nil)
			tell := func() {
				t.Helper()
				if err := workspace.TellLateOf(t.Context(), f.p.ws.States, "w", curator); err != nil {
					t.Fatal(err)
				}
			}
			if dies != "no process dies" {
				_, err := workspace.NoteRetry(t.Context(), f.p.ws.States, "w", &workspace.Retry{
					Run: f.id, Task: "a", Key: f.key.String(), Attempt: 2, After: f.finished().Outcome.ExecutionID, Number: 1, By: "eve@far", At: time.Now(),
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			by := "eve@far"
			switch dies {
			case "the retry dies before it has told":
				if _, err := f.q.Retry(t.Context(), f.job.Queue, f.job.ID); err != nil {
					t.Fatal(err)
				}
			case "the retry dies before the job is queued":
				tell()
				if told, n := f.journal(), f.notes(); told != "" || n != 1 {
					t.Fatalf("of what did not happen the journal tells %q, and there are %d notes", told, n)
				}
				fallthrough
			default:
				by = repo.UserAtHost()
				if _, err := repo.RetryJob(t.Context(), f.p.repo, &f.job); err != nil {
					t.Fatal(err)
				}
			}
			tell()
			tell()
			if told, n := f.journal(), f.notes(); told != "job.retried a" || n != 1 {
				t.Fatalf("while the job waits the journal tells %q, and there are %d notes", told, n)
			}
			f.succeeds()
			tell()
			tell()
			if told, want := f.journal(), "job.retried a, task.started a, task.completed a"; told != want {
				t.Errorf("the journal tells %q, want %q", told, want)
			}
			if n := f.notes(); n != 0 {
				t.Errorf("%d notes are left", n)
			}
			for e, err := range events.ReadJournal(t.Context(), f.p.repo.Records, "w", 0) {
				if err != nil || e.Type != events.JobRetried {
					continue
				}
				if e.Data.By != by || e.Data.Run != f.id || e.Data.Attempt != 2 || e.Data.Key != f.key.String() || time.Since(e.Time) > time.Minute {
					t.Errorf("told is %+v %+v", e, e.Data)
				}
			}
		})
	}
}

// finished is the job as it is now.
func (f *failed) finished() queue.Job {
	f.p.t.Helper()
	j, err := f.q.Job(f.p.ctx, f.job.Queue, f.job.ID)
	if err != nil {
		f.p.t.Fatal(err)
	}
	return j
}

// A worker may have put the end of a lost execution on record, and not yet given its job back, when the run is closed:
// the journal tells of the execution that follows for the job.
func TestCloseDeadSettled(t *testing.T) {
	for _, then := range []string{"another follows", "the job ends"} {
		t.Run(then, func(t *testing.T) {
			d, lost := newClaimed(t)
			settled := record.Status{
				State: record.Error, ExecutionID: lost, Message: "bob@lab was lost", StartedAt: time.UnixMilli(1400), CompletedAt: time.UnixMilli(1400),
			}
			d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: lost}, settled.Encode())
			d.p.start()
			if told, n := d.journal(), d.notes(); told != "" || n != 1 {
				t.Fatalf("while the job has not ended the journal tells %q, and there are %d notes", told, n)
			}
			want := ""
			if then == "another follows" {
				next := newID(t)
				d.attempts[0].Lost = true
				d.attempts = append(d.attempts, workspace.JobAttempt{Task: "a", Number: 2, Execution: next, Worker: "eve@far", Key: d.key.String()})
				d.ends(next)
				want = "task.started a, task.completed a"
			}
			for i := range d.attempts {
				d.attempts[i].Open = false
			}
			d.p.start()
			d.p.start()
			if told := d.journal(); told != want {
				t.Errorf("the journal tells %q, want %q", told, want)
			}
			if n := d.notes(); n != 0 {
				t.Errorf("%d notes are left", n)
			}
		})
	}
}

// An execution may be adopted, and end, after the process that closes its run has read its job: the adoption is told before the
// end, as the job says by then.
func TestCloseDeadAdoptedMeanwhile(t *testing.T) {
	d, claimed := newClaimed(t)
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		read := slices.Clone(d.attempts)
		if a := &d.attempts[0]; a.Adopter == "" {
			a.Adopter, a.Adopted, a.Started, a.Open = "eve@lab", time.UnixMilli(1200), time.UnixMilli(1000), false
			d.ends(claimed)
		}
		return read, nil
	})
	d.p.start()
	want := "task.claimed a, task.started a, task.adopted a, task.completed a, run.failed"
	if got := strings.ReplaceAll(d.events(), " crashed", ""); !strings.HasSuffix(got, want) {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	for e, err := range events.Read(t.Context(), d.p.repo.Records, "w", d.id) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.TaskAdopted && !e.Time.Equal(time.UnixMilli(1200)) || e.Type == events.TaskCompleted && e.Worker != "eve@lab" {
			t.Errorf("told is %+v", e.Event)
		}
	}
	if told, n := d.journal(), d.notes(); told != "" || n != 0 {
		t.Errorf("the journal tells %q, and there are %d notes", told, n)
	}
}

// A run may die after it has told that it abandons its tasks, while workers have some: the journal tells how these end, whether that was
// before the run was closed, or after.
func TestCloseDeadAbandoned(t *testing.T) {
	for _, ended := range []bool{true, false} {
		d := newDead(t)
		d.run(record.RunRunning)
		claimed, about := newID(t), &events.Data{Key: d.key.String(), Attempt: 1}
		d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
			events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskClaimed, Task: "a", Execution: claimed, Worker: "ann@lab", Data: about},
			events.Event{Type: events.TaskStarted, Task: "a", Execution: claimed, Worker: "ann@lab", Data: about},
			events.Event{Type: events.TaskAbandoned, Data: &events.Data{Tasks: 1}})
		open := true
		d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
			if run != d.id {
				return nil, nil
			}
			return []workspace.JobAttempt{{Task: "a", Number: 1, Key: d.key.String(), Execution: claimed, Worker: "ann@lab", Adopter: "eve@lab", Open: open}}, nil
		})
		end := func() { d.ends(claimed); open = false }
		if ended {
			end()
		}
		d.p.start()
		if !ended {
			end()
			d.p.start()
		}
		if got, want := d.events(), "task.claimed a, task.started a, task.abandoned, run.failed crashed"; !strings.HasSuffix(got, want) {
			t.Errorf("ended %v: events are\n%s\nwant\n%s", ended, got, want)
		}
		if told, n := d.journal(), d.notes(); told != "task.completed a" || n != 0 {
			t.Errorf("ended %v: the journal tells %q, and there are %d notes", ended, told, n)
		}
	}
}

// The log of a dead run may have an answer of a task for which a worker has executed a job all the same: the journal
// tells of that execution.
func TestCloseDeadAnswered(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	made := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"},
		events.Event{Type: events.TaskCached, Task: "a", Execution: newID(t), Data: &events.Data{Key: d.key.String()}})
	d.attempts = []workspace.JobAttempt{{Task: "a", Number: 1, Execution: made, Worker: "ann@lab", Key: d.key.String()}}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	d.p.start()
	if told, want := d.journal(), "task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %q, want %q; the run: %s", told, want, d.events())
	}
	if n := d.notes(); n != 0 {
		t.Errorf("%d notes are left", n)
	}
}

// A note of an earlier run is told although the next runs die as well, and the record of the earlier one is gone.
func TestLateOfEarlierRun(t *testing.T) {
	d, claimed := newClaimed(t)
	d.p.start()
	for range 3 {
		next := &dead{p: d.p, id: newID(t), key: d.key}
		next.run(record.RunRunning)
		next.log(events.Event{Type: events.RunStarted})
		d.p.start()
		end, err := events.End(t.Context(), d.p.repo.Records, "w", next.id)
		if err != nil || end == nil || end.Data.Late != 1 {
			t.Errorf("the end of a dead run is %+v, %v; want that it says of an execution that goes on", end, err)
		}
	}
	d.ends(claimed)
	d.attempts[0].Open = false
	d.p.start()
	if told, want := d.journal(), "task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %q, want %q", told, want)
	}
}

// A worker had given a task back, and another one began it, when the run died: its log tells of no failure.
func TestCloseDeadReleased(t *testing.T) {
	d, first := newClaimed(t)
	d.attempts[0].Execution, d.attempts[0].Open = newID(t), false
	d.ends(d.attempts[0].Execution)
	log, err := events.Resume(t.Context(), d.p.repo.Records, "w", d.id, time.Now, func(*events.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	log.Emit(events.Event{Type: events.TaskClaimed, Task: "a", Execution: first, Worker: "bob@lab", Data: &events.Data{Key: d.key.String(), Attempt: 1}})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.claimed a, task.released a crashed, "+
		"task.claimed a crashed, task.started a crashed, task.completed a crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
}
