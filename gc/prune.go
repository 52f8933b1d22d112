package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// PruneStores are the stores of a repository whose cache is pruned.
type PruneStores struct {
	Records    executions.Records
	Objects    reach.SizedStore
	Workspaces *workspace.Workspaces
	Curator    *executions.Curator
	Jobs       reach.Jobs
}

// PruneOptions say what to prune.
type PruneOptions struct {
	Rules
	DryRun bool      // change nothing
	By     string    // user@host, for the tombstones
	Now    time.Time // ages are counted from it
}

// Pruned is what a prune removed, or would remove.
type Pruned struct {
	DryRun     bool                   `json:"dryRun"`
	Total      int64                  `json:"total"`               // before
	Executions int64                  `json:"executions"`          // removed
	Spared     int64                  `json:"spared"`              // chosen, but changed, pinned or pruned meanwhile
	Tasks      []PrunedTask           `json:"tasks"`               // by name, spared ones included
	Objects    int64                  `json:"objects"`             // reachable only from what was removed
	Bytes      int64                  `json:"bytes"`               // of these objects
	Held       *int64                 `json:"held,omitempty"`      // bytes that only the cache holds
	Protected  Protected              `json:"protected"`           // kept executions, by reason
	Unreadable []string               `json:"unreadable"`          // executions with unreadable records
	Snapshots  []workspace.PackageRef `json:"snapshots,omitempty"` // removed from the register
	Freed      *Freed                 `json:"freed,omitempty"`     // by the collection, if there was one
}

// PrunedTask is the number of removed executions of a task.
type PrunedTask struct {
	Task string `json:"task"` // <workspace>.<task>, or a task hash
	N    int64  `json:"executions"`
}

// Freed is what the collection after a prune removed.
type Freed struct {
	Amount
	Gone  Gone   `json:"gone,omitzero"` // remains of repositories that are gone
	Young Amount `json:"-"`             // spared
}

// Prune removes executions from the cache by the rules. It never removes a protected execution (see Shield), which
// runs, is pinned, is named by the current or the proven run of a workspace, or would be a hit for a start. If it cannot find the
// protected executions, it prunes nothing. It removes the records; a collection removes the objects.
//
// It is safe beside any other use of the repository. A process that found an execution before its removal may still
// publish the output: a collection keeps the objects of tombstones for processes that were live at the removal.
func Prune(ctx context.Context, s PruneStores, o PruneOptions) (*Pruned, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &pruner{PruneStores: s, PruneOptions: o, report: &Pruned{DryRun: o.DryRun, Tasks: []PrunedTask{}, Unreadable: []string{}}}
	if o.Snapshots {
		if err := p.snapshots(ctx); err != nil {
			return nil, fmt.Errorf("prune: snapshots: %w", err)
		}
		if !o.ofExecutions() {
			return p.report, nil
		}
	}
	if err := p.protect(ctx); err != nil {
		return nil, fmt.Errorf("prune: find out what is needed: %w", err)
	}
	if err := p.scan(ctx); err != nil {
		return nil, fmt.Errorf("prune: %w", err)
	}
	if o.OlderThan > 0 {
		p.pool.byAge(o.Now, o.OlderThan)
	}
	if o.KeepLast > 0 {
		p.pool.byNumber(o.KeepLast)
	}
	if err := p.measure(ctx); err != nil {
		return nil, fmt.Errorf("prune: measure the cache: %w", err)
	}
	if !o.DryRun {
		if err := p.remove(ctx); err != nil {
			return p.finish(), fmt.Errorf("prune: %w", err)
		}
	}
	return p.finish(), nil
}

// pruner is one prune.
type pruner struct {
	PruneStores
	PruneOptions

	mu      sync.Mutex // guards shields
	shields map[uuid.UUID]Shield
	pool    pool
	removed atomic.Int64
	report  *Pruned
}

func (p *pruner) shield(id string, by Shield) {
	u, err := uuid.Parse(id)
	if err != nil {
		return // no execution has this id
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.shields[u]; old == Unshielded || by < old {
		p.shields[u] = by
	}
}

// protect finds the executions that must stay.
func (p *pruner) protect(ctx context.Context) error {
	p.shields = map[uuid.UUID]Shield{}
	for _, find := range []func(context.Context) error{p.pins, p.starts, p.runs} {
		if err := find(ctx); err != nil {
			return err
		}
	}
	return nil
}

// snapshots removes from the register the packages that exports made of workspaces, unless a workspace has deployed
// them. A package that is deployed meanwhile stays: its workspace keeps it.
func (p *pruner) snapshots(ctx context.Context) error {
	packages, err := p.Workspaces.Packages.List(ctx)
	if err != nil {
		return err
	}
	names, err := p.Workspaces.List(ctx)
	if err != nil {
		return err
	}
	deployed := map[string]bool{}
	for _, ws := range names {
		s, err := p.Workspaces.State(ctx, ws)
		if err != nil && !errors.Is(err, workspace.ErrNotFound) {
			return err
		}
		deployed[s.PackageHash] = true
	}
	for _, ref := range packages {
		if deployed[ref.Hash] {
			continue
		}
		snapshot, err := p.Workspaces.Packages.IsSnapshot(ctx, ref)
		if err != nil {
			return err
		}
		if !snapshot {
			continue
		}
		if !p.DryRun {
			_, err = p.Workspaces.Packages.Remove(ctx, ref.Name, ref.Version)
		}
		if err != nil && !errors.Is(err, workspace.ErrNotFound) {
			return err
		}
		p.report.Snapshots = append(p.report.Snapshots, ref)
	}
	return nil
}

func (p *pruner) pins(ctx context.Context) error {
	for rec, err := range p.Records.List(ctx, refstore.Query{Partition: "PIN", KeysOnly: true}) {
		if err != nil {
			return err
		}
		p.shield(rec.Key.Sort, ByPin) // whatever the record says
	}
	return nil
}

func (p *pruner) starts(ctx context.Context) error {
	found := func(_ string, _ executions.Key, id string) error {
		p.shield(id, ByStart)
		return nil
	}
	names, err := p.Workspaces.List(ctx)
	if err != nil {
		return err
	}
	for _, ws := range names {
		if err := p.Workspaces.Planner.Hits(ctx, ws, found); err != nil && !errors.Is(err, workspace.ErrNotFound) {
			return err
		}
	}
	packages, err := p.Workspaces.Packages.List(ctx)
	if err != nil {
		return err
	}
	for _, ref := range packages {
		if slices.Contains(p.report.Snapshots, ref) {
			continue // a real run would have removed it
		}
		err := p.Workspaces.Planner.PackageHits(ctx, ref, found)
		if err == nil {
			continue
		}
		if now, gone := p.Workspaces.Packages.Find(ctx, ref.Name, ref.Version); !errors.Is(gone, workspace.ErrNotFound) || now.Hash == ref.Hash {
			return err
		} // else it was removed from the register, and its objects collected
	}
	return nil
}

// runs protects the executions of the runs that workspaces refer to.
func (p *pruner) runs(ctx context.Context) error {
	names, err := p.Workspaces.List(ctx)
	if err != nil {
		return err
	}
	for _, ws := range names {
		runs, err := p.Workspaces.Runs.InUse(ctx, ws)
		if err != nil && !errors.Is(err, workspace.ErrNotFound) {
			return err
		}
		for _, run := range runs {
			for t := range run.Tasks.All() {
				p.shield(t.ExecutionID, ByRun)
			}
		}
	}
	return nil
}

// scan lists the executions.
func (p *pruner) scan(ctx context.Context) error {
	for e, err := range p.Curator.All(ctx) {
		var bad *executions.RecordError
		if errors.As(err, &bad) {
			p.report.Total++
			p.report.Unreadable = append(p.report.Unreadable, bad.ExecutionID)
			continue
		}
		if err != nil {
			return err
		}
		p.report.Total++
		if err := p.pool.add(e, p.shields); err != nil {
			return err
		}
	}
	for i := range p.pool.list {
		p.report.Protected.add(p.pool.list[i].shield)
	}
	return nil
}

// add adds an execution.
func (p *pool) add(e *executions.Execution, shields map[uuid.UUID]Shield) error {
	id, err := uuid.Parse(e.ExecutionID)
	if err != nil {
		return err
	}
	if n := len(p.keys); n == 0 || p.keys[n-1] != e.Key {
		p.keys = append(p.keys, e.Key)
	}
	c := candidate{
		id: id, key: int32(len(p.keys) - 1), group: p.group(e.TaskName()), roots: -1, shield: shields[id],
	}
	if c.at, c.good, err = facts(e); err != nil {
		return err
	}
	if e.State == record.Running {
		c.shield = ByRunning
	}
	p.list = append(p.list, c)
	return nil
}

// facts are the properties that rules use: the time when an execution was made or imported, and whether it can be a
// hit.
func facts(e *executions.Execution) (at int64, good bool, err error) {
	made, err := executions.ParseID(e.ExecutionID)
	if err != nil {
		return 0, false, err
	}
	if e.Metadata != nil && e.Metadata.Origin.ImportedAt.After(made) {
		made = e.Metadata.Origin.ImportedAt
	}
	return made.UnixMilli(), e.State == record.Success && !e.Rejected(), nil
}

// remove removes the chosen records, several tasks at a time. Each tombstone names the rule that chose the execution.
func (p *pruner) remove(ctx context.Context) error {
	goes := map[objectstore.Hash]*[numberOfRules][]int32{}
	for i := range p.pool.list {
		if c := &p.pool.list[i]; c.rule != stays {
			task := p.pool.keys[c.key].Task
			if goes[task] == nil {
				goes[task] = new([numberOfRules][]int32)
			}
			goes[task][c.rule] = append(goes[task][c.rule], int32(i))
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * reach.Workers(p.Objects))
	for task, byRule := range goes {
		g.Go(func() error {
			for by, list := range byRule {
				for some := range slices.Chunk(list, batchSize) {
					if err := p.removeSome(ctx, task, some, p.reason(rule(by))); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// batchSize is the number of executions of a task that are removed at a time. A batch holds the complete records in
// memory.
const batchSize = 10_000

func (p *pruner) removeSome(ctx context.Context, task objectstore.Hash, some []int32, reason string) error {
	victims := make([]executions.Victim, 0, len(some))
	for _, i := range some {
		c := &p.pool.list[i]
		e, err := p.Curator.Get(ctx, p.pool.keys[c.key], c.id.String())
		switch {
		case errors.Is(err, executions.ErrNotFound), errors.Is(err, executions.ErrMalformed):
			continue // another process has pruned it, or its record is damaged, which verify handles
		case err != nil:
			return err
		}
		if at, good, err := facts(e); err != nil || at != c.at || good != c.good {
			continue // it has changed since the rules chose it
		}
		victims = append(victims, e.Victim())
	}
	n, err := p.Curator.Prune(ctx, task, victims, p.By, reason)
	p.removed.Add(int64(n))
	return err
}

// finish completes the report.
func (p *pruner) finish() *Pruned {
	count := make([]int64, len(p.pool.groups))
	for i := range p.pool.list {
		if c := &p.pool.list[i]; c.rule != stays {
			count[c.group]++
			p.report.Executions++
		}
	}
	for g, n := range count {
		if n > 0 {
			p.report.Tasks = append(p.report.Tasks, PrunedTask{Task: p.pool.groups[g], N: n})
		}
	}
	slices.SortFunc(p.report.Tasks, func(a, b PrunedTask) int { return strings.Compare(a.Task, b.Task) })
	if !p.DryRun {
		p.report.Spared = p.report.Executions - p.removed.Load()
		p.report.Executions = p.removed.Load()
	}
	return p.report
}
