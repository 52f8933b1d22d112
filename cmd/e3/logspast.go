package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/workspace"
)

// The logs of any attempt: what history knows beyond the run that a workspace shows.

// attempts are those that history lists, the latest first; deep ones as well where it is asked for.
func (l *logs) attempts(ctx context.Context, deep bool) ([]history.Attempt, error) {
	found, err := history.Find(ctx, l.stores(), history.Query{Workspace: l.ws, Tasks: []string{l.task}, Deep: deep})
	if err != nil {
		return nil, err
	}
	sayDamaged(l.a, found.Damaged)
	return found.Tasks[0].Attempts, nil
}

func (l *logs) stores() history.Stores {
	return history.Stores{Records: l.r.Records, Executions: l.r.Executions, Runs: l.r.Workspaces.Runs}
}

// past stands for a task that no package here has, or whose workspace is gone, but of which history knows. Otherwise the error
// is the one that told so.
func (l *logs) past(ctx context.Context, missing error) (*runview.TaskExecutions, error) {
	for _, deep := range []bool{false, true} {
		list, err := l.attempts(ctx, deep)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			continue
		}
		l.gone = true
		te := &runview.TaskExecutions{}
		for i := range list {
			if e := list[i].Execution; e != nil {
				te.Known = append(te.Known, e)
			}
		}
		return te, nil
	}
	return nil, missing
}

// find finds an execution by the beginning of its id: among those that have the task's hash now, and all that history lists.
func (l *logs) find(ctx context.Context, te *runview.TaskExecutions, prefix string) (*executions.Execution, error) {
	e, err := l.r.Workspaces.Runs.FindExecution(ctx, te, prefix)
	if err == nil && e.ExecutionID == strings.ToLower(prefix) {
		return e, nil
	}
	var unknown *workspace.UnknownError
	var pruned *executions.PrunedError
	if err != nil && !errors.As(err, &unknown) && !errors.As(err, &pruned) {
		return nil, err
	}
	known := map[string]bool{}
	for _, deep := range []bool{false, true} {
		list, fault := l.attempts(ctx, deep)
		if fault != nil {
			return nil, fault
		}
		var fits []*history.Attempt
		for i := range list {
			known[list[i].ExecutionID] = true
			if strings.HasPrefix(list[i].ExecutionID, strings.ToLower(prefix)) {
				fits = append(fits, &list[i])
			}
		}
		switch {
		case e != nil && (len(fits) == 0 || len(fits) == 1 && fits[0].ExecutionID == e.ExecutionID):
			return e, nil
		case len(fits) == 1:
			return l.recorded(fits[0])
		case len(fits) > 1 || e != nil && len(fits) > 0:
			return nil, fmt.Errorf("execution %s: %w", prefix, executions.ErrAmbiguous)
		}
	}
	if pruned != nil {
		return nil, err
	}
	for _, id := range unknown.Known {
		known[id] = true
	}
	unknown.Known = unknown.Known[:0]
	for id := range known {
		unknown.Known = append(unknown.Known, id)
	}
	slices.Sort(unknown.Known)
	return nil, unknown
}

// recorded returns the record of an attempt, or says why it is not here.
func (l *logs) recorded(x *history.Attempt) (*executions.Execution, error) {
	if x.Execution != nil {
		return x.Execution, nil
	}
	var pruned *executions.PrunedError
	if errors.As(x.Err, &pruned) {
		pruned.Now = l.a.Now()
		return nil, pruned
	}
	if errors.Is(x.Err, executions.ErrNotFound) {
		return nil, fmt.Errorf("execution %s has left no logs: its record is gone; see: e3 history <repo> %s", x.ExecutionID, human.Quoted(l.ws+"."+l.task))
	}
	return nil, x.Err
}

// inRun finds the execution that stood for the task in a run, or an attempt of it.
func (l *logs) inRun(ctx context.Context, prefix string, attempt int64) (*executions.Execution, error) {
	list, err := l.attempts(ctx, false)
	if err != nil {
		return nil, err
	}
	run, err := chooseRun(list, prefix)
	if err != nil {
		list, fault := l.attempts(ctx, true)
		if fault != nil {
			return nil, fault
		}
		if run, fault = chooseRun(list, prefix); fault != nil {
			return nil, l.noPart(ctx, prefix, err)
		}
	}
	var answer *history.Attempt
	for i := range list {
		x := &list[i]
		switch {
		case attempt > 0 && x.MadeBy == run && x.Number == attempt:
			return l.recorded(x)
		case attempt == 0 && answer == nil && (x.MadeBy == run || slices.Contains(x.Runs, run)):
			answer = x
		}
	}
	if answer == nil {
		return nil, fmt.Errorf("task %s has no attempt %d in run %s; see: e3 history <repo> %s --run %s", l.task, attempt, run, human.Quoted(l.ws+"."+l.task), human.Short(run))
	}
	return l.recorded(answer)
}

// chooseRun finds a run of which the task was part by the beginning of its id.
func chooseRun(list []history.Attempt, prefix string) (string, error) {
	prefix = strings.ToLower(prefix)
	known := map[string]bool{}
	for i := range list {
		for _, run := range append(list[i].Runs, list[i].MadeBy) {
			if run != "" {
				known[run] = true
			}
		}
	}
	if known[prefix] {
		return prefix, nil
	}
	unknown := &workspace.UnknownError{What: "run", Name: prefix}
	var fits []string
	for run := range known {
		unknown.Known = append(unknown.Known, run)
		if strings.HasPrefix(run, prefix) {
			fits = append(fits, run)
		}
	}
	slices.Sort(unknown.Known)
	slices.Reverse(unknown.Known)
	switch len(fits) {
	case 0:
		return "", unknown
	case 1:
		return fits[0], nil
	}
	return "", fmt.Errorf("run %s: %w", prefix, executions.ErrAmbiguous)
}

// noPart tells a run of the workspace in which the task was not executed from one that is nobody's.
func (l *logs) noPart(ctx context.Context, prefix string, missing error) error {
	for run, err := range l.r.Workspaces.Runs.List(ctx, l.ws) {
		if err != nil {
			return missing
		}
		if strings.HasPrefix(run.RunID, strings.ToLower(prefix)) {
			return fmt.Errorf("task %s was not executed in run %s, nor answered; see: e3 run <repo> %s --run %s", l.task, run.RunID, l.ws, human.Short(run.RunID))
		}
	}
	return missing
}

// list lists what there is to choose from, the latest first: all that history knows, and what others have executed under the
// same key.
func (l *logs) list(ctx context.Context, te *runview.TaskExecutions) error {
	list, err := l.attempts(ctx, false)
	if err != nil {
		return err
	}
	if len(list) == 0 && len(te.Known) > 0 { // by past, or of another workspace
		if list, err = l.attempts(ctx, true); err != nil {
			return err
		}
	}
	for _, e := range te.Known {
		if !slices.ContainsFunc(list, func(x history.Attempt) bool { return x.ExecutionID == e.ExecutionID }) {
			list = append(list, history.Of(l.ws, l.task, e))
		}
	}
	slices.SortStableFunc(list, func(x, y history.Attempt) int { return strings.Compare(y.ExecutionID, x.ExecutionID) })
	doc := struct {
		Executions []executionJSON `json:"executions"`
	}{[]executionJSON{}}
	t := &render.Table{Right: map[int]bool{3: true}}
	for i := range list {
		x := &list[i]
		item := attemptOf(x)
		if x.Execution != nil {
			item.State = x.Execution.State.String() // as it is on record
		}
		item.Current = te.Task != nil && te.Task.ExecutionID == x.ExecutionID
		doc.Executions = append(doc.Executions, item)
		mark := map[bool]string{true: "*"}[item.Current]
		t.Row(x.ExecutionID+mark, cmp.Or(item.State, "-"), human.Stamp(x.At()), attemptTook(x), strings.Join(attemptNotes(l.a, x), "  "))
	}
	return l.a.Reply(doc, func(w io.Writer) { t.Write(w, "") })
}
