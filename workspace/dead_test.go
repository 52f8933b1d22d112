package workspace_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// dead is a run whose process died.
type dead struct {
	p   *place
	id  string
	key executions.Key // of an execution in the run

	attempts []workspace.JobAttempt
}

func newDead(t *testing.T) *dead {
	t.Helper()
	p := newPlace(t)
	p.write("a.txt", "a")
	p.deploy("inputs: {a: {file: a.txt}}", "tasks: {t: {in: [a], out: o, run: cat $a}}")
	return &dead{p: p, id: newID(t), key: executions.NewKey(objectstore.Sum([]byte("some task")), nil)}
}

func newID(t *testing.T) string {
	t.Helper()
	id, err := executions.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func (d *dead) put(key refstore.Key, value []byte) {
	d.p.t.Helper()
	if _, err := d.p.repo.Records.Put(d.p.ctx, refstore.Record{Key: key, Value: value}); err != nil {
		d.p.t.Fatal(err)
	}
}

// run puts the run's record.
func (d *dead) run(state record.RunState) {
	d.p.t.Helper()
	r := &record.Run{RunID: d.id, WorkspaceName: "w", PackageRef: "p@0.0.0", StartedAt: time.UnixMilli(1000), State: state,
		InputSnapshot: strings.Repeat("0", 64), Summary: record.Summary{Total: 2, Completed: 1, Failed: 1}}
	if state != record.RunRunning {
		r.CompletedAt = time.UnixMilli(3500)
	}
	if state == record.RunFailed {
		r.FailedTask, r.Error = "t", "7"
	}
	d.put(refstore.Key{Partition: "DATAFLOW/w", Sort: d.id}, r.Encode())
}

// execution puts the record of an execution and returns its id.
func (d *dead) execution(s record.Status) string {
	d.p.t.Helper()
	s.ExecutionID = newID(d.p.t)
	s.StartedAt = time.UnixMilli(1000)
	if s.State != record.Running {
		s.CompletedAt = time.UnixMilli(1400)
	}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: s.ExecutionID}, s.Encode())
	return s.ExecutionID
}

func (d *dead) log(list ...events.Event) {
	d.p.t.Helper()
	log := events.Create(d.p.repo.Records, "w", d.id, time.Now)
	for _, e := range list {
		log.Emit(e)
	}
	if err := log.Close(); err != nil {
		d.p.t.Fatal(err)
	}
}

func (d *dead) started(task, execution string) events.Event {
	return events.Event{Type: events.TaskStarted, Task: task, Execution: execution, Data: &events.Data{Key: d.key.String(), Attempt: 2}}
}

// tear leaves half a line at the end of the log.
func (d *dead) tear() {
	d.p.t.Helper()
	key := refstore.Key{Partition: "EVENTS/w", Sort: d.id}
	if err := d.p.repo.Records.Append(d.p.ctx, key, int64(len(d.bytes())), []byte(`{"seq":9,"time":"2026-`)); err != nil {
		d.p.t.Fatal(err)
	}
}

func (d *dead) bytes() []byte {
	d.p.t.Helper()
	r, err := d.p.repo.Records.Open(d.p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: d.id}, 0)
	if err != nil {
		d.p.t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		d.p.t.Fatal(err)
	}
	return data
}

// events returns a short form of the run's log, after checking that it is complete.
func (d *dead) events() string {
	d.p.t.Helper()
	var list []string
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err != nil {
			d.p.t.Fatal(err)
		}
		text := string(e.Type)
		if e.Task != "" {
			text += " " + e.Task
		}
		if e.Data != nil && e.Data.Reason != "" {
			text += " " + e.Data.Reason
		}
		list = append(list, text)
	}
	if ended, err := events.Ended(d.p.ctx, d.p.repo.Records, "w", d.id); !ended || err != nil {
		d.p.t.Errorf("the log is not ended: %v", err)
	}
	return strings.Join(list, ", ")
}

// The next start closes a dead run: its log ends, and so do its executions.
func TestCloseDead(t *testing.T) {
	started := events.Event{Type: events.RunStarted}
	for _, test := range []struct {
		name  string
		leave func(*dead)
		want  string
	}{
		{"a record without events", func(d *dead) { d.run(record.RunRunning) }, "run.started crashed, run.failed crashed"},
		{"a log that has begun", func(d *dead) { d.run(record.RunRunning); d.log(started) }, "run.started, run.failed crashed"},
		{"a torn log", func(d *dead) { d.run(record.RunRunning); d.log(started); d.tear() }, "run.started, run.failed crashed"},
		{"nothing but half a line", func(d *dead) {
			d.run(record.RunRunning)
			if err := d.p.repo.Records.Append(d.p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: d.id}, 0, []byte(`{"seq":1,`)); err != nil {
				d.p.t.Fatal(err)
			}
		}, "run.started crashed, run.failed crashed"},
		{"a log that is damaged", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started)
			for _, line := range []string{"\x00\x00\x00\n", `{"seq":3,"run":"r","type":"task.started"}` + "\n"} {
				if err := d.p.repo.Records.Append(d.p.ctx, refstore.Key{Partition: "EVENTS/w", Sort: d.id}, int64(len(d.bytes())), []byte(line)); err != nil {
					d.p.t.Fatal(err)
				}
			}
		}, "run.started, run.failed crashed"},
		{"a record that cannot be read", func(d *dead) {
			d.put(refstore.Key{Partition: "DATAFLOW/w", Sort: d.id}, nil)
			d.log(started)
		}, "run.started, run.failed crashed"},
		{"an execution that was not on record yet", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started, d.started("t", newID(d.p.t)))
		}, "run.started, task.started t, task.failed t crashed, run.failed crashed"},
		{"an execution that is on record as running", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started, d.started("t", d.execution(record.Status{State: record.Running, PID: 12345})))
		}, "run.started, task.started t, task.failed t crashed, run.failed crashed"},
		{"an execution that had succeeded", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started, d.started("t", d.execution(record.Status{State: record.Success, OutputHash: d.key.Task.String()})))
		}, "run.started, task.started t, task.completed t crashed, run.failed crashed"},
		{"an execution that had failed", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started, d.started("t", d.execution(record.Status{State: record.Failed, ExitCode: 5})))
		}, "run.started, task.started t, task.failed t crashed, run.failed crashed"},
		{"an execution whose record cannot be read", func(d *dead) {
			d.run(record.RunRunning)
			id := newID(d.p.t)
			d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: id}, []byte("oops"))
			d.log(started, d.started("t", id))
		}, "run.started, task.started t, task.failed t crashed, run.failed crashed"},
		{"executions that ended and one that did not", func(d *dead) {
			d.run(record.RunRunning)
			one, two := d.execution(record.Status{State: record.Failed}), d.execution(record.Status{State: record.Running})
			d.log(started, d.started("t", one), events.Event{Type: events.TaskFailed, Task: "t", Execution: one}, d.started("t", two))
		}, "run.started, task.started t, task.failed t, task.started t, task.failed t crashed, run.failed crashed"},
		{"an event with a key that is none", func(d *dead) {
			d.run(record.RunRunning)
			d.log(started, events.Event{Type: events.TaskStarted, Task: "t", Execution: newID(d.p.t), Data: &events.Data{Key: "oops"}},
				events.Event{Type: events.TaskStarted, Task: "u", Execution: newID(d.p.t)})
		}, "run.started, task.started t, task.started u, task.failed t crashed, task.failed u crashed, run.failed crashed"},
		{"a completed run without its last event", func(d *dead) { d.run(record.RunCompleted); d.log(started) }, "run.started, run.completed"},
		{"a failed one", func(d *dead) { d.run(record.RunFailed); d.log(started) }, "run.started, run.failed t"},
		{"a cancelled one, torn", func(d *dead) { d.run(record.RunCancelled); d.log(started); d.tear() }, "run.started, run.cancelled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDead(t)
			test.leave(d)
			res := d.p.start()
			if got := d.events(); got != test.want {
				t.Errorf("events are %s\nwant       %s", got, test.want)
			}
			if res.Run.State != record.RunCompleted || res.Run.RunID <= d.id {
				t.Errorf("the run that closed it is %v", res.Run.State)
			}
			if _, err := d.p.ws.Runs.Run(d.p.ctx, "w", d.id); err == nil {
				t.Error("the dead run's record is still there")
			}
			for rec, err := range d.p.repo.Records.List(d.p.ctx, refstore.Query{Partition: "EXECUTION/" + d.key.String()}) {
				s, bad := record.DecodeStatus(rec.Value)
				if err != nil || bad == nil && s.State == record.Running {
					t.Errorf("execution %s is left %v, %v", rec.Key.Sort, s, err)
				}
			}
		})
	}
}

// The events that close an execution agree with its record.
func TestCloseDeadSaysWhatIsKnown(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	d.log(events.Event{Type: events.RunStarted},
		d.started("good", d.execution(record.Status{State: record.Success, OutputHash: d.key.Task.String()})),
		d.started("bad", d.execution(record.Status{State: record.Failed, ExitCode: 5})),
		d.started("stale", d.execution(record.Status{State: record.Running, PID: 12345})))
	d.p.start()
	got := map[string]*events.Event{}
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err != nil {
			t.Fatal(err)
		}
		got[e.Task] = &e.Event // the last event of each task
	}
	if e := got["good"]; e.Type != events.TaskCompleted || e.Data.Output != d.key.Task.String() || e.Data.Duration != 400 || e.Data.Attempt != 2 {
		t.Errorf("the event of the success is %+v, %+v", e, e.Data)
	}
	if e := got["bad"]; e.Type != events.TaskFailed || e.Data.ExitCode != 5 || e.Data.Duration != 400 {
		t.Errorf("the event of the failure is %+v, %+v", e, e.Data)
	}
	if e := got["stale"]; e.Type != events.TaskFailed || e.Data.Message != "Process 12345 no longer running (stale execution)" {
		t.Errorf("the event of the stale execution is %+v, %+v", e, e.Data)
	}
	if e := got[""]; e.Type != events.RunFailed || e.Data.Reason != "crashed" || e.Data.Message == "" {
		t.Errorf("the last event is %+v, %+v", e, e.Data)
	}
}

// The state is changed to name a finished run before that run's log ends; it never changes to an older run.
func TestCloseDeadMovesTheReference(t *testing.T) {
	d := newDead(t)
	d.run(record.RunFailed)
	d.log(events.Event{Type: events.RunStarted})
	var current string
	d.p.run = nil // no command may run
	// The filter matches no task, so the start ends after it has closed the run.
	if err := d.startNothing(); err == nil {
		t.Fatal("a filter that names no task is run")
	}
	if s, err := d.p.ws.State(d.p.ctx, "w"); err != nil || s.CurrentRunID != d.id {
		t.Errorf("the state names %q, %v, want the finished run", s.CurrentRunID, err)
	} else {
		current = s.CurrentRunID
	}
	if run, err := d.p.ws.Runs.Run(d.p.ctx, "w", current); err != nil || run.State != record.RunFailed {
		t.Errorf("its record is %+v, %v", run, err)
	}
	older := &dead{p: d.p, id: "01000000-0000-7000-8000-000000000000", key: d.key}
	older.run(record.RunCompleted)
	if err := d.startNothing(); err == nil {
		t.Fatal("a filter that names no task is run")
	}
	if got := older.events(); got != "run.started crashed, run.completed" {
		t.Errorf("the older log is %s", got)
	}
	if s, err := d.p.ws.State(d.p.ctx, "w"); err != nil || s.CurrentRunID != current {
		t.Errorf("the state names %q, %v, want %q still", s.CurrentRunID, err, current)
	}
}

func (d *dead) startNothing() error {
	_, err := d.p.ws.Runner.Start(d.p.ctx, "w", startOptions(d.p, "no such task"))
	return err
}

// A run that has ended is not changed.
func TestCloseDeadLeavesTheEnded(t *testing.T) {
	d := newDead(t)
	d.run(record.RunFailed)
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.RunFailed, Data: &events.Data{Message: strings.Repeat("long ", 2000)}})
	before := d.bytes()
	d.p.start()
	if after := d.bytes(); !bytes.Equal(before, after) {
		t.Errorf("%d bytes were added to the log of a run that had ended", len(after)-len(before))
	}
}

// An execution of the dead run that another process performs continues.
func TestCloseDeadLeavesTheLiving(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	id := d.execution(record.Status{State: record.Running})
	d.log(events.Event{Type: events.RunStarted}, d.started("t", id))
	claim, err := d.p.repo.Records.TryClaim(t.Context(), sha256.Sum256([]byte("e3 claim execution\x00"+id)), nil)
	if err != nil {
		t.Fatal(err)
	}
	d.p.start()
	if got, want := d.events(), "run.started, task.started t, task.abandoned crashed, run.failed crashed"; got != want {
		t.Errorf("events are %s, want %s", got, want)
	}
	if e, err := d.p.repo.Executions.Get(d.p.ctx, d.key, id); err != nil || e.State != record.Running {
		t.Errorf("the execution is %+v, %v, want it running", e, err)
	}
	if err := claim.Unlock(); err != nil {
		t.Fatal(err)
	}
}

// The end of an execution that goes on without its run is appended to the journal once, with its true time.
func TestLate(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	id := d.execution(record.Status{State: record.Running})
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
		events.Event{Type: events.TaskMarkedReady, Task: "t"},
		events.Event{Type: events.TaskStarted, Task: "t", Execution: id, Worker: "ann@lab", Data: &events.Data{Key: d.key.String(), Attempt: 1}})
	claim, err := d.p.repo.Records.TryClaim(t.Context(), sha256.Sum256([]byte("e3 claim execution\x00"+id)), nil)
	if err != nil {
		t.Fatal(err)
	}
	var m eventstest.Machine
	d.p.start()
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err := errors.Join(err, m.Next(&e.Event)); err != nil {
			t.Error(err)
		}
	}
	journal := func() (list []events.Event) {
		t.Helper()
		for e, err := range events.ReadJournal(d.p.ctx, d.p.repo.Records, "w", 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Task != "" {
				list = append(list, e)
			}
		}
		return list
	}
	d.p.start() // another run, after which the execution still goes on
	if list := journal(); list != nil {
		t.Fatalf("told before its end: %+v", list)
	}
	key := refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: id}
	rec, err := d.p.repo.Records.Get(d.p.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	ended := record.Status{State: record.Failed, ExecutionID: id, ExitCode: 3, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(4500)}
	if _, err := d.p.repo.Records.Put(d.p.ctx, refstore.Record{Key: key, Value: ended.Encode(), Version: rec.Version}); err != nil {
		t.Fatal(err)
	}
	if err := claim.Unlock(); err != nil {
		t.Fatal(err)
	}
	d.p.start()
	d.p.start()
	list := journal()
	if len(list) != 1 {
		t.Fatalf("the journal has %+v, want one end", list)
	}
	e := list[0]
	if e.Type != events.TaskFailed || e.Execution != id || e.Worker != "ann@lab" || !e.Time.Equal(ended.CompletedAt) || e.Data.Run != d.id ||
		e.Data.Duration != 3500 || e.Data.ExitCode != 3 {
		t.Errorf("its last event is %+v %+v", e, e.Data)
	}
}

// The events of workers' executions for a killed run are recovered from its jobs and the records of executions.
func TestCloseDeadWithWorkers(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	done := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	lost := d.execution(record.Status{State: record.Error, Message: "its worker was lost"})
	again := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 3}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskMarkedReady, Task: "b"})
	d.attempts = []workspace.JobAttempt{
		{Task: "b", Number: 2, Execution: again, Worker: "eve@far", Adopter: "ann@lab", Claimed: time.UnixMilli(990), Adopted: time.UnixMilli(1200)},
		{Task: "a", Number: 1, Execution: done, Worker: "ann@lab", Claimed: time.UnixMilli(990)},
		{Task: "b", Number: 1, Execution: lost, Worker: "bob@lab"},
	}
	for i := range d.attempts {
		d.attempts[i].Key = d.key.String()
	}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.marked_ready b, task.claimed a crashed, task.started a crashed, "+
		"task.claimed b crashed, task.started b crashed, task.failed b crashed, task.retry_scheduled b crashed, "+
		"task.claimed b crashed, task.started b crashed, task.adopted b crashed, task.completed a crashed, task.completed b crashed, "+
		"task.abandoned crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	var m eventstest.Machine
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err := errors.Join(err, m.Next(&e.Event)); err != nil {
			t.Error(err)
		}
		switch {
		case e.Type == events.TaskStarted && !e.Time.Equal(time.UnixMilli(1000)),
			e.Type == events.TaskCompleted && !e.Time.Equal(time.UnixMilli(1400)),
			e.Type == events.TaskCompleted && e.Worker != "ann@lab",
			e.Type == events.TaskAdopted && (e.Worker != "ann@lab" || !e.Time.Equal(time.UnixMilli(1200))),
			e.Execution == lost && e.Worker != "bob@lab":
			t.Errorf("told is %+v", e.Event)
		}
	}
}

// newClaimed is a dead run whose task a worker has claimed, and the id of the execution that is not on record yet.
func newClaimed(t *testing.T) (*dead, string) {
	d := newDead(t)
	d.run(record.RunRunning)
	claimed := newID(t)
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"})
	d.attempts = []workspace.JobAttempt{
		{Task: "a", Number: 1, Execution: claimed, Worker: "ann@lab", Claimed: time.UnixMilli(990), Key: d.key.String(), Open: true},
	}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	return d, claimed
}

// An execution whose worker has just claimed it goes on, though it is not on record yet: its end is told once it is.
func TestCloseDeadClaimed(t *testing.T) {
	d, claimed := newClaimed(t)
	d.p.start()
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.claimed a crashed, task.abandoned crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	if told := d.journal(); told != "" {
		t.Fatalf("told before its end: %s", told)
	}
	ended := record.Status{State: record.Success, ExecutionID: claimed, OutputHash: strings.Repeat("0", 64), StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: claimed}, ended.Encode())
	d.attempts[0].Open = false
	d.p.start()
	if told, want := d.journal(), "task.started a, task.completed a"; told != want {
		t.Errorf("the journal tells %s, want %s", told, want)
	}
}

// journal returns what the journal tells of tasks.
func (d *dead) journal() string {
	d.p.t.Helper()
	var list []string
	for e, err := range events.ReadJournal(d.p.ctx, d.p.repo.Records, "w", 0) {
		if err != nil {
			d.p.t.Fatal(err)
		}
		if e.Task != "" {
			list = append(list, string(e.Type)+" "+e.Task)
		}
	}
	return strings.Join(list, ", ")
}

// A task that was approved and had begun when its run died, before the run could tell, is told as approved. A job of another run for
// which a task had waited is not told a second time.
func TestCloseDeadApprovedAndShared(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	asked := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	other := d.execution(record.Status{State: record.Running})
	ended := d.execution(record.Status{State: record.Failed, ExitCode: 1, StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(2000)})
	claim, err := d.p.repo.Records.TryClaim(t.Context(), sha256.Sum256([]byte("e3 claim execution\x00"+other)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Unlock()
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 3}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskMarkedReady, Task: "b"}, events.Event{Type: events.TaskMarkedReady, Task: "c"},
		events.Event{Type: events.TaskClaimed, Task: "c", Execution: ended, Worker: "ann@lab", Data: &events.Data{Key: d.key.String(), Attempt: 1, Shared: true}},
		events.Event{Type: events.TaskDeferred, Task: "a", Data: &events.Data{Block: "block", BlockType: "review", Attempt: 1}},
		events.Event{Type: events.TaskStarted, Task: "b", Execution: other, Data: &events.Data{Key: d.key.String(), Attempt: 1, Shared: true}})
	d.attempts = []workspace.JobAttempt{{Task: "a", Number: 1, Execution: asked, Worker: "ann@lab", Key: d.key.String()}}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.marked_ready b, task.marked_ready c, task.claimed c, task.deferred a, task.started b, task.resumed a crashed, "+
		"task.claimed a crashed, task.started a crashed, task.completed a crashed, task.started c crashed, task.failed c crashed, task.abandoned crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	var m eventstest.Machine
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err := errors.Join(err, m.Next(&e.Event)); err != nil {
			t.Error(err)
		}
		if e.Execution != "" && e.Data.Shared != (e.Task != "a") {
			t.Errorf("%s of %s: shared is %v", e.Type, e.Task, e.Data.Shared)
		}
	}
	for range d.p.repo.Records.List(t.Context(), refstore.Query{Partition: "INDEX/late/w"}) {
		t.Error("the end of the other run's execution is noted as this one's")
	}
}

// Executions that a process of this machine had begun become known after a process of another machine has closed its run: the journal
// tells of each, once, and by which process.
func TestTellLeft(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	told := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	untold := newID(t)
	success := record.Status{ExecutionID: untold, State: record.Success, OutputHash: strings.Repeat("1", 64), StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
	if _, err := d.p.repo.Records.Put(d.p.ctx, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: untold}, Value: success.Encode(),
		Fields: []refstore.Field{{Name: "detail.beast2", Value: (&record.Detail{Worker: "eve@mill"}).Encode()}}}); err != nil {
		t.Fatal(err)
	}
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 2}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskMarkedReady, Task: "b"},
		events.Event{Type: events.TaskStarted, Task: "a", Execution: told, Data: &events.Data{Key: d.key.String(), Attempt: 1}},
		events.Event{Type: events.TaskCompleted, Task: "a", Execution: told, Data: &events.Data{Key: d.key.String(), Attempt: 1}})
	x := d.p.executor
	tell := func() {
		t.Helper()
		for task, id := range map[string]string{"a": told, "b": untold} {
			d.put(refstore.Key{Partition: "INDEX/left/w/" + d.id, Sort: id}, []byte(`{"task":"`+task+`","key":"`+d.key.String()+`","attempt":1}`))
		}
		if err := d.p.ws.TellLeft(t.Context(), "w", d.id, x); err != nil {
			t.Fatal(err)
		}
	}
	tell()
	if got := d.journal(); got != "" {
		t.Fatalf("told before the run is closed: %s", got)
	}
	if err := x.DropBegun(t.Context(), "w", d.id); err != nil {
		t.Fatal(err)
	}
	d.p.start()
	for range 2 {
		tell()
		if got, want := d.journal(), "task.started b, task.completed b"; got != want {
			t.Errorf("the journal tells %q, want %q", got, want)
		}
		if left, err := x.BegunFor(t.Context(), "w", d.id); err != nil || len(left) > 0 {
			t.Errorf("left are %+v, %v", left, err)
		}
	}
	// The log of a run that was killed early may not say whose it was.
	for e, err := range events.ReadJournal(d.p.ctx, d.p.repo.Records, "w", 0) {
		if err != nil || e.Execution == untold && e.Worker != "eve@mill" {
			t.Errorf("%s by %q, %v; want the process of the execution's record, eve@mill", e.Type, e.Worker, err)
		}
	}
}

// A run that died before the journal told of it is there for a reader that goes on from a cursor.
func TestCloseDeadUnrecorded(t *testing.T) {
	d := newDead(t)
	d.p.start()
	var at events.Cursor
	read := func() (seen []string) {
		t.Helper()
		for e, err := range events.ReadRecorded(t.Context(), d.p.repo.Records, events.Filter{Workspace: "w"}, events.RecordedOptions{After: at}) {
			if err != nil {
				t.Fatal(err)
			}
			if at, err = events.ParseCursor(e.Cursor); err != nil {
				t.Fatal(err)
			}
			if e.Run == d.id {
				seen = append(seen, string(e.Type))
			}
		}
		return seen
	}
	read()
	d.id = newID(t)
	d.run(record.RunRunning)
	d.p.start()
	if got, want := strings.Join(read(), ", "), "run.started, run.failed"; got != want {
		t.Errorf("seen are %q, want %q", got, want)
	}
}

// A worker may begin the job of a dead run again, after that run was closed: what it has executed is told, too.
func TestLateAgain(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	lost := d.execution(record.Status{State: record.Error, Message: "its worker was lost"})
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 1}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"})
	d.attempts = []workspace.JobAttempt{{Task: "a", Number: 1, Execution: lost, Worker: "ann@lab", Key: d.key.String(), Lost: true, Open: true}}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.claimed a crashed, task.started a crashed, task.failed a crashed, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	again := newID(t)
	d.attempts = append(d.attempts, workspace.JobAttempt{Task: "a", Number: 2, Execution: again, Worker: "eve@far", Key: d.key.String(), Open: true})
	d.p.start()
	if told := d.journal(); told != "" {
		t.Fatalf("told before its end: %s", told)
	}
	ended := record.Status{State: record.Success, ExecutionID: again, OutputHash: strings.Repeat("0", 64), StartedAt: time.UnixMilli(1000), CompletedAt: time.UnixMilli(1400)}
	d.put(refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: again}, ended.Encode())
	for i := range d.attempts {
		d.attempts[i].Open = false
	}
	for range 2 {
		d.p.start()
		if told, want := d.journal(), "task.started a, task.completed a"; told != want {
			t.Errorf("the journal tells %s, want %s", told, want)
		}
	}
	for range d.p.repo.Records.List(t.Context(), refstore.Query{Partition: "INDEX/late/w"}) {
		t.Error("it is noted still")
	}
}

// A process that closes a dead run may be killed after it has noted an execution that went on. The next one tells of its end in the
// log, and the note must not have it told again.
func TestLateOfKilledCloser(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	ended := d.execution(record.Status{State: record.Success, OutputHash: strings.Repeat("0", 64)})
	running := d.execution(record.Status{State: record.Running})
	claim, err := d.p.repo.Records.TryClaim(t.Context(), sha256.Sum256([]byte("e3 claim execution\x00"+running)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer claim.Unlock()
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 2}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskMarkedReady, Task: "b"},
		events.Event{Type: events.TaskClaimed, Task: "a", Execution: ended, Data: &events.Data{Key: d.key.String(), Attempt: 1}},
		events.Event{Type: events.TaskStarted, Task: "b", Execution: running, Data: &events.Data{Key: d.key.String(), Attempt: 1}})
	for task, id := range map[string]string{"a": ended, "b": running} { // what the killed process has left
		d.put(refstore.Key{Partition: "INDEX/late/w", Sort: id},
			[]byte(`{"run":"`+d.id+`","task":"`+task+`","key":"`+d.key.String()+`","attempt":1}`))
	}
	for range 2 {
		d.p.start()
		if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.marked_ready b, task.claimed a, task.started b, "+
			"task.started a crashed, task.completed a crashed, task.abandoned crashed, run.failed crashed"; got != want {
			t.Errorf("events are\n%s\nwant\n%s", got, want)
		}
		if told := d.journal(); told != "" {
			t.Errorf("the journal tells again: %s", told)
		}
		var notes []string
		for rec, err := range d.p.repo.Records.List(t.Context(), refstore.Query{Partition: "INDEX/late/w"}) {
			if err != nil {
				t.Fatal(err)
			}
			notes = append(notes, rec.Key.Sort)
		}
		if len(notes) != 1 || notes[0] != running {
			t.Errorf("noted are %q, want %q", notes, running)
		}
	}
	rec, err := d.p.repo.Records.Get(t.Context(), refstore.Key{Partition: "INDEX/late/w", Sort: running})
	if err != nil || !strings.Contains(string(rec.Value), `"started":true`) {
		t.Errorf("the note is %s, %v, want that its start is told", rec.Value, err)
	}
}
