package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// Pruning leaves a tombstone of each execution that it removes. So an execution that has neither a record nor a
// tombstone was removed by hand. That is a fault if the record of a workspace's latest run names the execution, since
// starts rely on that record. If only events of a run name it, its logs are gone, which is a note, as long as
// tombstones are kept. Imported runs may name executions that were never imported: that is a note too.
type promises struct {
	*verifier
	mu     sync.Mutex
	seen   map[uuid.UUID]struct{} // executions on record
	absent map[string]*promise    // by id: named, but not seen
}

// promise is a named execution, with the record or event that names it.
type promise struct {
	workspace, run, task string
	latest               bool // the record of the workspace's latest run names it
	pkg                  string
	key                  executions.Key // zero if no event tells the key
	output               string
}

func newPromises(v *verifier) *promises {
	return &promises{verifier: v, seen: map[uuid.UUID]struct{}{}, absent: map[string]*promise{}}
}

// expect collects the executions that the latest runs name. It runs before the executions are read, so that new
// executions cannot count as missing.
func (p *promises) expect(ctx context.Context) error {
	for last, err := range p.latestRuns(ctx) {
		if err != nil {
			return err
		}
		was, run, err := p.ownRun(ctx, last.workspace, last.run)
		if err != nil {
			return err
		}
		own := run != nil
		if run == nil && runview.Imported(was) {
			if run, err = record.DecodeRun(was.Value); err != nil {
				continue // a fault of its own
			}
		}
		if run == nil {
			continue
		}
		first, err := events.First(ctx, p.Records, last.workspace, run.RunID)
		if err != nil {
			return err
		}
		pkg, err := events.PackageOf(ctx, p.Records, last.workspace, run.RunID, first)
		if err != nil {
			return err
		}
		if pkg == "" {
			pkg = last.deployed
		}
		for t := range run.Tasks.All() {
			p.absent[t.ExecutionID] = &promise{workspace: last.workspace, run: run.RunID, task: t.Task, latest: own, pkg: pkg}
		}
	}
	return nil
}

// met notes that an execution is on record.
func (p *promises) met(id string) {
	u, err := uuid.Parse(id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.absent, id); err == nil {
		p.seen[u] = struct{}{}
	}
}

// told notes what an event of a run that was made here says about an execution. since is the time since which
// tombstones are complete.
func (p *promises) told(e *events.Event, since time.Time) {
	d := e.Facts()
	if e.Execution == "" {
		return
	}
	known := p.absent[e.Execution]
	if known == nil {
		ends := e.Type == events.TaskCached || e.Type == events.TaskCompleted || e.Type == events.TaskFailed && d.Block == "" && !d.NoRecord
		if !ends || e.Time.Before(since) {
			return
		}
		if u, err := uuid.Parse(e.Execution); err == nil {
			if _, seen := p.seen[u]; seen {
				return
			}
		}
		known = &promise{workspace: e.Workspace, run: e.Run, task: e.Task}
		p.absent[e.Execution] = known
	}
	if key, ok := executions.ParseKey(d.Key); ok {
		known.key = key
	}
	if d.Output != "" {
		known.output = d.Output
	}
}

// unmet reports the executions that are named but gone.
func (p *promises) unmet(ctx context.Context) error {
	type run struct {
		workspace, id string
		latest        bool
	}
	missing := map[run][]string{}
	pruned := map[objectstore.Hash]map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(p.absent)) {
		x := p.absent[id]
		gone, err := p.gone(ctx, x, id, pruned)
		if err != nil {
			return err
		}
		if gone {
			r := run{x.workspace, x.run, x.latest}
			missing[r] = append(missing[r], id)
		}
	}
	for r, ids := range missing {
		if !p.absent[ids[0]].latest {
			p.note("run %s of workspace %s names executions that are not on record, %d in all, as %s of task %s: what they printed is not here",
				r.id, r.workspace, len(ids), ids[0], p.absent[ids[0]].task)
			continue
		}
		f := Fault{
			Kind: MissingExecution, Where: "executions",
			Problem: fmt.Sprintf("run %s of workspace %s names %d executions that are not on record", r.id, r.workspace, len(ids)),
			Advice:  "with --repair they count as removed, and what the workspaces need of them is made again by the next start",
			mend:    func(ctx context.Context) (string, bool, error) { return p.bury(ctx, ids) },
		}
		if x := p.absent[ids[0]]; len(ids) == 1 {
			f.Problem = fmt.Sprintf("run %s of workspace %s names an execution that is not on record", r.id, r.workspace)
			if x.key != (executions.Key{}) {
				f.Where = executionPath(x.key, ids[0])
			}
		}
		for _, id := range ids[:min(len(ids), maxFor)] {
			f.For = append(f.For, "execution "+id+" of "+r.workspace+"."+p.absent[id].task)
		}
		f.More = len(ids) - len(f.For)
		p.fault(f)
	}
	return nil
}

// gone tells whether an execution is still named, was not made meanwhile, and has left no tombstone. pruned remembers
// the tombstones of tasks.
func (p *promises) gone(ctx context.Context, x *promise, id string, pruned map[objectstore.Hash]map[string]bool) (bool, error) {
	if x.latest {
		s, err := p.Workspaces.State(ctx, x.workspace)
		if err != nil || s.CurrentRunID != x.run {
			return false, ctx.Err() // a fault of its own, or another run has replaced it
		}
	}
	if x.key == (executions.Key{}) {
		return p.goneFrom(ctx, x, id)
	}
	if !p.verifier.gone(ctx, x.key, id) {
		return false, ctx.Err()
	}
	if pruned[x.key.Task] == nil {
		list, err := p.Curator.TaskTombstones(ctx, x.key.Task)
		if err != nil {
			return false, err
		}
		pruned[x.key.Task] = map[string]bool{}
		for i := range list {
			pruned[x.key.Task][list[i].ExecutionID] = true
		}
	}
	return !pruned[x.key.Task][id], nil
}

// goneFrom is gone for an execution whose key no event tells. It may have been made on any inputs of the run's task.
func (p *promises) goneFrom(ctx context.Context, x *promise, id string) (bool, error) {
	tasks, err := p.Workspaces.Packages.Tasks(ctx, x.pkg)
	if err != nil || tasks[x.task] == nil {
		return false, ctx.Err() // the package is gone too, which is a fault where it is needed
	}
	task, err := objectstore.ParseHash(tasks[x.task].Task)
	if err != nil {
		return false, err
	}
	x.key.Task = task
	var pruned *executions.PrunedError
	_, err = p.Curator.FindTask(ctx, task, id)
	if errors.As(err, &pruned) || err == nil || errors.Is(err, executions.ErrMalformed) {
		return false, nil
	}
	if !errors.Is(err, executions.ErrNotFound) {
		return false, err
	}
	return true, nil
}

// bury gives executions their tombstones. That changes the generation, so that no proof relies on them.
func (p *promises) bury(ctx context.Context, ids []string) (string, bool, error) {
	tasks := map[objectstore.Hash][]executions.Victim{}
	for _, id := range ids {
		x := p.absent[id]
		tasks[x.key.Task] = append(tasks[x.key.Task], executions.Victim{Inputs: x.key.Inputs, ExecutionID: id, OutputHash: x.output})
		p.retired[id] = true
	}
	for task, victims := range tasks {
		if err := p.Curator.Bury(ctx, task, victims, repairer, "its record was gone"); err != nil {
			return "", false, err
		}
	}
	return strings.Replace(fmt.Sprintf("noted as removed: %d", len(ids)), ": 1", "", 1), true, nil
}
