package recorded

import (
	"context"
	"fmt"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

// Run puts a run of a workspace on record in which each task ran, on eight workers; every hundredth failed in it. The executions
// themselves are not on record.
func Run(ctx context.Context, r *repo.Repo, ws string) (id string, err error) {
	state, err := r.Workspaces.State(ctx, ws)
	if err != nil {
		return "", err
	}
	pkg, err := r.Workspaces.Packages.Load(ctx, state.PackageHash)
	if err != nil {
		return "", err
	}
	if id, err = executions.NewID(); err != nil {
		return "", err
	}
	if _, err := events.RecordRun(ctx, r.Records, ws, id, time.Now, 0); err != nil {
		return "", err
	}
	began := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	end := began.Add(time.Hour)
	log := events.Create(r.Records, ws, id, time.Now)
	log.Emit(events.Event{Time: began, Type: events.RunStarted, Data: &events.Data{Package: pkg.Name + "@" + pkg.Version, PackageHash: state.PackageHash}})
	log.Emit(events.Event{Time: began, Type: events.TaskCreated, Data: &events.Data{Tasks: len(pkg.Tasks)}})
	run := record.Run{RunID: id, WorkspaceName: ws, PackageRef: pkg.Name + "@" + pkg.Version, StartedAt: began, CompletedAt: end, State: record.RunFailed, Error: "exit code 1"}
	var list []record.TaskExecution
	for i := range pkg.Tasks {
		t := &pkg.Tasks[i]
		hash, err := objectstore.ParseHash(t.Task)
		if err != nil {
			return "", err
		}
		at := began.Add(time.Duration(i) * time.Millisecond)
		execution := fmt.Sprintf("%s%012x", id[:24], i)
		d := events.Data{Key: executions.NewKey(hash, nil).String(), Attempt: 1}
		log.Emit(events.Event{Time: at, Type: events.TaskMarkedReady, Task: t.Name})
		log.Emit(events.Event{Time: at, Type: events.TaskStarted, Task: t.Name, Execution: execution, Worker: fmt.Sprintf("ann@mill%d", i%8), Data: &events.Data{Key: d.Key, Attempt: 1}})
		d.Duration = int64(100 + i%900)
		ended := events.Event{Time: at.Add(time.Duration(d.Duration) * time.Millisecond), Type: events.TaskCompleted, Task: t.Name, Execution: execution, Data: &d}
		run.Summary.Completed++
		if i%100 == 99 {
			ended.Type, d.ExitCode = events.TaskFailed, 1
			run.Summary.Completed, run.Summary.Failed = run.Summary.Completed-1, run.Summary.Failed+1
			if run.FailedTask == "" {
				run.FailedTask = t.Name
			}
		}
		log.Emit(ended)
		list = append(list, record.TaskExecution{Task: t.Name, ExecutionID: execution})
	}
	run.Summary.Total = int64(len(pkg.Tasks))
	run.Tasks = record.NewRunTasks(func(yield func(record.TaskExecution) bool) {
		for _, e := range list {
			if !yield(e) {
				return
			}
		}
	})
	log.Emit(runview.End(&run))
	if err := log.Close(); err != nil {
		return "", err
	}
	_, err = r.Records.Put(ctx, refstore.Record{Key: runview.Key(ws, id), Value: run.Encode()})
	return id, err
}
