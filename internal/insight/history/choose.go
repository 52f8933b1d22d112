package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// A Chooser finds executions of a task by what a user types, such as the beginning of an id or a run. It searches the
// executions that the workspace shows, and all that history lists.
type Chooser struct {
	Stores
	Workspace, Task string
	Now             func() time.Time
	Damaged         func([]error) // is called with errors about damaged lines of events
}

// An AbsentError says that there is no execution to choose.
type AbsentError struct {
	Task, Execution, Run string
	Attempt              int64
}

// Error implements error.
func (e *AbsentError) Error() string {
	switch {
	case e.Execution != "":
		return fmt.Sprintf("execution %s has left no logs: its record is gone", e.Execution)
	case e.Attempt > 0:
		return fmt.Sprintf("task %s has no attempt %d in run %s", e.Task, e.Attempt, e.Run)
	}
	return fmt.Sprintf("task %s was neither executed nor cached in run %s", e.Task, e.Run)
}

// attempts are the attempts that history lists, the latest first; deep adds those of a deep query.
func (c *Chooser) attempts(ctx context.Context, deep bool) ([]Attempt, error) {
	found, err := Find(ctx, c.Stores, Query{Workspace: c.Workspace, Tasks: []string{c.Task}, Deep: deep})
	if err != nil {
		return nil, err
	}
	c.Damaged(found.Damaged)
	return found.Tasks[0].Attempts, nil
}

// Past lists the executions of a task that no package here has, or whose workspace is gone. found reports whether
// history knows the task.
func (c *Chooser) Past(ctx context.Context) (known []*executions.Execution, found bool, err error) {
	for _, deep := range []bool{false, true} {
		list, err := c.attempts(ctx, deep)
		if err != nil {
			return nil, false, err
		}
		for i := range list {
			if e := list[i].Execution; e != nil {
				known = append(known, e)
			}
		}
		if len(list) > 0 {
			return known, true, nil
		}
	}
	return nil, false, nil
}

// Execution finds an execution by the beginning of its id, among the executions of the task's present hash and all
// executions that history lists.
func (c *Chooser) Execution(ctx context.Context, te *runview.TaskExecutions, prefix string) (*executions.Execution, error) {
	e, err := c.Runs.FindExecution(ctx, te, prefix)
	if err == nil && e.ExecutionID == strings.ToLower(prefix) {
		return e, nil
	}
	var unknown *human.UnknownError
	var pruned *executions.PrunedError
	if err != nil && !errors.As(err, &unknown) && !errors.As(err, &pruned) {
		return nil, err
	}
	known := map[string]bool{}
	for _, deep := range []bool{false, true} {
		list, fault := c.attempts(ctx, deep)
		if fault != nil {
			return nil, fault
		}
		var fits []*Attempt
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
			return c.recorded(fits[0])
		case len(fits) > 1 || e != nil && len(fits) > 0:
			several := &executions.AmbiguousError{What: "execution", Prefix: prefix}
			if e != nil && !slices.ContainsFunc(fits, func(x *Attempt) bool { return x.ExecutionID == e.ExecutionID }) {
				several.Fits = append(several.Fits, e.ExecutionID)
			}
			for _, x := range fits {
				several.Fits = append(several.Fits, x.ExecutionID)
			}
			return nil, several
		}
	}
	if pruned != nil {
		return nil, err
	}
	for _, id := range unknown.Known {
		known[id] = true
	}
	unknown.Known = slices.Sorted(maps.Keys(known))
	return nil, unknown
}

// recorded returns the record of an attempt, or an error that says why it is not here.
func (c *Chooser) recorded(x *Attempt) (*executions.Execution, error) {
	if x.Execution != nil {
		return x.Execution, nil
	}
	var pruned *executions.PrunedError
	if errors.As(x.Err, &pruned) {
		pruned.Now = c.Now()
		return nil, pruned
	}
	if errors.Is(x.Err, executions.ErrNotFound) {
		return nil, &AbsentError{Task: c.Task, Execution: x.ExecutionID}
	}
	return nil, x.Err
}

// InRun finds the task's execution in a run: the attempt of that number or, if attempt is 0, the attempt that
// counted. The run is given by the beginning of its id.
func (c *Chooser) InRun(ctx context.Context, prefix string, attempt int64) (*executions.Execution, error) {
	if x, err := c.inEndedRun(ctx, prefix, attempt); err != nil || x != nil {
		if err != nil {
			return nil, err
		}
		return c.recorded(x)
	}
	list, err := c.attempts(ctx, false)
	if err != nil {
		return nil, err
	}
	run, err := chooseRun(list, prefix)
	if errors.Is(err, executions.ErrAmbiguous) {
		return nil, err
	}
	if err != nil {
		var fault error
		if list, fault = c.attempts(ctx, true); fault != nil {
			return nil, fault
		}
		if run, fault = chooseRun(list, prefix); fault != nil {
			return nil, c.noPart(ctx, prefix, err)
		}
	}
	if x := partOf(list, run, attempt); x != nil {
		return c.recorded(x)
	}
	return nil, &AbsentError{Task: c.Task, Run: run, Attempt: attempt}
}

// inEndedRun is InRun by the events of the run alone, so its cost does not depend on the number of other records. It
// finds nothing unless one run fits, has ended, and has the attempt.
func (c *Chooser) inEndedRun(ctx context.Context, prefix string, attempt int64) (*Attempt, error) {
	runs, err := events.Runs(ctx, c.Records, c.Workspace)
	if err != nil {
		return nil, err
	}
	run := ""
	for _, r := range runs {
		if strings.HasPrefix(r.Run, strings.ToLower(prefix)) {
			if run != "" {
				return nil, nil
			}
			run = r.Run
		}
	}
	if run == "" {
		return nil, nil
	}
	if ended, err := events.Ended(ctx, c.Records, c.Workspace, run); err != nil || !ended {
		return nil, err
	}
	found, err := Find(ctx, c.Stores, Query{Workspace: c.Workspace, Tasks: []string{c.Task}, Only: run})
	if err != nil || len(found.Damaged) > 0 {
		return nil, err
	}
	return partOf(found.Tasks[0].Attempts, run, attempt), nil
}

// partOf returns the attempt of that number that a run has made or, if attempt is 0, the latest attempt in the run.
func partOf(list []Attempt, run string, attempt int64) *Attempt {
	for i := range list {
		x := &list[i]
		if attempt > 0 && x.MadeBy == run && x.Number == attempt || attempt == 0 && (x.MadeBy == run || slices.Contains(x.Runs, run)) {
			return x
		}
	}
	return nil
}

// chooseRun finds, by the beginning of its id, a run that the task was part of.
func chooseRun(list []Attempt, prefix string) (string, error) {
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
	ids := slices.Sorted(maps.Keys(known))
	slices.Reverse(ids)
	var fits []string
	for _, run := range ids {
		if strings.HasPrefix(run, prefix) {
			fits = append(fits, run)
		}
	}
	switch len(fits) {
	case 0:
		return "", &human.UnknownError{What: "run", Name: prefix, Known: ids}
	case 1:
		return fits[0], nil
	}
	return "", &executions.AmbiguousError{What: "run", Prefix: prefix, Fits: fits}
}

// noPart returns missing if no run has the prefix, else an error that says that the task was not executed in that
// run.
func (c *Chooser) noPart(ctx context.Context, prefix string, missing error) error {
	for run, err := range c.Runs.List(ctx, c.Workspace) {
		if err != nil {
			return missing
		}
		if strings.HasPrefix(run.RunID, strings.ToLower(prefix)) {
			return &AbsentError{Task: c.Task, Run: run.RunID}
		}
	}
	return missing
}

// All lists the executions to choose from, the latest first: all executions that history knows, and executions of
// other tasks and workspaces under the same key.
func (c *Chooser) All(ctx context.Context, te *runview.TaskExecutions) ([]Attempt, error) {
	list, err := c.attempts(ctx, false)
	if err == nil && len(list) == 0 && len(te.Known) > 0 { // found by Past, or made by another workspace
		list, err = c.attempts(ctx, true)
	}
	if err != nil {
		return nil, err
	}
	for _, e := range te.Known {
		if !slices.ContainsFunc(list, func(x Attempt) bool { return x.ExecutionID == e.ExecutionID }) {
			list = append(list, *Of(c.Workspace, c.Task, e))
		}
	}
	slices.SortStableFunc(list, func(x, y Attempt) int { return strings.Compare(y.ExecutionID, x.ExecutionID) })
	return list, nil
}
