package ui_test

import (
	"context"
	"fmt"
	"math"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/insight/stats"
	"e3/internal/insight/ui"
)

// richFacts are answers of which every part of a page has something to show.
type richFacts struct{}

func (richFacts) Names(context.Context) ([]string, error) {
	return []string{"exp-deep", "exp-wide", "prod"}, nil
}

func (richFacts) Workspaces(context.Context) ([]ui.Workspace, error) {
	return []ui.Workspace{
		{Name: "exp-deep", Package: "demo@1.0.0", DeployedAt: now.Add(-time.Hour), File: "e3.yaml", Edited: true, Current: 12},
		{Name: "exp-wide"},
		{Name: "prod", Package: "demo@1.0.0", File: "pipelines/prod/e3.yaml", Current: 1, Stale: []string{"broken"}, Missing: []string{"after"},
			Run:  &runview.Report{Run: &record.Run{RunID: runID, WorkspaceName: "prod", StartedAt: now.Add(-time.Hour), State: record.RunRunning}, Live: true},
			Busy: "ann@mill: start", BusySince: now.Add(-time.Hour), Deferred: []ui.Deferred{{Workspace: "prod", Task: "sign", Since: now.Add(-5 * time.Minute)}},
			Faults: []string{"the journal has a damaged line"}},
	}, nil
}

func (f richFacts) Workspace(ctx context.Context, name string) (*ui.Workspace, error) {
	list, err := f.Workspaces(ctx)
	return &list[2], err
}

func (richFacts) Queues(context.Context) ([]ui.Queue, error) {
	job := func(id, task, state string) ui.Job {
		return ui.Job{ID: id, Workspace: "prod", Run: runID, Task: task, State: state, Since: now.Add(-3 * time.Minute)}
	}
	waits, runs, failed := job("0195-a", "train[7]", "ready"), job("0195-b", "train[8]", "running"), job("0195-c", "broken", "failed")
	waits.Asks = "gpu, 8 GiB"
	runs.Worker, runs.Lease = "bob@cluster-node-17.example", "heard of 4 s ago"
	failed.Message = "exit code 3: ValueError: no <data> in the file that it was given"
	return []ui.Queue{
		{Name: "default", Ready: 2, Delayed: 1, Since: now.Add(-3 * time.Minute), Waiting: []ui.Job{waits, job("0195-d", "train[9]", "delayed")}, Running: []ui.Job{runs}, Failed: []ui.Job{failed}, Over: []string{"run 0194fdc1 of prod has ended, and 2 of its jobs wait"}},
		{Name: "gpu", Faults: []string{"its index is damaged; e3 verify mends it"}},
	}, nil
}

func (richFacts) Store(context.Context) (*ui.Store, error) {
	sums := stats.Sums{Runs: 14, Completed: 11, Hits: 220, Executed: 61, Failures: 4, SavedMs: 8_400_000, ExecutedMs: 1_300_000, Bytes: 7 << 30}
	return &ui.Store{
		At: now, Kept: ui.Amount{Objects: 4_211, Bytes: 7 << 30}, Free: ui.Amount{Objects: 310, Bytes: 90 << 20}, Young: ui.Amount{Objects: 4, Bytes: 1 << 20}, Missing: 1,
		Warnings: []string{"1 object is missing; e3 verify says which"}, Executions: 281, Pinned: 3,
		Stats: &stats.Stats{Total: stats.Group{Sums: sums}, Workspaces: []stats.Group{{Name: "prod", Sums: sums}}, Users: []stats.Group{{Name: "ann", Sums: sums}, {Sums: stats.Sums{Runs: 1}}}},
		Tasks: []ui.TaskSize{{Workspace: "prod", Task: "train[2]", Executions: 9, Bytes: 6 << 30}, {Workspace: "prod", Task: "clean", Executions: 2, Bytes: 3 << 20}},
	}, nil
}

// curve is a table that is drawn.
func curve(phase float64) string {
	text := "round,error\n"
	for i := range 40 {
		text += fmt.Sprintf("%d,%.4f\n", i, math.Exp(-float64(i)/12)+0.05*math.Sin(float64(i)+phase))
	}
	return text
}

// rich writes two runs of which every part of a page has something to show; the second is at work if it is live.
func (b *bench) rich(live bool) {
	b.t.Helper()
	b.stores.Facts = richFacts{}
	tasks := func(loss float64) []made {
		list := []made{{name: "clean", state: runview.TaskCached, took: 2 * time.Second, file: "clean.csv", output: "day,rain,wind\nmon,1.5,3\ntue,0.25,7\n", stdout: "cleaned 2 rows\n"}}
		for i := range 4 {
			name := fmt.Sprintf("train[fold=%d,model=gbm]", i)
			list = append(list,
				made{name: name, state: runview.TaskSuccess, took: time.Duration(3+5*i) * time.Second, file: "m.json", kind: "metrics", reads: []string{"clean"},
					output: fmt.Sprintf(`{"loss": %.3f, "accuracy": 0.%d, "rows": {"train": 8000, "test": 2000}}`, loss*float64(i+1), 91-i), stdout: "\x1b[32mepoch 1\x1b[0m loss 0.4\nepoch 2 loss 0.3\n"},
				made{name: fmt.Sprintf("curve[fold=%d,model=gbm]", i), state: runview.TaskSuccess, took: time.Second, file: "curve.csv", kind: "plot", output: curve(float64(i)), reads: []string{name}})
		}
		return append(list,
			made{name: "summary", state: runview.TaskSuccess, took: time.Second, file: "summary.md", kind: "report", output: "# Summary\n\nAll four folds agree.\n", reads: []string{"train[fold=0,model=gbm]"}},
			made{name: "broken", state: runview.TaskFailed, took: 4 * time.Second, file: "b", stdout: "reading\n", stderr: "Traceback (most recent call last):\n  File \"fit.py\", line 7, in <module>\n\x1b[31mValueError\x1b[0m: no <data>\n", reads: []string{"train[fold=2,model=gbm]"}})
	}
	ended := record.Summary{Total: 11, Completed: 10, Cached: 1, Failed: 1}
	b.id, b.began = "0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", now.Add(-26*time.Hour)
	b.run(false, tasks(0.2)...)
	b.record(record.Run{RunID: b.id, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: b.began.Add(time.Minute), State: record.RunFailed, FailedTask: "broken", Error: "3", Summary: ended})
	b.pkg, b.id, b.began = record.Package{Name: "demo", Version: "1.1.0"}, runID, now.Add(-time.Hour)
	b.run(live, tasks(0.1)...)
	if !live {
		b.record(record.Run{RunID: b.id, WorkspaceName: "prod", PackageRef: "demo@1.1.0", StartedAt: b.began, CompletedAt: b.began.Add(time.Minute), State: record.RunFailed, FailedTask: "broken", Error: "3", Summary: ended})
		return
	}
	b.log.Emit(events.Event{Time: now.Add(-5 * time.Minute), Type: events.TaskMarkedReady, Task: "sign"})
	b.log.Emit(events.Event{Time: now.Add(-5 * time.Minute), Type: events.TaskDeferred, Task: "sign", Data: &events.Data{}})
	if err := b.log.Flush(); err != nil {
		b.t.Fatal(err)
	}
}

// richViews are pages of every kind of that repository.
func richViews() map[string]string {
	train, broken := "/task?w=prod&t="+urlOf("train[fold=2,model=gbm]"), "/task?w=prod&t=broken"
	return map[string]string{
		"workspaces": "/", "run": "/run?w=prod", "run-filtered": "/run?w=prod&q=none", "timeline": "/run?w=prod&view=timeline", "graph": "/run?w=prod&view=graph", "families": "/run?w=prod&by=family",
		"task": broken, "task-stderr": broken + "&log=stderr&find=value", "why": train + "&view=why", "data": train + "&view=data", "attempts": train + "&view=history",
		"plot": "/task?w=prod&view=data&t=" + urlOf("curve[fold=0,model=gbm]"), "report": "/task?w=prod&view=data&t=summary", "sign": "/task?w=prod&t=sign",
		"history": "/history?w=prod", "compare": "/compare?w=prod", "queue": "/queue", "experiments": "/experiments?sides=prod@+prod@-1&all=1", "experiments-one": "/experiments?sides=prod@", "store": "/store", "fault": "/run?w=nothing",
	}
}
