package workspace

import (
	"context"
	"errors"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/human"
	"e3/internal/jobs/approval"
	"e3/objectstore"
)

// A PlannedTask is what a start would do with a task.
type PlannedTask struct {
	Task          string         `json:"task"`
	Plan          dataflow.Step  `json:"plan"` // hit, run, waits or stuck
	Execution     string         `json:"execution,omitempty"`
	Key           string         `json:"key,omitempty"`
	Forced        bool           `json:"forced,omitempty"`
	NeedsApproval bool           `json:"needsApproval,omitempty"` // a person must approve the task before it runs
	Cause         string         `json:"cause,omitempty"`         // as in e3 why
	Reason        string         `json:"reason,omitempty"`
	For           []string       `json:"for,omitempty"`        // the tasks that it waits for, or is stuck on
	Expected      *moment.Millis `json:"expectedMs,omitempty"` // if any task has a history
	Last          *moment.Millis `json:"lastMs,omitempty"`     // its latest execution here

	index int32
}

// Misses tells why tasks have no result in the cache.
type Misses interface {
	// Prefetch reads at once what Miss needs for these tasks.
	Prefetch(ctx context.Context, ws string, tasks []string) error
	// Miss returns why a task has no result in the cache: a word for programs, and a text. gone says why an output is
	// not here, for when nothing else is known.
	Miss(ctx context.Context, ws, task string, key executions.Key, inputs []objectstore.Hash, gone string) (cause, reason string, err error)
}

// mostSteps is the number of tasks that a plan lists unless all are asked for.
const mostSteps = 50

// Explain lists the tasks of a plan, with the step that a start would take with each and the reason: all tasks, or
// the first mostSteps that are not hits.
func (w *Planner) Explain(ctx context.Context, p *Plan, all bool, misses Misses) error {
	p.Steps = []PlannedTask{}
	if p.File != "" && (p.Elsewhere == nil || p.Elsewhere.Here) {
		var err error
		if p.Rooms, err = w.roomsIn(ctx, p.Workspace, p.File); err != nil {
			return err
		}
	}
	var looked []string
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Step == dataflow.StepNone || !all && (t.Step == dataflow.StepHit || len(p.Steps) == mostSteps) {
			continue
		}
		p.Steps = append(p.Steps, p.step(int32(i)))
		if t.Step == dataflow.StepRun && t.Answer != nil {
			looked = append(looked, p.Graph.Name(int32(i)))
		}
	}
	if len(looked) > 0 {
		if err := misses.Prefetch(ctx, p.Workspace, looked); err != nil {
			return err
		}
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if err := p.explain(ctx, s, misses); err != nil {
			return err
		}
		if err := w.decided(ctx, p, s); err != nil {
			return err
		}
	}
	return nil
}

// step describes what a start would do with a task, without the reason.
func (p *Plan) step(i int32) PlannedTask {
	t := &p.Tasks[i]
	s := PlannedTask{Task: p.Graph.Name(i), Plan: t.Step, Execution: t.ExecutionID, Forced: t.Forced, For: p.names(t.Waits), index: i}
	if t.Key != nil {
		s.Key = t.Key.String()
	}
	ms := moment.Millis(p.Forecast.Expected[i])
	if p.Known[i] {
		s.Last = &ms
	}
	if p.History && (t.Step == dataflow.StepRun || t.Step == dataflow.StepWait) {
		s.Expected = &ms
	}
	return s
}

// explain adds the reason of a step. The cause of a task that runs comes from records.
func (p *Plan) explain(ctx context.Context, s *PlannedTask, misses Misses) (err error) {
	switch t := &p.Tasks[s.index]; {
	case t.Step == dataflow.StepRun && t.Answer != nil:
		gone := ""
		if n := len(t.Answer.Passed); n > 0 {
			gone = t.Answer.Passed[n-1].Reason
		}
		s.Cause, s.Reason, err = misses.Miss(ctx, p.Workspace, s.Task, *t.Key, t.Inputs, gone)
		return err
	case t.Step == dataflow.StepRun:
		s.Reason = "forced"
	case t.Step == dataflow.StepWait && t.Twin:
		s.Reason = "the same as " + s.For[0] + ": one of them runs"
	case t.Step == dataflow.StepWait:
		s.Reason = "for " + human.Few(s.For)
		if needs := p.Graph.Needs(s.index); needs != "" {
			s.Reason += "; " + needs + " must succeed"
		}
	case t.Err != nil:
		s.Reason = t.Err.Error()
	case t.Step == dataflow.StepStuck:
		s.Reason = "without " + human.Few(s.For)
	}
	if t := &p.Tasks[s.index]; t.Step == dataflow.StepWait && t.Err != nil {
		s.Reason += "; it could not run: " + t.Err.Error()
	}
	return nil
}

// decided adds to a task that must run whether it waits for approval first, or what a person has decided.
func (w *Planner) decided(ctx context.Context, p *Plan, s *PlannedTask) error {
	if s.Plan != dataflow.StepRun && s.Plan != dataflow.StepWait || !p.Graph.Package.Tasks[s.index].Policy.Approve {
		return nil
	}
	b, err := w.decision(ctx, p, s.index)
	switch {
	case err != nil:
		return err
	case b == nil:
		s.NeedsApproval = true
		s.Reason += "; needs approval"
	case b.Status == approval.Rejected:
		s.Reason += "; fails, as it was rejected by " + b.By
	default:
		s.Reason += "; approved by " + b.By
	}
	return nil
}

// decision returns a person's decision about a task that must run, if a start would act on it; nil: none.
func (w *Planner) decision(ctx context.Context, p *Plan, i int32) (*approval.Block, error) {
	t := &p.Tasks[i]
	if t.Key == nil || t.Forced || p.New {
		return nil, nil
	}
	b, err := w.approvals.Present(ctx, p.Workspace, p.Graph.Name(i))
	switch {
	case errors.Is(err, human.ErrNotFound), errors.Is(err, approval.ErrMalformed):
		return nil, nil
	case err != nil:
		return nil, err
	case b == nil, b.Key != t.Key.String():
		return nil, nil
	case b.Status == approval.Approved && b.Acted.IsZero(), b.Status == approval.Rejected:
		return b, nil
	}
	return nil, nil
}

// names are the names of tasks of the plan.
func (p *Plan) names(tasks []int32) []string {
	names := make([]string, len(tasks))
	for k, i := range tasks {
		names[k] = p.Graph.Name(i)
	}
	return names
}

// Ends is the task at which a start would end, whatever else there is to run; "" if there is no such task. A task
// that lacks only an input of its own does not end a start.
func (p *Plan) Ends() string {
	for i := range p.Tasks {
		var lacking *dataflow.LackingError
		if t := &p.Tasks[i]; t.Step == dataflow.StepStuck && t.Err != nil && !errors.As(t.Err, &lacking) {
			return p.Graph.Name(int32(i))
		}
	}
	return ""
}
