package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/workspace"
)

// repair mends faults. It reports those that it cannot mend, and goes on.
func (v *verifier) repair(ctx context.Context) error {
	for i := range v.report.Faults {
		f := &v.report.Faults[i]
		if f.mend == nil {
			continue
		}
		remedy, whole, err := f.mend(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.Repaired, f.Remedy = whole && err == nil, remedy
		if err != nil {
			f.Remedy = strings.TrimPrefix(remedy+"; not repaired: "+err.Error(), "; ")
		}
	}
	if err := v.reruns(ctx); err != nil {
		return err
	}
	return v.confirm(ctx)
}

// confirm checks the repository again, except objects that were whole: a repair counts only if its fault is gone.
// Faults that a repair has uncovered are reported too.
func (v *verifier) confirm(ctx context.Context) error {
	again := newVerifier(v.Stores, Options{Sample: v.Sample})
	for h, d := range v.corrupt {
		if err := v.Objects.Verify(ctx, h); err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			again.corrupt[h] = d
		}
	}
	for _, step := range []func(context.Context) error{again.format, again.place, again.records, again.references} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, f := range again.report.Faults {
		known := false
		for i := range v.report.Faults {
			if was := &v.report.Faults[i]; was.Where == f.Where { // a corrupt object may be missing now
				if known = true; was.Repaired {
					was.Repaired = false
					was.Remedy += "; not repaired: " + f.Problem
				}
			}
		}
		if !known {
			v.report.Faults = append(v.report.Faults, f)
		}
	}
	return nil
}

// mendObject removes a corrupt object, and retires its owners: it rejects successes, and removes outputs from
// workspaces. whole reports that nothing needs the object any more.
func (v *verifier) mendObject(ctx context.Context, h objectstore.Hash, d damage) (remedy string, whole bool, err error) {
	var done []string
	if d.kind == CorruptObject {
		if err := v.dropObject(ctx, h, d); err != nil {
			return "", false, err
		}
		done = append(done, "removed")
	}
	whole = true
	rejected := 0
	outputs := map[string]map[string]string{} // workspace → task → hash
	var errs []error
	for _, n := range v.concern[h] {
		switch n.kind {
		case needsOutput:
			reason := fmt.Sprintf("%s: %s", d.kind, h)
			switch _, err := v.Curator.Reject(ctx, n.key, n.execution, v.rejection(reason)); {
			case err == nil:
				rejected++
				v.retired[n.execution] = true
			case !errors.Is(err, executions.ErrNotFound):
				errs = append(errs, err)
			}
		case needsDataset:
			if outputs[n.workspace] == nil {
				outputs[n.workspace] = map[string]string{}
			}
			outputs[n.workspace][n.name] = n.top.String()
		case needsSnapshot:
			if err := v.dropSnapshot(ctx, n); err != nil {
				errs = append(errs, err)
				continue
			}
			if text := "took the " + n.name + " off the record of run " + n.execution; !slices.Contains(done, text) { // events still name it
				done = append(done, text)
			}
		case needsTree, needsDeployed:
			remedy, healed, err := v.heal(ctx, n, h)
			if errs, whole = append(errs, err), whole && healed; remedy != "" && !slices.Contains(done, remedy) {
				done = append(done, remedy)
			}
		case needsExportedPart:
		default:
			whole = false
		}
	}
	if rejected > 0 {
		done = append(done, fmt.Sprintf("rejected %d executions", rejected))
		if rejected == 1 {
			done[len(done)-1] = "rejected the execution"
		}
	}
	for ws, tasks := range outputs {
		gone, err := v.Workspaces.Deployer.Unassign(ctx, ws, tasks)
		if err != nil && !errors.Is(err, workspace.ErrNotFound) {
			errs = append(errs, err)
		}
		for _, task := range gone {
			v.lostOutput(ws, task)
			done = append(done, "took "+ws+"."+task+" off its workspace")
		}
	}
	return strings.Join(done, ", "), whole, errors.Join(errs...)
}

// heal repairs a workspace that has lost an object of its tree or its package.
func (v *verifier) heal(ctx context.Context, n need, h objectstore.Hash) (remedy string, whole bool, err error) {
	file, err := v.Workspaces.Runner.Heal(ctx, n.workspace)
	switch {
	case err != nil:
		return "", false, err
	case file != "":
		return "deployed " + file + " in workspace " + n.workspace + " again", true, nil
	case n.kind == needsTree:
		return "the tree of workspace " + n.workspace + " was made again", true, nil
	}
	lost, err := objectstore.Lost(ctx, v.Objects, h)
	return "", !lost, err
}

func (v *verifier) dropObject(ctx context.Context, h objectstore.Hash, d damage) error {
	end, err := v.Curator.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = v.removeCorrupt(ctx, h, d.time)
	return err
}

// lostOutput records a task of a workspace whose output was removed.
func (v *verifier) lostOutput(ws, task string) {
	if v.outputs == nil {
		v.outputs = map[string]map[string]bool{}
	}
	if v.outputs[ws] == nil {
		v.outputs[ws] = map[string]bool{}
	}
	v.outputs[ws][task] = true
}

// reruns finds the tasks that will run again: tasks whose output is lost, and tasks of retired executions, unless
// they have another hit.
func (v *verifier) reruns(ctx context.Context) error {
	if err := v.retiredInRuns(ctx); err != nil {
		return err
	}
	for ws, tasks := range v.outputs {
		answered := map[string]bool{}
		err := v.Workspaces.Planner.Hits(ctx, ws, func(task string, _ executions.Key, _ string) error {
			v.mu.Lock()
			defer v.mu.Unlock()
			answered[task] = true
			return nil
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			answered = nil // unknown; a start will find out
		}
		rows, err := v.Workspaces.Datasets.Names(ctx, ws)
		if err != nil {
			continue // the workspace must be deployed again first, as the advice of its fault says
		}
		for _, row := range rows {
			if task := row.Name; row.Output && tasks[task] && !answered[task] {
				v.report.Rerun = append(v.report.Rerun, ws+"."+task)
			}
		}
	}
	return nil
}

// retiredInRuns finds, in the latest runs of workspaces, the tasks whose execution was retired. Unreadable runs are
// faults of their own.
func (v *verifier) retiredInRuns(ctx context.Context) error {
	if len(v.retired) == 0 {
		return nil
	}
	for last, err := range v.latestRuns(ctx) {
		if err != nil {
			return err
		}
		data, err := v.Records.Get(ctx, last.key)
		if err != nil {
			continue
		}
		run, err := record.DecodeRun(data.Value)
		if err != nil {
			continue
		}
		for t := range run.Tasks.All() {
			if v.retired[t.ExecutionID] {
				v.lostOutput(last.workspace, t.Task)
			}
		}
	}
	return nil
}
