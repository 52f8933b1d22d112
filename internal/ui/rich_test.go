package ui_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"e3/dataflow"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/jobs/queue"
	"e3/refstore"
	"e3/workspace"
)

// richAnswers are answers of which every part of a page has something to show.
type richAnswers struct{}

func (richAnswers) Names(context.Context) ([]string, error) {
	return []string{"exp-deep", "exp-wide", "prod"}, nil
}

func (richAnswers) Status(_ context.Context, ws string) (*workspace.Status, error) {
	switch ws {
	case "exp-deep":
		st := status(ws, slices.Repeat([]dataflow.Freshness{dataflow.Current}, 12)...)
		st.File, st.Edited = "e3.yaml", true
		return st, nil
	case "exp-wide":
		return &workspace.Status{Workspace: ws}, nil
	}
	st := status(ws, dataflow.Current, dataflow.Stale, dataflow.Absent)
	st.File = "pipelines/prod/e3.yaml"
	st.Run = &runview.Report{Run: &record.Run{RunID: runID, WorkspaceName: ws, StartedAt: now.Add(-time.Hour), State: record.RunRunning}, Live: true}
	st.Holder = &workspace.BusyError{Workspace: ws, Operation: record.Dataflow, Holder: "ann@mill", Since: now.Add(-time.Hour)}
	st.Deferred = []approval.Waiting{{Task: "sign", Since: moment.At(now.Add(-5 * time.Minute))}}
	st.Faults = human.Faults([]error{errors.New("the journal has a damaged line")})
	return st, nil
}

// job is a job of a rich queue, created three minutes ago.
func job(id, task string, status queue.Status) queue.Job {
	return queue.Job{ID: id, Workspace: "prod", Run: runID, Task: task, Status: status, LockedBy: "a session", Created: queue.TimeOf(now.Add(-3 * time.Minute))}
}

func (richAnswers) Queues(context.Context) (queue.States, error) {
	runs, failed := job("0195-b", "train[8]", queue.Running), job("0195-c", "broken", queue.Failed)
	runs.Worker, runs.Started = "bob@cluster-node-17.example", runs.Created
	failed.Outcome = &queue.Outcome{Message: "exit code 3: ValueError: no <data> in the file that it was given"}
	row := running(runs)
	row[0].Work.Heard = refstore.Heard{At: now.Add(-4 * time.Second), Lease: 15 * time.Second}
	return queue.States{Queues: []queue.State{
		{Queue: "default", Ready: 2, Delayed: 1, Since: moment.At(now.Add(-3 * time.Minute)), Running: row, Failed: queue.RowsOf([]queue.Job{failed}).Jobs, Over: []queue.RunJobs{{Workspace: "prod", Run: "0194fdc1", Jobs: 2}}},
		{Queue: "gpu", Faults: []string{"its index is damaged; e3 verify mends it"}},
	}}, nil
}

func (richAnswers) InTurn(_ context.Context, queues ...string) (queue.Rows, []error, error) {
	if queues[0] != "default" {
		return queue.Rows{}, nil, nil
	}
	waits := job("0195-a", "train[7]", queue.Queued)
	waits.Labels, waits.Policy.Memory = []string{"gpu"}, 8<<30
	return queue.RowsOf([]queue.Job{waits, job("0195-d", "train[9]", queue.Queued)}), nil, nil
}

func (richAnswers) Garbage(context.Context) (*gc.Report, error) {
	return &gc.Report{
		Live: gc.Amount{Objects: 4_211, Bytes: 7 << 30}, Collected: gc.Amount{Objects: 310, Bytes: 90 << 20}, Young: gc.Amount{Objects: 4, Bytes: 1 << 20}, Missing: 1,
		Warnings: []string{"1 object is missing; e3 verify says which"},
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
	b.stores.Answers = richAnswers{}
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
