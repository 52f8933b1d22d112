package eventstest_test

import (
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/events/eventstest"
)

// machineLog makes a log from lines "type task field=value …". Numbers are tallies.
func machineLog(text string) []events.Event {
	var list []events.Event
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		e := events.Event{Seq: int64(len(list) + 1), Run: "r", Type: events.Type(words[0])}
		d := &events.Data{}
		for _, w := range words[1:] {
			name, value, said := strings.Cut(w, "=")
			n := int64(len(value)) // a tally
			switch {
			case !said:
				e.Task = w
			case name == "n":
				d.Tasks = int(n)
			case name == "attempt":
				d.Attempt = n
			case name == "reason":
				d.Reason = value
			case name == "as":
				d.As = value
			case name == "x":
				e.Execution = value
			case name == "block":
				d.Block = value
			case name == "seq":
				e.Seq = n
			case name == "run":
				e.Run = value
			case name == "failed":
				d.Summary = &events.Summary{Total: 1, Failed: n}
			}
		}
		e.Data = d
		list = append(list, e)
	}
	return list
}

func follow(list []events.Event) (*eventstest.Machine, error) {
	var m eventstest.Machine
	for i := range list {
		if err := m.Next(&list[i]); err != nil {
			return &m, err
		}
	}
	return &m, nil
}

func TestMachine(t *testing.T) {
	const whole = `run.started
		task.cached a as=q
		task.cached n=III as=q
		task.created n=IIIIIIIIIIIII
		task.marked_ready b
		task.marked_ready c
		task.marked_ready d
		task.marked_ready e
		task.started b attempt=I x=1
		task.completed b attempt=I x=1
		task.started c attempt=I x=2
		task.failed c attempt=I x=2
		task.retry_scheduled c attempt=II
		task.started c attempt=II x=3
		task.failed c attempt=II x=3
		task.skipped f
		task.failed d attempt=I
		task.retry_scheduled d attempt=II
		task.cached d
		task.marked_ready g
		task.failed g
		task.retry_scheduled g attempt=II
		task.failed g attempt=I
		task.marked_ready h
		task.deferred h block=p
		task.resumed h block=p
		task.claimed h attempt=I x=4
		task.claimed h attempt=I x=5
		task.started h attempt=I x=5
		task.failed h attempt=I x=5
		task.retry_scheduled h attempt=II
		task.claimed h attempt=II x=6
		task.started h attempt=II x=6
		task.deferred h x=6 block=q
		task.resumed h block=q
		task.started h attempt=III x=7
		task.completed h x=7
		task.marked_ready i
		task.claimed i attempt=I x=8
		task.failed i attempt=I x=8
		task.marked_ready j
		task.deferred j block=r
		task.failed j block=r
		task.marked_ready k
		task.deferred k block=s
		task.abandoned n=IIIII
		run.failed`
	m, err := follow(machineLog(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := events.Summary{Total: 17, Completed: 7, Cached: 5, Failed: 4, Skipped: 6}
	if got := m.Summary(); got != want || m.Ended() != events.RunFailed {
		t.Errorf("it counts %+v and ends with %s, want %+v", got, m.Ended(), want)
	}
}

// Every deviation from the diagram is an error that says what is wrong.
func TestMachineRefuses(t *testing.T) {
	for _, test := range []struct{ name, log, want string }{
		{"no beginning", "task.created n=I", "a log begins with run.started"},
		{"two beginnings", "run.started\nrun.started", "a log begins with run.started"},
		{"a gap", "run.started\ntask.created n=I seq=III", "its number is not 2"},
		{"another run's", "run.started\ntask.created n=I run=q", `it is of run "q"`},
		{"something after the end", "run.started\nrun.completed\ntask.created n=I", "follows the end"},
		{"a task that was not announced", "run.started\ntask.marked_ready a", "none of the tasks that were announced"},
		{"one too many", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.marked_ready b", "none of the tasks"},
		{"no task", "run.started\ntask.created n=I\ntask.marked_ready", "names no task"},
		{"created by name", "run.started\ntask.created a n=I", "many tasks"},
		{"created without a number", "run.started\ntask.created", "many tasks"},
		{"cached in bulk without a run", "run.started\ntask.cached n=II", "stands for 2 tasks"},
		{"started before it is ready", "run.started\ntask.created n=I\ntask.started a attempt=I", `"a" is pending`},
		{"completed without a start", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.completed a", `"a" is ready`},
		{"completed twice", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I\ntask.completed a\ntask.completed a", `"a" is success`},
		{"skipped when ready", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.skipped a", `"a" is ready`},
		{"an unknown type", "run.started\ntask.created n=I\ntask.napped a", `"a" is pending`},
		{"another execution's end", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I x=1\ntask.completed a x=2", `execution "2"`},
		{"a second attempt at first", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=II", "attempt 1 is due"},
		{"an attempt left out", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.failed a attempt=I\ntask.retry_scheduled a attempt=III", "after attempt 1"},
		{"another execution's start", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.claimed a attempt=I x=1\ntask.started a attempt=I x=2", `execution "2" begins`},
		{"a claim ahead of its turn", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.claimed a attempt=II x=1", "attempt 1 is due"},
		{"claimed while it runs", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I x=1\ntask.claimed a attempt=I x=1", `"a" is running`},
		{"another execution suspends itself", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I x=1\ntask.deferred a x=2 block=b", `execution "2"`},
		{"deferred by nothing", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.deferred a", "names no block"},
		{"resumed by another block", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.deferred a block=b\ntask.resumed a block=c", `block "c" is approved`},
		{"resumed without waiting", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I x=1\ntask.resumed a block=c", `"a" is running`},
		{"started while it waits", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.deferred a block=b\ntask.started a attempt=I", `"a" is deferred`},
		{"the attempt that has suspended itself again", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I x=1\ntask.deferred a x=1 block=b\ntask.resumed a block=b\ntask.started a attempt=I x=2", "attempt 2 is due"},
		{"an end with a deferred task", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.deferred a block=b\nrun.failed", `deferred still, as "a"`},
		{"an end with a claimed task", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.claimed a attempt=I x=1\nrun.failed", `claimed still, as "a"`},
		{"too many abandoned", "run.started\ntask.created n=II\ntask.abandoned n=III", "3 tasks are abandoned"},
		{"an end with a pending task", "run.started\ntask.created n=I\nrun.failed", "1 tasks are pending still"},
		{"an end with a ready task", "run.started\ntask.created n=I\ntask.marked_ready a\nrun.failed", `1 tasks are ready still, as "a"`},
		{"an end with a running task", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.started a attempt=I\nrun.cancelled", `running still, as "a"`},
		{"an end that counts a task that waits for a retry as open", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.failed a\ntask.retry_scheduled a attempt=II\nrun.completed", "0 of 1 tasks are completed"},
		{"completed with a failure", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.failed a\nrun.completed", "0 of 1 tasks are completed"},
		{"cancelled with nothing left", "run.started\ntask.cached a as=q\nrun.cancelled", "1 of 1 tasks are completed"},
		{"an item of a batch that ends as its batch did", "run.started\ntask.created n=I\ntask.marked_ready a\ntask.failed a reason=batch\ntask.retry_scheduled a attempt=II\nrun.failed", `1 tasks are ready still, as "a"`},
		{"another summary", "run.started\ntask.cached a as=q\nrun.failed failed=I", "its summary is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := follow(machineLog(test.log)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// Each step of the diagram starts in a reachable state, and every state except the final ones has a next step.
func TestDiagram(t *testing.T) {
	reached := map[eventstest.State]bool{eventstest.Unnamed: true}
	for _, e := range eventstest.Diagram() {
		if !reached[e.From] {
			t.Errorf("no step leads to the state where this one begins: %v", e)
		}
		reached[e.To] = true
	}
	if len(reached) != 12 {
		t.Errorf("%d states are reached, want all twelve", len(reached))
	}
}
