package runview

import (
	"cmp"
	"context"
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
	"e3/refstore"
)

// A Report describes a run for users: its record, completed by events if the record says nothing yet. If the record
// is gone, or cannot be read, the report is made from the events alone.
type Report struct {
	*record.Run
	Provenance *record.Provenance // how it came here; nil if it was made here
	Process    *events.Process    // the process that ran it; nil if unknown; set by Report and List
	// Waits is the number of tasks that wait for approval, if the run has ended for no other reason (start --no-wait). Its
	// record says that it was cancelled.
	Waits  int64
	By     string          // user@host that cancelled it; set by Report and List
	Why    string          // the reason for the cancellation, or the signal; set by Report and List
	Set    events.Settings // inputs with values for this run alone, or with From values that stay; set by Report and List
	From   string          // the workspace from which start --as made the run's; set by Report and List
	Filter string          // selected tasks, "" for all; set by Report and List
	Git    *events.Git     // the commit of its project; nil: none; set by Report and List
	// Warnings are those about its package file and its inputs, untrusted text; set by Report and List.
	Warnings []string
	// PackageHash is the hash of the run's package object, by its first event; set by Report and List. With the run's
	// tasks, it is that of the last package, if the graph has grown.
	PackageHash string
	Limits      *events.Limits // of its commands; nil: not known; set by Report and List
	Force       bool           // what Filter selects ran even if cached; set by Report and List
	// Live means that the run's process is active. A run that is recorded as running and is not live was interrupted:
	// the next start closes it.
	Live bool
	// Queued are the tasks of a live run that wait for a worker.
	Queued []Queued
	Heard  refstore.Heard // when the process of a live run on another host was last heard of
	Done   int64          // tasks that have come to an end
	Total  int64          // known tasks of the run
	Tasks  []TaskReport
	// Unnamed is the number of further tasks with results of an earlier run whose names are no longer known.
	Unnamed int64
	// Damage says from which line on the events cannot be read, or how many events are lost; nil where they are
	// complete. It is set by Report.
	Damage error

	// Cut says that the run has ended, since a later run began, but its log has no end: the end was lost, perhaps
	// with other events.
	Cut bool

	unrecorded bool          // the record cannot be read, or the run died and was closed
	bounds     events.Bounds // bounds of the events from the record
}

// Status is the run's state in a word.
func (r *Report) Status() string {
	switch {
	case r.Crashed():
		return "crashed"
	case r.Waits > 0:
		return "waits"
	case r.State != record.RunRunning || r.Live:
		return r.State.String()
	case r.Provenance != nil:
		return "unfinished" // when it was exported
	case r.Cut:
		return "damaged"
	}
	return "interrupted"
}

// Crashed reports whether the run's process died, and the run was closed since. Its duration then extends to the last
// sign of life.
func (r *Report) Crashed() bool { return r.State == record.RunFailed && r.Error == CrashedError }

// An Approval says who let a task go on in a run.
type Approval struct {
	By   string      `json:"by,omitempty"`   // user@host
	At   moment.Time `json:"at,omitzero"`    // of the decision; absent: not known
	Note string      `json:"note,omitempty"` // untrusted text
}

func (a *Approval) String() string {
	text := "approved by " + human.Line(cmp.Or(a.By, "an unknown user"))
	if a.Note != "" {
		text += ": " + human.Line(a.Note)
	}
	return text
}

// TaskReport is a task in a run. In the answer of a run, Cached is set, and Since belongs to a task that waits.
type TaskReport struct {
	Task        string        `json:"task"`
	State       TaskState     `json:"state"`
	Cached      bool          `json:"cached"`
	ExecutionID string        `json:"execution,omitempty"` // absent: none
	Key         string        `json:"key,omitempty"`
	StartedAt   moment.Time   `json:"startedAt,omitzero"`
	Duration    moment.Millis `json:"ms"`                  // of the execution; until now while it runs
	Attempt     int64         `json:"attempt,omitempty"`   // absent: none in this run
	Worker      string        `json:"worker,omitempty"`    // user@host; absent: the run's process
	Since       moment.Time   `json:"waitsSince,omitzero"` // since when it is deferred or queued
	ExitCode    int64         `json:"exitCode,omitempty"`
	Reason      string        `json:"reason,omitempty"`
	Message     string        `json:"message,omitempty"`
	Because     string        `json:"because,omitempty"` // the failed task for which it was skipped
	MayFail     bool          `json:"mayFail,omitempty"` // its failure does not fail the run
	LeftOut     string        `json:"leftOut,omitempty"` // the task that does without it
	Approved    *Approval     `json:"approved,omitempty"`

	// Proven means that an earlier run's result counts without a look. Only reports of runs at work set it.
	Proven bool `json:"-"`

	Gathered *events.Gathered `json:"gathered,omitempty"` // members that its fan-ins lack
	Batch    Batch            `json:"batch,omitzero"`

	// ImportedFrom is the last step by which the execution came here; nil if it was made here, or is gone. Report
	// sets this field and the fields below, from the execution alone.
	ImportedFrom *Step      `json:"importedFrom,omitempty"` // the last step
	Rejected     *Rejection `json:"rejected,omitempty"`
	Memory       int64      `json:"-"` // bytes of its largest process; 0: unknown
	Cores        float64    `json:"-"` // that it kept busy on average; 0: unknown, or too short to say
}

// Summary is Report of the run that a workspace shows, without its tasks.
func (v *Runs) Summary(ctx context.Context, ws string) (*Report, error) {
	return v.summary(ctx, ws, "")
}

// summary reports a run without its tasks: "" is the run that the workspace shows.
func (v *Runs) summary(ctx context.Context, ws, id string) (*Report, error) {
	r, err := v.standing(ctx, ws, id)
	if err != nil || r.State != record.RunCancelled || r.unrecorded {
		return r, err
	}
	end, err := events.End(ctx, v.Records, ws, r.RunID)
	if end == nil {
		end = r.bounds.Last
	}
	r.tell(nil, end)
	return r, err
}

// standing reports a run by its record, and whether its process is active.
func (v *Runs) standing(ctx context.Context, ws, id string) (*Report, error) {
	for {
		r, err := v.Head(ctx, ws, id)
		if err != nil || r.State != record.RunRunning || r.Provenance != nil || r.unrecorded {
			return r, err
		}
		if r.Live, r.Heard, err = v.Workspaces.AtWork(ctx, ws, r.Run); err != nil {
			return nil, err
		}
		if r.Live {
			r.Queued, err = v.Workspaces.Queued(ctx, ws, r.RunID)
			return r, err
		}
		// It may have ended between the two reads.
		if again, err := v.Head(ctx, ws, id); err != nil || again.RunID == r.RunID && again.State == r.State {
			return r, err
		}
	}
}

// Report reports a run of a workspace by a prefix of its id; "" is the run that the workspace shows. The run needs no
// record if its events are here. Imported runs and runs with events are reported even if the workspace does not
// exist.
func (v *Runs) Report(ctx context.Context, ws, run string) (*Report, error) {
	r, f, err := v.told(ctx, ws, run)
	if err != nil {
		return nil, err
	}
	return r, v.complete(ctx, ws, r, f.PackageHash())
}

// Told is Report by the run's record and its events alone: no execution is looked up. Complete adds the rest, task by task.
func (v *Runs) Told(ctx context.Context, ws, run string) (*Report, error) {
	r, _, err := v.told(ctx, ws, run)
	return r, err
}

func (v *Runs) told(ctx context.Context, ws, run string) (*Report, *Fold, error) {
	r, err := v.Find(ctx, ws, run)
	if err != nil {
		return nil, nil, err
	}
	f, err := v.tasks(ctx, ws, r)
	return r, f, err
}

// tasks adds the run's tasks to its report, with the outcomes that its events and its record state.
func (v *Runs) tasks(ctx context.Context, ws string, r *Report) (*Fold, error) {
	f, damage, err := v.Fold(ctx, ws, r.RunID)
	if err != nil {
		return nil, err
	}
	return f, v.Tasks(ctx, r, f, damage)
}

// named lists the tasks of an ended run in the order of its record, which is the package's order. This includes the
// proven tasks, which only the record names.
func (r *Report) named(f *Fold) {
	r.Tasks = make([]TaskReport, 0, max(len(f.tasks), r.Run.Tasks.Len()))
	taken := make(map[string]bool, r.Run.Tasks.Len())
	for e := range r.Run.Tasks.All() {
		taken[e.Task] = true
		t := f.Find(e.Task)
		if r.Damage != nil && t != nil && t.Ended != e.ExecutionID {
			t = nil // the events do not tell the task's end
		}
		r.Tasks = append(r.Tasks, t.recorded(e))
	}
	for i := range f.tasks {
		if t := f.tasks[i]; !taken[t.Task] && t.State != "" && t.State != TaskReady {
			r.Tasks = append(r.Tasks, t.TaskReport)
		}
	}
	r.now(time.Time{})
}

// recorded is the report of a task in the record of an ended run. t is the task's report from the run's events; nil
// if they do not name it.
func (t *FoldedTask) recorded(e record.TaskExecution) TaskReport {
	if t == nil {
		r := TaskReport{Task: e.Task, ExecutionID: e.ExecutionID, State: TaskSuccess}
		if e.Cached {
			r.State = TaskCached
		}
		return r
	}
	r := t.TaskReport
	if r.State == TaskReady { // it had suspended itself and was then approved, or its batch had failed
		r.State = TaskAbandoned
	}
	return r
}

// now completes the tasks that have not ended: they run until now, or were interrupted when their run died.
func (r *Report) now(now time.Time) {
	for i := range r.Tasks {
		t := &r.Tasks[i]
		switch {
		case r.State != record.RunRunning && t.State == TaskRetrying: // no other attempt had its turn
			t.State = failure(t.Message)
		case r.State != record.RunRunning && t.State == TaskDeferred:
			t.State = TaskAbandoned
		case r.Cut && (t.State == TaskRunning || t.State == TaskClaimed || t.State == TaskRetrying || t.State == TaskDeferred):
			t.State = TaskUnknown
		case !r.Live && (t.State == TaskRunning || t.State == TaskClaimed || t.State == TaskRetrying || t.State == TaskDeferred):
			t.State = TaskInterrupted
		case t.State == TaskRunning:
			t.Duration = moment.Millis(now.Sub(t.StartedAt.Time))
		}
	}
}

// Head reports a run by its record. It uses the run's first and last event if the record is gone or cannot be read,
// or if a dead run was closed without updating the record. "" is the run that the workspace shows.
func (v *Runs) Head(ctx context.Context, ws, id string) (*Report, error) {
	rec, err := v.Stored(ctx, ws, id)
	if errors.Is(err, refstore.ErrNotFound) && id != "" {
		r, found, err2 := v.headFromEvents(ctx, ws, id)
		if err2 != nil || found {
			return r, err2
		}
	}
	if err != nil {
		return nil, err
	}
	return v.headOf(ctx, ws, rec)
}

// headOf reports a run by its record, which must have been read with its provenance.
func (v *Runs) headOf(ctx context.Context, ws string, rec refstore.Record) (*Report, error) {
	run, err := decodeRun(rec)
	if Imported(rec) && err != nil {
		return nil, err
	}
	if err == nil && (run.State != record.RunRunning || Imported(rec)) {
		return &Report{Run: run.Run, Provenance: run.Provenance, bounds: BoundsOf(rec)}, nil
	}
	if err == nil {
		end, err := events.End(ctx, v.Records, ws, rec.Key.Sort)
		if err != nil {
			return nil, err
		}
		if end == nil {
			return &Report{Run: run.Run}, nil
		}
	}
	r, _, err := v.headFromEvents(ctx, ws, rec.Key.Sort)
	return r, err
}

// headFromEvents reports a run by the first and the last of its events. found reports whether it has any.
func (v *Runs) headFromEvents(ctx context.Context, ws, id string) (r *Report, found bool, err error) {
	r = &Report{Run: &record.Run{RunID: id, WorkspaceName: ws, State: record.RunRunning}, unrecorded: true}
	info, err := v.Records.Size(ctx, refstore.Key{Partition: "EVENTS/" + ws, Sort: id})
	if err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return nil, false, err
	}
	if found = err == nil; info.Sealed {
		r.Provenance = &record.Provenance{} // only an import seals the events of a run
	}
	started, err := events.First(ctx, v.Records, ws, id)
	if err != nil {
		return nil, false, err
	}
	end, err := events.End(ctx, v.Records, ws, id)
	if err != nil {
		return nil, false, err
	}
	r.StartedAt, _ = executions.ParseID(id)
	if started != nil {
		r.StartedAt = started.Time
		if d := started.Data; d != nil {
			r.PackageRef, r.InputSnapshot = d.Package, hashOrNone(d.Inputs)
		}
	}
	if end != nil {
		r.ended(end)
	} else if s, err := v.Workspaces.State(ctx, ws); found && !info.Sealed && err == nil && s.CurrentRunID >= id {
		r.Cut = true // the workspace named this run, or a later one, after the run's end
	}
	r.tell(started, end)
	return r, found, nil
}

// ended copies the facts of a run's last event.
func (r *Report) ended(end *events.Event) {
	r.State, r.CompletedAt = StateAfter(end), end.Time
	if r.State == record.RunFailed {
		r.FailedTask = end.Task
	}
	d := end.Data
	if d == nil {
		return
	}
	// The end event of a dead run is written long after its death, and holds the duration up to its last sign of life.
	if took := events.Milliseconds(d.Duration); took > 0 && r.StartedAt.Add(took).Before(end.Time) {
		r.CompletedAt = r.StartedAt.Add(took)
	}
	if r.State == record.RunFailed {
		r.Error = d.Message
		if d.Reason != "" {
			r.Error = d.Reason + ": " + d.Message
		}
	}
	r.OutputSnapshot = hashOrNone(d.Outputs)
	if s := d.Summary; s != nil {
		r.Summary = record.Summary{Total: s.Total, Completed: s.Completed, Cached: s.Cached, Failed: s.Failed, Skipped: s.Skipped}
	}
}

// tell copies the facts about the run as a whole that only events hold.
func (r *Report) tell(started, end *events.Event) {
	if started != nil && started.Data != nil {
		r.Process, r.Filter, r.PackageHash = started.Data.Process, started.Data.Filter, hashOrNone(started.Data.PackageHash)
		r.Set, r.From, r.Git = started.Data.Set, started.Data.From, started.Data.Git.Sound()
		r.Limits, r.Force = started.Data.Limits, started.Data.Force
		r.Warnings = started.Data.Warnings
	}
	if end != nil && end.Data != nil && r.Git != nil {
		if g := end.Data.Git.Sound(); g != nil {
			r.Git = g
		}
	}
	if end != nil && end.Type == events.RunCancelled && end.Data != nil {
		r.By, r.Why = end.Data.By, end.Data.Message
		if end.Data.Reason == events.ReasonWaits {
			r.Waits = int64(end.Data.Tasks)
		}
	}
}

// hashOrNone returns a text if it is a hash, else "".
func hashOrNone(text string) string {
	if _, err := objectstore.ParseHash(text); err != nil {
		return ""
	}
	return text
}
