package exportimport

import (
	"e3/internal/events"
	"e3/internal/format/record"
)

// Bounds of the events that are compared with the record of their run: they may be crafted to fill the memory.
const (
	maxFolded   = 150_000 // tasks with a name
	maxTaskName = 256     // bytes
)

// maxCount bounds the counts of a summary, so that their sums cannot overflow.
const maxCount = 1 << 40

// addEvent adds an event to the fold, without the parts that only people read.
func (m *importer) addEvent(e *events.Event) {
	if m.fold == nil {
		return
	}
	if m.fold.Named() > maxFolded || len(e.Task) > maxTaskName || len(e.Execution) > hashText {
		m.fold = nil
		return
	}
	bare := *e
	bare.Worker = ""
	if e.Data != nil {
		d := *e.Data
		d.Because, d.Key = "", ""
		if d.Message != "" && e.Task != "" && e.Type != events.RunFailed {
			d.Message = "…" // its presence distinguishes an error from a failure
		}
		if len(d.Reason) > hashText {
			d.Reason = ""
		}
		bare.Data = &d
	}
	m.fold.Add(&bare)
}

// consistent refuses a run whose record contradicts itself, or its events. Absent events contradict nothing.
func (m *importer) consistent() error {
	if m.run == nil {
		return nil
	}
	entry := (&entryName{part: runPart, workspace: m.run.WorkspaceName, id: m.run.RunID}).String()
	if m.run.State == record.RunRunning {
		if !m.run.CompletedAt.IsZero() || m.fold != nil && m.fold.State() != record.RunRunning {
			return refused(entry, "it says that it is running, and that it has ended")
		}
		return nil
	}
	if fault := miscounted(m.run); fault != "" {
		return refused(entry, "%s", fault)
	}
	if m.fold != nil {
		if fault := m.fold.Contradicts(m.run); fault != "" {
			return refused(entry, "%s", fault)
		}
	}
	return nil
}

// miscounted says where the summary of a run contradicts the rest of its record.
func miscounted(run *record.Run) string {
	s := run.Summary
	for _, n := range []int64{s.Total, s.Completed, s.Cached, s.Failed, s.Skipped} {
		if n < 0 || n > maxCount {
			return "its summary has a number that cannot be"
		}
	}
	cached, tasks := int64(0), int64(run.Tasks.Len())
	for e := range run.Tasks.All() {
		if e.Cached {
			cached++
		}
	}
	switch done := run.State == record.RunCompleted; {
	case s.Cached > s.Completed, s.Completed+s.Failed+s.Skipped > s.Total, cached > s.Cached:
		return "its summary counts more tasks than there are"
	case done && (s.Completed+s.Failed+s.Skipped != s.Total || s.Failed == 0 && s.Skipped > 0): // some may have been allowed to fail
		return "it says that it was completed, and its summary that not all tasks were"
	case done && (s.Cached != cached || s.Completed > tasks || tasks > s.Completed+s.Failed):
		return "its summary counts other tasks than it names"
	case run.State == record.RunFailed && run.FailedTask != "" && s.Failed == 0:
		return "it says that a task has failed, and its summary that none has"
	}
	return ""
}

// succeeded are the executions that the run reports as successes.
func (m *importer) succeeded() map[string]bool {
	all := map[string]bool{}
	if m.run == nil {
		return all
	}
	for e := range m.run.Tasks.All() {
		if e.Cached || m.run.State == record.RunCompleted && m.run.Summary.Failed == 0 || m.fold != nil && m.fold.Succeeded(e.Task) {
			all[e.ExecutionID] = true
		}
	}
	return all
}
