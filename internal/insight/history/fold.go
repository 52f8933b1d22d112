package history

import (
	"errors"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/runview"
)

// fromEvents folds the events of the workspace.
func (f *finder) fromEvents() error {
	runs, err := events.Runs(f.ctx, f.s.Records, f.q.Workspace)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.Run < f.q.From || f.q.Only != "" && r.Run != f.q.Only {
			continue
		}
		if err := f.begin(r.Run); err != nil {
			return err
		}
	}
	for _, filter := range f.filters() {
		for e, err := range events.Query(f.ctx, f.s.Records, filter) {
			var damaged *events.DamagedError
			switch {
			case errors.As(err, &damaged):
				f.damaged[damaged.Run] = err
			case err != nil:
				return err
			case e.Task != "":
				f.add(&e)
			}
		}
	}
	if err := f.ctx.Err(); err != nil {
		return err
	}
	return f.proven()
}

// apart is the largest number of tasks that are searched one by one. A search for one task skips the lines of other
// tasks faster than a search for many.
const apart = 2

// filters are the event filters for the selected tasks.
func (f *finder) filters() []events.Filter {
	filter := events.Filter{Workspace: f.q.Workspace, From: f.q.From, Run: f.q.Only, Task: f.q.Pattern, Types: []events.Type{
		events.TaskStarted, events.TaskCached, events.TaskCompleted, events.TaskFailed, events.TaskDeferred, events.TaskSkipped,
	}}
	// Without HasTask: proven finds out which tasks the bulk events stand for, for all events at once.
	names := f.q.Tasks
	switch {
	case filter.Task != "" && len(names) > 0:
		filter.Task = "*"
	case len(names) > apart:
		filter.Tasks = make(map[string]bool, len(names))
		for _, name := range names {
			filter.Tasks[name] = true
		}
	case filter.Task == "":
		var list []events.Filter
		for _, name := range names {
			filter.Task = name
			list = append(list, filter)
		}
		return list
	}
	return []events.Filter{filter}
}

// begin reads a run's first events, about the run itself and about many tasks at a time, up to the first event about
// one task.
func (f *finder) begin(run string) error {
	r, head := &runFacts{id: run}, runview.NewFold()
	f.runs[run] = r
	for e, err := range events.Read(f.ctx, f.s.Records, f.q.Workspace, run) {
		if e.Task != "" || errors.As(err, new(*events.DamagedError)) {
			break
		}
		if err != nil {
			return err
		}
		head.Add(&e.Event)
	}
	first := head.Started()
	if first == nil {
		return nil
	}
	r.filter, r.by = first.Facts().Filter, first.Facts().Process.Who()
	r.created = head.Announced()
	if bulk := head.Proven(); len(bulk) > 0 {
		r.as, r.proven = bulk[0].As, bulk[0].Tasks
	}
	var err error
	r.pkg, err = events.PackageOf(f.ctx, f.s.Records, f.q.Workspace, run, first)
	return err
}

// add adds the next event of a task.
func (f *finder) add(e *events.Event) {
	t := f.task(e.Task)
	if t == nil {
		return
	}
	d := e.Facts()
	if e.Run == "" { // the journal tells how an execution of a dead run ended
		e.Run = d.Run
	}
	if r := f.runs[e.Run]; r != nil {
		e.Run = r.id // one string shared by all events of a run
	}
	if e.Execution == "" {
		if _, ok := t.answers[e.Run]; !ok {
			t.answers[e.Run] = ""
		}
		if e.Type == events.TaskFailed && f.q.NotStarted {
			t.lost = append(t.lost, f.notStarted(t, e, d))
		}
		return
	}
	t.answers[e.Run] = e.Execution
	at := f.attempt(t, e.Execution)
	at.partOf(e.Run)
	if at.Tell(e); at.Key != (executions.Key{}) {
		t.hashes[at.Key.Task] = true
	}
	if at.State == runview.TaskDeferred {
		at.Reason = string(executions.ReasonSuspended)
	}
}

// notStarted makes an attempt of a failure that left no execution.
func (f *finder) notStarted(t *taskFinder, e *events.Event, d *events.Data) *Attempt {
	at := attemptOf(f.q.Workspace, t.name, "")
	at.MadeBy, at.Runs, at.Number = e.Run, []string{e.Run}, d.Attempt
	at.Status, at.EndedAt, at.Reason, at.Message = runview.TaskError, e.Time, d.Reason, d.Message
	at.Key, _ = executions.ParseKey(d.Key)
	if r := f.runs[e.Run]; r != nil {
		at.Worker = r.by
	}
	return at
}

// sortTime is the time by which attempts are ordered; ids hold the time of their creation.
func (at *Attempt) sortTime() time.Time {
	if at.ExecutionID == "" {
		return at.EndedAt
	}
	t, _ := executions.ParseID(at.ExecutionID)
	return t
}
