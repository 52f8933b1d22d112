package explain

import (
	"fmt"
	"slices"

	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
)

// current explains a task that has a result.
func (x *explaining) current(w *Explanation, execution string, report *runview.TaskReport) error {
	w.Waiting = nil // the run will find the same result
	a, err := x.attempt(w.Workspace, w.Task, execution)
	if err != nil {
		return err
	}
	w.State = Current
	if a == nil { // it was pruned just now
		w.Root = Cause{Kind: Unknown, Workspace: w.Workspace, Task: w.Task, Text: "its result is execution " + execution + ", which cannot be found any more"}
		return nil
	}
	x.mind(w, a)
	w.Execution = ref(a)
	other := report != nil && report.Key != "" && report.Key != a.Key.String() // as in a run with other values
	if !x.shows(w.Task, hash(a.Output)) {
		w.Notes = append(w.Notes, "the workspace does not show it yet: the next start takes the execution without running anything")
	}
	if report != nil && report.ExecutionID != execution && (report.State == runview.TaskFailed || report.State == runview.TaskError) {
		hides := "failed: no failure hides a success on the same inputs"
		if other {
			hides = "failed on other inputs"
		}
		w.Notes = append(w.Notes, "its latest attempt, execution "+report.ExecutionID+", "+hides)
	}
	if r := w.Execution; r.Task != w.Task || r.Workspace != w.Workspace {
		w.Notes = append(w.Notes, fmt.Sprintf("%s.%s ran the same; its result counts as soon as the key is the same", r.Workspace, r.Task))
	}
	if w.Reason, err = x.executed(a, 0); err != nil {
		return err
	}
	w.root(w.Reason)
	return x.follows(w, a.MadeBy)
}

// mind adds remarks about the origin and the room of an execution.
func (x *explaining) mind(w *Explanation, a *history.Attempt) {
	if a.Execution != nil {
		if task, err := x.object(a.Key.Task); err == nil && task != nil && task.Room.Closed {
			note := "its room is " + task.Room.String()
			if task.Image != "" {
				note += ", in image " + imageText(task.Image)
			}
			w.Notes = append(w.Notes, note)
		}
	}
	if r := ref(a); r.ImportedFrom != "" {
		w.Notes = append(w.Notes, "the execution was imported from "+truncate(r.ImportedFrom, maxText))
	}
}

// wouldRun explains a task that the next start runs. If the task has failed with the same key, that failure is
// explained.
func (x *explaining) wouldRun(w *Explanation, i int32, report *runview.TaskReport) (err error) {
	p := &x.next.plan.Tasks[i]
	if report != nil && p.Key != nil && report.ExecutionID != "" && (report.State == runview.TaskFailed || report.State == runview.TaskError) {
		a, err := x.attempt(w.Workspace, w.Task, report.ExecutionID)
		if err != nil {
			return err
		}
		if a != nil && a.Key == *p.Key {
			w.State = Failed
			w.Notes = append(w.Notes, "nothing has changed since: the next start tries it again")
			return x.failed(w, a)
		}
	}
	w.State = WouldRun
	switch {
	case w.Waiting != nil && w.Waiting.For != forApproval:
		w.State = Queued
	case report != nil && report.ExecutionID == "" && (report.Reason == events.ReasonRejected || report.Reason == string(executions.ReasonCancelled)):
		w.refused = report.Message
	}
	if x.next.Package.Tasks[i].Policy.Approve && (report == nil || report.State != runview.TaskDeferred) {
		w.Notes = append(w.Notes, "it needs approval before it runs")
	}
	if w.Reason, err = x.would(i, 0); err != nil {
		return err
	}
	w.root(w.Reason)
	return x.follows(w, "")
}

// waitsOrCurrent explains a task that reads what the next start would make. It may be current without that, if what
// has failed and may fail fails again.
func (x *explaining) waitsOrCurrent(w *Explanation, i int32, report *runview.TaskReport) error {
	if report == nil || report.State != runview.TaskSuccess && report.State != runview.TaskCached || !x.next.graph.AnyTolerant() {
		return x.waits(w, i, report)
	}
	current, err := x.Workspaces.IsCurrent(x.ctx, w.Workspace, w.Task)
	if err != nil {
		return err
	}
	if report.Gathered != nil {
		w.Notes = append(w.Notes, "the result of its last run is execution "+report.ExecutionID+", with "+truncate(report.Gathered.LeftOut(), maxText)+"; the next start tries these again")
	}
	a, err := x.attempt(w.Workspace, w.Task, report.ExecutionID)
	if err != nil {
		return err
	}
	if current && a != nil && x.shows(w.Task, hash(a.Output)) { // not the result of a run with other values
		return x.current(w, report.ExecutionID, report)
	}
	return x.waits(w, i, report)
}

// waits explains a task that cannot be looked up yet.
func (x *explaining) waits(w *Explanation, i int32, report *runview.TaskReport) error {
	n := x.next
	w.State = Waits
	r := &Reason{Workspace: w.Workspace, Task: w.Task}
	blockers, waiting := x.blockers(i)
	w.blockers = len(blockers)
	for _, j := range blockers {
		p := &n.plan.Tasks[j]
		if len(r.Upstream) == maxFollowed || x.budget <= 0 {
			r.Omitted++
			continue
		}
		up, state, err := x.blocker(w, j)
		if err != nil {
			return err
		}
		if j == i {
			w.State = state
			if p.Twin {
				w.State = Waits
			}
			w.Reason = up
			w.root(up)
			return x.follows(w, "")
		}
		if state == Failed && report != nil && report.State == runview.TaskSkipped {
			w.State = Skipped
		}
		r.Upstream = append(r.Upstream, up)
	}
	for _, j := range waiting {
		if x.budget <= 0 {
			break
		}
		own, err := x.besides(j)
		switch {
		case err != nil:
			return err
		case own == nil:
		case j == i:
			r.Compared, r.Differences, r.More = own.Compared, own.Differences, own.More
		default:
			r.Upstream = append(r.Upstream, own)
		}
	}
	if len(blockers) > 0 {
		name := n.graph.Name(blockers[0])
		r.Cause = Cause{Kind: Waiting, Workspace: w.Workspace, Task: w.Task, Subject: name, Text: "it waits for " + truncate(name, maxText)}
	}
	w.Reason = r
	first := &Reason{Upstream: r.Upstream[:min(len(r.Upstream), len(blockers))]} // blockers come before own changes
	w.root(&Reason{Upstream: []*Reason{first, r}})
	if w.State == Skipped {
		for _, up := range r.Upstream {
			if up.Failed != nil {
				w.Root, w.Failure = up.Cause, up.Failed
				since := *up
				since.final = false
				if since.Compared != nil && up.Failed.Succeeded == nil && len(since.Differences)+len(since.Upstream) > 0 {
					w.Changed = since.roots()
				}
				break
			}
		}
		w.Roots = append([]Cause{w.Root}, slices.DeleteFunc(w.Roots, func(c Cause) bool { return c.about(&w.Root) })...)
	}
	return x.follows(w, "")
}

// blocker explains why a task upstream has no result.
func (x *explaining) blocker(w *Explanation, j int32) (*Reason, State, error) {
	n := x.next
	name, p := n.graph.Name(j), &n.plan.Tasks[j]
	switch {
	case p.Step == plan.StepStuck:
		return x.stuck(j), Stuck, nil
	case p.Twin:
		other := n.graph.Name(p.Waits[0])
		r := &Reason{Workspace: w.Workspace, Task: name}
		up, _, err := x.blocker(w, p.Waits[0])
		if err != nil {
			return nil, Waits, err
		}
		r.Upstream = []*Reason{up}
		r.Cause = Cause{Kind: Twin, Workspace: w.Workspace, Task: name, Subject: other, Text: truncate(other, maxText) + " is the same on the same inputs: its result counts for both"}
		return r, Waits, nil
	}
	// If the task's latest attempt at this key failed, that failure is the reason.
	var a *history.Attempt
	if p.Key != nil {
		var err error
		if a, err = x.latestAt(w.Workspace, name, *p.Key, func(*history.Attempt) bool { return true }); err != nil {
			return nil, WouldRun, err
		}
	}
	if a != nil && (a.Status == runview.TaskFailed || a.Status == runview.TaskError || a.Status == runview.TaskInterrupted) {
		r, f, _, err := x.failing(a, 1)
		if err != nil {
			return nil, Failed, err
		}
		failed := *r
		failed.final, failed.Failed = true, f
		failed.Cause = Cause{Kind: f.Kind, Workspace: w.Workspace, Task: name, Execution: a.ExecutionID, At: a.At(), Text: "it " + f.Text}
		return &failed, Failed, nil
	}
	r, err := x.would(j, 1)
	return r, WouldRun, err
}

// running explains a running task.
func (x *explaining) running(w *Explanation, te *runview.TaskExecutions) error {
	w.State = Running
	p, err := x.recent(x.ctx, w.Workspace, w.Task) // its run is the latest
	if err != nil {
		return err
	}
	for i := range p.list {
		if a := &p.list[i]; a.ExecutionID == te.Task.ExecutionID {
			w.Execution = ref(a)
			if w.Execution.Attempt == 0 {
				w.Execution.Attempt = te.Task.Attempt
			}
			if a.Execution == nil { // not on record yet
				if next, err := x.look(w.Workspace, w.Task); err == nil && next != nil && next.plan != nil {
					x.next = next
					if j, ok := next.graph.Find(w.Task); ok && next.keys[w.Task] != nil && *next.keys[w.Task] == a.Key {
						if w.Reason, err = x.would(j, 0); err != nil {
							return err
						}
						w.root(w.Reason)
						return nil
					}
				} else if err != nil {
					return err
				}
			}
			if w.Reason, err = x.executed(a, 0); err != nil {
				return err
			}
			w.root(w.Reason)
			return nil
		}
	}
	w.Root = Cause{Kind: RunsNow, Workspace: w.Workspace, Task: w.Task, Text: "it is running now, and nothing is on record of it yet"}
	w.Roots = []Cause{w.Root}
	return nil
}
