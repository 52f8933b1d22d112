package runview

import (
	"context"
	"errors"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
)

// taskOf reports one task of a run by its summary, nil if it is not part of the run yet, and the hash of the run's
// package. It reads as Report does, but parses and keeps only this task's events: one task of 100,000 costs little
// more memory than a run's only task.
func (v *Runs) taskOf(ctx context.Context, ws string, r *Report, task string) (*TaskReport, string, error) {
	f, err := v.foldOf(ctx, ws, r.RunID, task)
	if err != nil {
		return nil, "", err
	}
	r.tell(f.started, f.end)
	own := f.Find(task)
	recorded := !r.unrecorded && r.State != record.RunRunning
	if own == nil && f.Bulk() && !recorded { // a bulk event may stand for it
		whole := *r
		if f, err = v.tasks(ctx, ws, &whole); err != nil {
			return nil, "", err
		}
		for i := range whole.Tasks {
			if whole.Tasks[i].Task == task {
				t := whole.Tasks[i]
				return &t, f.PackageHash(), nil
			}
		}
		return nil, f.PackageHash(), nil
	}
	one := *r
	one.Tasks = nil
	if own != nil && own.State != "" && own.State != TaskReady {
		one.Tasks = []TaskReport{own.TaskReport}
	}
	now := v.Now()
	if recorded {
		now = time.Time{}
		for e := range r.Run.Tasks.All() {
			if e.Task == task {
				one.Tasks = []TaskReport{own.recorded(e)}
				break
			}
		}
	}
	if len(one.Tasks) == 0 {
		return nil, f.PackageHash(), nil
	}
	one.now(now)
	return &one.Tasks[0], f.PackageHash(), nil
}

// foldOf folds the events of a run that are not about other tasks. Damage in events of other tasks is not noticed.
func (v *Runs) foldOf(ctx context.Context, ws, run, task string) (*Fold, error) {
	f := NewFold()
	for e, err := range events.ReadTask(ctx, v.Records, ws, run, task) {
		if errors.As(err, new(*events.DamagedError)) {
			return f, v.endOf(ctx, ws, run, f)
		}
		if err != nil {
			return nil, err
		}
		if e.Task == "" || e.Task == task || e.Type.Ends() {
			f.Add(e)
		}
	}
	return f, nil
}
