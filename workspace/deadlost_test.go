package workspace_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/refstore"
	"e3/workspace"
)

// fence puts the record of an execution that another process has given up, and returns the execution's id and the time
// of its end.
func (d *dead) fence(reason executions.Reason, message string) (id string, at time.Time) {
	d.p.t.Helper()
	begun := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	stamp := fmt.Sprintf("%012x", begun.UnixMilli())
	id = stamp[:8] + "-" + stamp[8:] + newID(d.p.t)[13:]
	at = begun.Add(300 * time.Millisecond)
	status := record.Status{State: record.Error, ExecutionID: id, StartedAt: at, CompletedAt: at, Message: message}
	put := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + d.key.String(), Sort: id}, Value: status.Encode()}
	if reason != executions.ReasonNone {
		put.Fields = []refstore.Field{{Name: "detail.beast2", Value: (&record.Detail{Reason: string(reason)}).Encode()}}
	}
	if _, err := d.p.repo.Records.Put(d.p.ctx, put); err != nil {
		d.p.t.Fatal(err)
	}
	return id, at
}

// The end of a lost attempt is told with the time and the reason of its record, however much later its run is closed.
// Its job says when it was claimed.
func TestCloseDeadTellsOfTheRecord(t *testing.T) {
	d := newDead(t)
	d.run(record.RunRunning)
	lost, lostAt := d.fence(executions.ReasonLost, "bob@lab was lost")
	begun, begunAt := d.fence(executions.ReasonNone, "Process lost its lease and is taken for crashed")
	ends := map[string]time.Time{lost: lostAt, begun: begunAt}
	d.log(events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 2}},
		events.Event{Type: events.TaskMarkedReady, Task: "a"}, events.Event{Type: events.TaskMarkedReady, Task: "b"})
	d.put(refstore.Key{Partition: "INDEX/left/w/" + d.id, Sort: begun}, []byte(`{"task":"a","key":"`+d.key.String()+`","attempt":1}`))
	claimedAt, _ := executions.ParseID(lost)
	d.attempts = []workspace.JobAttempt{{Task: "b", Number: 1, Execution: lost, Worker: "bob@lab", Claimed: claimedAt, Key: d.key.String(), Lost: true}}
	d.p.ws.Runner.SetAttempts(func(_ context.Context, ws, run string) ([]workspace.JobAttempt, error) {
		if run != d.id {
			return nil, nil
		}
		return d.attempts, nil
	})
	d.p.start()
	if got, want := d.events(), "run.started, task.created, task.marked_ready a, task.marked_ready b, task.started a crashed, "+
		"task.claimed b crashed, task.failed a crashed, task.failed b lost, run.failed crashed"; got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	var m eventstest.Machine
	for e, err := range events.Read(d.p.ctx, d.p.repo.Records, "w", d.id) {
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Next(&e.Event); err != nil {
			t.Error(err)
		}
		claimed, _ := executions.ParseID(e.Execution)
		switch e.Type {
		case events.TaskClaimed, events.TaskStarted:
			if !e.Time.Equal(claimed) {
				t.Errorf("%s of %s is told at %s, want %s, when it was claimed", e.Type, e.Task, e.Time, claimed)
			}
		case events.TaskFailed:
			if !e.Time.Equal(ends[e.Execution].UTC().Truncate(time.Millisecond)) {
				t.Errorf("the end of %s is told at %s, want %s as on record", e.Task, e.Time, ends[e.Execution])
			}
		}
	}
}
