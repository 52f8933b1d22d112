package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/cmd/e3/internal/term"
	"e3/internal/events"
)

func failed(task, execution, reason string, attempt int64) events.Event {
	d := &events.Data{Attempt: attempt, ExitCode: 1, Key: "key-" + execution, Reason: reason}
	if reason != "" {
		d.Message = reason
	}
	return events.Event{Type: events.TaskFailed, Task: task, Execution: execution, Data: d}
}

func retry(task string, attempt int64) events.Event {
	return events.Event{Type: events.TaskRetryScheduled, Task: task, Data: &events.Data{Attempt: attempt}}
}

// Whatever the order, exactly one failure remains for each task that failed in the end: its last one.
func TestTranscriptFailures(t *testing.T) {
	for _, test := range []struct {
		name   string
		events []events.Event
		want   []string // executions
	}{
		{"one", []events.Event{failed("a", "a1", "", 1)}, []string{"a1"}},
		{"retried", []events.Event{failed("a", "a1", "", 1), retry("a", 2)}, nil},
		{"failed again", []events.Event{failed("a", "a1", "", 1), retry("a", 2), failed("a", "a2", "", 2)}, []string{"a2"}},
		{"others between", []events.Event{
			failed("a", "a1", "", 1), failed("b", "b1", "", 1), retry("a", 2), failed("c", "c1", "", 1), retry("b", 2), failed("a", "a2", "", 2),
		}, []string{"c1", "a2"}},
		{"failed twice without a word between", []events.Event{failed("a", "a1", "", 1), failed("a", "a2", "", 2)}, []string{"a2"}},
		{"timeout", []events.Event{failed("a", "a1", "timeout", 1)}, []string{"a1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := newTranscript(&strings.Builder{}, term.Hidden(), term.Style{})
			for _, e := range test.events {
				tr.event(e)
			}
			var got []string
			for _, f := range tr.failures {
				got = append(got, f.ExecutionID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("failures differ (-want +got):\n%s", diff)
			}
		})
	}
}

// The counts include every step once, however many attempts it has.
func TestTranscriptCounts(t *testing.T) {
	tr := newTranscript(&strings.Builder{}, term.Hidden(), term.Style{})
	for _, step := range []struct {
		event       events.Event
		done, total int64
	}{
		{events.Event{Type: events.RunStarted}, 0, 0},
		{events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 200, As: "r"}}, 200, 200},
		{events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: 3}}, 200, 203},
		{events.Event{Type: events.TaskStarted, Task: "a", Data: &events.Data{Attempt: 1}}, 200, 203},
		{failed("a", "a1", "", 1), 201, 203},
		{retry("a", 2), 200, 203},
		{events.Event{Type: events.TaskCompleted, Task: "a"}, 201, 203},
		{events.Event{Type: events.TaskCached, Task: "b"}, 202, 203},
		{events.Event{Type: events.TaskSkipped, Task: "c", Data: &events.Data{Because: "x"}}, 203, 203},
	} {
		tr.event(step.event)
		if tr.done != step.done || tr.total != step.total {
			t.Errorf("after %s of %q: %d of %d, want %d of %d", step.event.Type, step.event.Task, tr.done, tr.total, step.done, step.total)
		}
	}
}

// A task that waits for approval is printed once, with the command to type, and not again once it is decided.
func TestTranscriptApproval(t *testing.T) {
	var out strings.Builder
	tr := newTranscript(&out, term.Hidden(), term.Style{})
	var asked []string
	tr.ask = func(task string) { asked = append(asked, task) }
	for _, e := range []events.Event{
		{Type: events.TaskCreated, Data: &events.Data{Tasks: 2}},
		{Type: events.TaskDeferred, Task: "a", Data: &events.Data{Block: "1", BlockType: "review"}},
		{Type: events.TaskClaimed, Task: "b", Worker: "ann@desk", Execution: "b1"},
		{Type: events.TaskStarted, Task: "b", Worker: "ann@desk", Execution: "b1", Data: &events.Data{Attempt: 1}},
		{Type: events.TaskDeferred, Task: "b", Execution: "b1", Data: &events.Data{Block: "2", BlockType: "suspend"}},
		{Type: events.TaskResumed, Task: "a", Data: &events.Data{Block: "1", By: "bob@desk"}},
		{Type: events.TaskCompleted, Task: "a"},
		{Type: events.TaskFailed, Task: "b", Execution: "b1", Data: &events.Data{Block: "2", Reason: "rejected", Message: "rejected by bob@desk"}},
	} {
		tr.event(e)
	}
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	want := `  [wait]   a (waits for approval)
  [start]  b (by ann@desk)
  [wait]   b (it suspended itself; waits for approval)
  [resume] a (approved by bob@desk)
  [done]   a (0ms)
  [error]  b (rejected by bob@desk)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("printed (-want +got):\n%s", diff)
	}
	if !slices.Equal(asked, []string{"a", "b"}) || len(tr.waits) > 0 || len(tr.failures) > 0 || tr.done != 2 {
		t.Errorf("asked for %q; %v wait, %d failures, %d done", asked, tr.waits, len(tr.failures), tr.done)
	}
}

// A worker that dies, and the one that goes on with its command, are shown as they come.
func TestTranscriptWorkers(t *testing.T) {
	var out strings.Builder
	tr := newTranscript(&out, term.Hidden(), term.Style{})
	for _, e := range []events.Event{
		{Type: events.TaskStarted, Task: "a", Worker: "ann@lab (process 7)"},
		{Type: events.TaskOrphaned, Task: "a", Worker: "ann@lab (process 7)"},
		{Type: events.TaskAdopted, Task: "a", Worker: "bob@lab (process 8)"},
	} {
		tr.event(e)
	}
	const want = `  [start]  a (by ann@lab, process 7)
  [lost]   a (its worker ann@lab, process 7 has died; the next one takes over)
  [adopt]  a (goes on with bob@lab, process 8)
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// A batch that fails has one line, whatever the order of its items' ends, and none of its items counts as failed or ended.
func TestTranscriptBatch(t *testing.T) {
	var out strings.Builder
	tr := newTranscript(&out, term.Hidden(), term.Style{})
	spoilt := func(task, batch string, items int) []events.Event {
		e := failed(task, task+"1", "batch", 1)
		e.Data.Batch, e.Data.Items = batch, items
		return []events.Event{e, retry(task, 2)}
	}
	list := slices.Concat(
		[]events.Event{{Type: events.TaskCreated, Data: &events.Data{Tasks: 4}}},
		spoilt("t[a]", "x", 2), spoilt("u[a]", "y", 2), spoilt("t[b]", "x", 2),
		[]events.Event{
			{Type: events.TaskCompleted, Task: "u[b]", Data: &events.Data{Batch: "y", Items: 2}},
			{Type: events.TaskStarted, Task: "t[a]", Data: &events.Data{Attempt: 2}},
			failed("t[a]", "a2", "", 2), retry("t[a]", 3),
			{Type: events.TaskStarted, Task: "t[a]", Data: &events.Data{Attempt: 3}},
		},
		spoilt("v[a]", "z1", 2), spoilt("w[a]", "z2", 2), spoilt("w[b]", "z3", 3), // the run ends before the others' ends are known
	)
	for _, e := range list {
		tr.event(e)
	}
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	const want = `  [alone]  2 items of t (batch)
  [alone]  1 item of u (batch)
  [done]   u[b] (0ms)
  [start]  t[a] (alone)
  [failed] t[a] (exit code 1)
  [retry]  t[a] (attempt 3 at once)
  [start]  t[a] (attempt 3)
  [alone]  1 item of v (batch)
  [alone]  1 item of w (batch)
  [alone]  1 item of w (batch)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the transcript differs (-want +got):\n%s", diff)
	}
	if tr.done != 1 || tr.brief.failed != 0 || len(tr.failures) != 0 {
		t.Errorf("%d have ended, %d failed, %d are explained; want 1, 0 and 0", tr.done, tr.brief.failed, len(tr.failures))
	}
}
