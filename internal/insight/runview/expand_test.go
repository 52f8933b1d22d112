package runview_test

import (
	"fmt"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/insight/runview"
	"e3/internal/packages"
	"e3/refstore/mem"
)

// Where its package is gone, a bulk event stands for the tasks of the run that it names: by events of that run, or
// through its own bulk event. A log that refers to itself, or to a removed run, has no task.
func TestHasTask(t *testing.T) {
	s := mem.New()
	id := func(n int) string { return fmt.Sprintf("0194fdc2-fa2f-7cc0-81d3-%012d", n) }
	bulk := func(as int) events.Event {
		return events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 200, As: id(as)}}
	}
	done := func(task string) events.Event {
		return events.Event{Type: events.TaskCompleted, Task: task, Execution: id(99)}
	}
	for run, list := range map[int][]events.Event{
		1: {done("a"), done("b")},
		2: {bulk(1)},
		3: {bulk(2), done("b")},
		4: {bulk(3)},
		5: {bulk(6)}, // a cycle
		6: {bulk(5)},
		7: {bulk(0)}, // a removed run
	} {
		log := events.Create(s, "w", id(run), time.Now)
		log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{PackageHash: "gone"}})
		for _, e := range list {
			log.Emit(e)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	runs := &runview.Runs{Records: s, Packages: &packages.Registry{}}
	for task, want := range map[string]string{"a": "1234", "b": "1234", "c": ""} {
		has, got := runs.HasTask(task), ""
		for run := range 8 {
			is, err := has(t.Context(), "gone", events.RunRef{Workspace: "w", Run: id(run)})
			if err != nil {
				t.Fatal(err)
			}
			if is {
				got += fmt.Sprint(run)
			}
		}
		if got != want {
			t.Errorf("%s: runs %s have it, want %s", task, got, want)
		}
	}
}
