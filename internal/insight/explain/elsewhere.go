package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/internal/packages"
	"e3/objectstore"
	"e3/refstore"
)

// Bounds of the search beyond a task's own name.
const (
	maxSearched   = 1000 // executions of one task hash
	maxWorkspaces = 50
)

func ignoreNoRun(err error) error {
	if errors.Is(err, runview.ErrNoRun) || errors.Is(err, human.ErrNotFound) || errors.Is(err, packages.ErrNotDeployed) {
		return executions.ErrNotFound
	}
	return err
}

// elsewhere finds a success to compare with, for a task without a success. It looks for the same task object under
// another name or in another workspace, a task of the same name in another workspace, or a former task of the package
// with the same command.
func (x *explaining) elsewhere(s *side, most int) (*side, string, error) {
	list, err := x.sameObject(s)
	if err != nil {
		return nil, "", err
	}
	if len(list) == 0 {
		if list, err = x.sameName(s); err != nil {
			return nil, "", err
		}
	}
	if len(list) == 0 {
		if list, err = x.sameCommand(s); err != nil {
			return nil, "", err
		}
		most = maxSearched // an item of a matrix is looked for among all items
	}
	sortByID(list)
	best, err := x.choose(s, list, most)
	if best == nil || err != nil {
		return nil, "", err
	}
	r := ref(best.at)
	name := truncate(r.Workspace+"."+r.Task, maxText)
	switch {
	case r.Task == s.task:
		return best, "nothing of this name has succeeded here before: compared with " + name, nil
	case best.definition.task == s.definition.task:
		return best, name + " ran the same command: compared with that", nil
	}
	return best, name + ", which the package has no more, ran the same command: compared with that", nil
}

// sameObject finds successes of the task object, whatever their names are.
func (x *evidence) sameObject(s *side) ([]history.Attempt, error) {
	var list []history.Attempt
	n := 0
	for inputs, err := range x.Executions.Inputs(x.ctx, s.definition.task) {
		if err != nil {
			return nil, err
		}
		for e, err := range x.Executions.List(x.ctx, executions.Key{Task: s.definition.task, Inputs: inputs}) {
			if x.ctx.Err() != nil {
				return nil, context.Cause(x.ctx)
			}
			if n++; n > maxSearched {
				return list, nil
			}
			if err != nil || e.State != record.Success || e.Detail == nil || e.ExecutionID == s.id {
				continue
			}
			list = append(list, *history.Of(e.Detail.Workspace, e.Detail.Task, e))
		}
	}
	return list, nil
}

// sameName finds successes of a task of the same name in other workspaces.
func (x *explaining) sameName(s *side) ([]history.Attempt, error) {
	names, err := x.Workspaces.List(x.ctx)
	if err != nil {
		return nil, err
	}
	var list []history.Attempt
	for _, ws := range names[:min(len(names), maxWorkspaces)] {
		if ws == s.ws {
			continue
		}
		other, err := x.succeeded(ws, s.task)
		if err != nil {
			return nil, err
		}
		list = append(list, other...)
	}
	return list, nil
}

// succeeded returns the recent attempts of a task; if there is no success among them, all.
func (x *explaining) succeeded(ws, task string) (list []history.Attempt, err error) {
	err = x.search(x.ctx, ws, task, func(p past) (bool, error) {
		list = p.list
		return slices.ContainsFunc(list, func(a history.Attempt) bool { return a.Status == runview.TaskSuccess }), nil
	})
	return list, err
}

// sameCommand finds successes of tasks that ran the same command and that only the package of the latest run had: the
// task was renamed, and also changed in other parts.
func (x *explaining) sameCommand(s *side) ([]history.Attempt, error) {
	if err := x.wire(s); err != nil {
		return nil, err
	}
	if s.object == nil || s.graph == nil {
		return nil, nil
	}
	run, err := x.runBefore(s)
	if err != nil {
		return nil, err
	}
	f, err := x.run(s.ws, run)
	if err != nil {
		return nil, err
	}
	g, err := x.graph(f.pkg)
	if g == nil || err != nil {
		return nil, err
	}
	var names []string
	for i := range min(g.Len(), maxSearched) {
		name := g.Name(int32(i))
		if _, still := s.graph.Find(name); still {
			continue
		}
		t, err := x.object(g.Hashes[i])
		if err != nil {
			return nil, err
		}
		if t == nil || t.Shell != s.object.Shell || !slices.Equal(t.Argv, s.object.Argv) {
			continue
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	if err := x.Prefetch(x.ctx, s.ws, names); err != nil {
		return nil, err
	}
	var list []history.Attempt
	for _, name := range names {
		other, err := x.succeeded(s.ws, name)
		if err != nil {
			return nil, err
		}
		list = append(list, other...)
	}
	return list, nil
}

// runBefore returns the run of the workspace before the run that made a side, or the latest run if the side is the
// next start. "" if there is none.
func (x *evidence) runBefore(s *side) (string, error) {
	before := ""
	for key, err := range x.Records.ListStreams(x.ctx, refstore.Query{Partition: "EVENTS/" + s.ws}) {
		if err != nil {
			return "", err
		}
		if len(s.runs) > 0 && key.Sort >= s.runs[0] {
			break
		}
		before = key.Sort
	}
	return before, nil
}

// never is the cause of a task that has no success to compare with.
func (x *explaining) never(s *side) (Cause, error) {
	c := Cause{Kind: NeverRan, Workspace: s.ws, Task: s.task, Text: "never ran before"}
	if s.at != nil && s.at.Execution != nil && s.at.Execution.Provenance != nil {
		c.Text = "nothing that ran before it is on record here"
	}
	var list []history.Attempt
	err := x.search(x.ctx, s.ws, s.task, func(p past) (bool, error) {
		list = p.list
		return false, nil
	})
	if err != nil {
		return c, err
	}
	for i := range list {
		a := &list[i]
		if s.id != "" && a.ExecutionID >= s.id || a.Status == runview.TaskSuccess || a.Status == runview.TaskRunning || a.ExecutionID == "" {
			continue
		}
		f := x.failureOf(a)
		c.Kind, c.Subject, c.Execution, c.At, c.Reason = FailedBefore, string(f.Kind), a.ExecutionID, a.At(), f.Text
		tense := "had"
		if s.id == "" {
			tense = "has"
		}
		c.Text = fmt.Sprintf("it %s never succeeded: the last attempt (%s) %s", tense, human.Ago(x.now(), a.At()), f.Text)
		return c, nil
	}
	return c, nil
}

// hash parses a hash; an empty or malformed text gives the zero hash.
func hash(text string) objectstore.Hash {
	h, _ := objectstore.ParseHash(text)
	return h
}
