package history_test

import (
	"fmt"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/insight/history"
)

// BenchmarkAttempts asks for one task of a workspace with a million events: 100 runs of 2,500 tasks.
func BenchmarkAttempts(b *testing.B) {
	const runs, tasks = 100, 2500
	r := newRepo(b)
	s := history.Stores{Records: r.Records, Executions: r.Executions, Runs: r.Workspaces.Runs}
	for run := range runs {
		l := events.Create(r.Records, "prod", id(10*(runs-run)), func() time.Time { return at(10 * (runs - run)) })
		l.Emit(began)
		l.Emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: tasks}})
		for t := range tasks {
			name := fmt.Sprintf("train[%d]", t)
			k := key(name, fmt.Sprint(run))
			e := started(name, k, 10*(runs-run)-1, 1)
			e.Execution = fmt.Sprintf("%s%06x%06x", e.Execution[:24], run, t)
			l.Emit(events.Event{Type: events.TaskMarkedReady, Task: name})
			l.Emit(e)
			e.Type = events.TaskCompleted
			l.Emit(e)
			l.Emit(events.Event{Type: events.TaskSkipped, Task: name + "x"})
		}
		l.Emit(ended)
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
	ask := func(name string, q history.Query, want int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				found, err := history.Find(b.Context(), s, q)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, t := range found.Tasks {
					n += len(t.Attempts)
				}
				if n != want {
					b.Fatalf("%d attempts, want %d", n, want)
				}
			}
		})
	}
	ask("task", history.Query{Workspace: "prod", Tasks: []string{"train[1234]"}}, runs)
	ask("none", history.Query{Workspace: "prod", Tasks: []string{"nothing"}}, 0)
	ask("pattern", history.Query{Workspace: "prod", Pattern: "train[123?]"}, 10*runs)
}
