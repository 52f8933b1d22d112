package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/gc"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/stats"
	"e3/internal/insight/ui"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/workspace"
)

// explainerOf returns a maker of explainers, one for each question.
func explainerOf(r *repo.Repo) func() *explain.Explainer {
	return func() *explain.Explainer { return newExplainer(r, r.Objects) }
}

// uiFacts tells pages what status, queue, stats and gc tell.
type uiFacts struct {
	a *app
	r *repo.Repo
}

// Names implements [ui.Facts].
func (f *uiFacts) Names(ctx context.Context) ([]string, error) { return f.r.Workspaces.List(ctx) }

// Workspaces implements [ui.Facts].
func (f *uiFacts) Workspaces(ctx context.Context) ([]ui.Workspace, error) {
	names, err := f.r.Workspaces.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]ui.Workspace, 0, len(names))
	for _, name := range names {
		w, err := f.Workspace(ctx, name)
		if errors.Is(err, workspace.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		list = append(list, *w)
	}
	return list, nil
}

// Workspace implements [ui.Facts].
func (f *uiFacts) Workspace(ctx context.Context, name string) (*ui.Workspace, error) {
	st, err := f.r.Workspaces.Planner.Status(ctx, name)
	if err != nil {
		return nil, err
	}
	standing := st.Standing()
	w := &ui.Workspace{
		Name: name, File: st.File, Edited: st.Edited, Run: st.Run, DeployedAt: st.DeployedAt.Time,
		Current: standing.Current, Stale: standing.Stale, Missing: standing.Missing,
	}
	if st.Package != nil {
		w.Package = st.Package.String()
	}
	if b := st.Holder; b != nil {
		w.Busy, w.BusySince = b.Doing()+" by "+cmp.Or(b.Holder, "another process")+also(unheard(b.Heard, f.a.Now())), b.Since
	}
	for i := range st.Deferred {
		b := &st.Deferred[i]
		w.Deferred = append(w.Deferred, ui.Deferred{Workspace: name, Task: b.Task, Type: string(b.Type), Since: b.Since.Time})
	}
	for _, fault := range st.Faults {
		w.Faults = append(w.Faults, fault.Error())
	}
	return w, nil
}

// Queues implements [ui.Facts].
func (f *uiFacts) Queues(ctx context.Context) ([]ui.Queue, error) {
	names, err := f.r.Queue().Queues(ctx)
	if err != nil {
		return nil, err
	}
	states, err := repo.QueueStates(ctx, f.r, names)
	if err != nil {
		return nil, err
	}
	list := make([]ui.Queue, len(names))
	for i := range states.Queues {
		s := &states.Queues[i]
		q := ui.Queue{Name: s.Queue, Ready: s.Ready, Delayed: s.Delayed, Since: s.Since.Time, Faults: s.Faults}
		for _, run := range s.Over {
			q.Over = append(q.Over, fmt.Sprintf("%d of run %s of %s, which has ended", run.Jobs, human.Short(run.Run), run.Workspace))
		}
		for i := range s.Running {
			w := s.Running[i].Work
			j := f.job(&w.Job)
			j.Since, j.Worker, j.Lease = cmp.Or(w.Job.Started, w.Job.Claimed).Time(), cmp.Or(w.Job.Worker, w.Job.Maker), workerState(w, f.a.Now())
			q.Running = append(q.Running, j)
		}
		for i := range s.Failed {
			j := f.job(s.Failed[i].Job)
			j.Since, j.Message = s.Failed[i].FinishedAt.Time, s.Failed[i].Failure()
			q.Failed = append(q.Failed, j)
		}
		if q.Waiting, err = f.waiting(ctx, s.Queue); err != nil {
			return nil, err
		}
		list[i] = q
	}
	return list, nil
}

// mostWaiting is the number of waiting tasks of a queue that a page shows.
const mostWaiting = 500

// waiting lists the jobs of a queue that no worker has, in their turn.
func (f *uiFacts) waiting(ctx context.Context, name string) ([]ui.Job, error) {
	rows, _, err := f.r.Queue().InTurn(ctx, name) // the state names what cannot be read
	var list []ui.Job
	for i := range rows.Jobs {
		if j := rows.Jobs[i].Job; j.Status == queue.Queued && len(list) < mostWaiting {
			list = append(list, f.job(j))
		}
	}
	return list, err
}

func (f *uiFacts) job(j *queue.Job) ui.Job {
	state := map[queue.Status]string{queue.Queued: "waits", queue.Running: "running"}[j.Status]
	if j.Orphaned() {
		state = "interrupted"
	}
	return ui.Job{
		ID: j.ID, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, State: cmp.Or(state, "failed"), Since: j.Created.Time(),
		Asks: strings.Join([]string{priorityText(j.Priority), demandsText(j)}, " "),
	}
}

// mostSizes is the number of tasks whose sizes a page shows.
const mostSizes = 50

// Store implements [ui.Facts].
func (f *uiFacts) Store(ctx context.Context) (*ui.Store, error) {
	s := &ui.Store{At: f.a.Now()}
	err := f.r.OwnsObjects(ctx)
	var report *gc.Report
	if err == nil {
		report, err = gc.Collect(ctx, gcStores(f.a, f.r), gc.Options{DryRun: true})
	}
	if report != nil {
		s.Kept, s.Free, s.Young, s.Missing = ui.Amount(report.Live), ui.Amount(report.Collected), ui.Amount(report.Young), report.Missing
		s.Warnings = append(s.Warnings, report.Warnings...)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.Warnings = append(s.Warnings, err.Error())
	}
	if s.Stats, err = stats.Read(ctx, f.r.Records, stats.Options{}); err != nil {
		return nil, err
	}
	sizes := map[[2]string]*ui.TaskSize{}
	for e, err := range f.r.Executions.All(ctx) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Executions++
		if d := e.Detail; d != nil && d.Task != "" {
			at := sizes[[2]string{d.Workspace, d.Task}]
			if at == nil {
				at = &ui.TaskSize{Workspace: d.Workspace, Task: d.Task}
				sizes[[2]string{d.Workspace, d.Task}] = at
			}
			at.Executions++
			at.Bytes += d.BytesOut
		}
	}
	for p, err := range f.r.Executions.Pins(ctx) {
		if err == nil || errors.Is(err, executions.ErrMalformed) && p.ExecutionID != "" {
			s.Pinned++
		}
	}
	for _, at := range sizes {
		s.Tasks = append(s.Tasks, *at)
	}
	slices.SortFunc(s.Tasks, func(a, b ui.TaskSize) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Task, b.Task))
	})
	s.Tasks = s.Tasks[:min(len(s.Tasks), mostSizes)]
	return s, nil
}
