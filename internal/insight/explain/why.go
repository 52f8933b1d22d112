package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"e3/dataflow/plan"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/packages"
)

// Why explains a task of a workspace: what the next start would do with it and why, or why it failed, or why the
// execution that is its result was made. If execution is not empty, it is the beginning of an execution's id, and
// that execution is explained. The workspace need not exist if records or events name the task.
func (x *Explainer) Why(ctx context.Context, ws, task, execution string) (*Explanation, error) {
	e := x.explaining(ctx)
	w := &Explanation{Workspace: ws, Task: task}
	var err error
	if execution != "" {
		err = e.one(w, strings.ToLower(execution))
	} else {
		err = e.explainNow(w)
	}
	if err != nil {
		return nil, err
	}
	w.Notes = append(w.Notes, e.future(ws, task)...)
	if w.Reason != nil {
		w.Chain = w.Reason.chain(&w.Root)
		if n := len(w.Chain); n > 1 && e.next != nil && (w.State == Waits || w.State == Skipped) {
			w.Chain = append(w.Chain[:n-2], e.path(w.Chain[n-2], w.Task)...)
		}
	}
	w.say()
	return w, nil
}

// one explains an execution by a prefix of its id.
func (x *explaining) one(w *Explanation, prefix string) error {
	found, known, err := x.named(w, prefix)
	if err != nil {
		return err
	}
	if found == nil {
		e, err := x.Executions.Locate(x.ctx, prefix)
		var pruned *executions.PrunedError
		switch {
		case errors.As(err, &pruned):
			pruned.Now = x.now()
			return pruned
		case errors.Is(err, executions.ErrNotFound):
			if len(known) == 0 {
				if _, err := x.Runs.TaskExecutions(x.ctx, w.Workspace, w.Task); err != nil {
					return err
				}
			}
			return &human.UnknownError{What: "execution", Name: prefix, Known: known}
		case err != nil:
			return err
		}
		name := "a task without a name"
		asked := w.Workspace + "." + w.Task
		if d := e.Detail; d != nil && d.Task != "" {
			name = d.Workspace + "." + d.Task
			w.Workspace, w.Task = d.Workspace, d.Task
		}
		w.Notes = append(w.Notes, fmt.Sprintf("the execution is not one of %s: %s ran it", asked, name))
		found = history.Of(w.Workspace, w.Task, e)
	}
	return x.explain(w, found)
}

// named finds an attempt by a prefix of its id, nil if there is none, and lists the ids that were searched.
func (x *explaining) named(w *Explanation, prefix string) (found *history.Attempt, known []string, err error) {
	err = x.search(x.ctx, w.Workspace, w.Task, func(p past) (bool, error) {
		known = nil
		for i := range p.list {
			a := &p.list[i]
			if a.ExecutionID == "" {
				continue
			}
			known = append(known, a.ExecutionID)
			if !strings.HasPrefix(a.ExecutionID, prefix) {
				continue
			}
			if found != nil && found.ExecutionID != prefix && a.ExecutionID != prefix && found.ExecutionID != a.ExecutionID {
				return false, &executions.AmbiguousError{What: "execution", Prefix: prefix, Fits: []string{found.ExecutionID, a.ExecutionID}}
			}
			if found == nil || a.ExecutionID == prefix {
				found = a
			}
		}
		return found != nil && (found.ExecutionID == prefix || prefix > p.from[:min(len(prefix), len(p.from))]), nil
	})
	return found, known, err
}

// explain explains an attempt.
func (x *explaining) explain(w *Explanation, a *history.Attempt) (err error) {
	w.Execution = ref(a)
	graphs, err := x.graphsOf(w.Workspace, []string{a.MadeBy})
	if err == nil && len(graphs) > 0 {
		err = x.foresee(w.Workspace, w.Task, graphs[0])
	}
	if err != nil {
		return err
	}
	switch {
	case a.Execution == nil && a.Status != runview.TaskRunning:
		w.State = Gone
		if t := a.Pruned(); t != nil {
			w.Notes = append(w.Notes, "its record was "+x.pruned(t).Text)
		} else if errors.Is(a.Err, executions.ErrMalformed) {
			w.Notes = append(w.Notes, "its record cannot be read: "+truncate(a.Err.Error(), maxText))
		} else {
			w.Notes = append(w.Notes, "its record is gone: only events tell of it")
		}
	case a.Status == runview.TaskRunning:
		w.State = Running
	case a.Status == runview.TaskSuccess:
		w.State = Ran
	default:
		w.State = Failed
	}
	if e := a.Execution; e != nil && e.Rejected() {
		m := e.Rejection
		text := "it was rejected " + human.Ago(x.now(), m.At) + " by " + truncate(m.By, maxText)
		if m.Reason != "" {
			text += ": " + truncate(m.Reason, maxText)
		}
		w.Notes = append(w.Notes, text)
	}
	if w.State == Failed || w.State == Gone && a.Status != runview.TaskSuccess && a.Status != runview.TaskUnknown {
		return x.failed(w, a)
	}
	if w.Reason, err = x.executed(a, 0); err != nil {
		return err
	}
	w.root(w.Reason)
	return x.follows(w, a.MadeBy)
}

// failed explains why an attempt failed, and what has changed since the task last worked.
func (x *explaining) failed(w *Explanation, a *history.Attempt) (err error) {
	w.Execution = ref(a)
	if w.Reason, w.Failure, w.Changed, err = x.failing(a, 0); err != nil {
		return err
	}
	w.Root = Cause{Kind: w.Failure.Kind, Workspace: w.Workspace, Task: w.Task, Execution: a.ExecutionID, At: a.At(), Text: "it " + w.Failure.Text}
	if r := a.Refused; r != nil && w.Root.Kind == Rejected {
		w.Root.By, w.Root.At, w.Root.Reason = r.By, r.At, r.Reason()
	}
	w.Roots = []Cause{w.Root}
	return x.follows(w, a.MadeBy)
}

func (x *explaining) failing(a *history.Attempt, depth int) (*Reason, *Failure, []Cause, error) {
	f, err := x.failure(a)
	if err != nil {
		return nil, nil, nil, err
	}
	r, err := x.executed(a, depth)
	if err != nil {
		return nil, nil, nil, err
	}
	// The changes since the last success are the differences of the first attempt, however many retries followed.
	first := r
	for first.Before != nil {
		first = first.Before
	}
	since := *first
	since.final = false
	var changed []Cause
	if since.Compared != nil && f.Succeeded == nil && len(since.Differences)+len(since.Upstream) > 0 {
		changed = since.roots()
	}
	return r, f, changed, nil
}

// root copies the roots of a reason to the explanation.
func (w *Explanation) root(r *Reason) {
	w.Roots = r.roots()
	if len(w.Roots) > 0 {
		w.Root = w.Roots[0]
	}
	if len(w.Roots) > maxListed {
		w.Notes = append(w.Notes, human.Count(len(w.Roots)-maxListed, "more cause"))
		w.Roots = w.Roots[:maxListed]
	}
}

// explainNow explains the present state of a task.
func (x *explaining) explainNow(w *Explanation) error {
	next, err := x.look(w.Workspace, w.Task)
	if err != nil {
		return err
	}
	te, missing := x.Runs.TaskExecutions(x.ctx, w.Workspace, w.Task)
	var unknown *human.UnknownError
	if errors.Is(missing, executions.ErrMalformed) {
		te, missing = &runview.TaskExecutions{}, nil // the latest run says nothing of the task
	}
	if missing != nil && !errors.Is(missing, human.ErrNotFound) && !errors.Is(missing, packages.ErrNotDeployed) && !errors.Is(missing, executions.ErrNotFound) {
		return missing
	}
	if missing == nil && te.Task != nil {
		switch te.Task.State {
		case runview.TaskRunning, runview.TaskClaimed:
			return x.running(w, te)
		case runview.TaskDeferred:
			w.Waiting = &Wait{For: forApproval, Run: te.Run.RunID, Since: te.Task.Since.UTC()}
			w.Notes = append(w.Notes, "it waits for approval, in run "+te.Run.RunID+", since "+formatTime(te.Task.Since.Time))
		}
	}
	if missing == nil && te.Run != nil && te.Run.Live && (te.Task == nil || te.Task.State == runview.TaskRetrying) {
		if w.Waiting, err = x.queued(w, te.Run.RunID); err != nil {
			return err
		}
	}
	if next == nil || next.plan == nil {
		if err := x.latest(w, te); err != nil || w.Reason != nil || w.Failure != nil {
			if next != nil && w.State != Removed {
				w.Notes = append(w.Notes, "its package file has it no more: the next start takes it off the workspace")
			}
			return err
		}
		if missing == nil && next != nil {
			var known []string
			for i := range next.graph.Len() {
				known = append(known, next.graph.Name(int32(i)))
			}
			return unknownTask(w.Task, known)
		}
		if errors.As(missing, &unknown) || missing != nil {
			return missing
		}
		return unknownTask(w.Task, nil)
	}
	x.next = next
	if err := x.foresee(w.Workspace, w.Task, next.graph); err != nil {
		return err
	}
	for _, f := range next.Faults {
		w.Notes = append(w.Notes, "the package file cannot be taken in as it is, so this is about what is deployed: "+truncate(f.Error(), 2*maxText))
	}
	i, _ := next.graph.Find(w.Task)
	var report *runview.TaskReport
	if missing == nil {
		report = te.Task
	}
	switch p := &next.plan.Tasks[i]; p.Step {
	case plan.StepHit:
		return x.current(w, p.ExecutionID, report)
	case plan.StepRun:
		return x.wouldRun(w, i, report)
	default:
		return x.waitsOrCurrent(w, i, report)
	}
}

// queued finds out whether an active run has all inputs of a task and has not yet begun to execute the task.
func (x *explaining) queued(w *Explanation, run string) (*Wait, error) {
	var since time.Time
	for e, err := range events.Query(x.ctx, x.Records, events.Filter{Workspace: w.Workspace, Run: run, Task: w.Task}) {
		if err != nil {
			if x.ctx.Err() != nil {
				return nil, context.Cause(x.ctx)
			}
			return nil, nil // the readable part of the log does not show it
		}
		switch e.Type {
		case events.TaskMarkedReady, events.TaskRetryScheduled, events.TaskResumed:
			since = e.Time
		default:
			since = time.Time{}
		}
	}
	if since.IsZero() {
		return nil, nil
	}
	at := &Wait{For: forTurn}
	if x.Queued != nil {
		job, err := x.Queued(x.ctx, w.Workspace, run, w.Task)
		if err != nil {
			return nil, err
		}
		if job != nil {
			at = job
			at.For = forWorker
		}
	}
	at.Run, at.Since = run, since.UTC()
	return at, nil
}

// formatTime formats a time in the local zone.
func formatTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// latest explains the latest execution of a task that no package here has any more.
func (x *explaining) latest(w *Explanation, te *runview.TaskExecutions) error {
	var a *history.Attempt
	shown := te != nil && te.Task != nil && te.Task.ExecutionID != ""
	err := x.search(x.ctx, w.Workspace, w.Task, func(p past) (bool, error) {
		for i := range p.list {
			is := shown && te.Task.ExecutionID == p.list[i].ExecutionID
			if p.list[i].ExecutionID != "" && (a == nil || is) {
				a = &p.list[i]
			}
			if is {
				return true, nil
			}
		}
		return a != nil && !shown, nil
	})
	if err != nil {
		return err
	}
	if a == nil {
		return x.skippedThen(w, te)
	}
	if err := x.explain(w, a); err != nil {
		return err
	}
	if _, err := x.Workspaces.State(x.ctx, w.Workspace); errors.Is(err, human.ErrNotFound) {
		w.Notes = append(w.Notes, "workspace "+w.Workspace+" is not here: this is what the records of its runs tell")
		return nil
	} else if err != nil {
		return err
	}
	if te != nil && te.Task != nil {
		return nil // the task cannot run here, but the workspace shows its result
	}
	w.State = Removed
	return nil
}

// skippedThen explains a task of an imported run that was skipped there.
func (x *explaining) skippedThen(w *Explanation, te *runview.TaskExecutions) error {
	if te == nil || te.Task == nil || te.Task.State != runview.TaskSkipped || te.Task.Because == "" || te.Task.Because == w.Task {
		return nil
	}
	var last *history.Attempt
	err := x.search(x.ctx, w.Workspace, te.Task.Because, func(p past) (bool, error) {
		if len(p.list) > 0 {
			last = &p.list[0]
		}
		return last != nil, nil
	})
	if err != nil || last == nil {
		return err
	}
	w.State = Skipped
	return x.because(w, last, te.Task.Because)
}

// because explains a skipped task by the failure upstream.
func (x *explaining) because(w *Explanation, a *history.Attempt, task string) error {
	r, f, changed, err := x.failing(a, 1)
	if err != nil {
		return err
	}
	w.Failure, w.Changed = f, changed
	w.Root = Cause{Kind: f.Kind, Workspace: w.Workspace, Task: task, Execution: a.ExecutionID, At: a.At(), Text: "it " + f.Text}
	w.Roots = []Cause{w.Root}
	r.final, r.Cause, r.Failed = true, w.Root, f
	w.Reason = &Reason{Workspace: w.Workspace, Task: w.Task, Cause: Cause{Kind: w.Root.Kind, Workspace: w.Workspace, Task: task, Text: task + " " + f.Text}, Upstream: []*Reason{r}}
	return x.follows(w, a.MadeBy)
}

// future notes executions whose ids are later than now. They come from a clock that was ahead, and sort as the latest
// until the local clock has passed them.
func (x *explaining) future(ws, task string) []string {
	p, err := x.recent(x.ctx, ws, task)
	if err != nil {
		return nil
	}
	n := 0
	for i := range p.list {
		if at, err := executions.ParseID(p.list[i].ExecutionID); err == nil && at.Sub(x.now()) > clockSlack {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("by the ids of %s a clock was ahead: \"earlier\" and \"latest\" are meant by ids", human.Count(n, "execution"))}
}
