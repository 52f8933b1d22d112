package runview

import (
	"fmt"
	"strings"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
)

// Contradicts describes where the record of an ended run differs from its events. It returns "" if they agree, or if
// the events are incomplete: they have no end, or some are lost. A fact that only one of them has, such as a
// snapshot, contradicts nothing.
func (f *Fold) Contradicts(run *record.Run) string {
	if f.end == nil || f.started == nil || f.lost > 0 || run.State == record.RunRunning {
		return ""
	}
	for _, what := range []func(*record.Run) string{f.otherBegin, f.otherEnd, f.otherTasks} {
		if fault := what(run); fault != "" {
			return fault
		}
	}
	return ""
}

// differs describes the difference between two texts; "" if they are equal or if one is empty.
func differs(what, told, recorded string) string {
	if told == "" || recorded == "" || told == recorded {
		return ""
	}
	return fmt.Sprintf("its events say that %s is %.80q, its record %.80q", what, told, recorded)
}

func (f *Fold) otherBegin(run *record.Run) string {
	d := f.started.Data
	if d == nil {
		return ""
	}
	if fault := differs("the package", d.Package, run.PackageRef); fault != "" {
		return fault
	}
	return differs("the root of the inputs", d.Inputs, run.InputSnapshot)
}

// otherEnd compares the last event with the state in the record.
func (f *Fold) otherEnd(run *record.Run) string {
	told, want := f.end, End(run)
	if told.Type != want.Type {
		return fmt.Sprintf("its events end with %s, its record says that it was %s", told.Type, run.State)
	}
	if told.Task != want.Task {
		return fmt.Sprintf("its events say that the first task to fail is %.80q, its record %.80q", told.Task, want.Task)
	}
	d := told.Data
	if d == nil {
		return ""
	}
	if d.Summary != nil && *d.Summary != *want.Data.Summary {
		return fmt.Sprintf("its events count %+v, its record %+v", *d.Summary, *want.Data.Summary)
	}
	if took := time.Duration(d.Duration-want.Data.Duration) * time.Millisecond; took < -time.Millisecond || took > time.Millisecond {
		return fmt.Sprintf("its events say that it took %d ms, its record %d ms", d.Duration, want.Data.Duration)
	}
	if run.State == record.RunFailed && d.Reason != events.ReasonCrashed && len(d.Message) < whollyKept && strings.ToValidUTF8(d.Message, "�") != strings.ToValidUTF8(run.Error, "�") {
		return fmt.Sprintf("its events say %.80q, its record %.80q", d.Message, run.Error)
	}
	return differs("the root of the datasets at its end", d.Outputs, run.OutputSnapshot)
}

// whollyKept is the length below which events keep a message as it is.
const whollyKept = 32 << 10

// otherTasks compares the executions of the tasks in the events with those in the record. Bulk events name no tasks.
func (f *Fold) otherTasks(run *record.Run) string {
	met, others := 0, int64(0)
	for e := range run.Tasks.All() {
		i, named := f.index[e.Task]
		if !named {
			if others++; !e.Cached {
				return fmt.Sprintf("its record says that task %.80q has run, its events do not name it", e.Task)
			}
			continue
		}
		t := f.tasks[i]
		if t.Ended != e.ExecutionID {
			return fmt.Sprintf("its record says that execution %.40q stands for task %.80q, its events %.40q", e.ExecutionID, e.Task, t.Ended)
		}
		if e.Cached != (t.State == TaskCached) {
			return fmt.Sprintf("its record and its events disagree about whether task %.80q was cached", e.Task)
		}
		met++
	}
	for i := range f.tasks {
		if f.tasks[i].Ended != "" {
			met--
		}
	}
	rebuilt := f.end.Data != nil && f.end.Data.Reason == events.ReasonCrashed // then the record lacks unnamed tasks
	if met != 0 || others > f.proven || others < f.proven && !rebuilt {
		return "its record names other tasks than its events"
	}
	return ""
}

// Succeeded reports whether the events name a task and say that it succeeded.
func (f *Fold) Succeeded(task string) bool {
	i, named := f.index[task]
	return named && (f.tasks[i].State == TaskSuccess || f.tasks[i].State == TaskCached)
}
