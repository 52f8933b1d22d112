package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/parallel"
	"e3/objectstore"
)

// shared reports whether two outcomes are the same successful execution: then neither side can tell of it what the other does
// not.
func shared(a, b outcome) bool {
	good := func(k outcome) bool { return k.state == "" || k.state == string(runview.TaskSuccess) }
	return a.execution != "" && a.execution == b.execution && good(a) && good(b)
}

// side is a side with its data to compare.
type side struct {
	Seen
	objects executions.Objects
	inputs  datasets
	outputs datasets
	pkg     *record.Package // nil: see pkgGone
	pkgGone string
	// tasks are the outcomes of a run's tasks, or the current results of a workspace's tasks.
	tasks map[string]outcome
	why   map[string]string // why tasks ended without success
	told  told
}

// told is what records and events say of a side's tasks. Their executions know more, and are looked up where that is shown.
type told struct {
	report *runview.Report // of the run that the side is, or that its workspace shows; nil: there is none
	isRun  bool            // the side is that run: outcomes are its own, and so are outputs that its snapshot lacks
	next   []cached        // of the next start
}

// cached is a result of the next start: a task, its task object, and its execution.
type cached struct{ name, task, execution string }

// datasets are the inputs or the outputs of a side.
type datasets struct {
	leaves map[string]record.Leaf
	open   map[string]bool // not known before their tasks have run
	gone   string          // why some or all datasets are not known
	hash   string          // of the node that names the missing datasets; "": none
}

// outcome is the outcome of a task, or its cached result.
type outcome struct {
	state     string // the same word for cached and executed; "" if the side is no run
	execution string
	duration  time.Duration
	ended     bool // duration is known
}

// read reads a side without its executions: lookUp adds those.
func (s Stores) read(ctx context.Context, at Side) (*side, error) {
	d := &side{Seen: Seen{Name: at.String(), Side: at}, objects: s.Objects, tasks: map[string]outcome{}}
	var err error
	switch at.What {
	case Workspace:
		err = s.readWorkspace(ctx, d)
	case Next:
		err = s.readNext(ctx, d)
	default:
		err = s.readRun(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// readWorkspace reads the present datasets of a workspace.
func (s Stores) readWorkspace(ctx context.Context, d *side) error {
	var err error
	if d.inputs.leaves, d.outputs.leaves, err = s.Workspaces.Leaves(ctx, d.Workspace); err != nil {
		return err
	}
	state, err := s.Workspaces.State(ctx, d.Workspace)
	if err != nil {
		return err
	}
	d.Package, d.PackageHash = state.PackageName+"@"+state.PackageVersion, state.PackageHash
	if err := s.readPackage(ctx, d); err != nil {
		return err
	}
	// Durations come from the run that the workspace shows.
	d.told.report, err = s.Runs.Told(ctx, d.Workspace, "")
	if errors.Is(err, runview.ErrNoRun) {
		return nil
	}
	if err == nil {
		d.tellAll()
	}
	return err
}

// readPackage reads the package whose hash is known.
func (s Stores) readPackage(ctx context.Context, d *side) error {
	if d.PackageHash == "" {
		d.pkgGone = "which package " + d.String() + " had is not known"
		return nil
	}
	pkg, err := s.Packages.Load(ctx, d.PackageHash)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		d.pkgGone = "the package of " + d.String() + " is no longer here"
	case errors.Is(err, record.ErrType):
		d.pkgGone = "the package of " + d.String() + " was made by the TypeScript e3"
	case err != nil:
		return fmt.Errorf("%s: %w", d, err)
	}
	d.pkg = pkg
	return nil
}

// readRun reads a run.
func (s Stores) readRun(ctx context.Context, d *side) error {
	id := d.Side.Run
	var err error
	switch d.What {
	case Earlier:
		id, err = s.earlier(ctx, d.Side)
	case Commit:
		name := d.Side.Commit
		if name == head {
			if name, err = s.Workspaces.Head(ctx, d.Workspace); err != nil {
				return err
			}
		}
		id, err = s.Runs.AtCommit(ctx, d.Workspace, name)
	}
	if err != nil {
		return err
	}
	r, err := s.Runs.Told(ctx, d.Workspace, id)
	if err != nil {
		return err
	}
	d.told = told{report: r, isRun: true}
	d.RunID, d.Status, d.Package, d.Imported = r.RunID, r.Status(), r.PackageRef, r.Provenance != nil
	d.Git = r.Git
	d.StartedAt, d.CompletedAt = moment.At(r.StartedAt), moment.At(r.CompletedAt)
	if r.Filter != "" {
		d.notef("it was asked for %s only", r.Filter)
	}
	if len(r.Set) > 0 {
		d.notef("it was started with --set %s", r.Set)
	}
	if r.Unnamed > 0 {
		d.notef("%d of its tasks cannot be named any more", r.Unnamed)
	}
	if r.Damage != nil {
		d.notef("not all of its events can be read: %v", r.Damage)
	}
	d.PackageHash = r.PackageHash
	if d.PackageHash == "" || d.Imported { // an export gives the package another hash
		// The package is told by the keys of all executions, and without events only they tell how tasks ended.
		if err := s.Runs.Complete(ctx, r, r.Tasks); err != nil {
			return err
		}
		pkg, hash, err := s.Runs.PackageOf(ctx, r)
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		if pkg != nil {
			d.PackageHash = hash
		}
	}
	if err := s.readPackage(ctx, d); err != nil {
		return err
	}
	d.tellAll()
	if _, err := s.readRoot(ctx, d, r.InputSnapshot, "inputs", &d.inputs); err != nil {
		return err
	}
	_, err = s.readRoot(ctx, d, r.OutputSnapshot, "tasks", &d.outputs)
	return err
}

// earlier finds the n-th run before the one that the workspace shows. For a removed workspace it counts from the latest
// run that has a record or events.
func (s Stores) earlier(ctx context.Context, at Side) (string, error) {
	left := at.Back
	unknown := &human.UnknownError{What: "run", Name: at.String()}
	shown, err := s.Runs.Summary(ctx, at.Workspace)
	_, missing := s.Workspaces.State(ctx, at.Workspace)
	switch {
	case missing != nil && !errors.Is(missing, human.ErrNotFound):
		return "", missing
	case err != nil && missing == nil:
		return "", err
	case err != nil: // use the rest
		left++
	case left == 0:
		return shown.RunID, nil
	default:
		unknown.Known = append(unknown.Known, shown.RunID)
	}
	for r, fault := range s.Runs.List(ctx, at.Workspace) {
		if fault != nil {
			return "", fault
		}
		if err == nil && r.RunID >= shown.RunID {
			continue
		}
		if left--; left == 0 {
			return r.RunID, nil
		}
		unknown.Known = append(unknown.Known, r.RunID)
	}
	return "", unknown
}

// tellAll notes what is known of all tasks of a report.
func (d *side) tellAll() {
	for i := range d.told.report.Tasks {
		d.tell(&d.told.report.Tasks[i])
	}
}

// tell notes the outcome of a task: in a run, or else its cached result.
func (d *side) tell(t *runview.TaskReport) {
	k := outcome{state: string(t.State), execution: t.ExecutionID, duration: t.Duration.Duration(), ended: t.HasFailed() && t.Duration > 0}
	if succeeded(t) {
		k.state, k.ended = string(runview.TaskSuccess), t.Key != ""
	} else {
		if d.why == nil {
			d.why = map[string]string{}
		}
		d.why[t.Task] = truncate(strings.Join(t.Notes(), ", "))
	}
	switch {
	case d.told.isRun:
		d.tasks[t.Task] = k
	case succeeded(t):
		k.state = ""
		d.tasks[t.Task] = k
	default:
		delete(d.tasks, t.Task)
	}
}

// succeeded reports whether a task has a result, be it from the cache.
func succeeded(t *runview.TaskReport) bool {
	return t.State == runview.TaskCached || t.State == runview.TaskSuccess
}

// lookUp looks up the executions of the tasks for which wants is true, and of those whose outputs only their executions know.
func (s Stores) lookUp(ctx context.Context, d *side, wants func(task string) bool) error {
	if d.told.report != nil {
		if err := s.complete(ctx, d, wants); err != nil {
			return err
		}
	}
	if d.told.isRun {
		return s.outputsOfRun(ctx, d)
	}
	var list []*cached
	for i := range d.told.next {
		if c := &d.told.next[i]; wants(c.name) {
			list = append(list, c)
		}
	}
	took := make([]time.Duration, len(list))
	err := parallel.AtMost(ctx, s.Runs.Lookups, len(list), func(ctx context.Context, k int) (err error) {
		took[k], err = s.took(ctx, list[k])
		return err
	})
	for k, c := range list {
		d.tasks[c.name] = outcome{execution: c.execution, duration: took[k], ended: took[k] >= 0}
	}
	return err
}

// complete adds to some tasks of a run, and to those with open outputs, what only their executions hold.
func (s Stores) complete(ctx context.Context, d *side, wants func(task string) bool) error {
	tasks := d.told.report.Tasks
	var at []int
	var part []runview.TaskReport
	for i := range tasks {
		if t := &tasks[i]; t.ExecutionID != "" && (wants(t.Task) || d.isOpen(t)) {
			at, part = append(at, i), append(part, *t)
		}
	}
	if err := s.Runs.Complete(ctx, d.told.report, part); err != nil {
		return err
	}
	for k, i := range at {
		tasks[i] = part[k]
		d.tell(&tasks[i])
	}
	return nil
}

// took returns how long the execution of a cached result took; -1: it was removed meanwhile.
func (s Stores) took(ctx context.Context, c *cached) (time.Duration, error) {
	h, err := objectstore.ParseHash(c.task)
	if err != nil {
		return -1, err
	}
	e, err := s.Executions.FindTask(ctx, h, c.execution)
	if errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	return e.CompletedAt.Sub(e.StartedAt), nil
}

// isOpen reports whether a run made an output that its snapshot lacks.
func (d *side) isOpen(t *runview.TaskReport) bool {
	_, named := d.outputs.leaves[t.Task]
	return d.told.isRun && succeeded(t) && !named
}

// lacks says why a task has no output; "" if nothing is known.
func (d *side) lacks(task string) string {
	why, ok := d.why[task]
	if !ok {
		return ""
	}
	state := d.tasks[task].state
	if state == "" {
		state = "not made"
	}
	return strings.TrimSuffix(state+": "+why, ": ")
}

// readRoot reads one part of a snapshot. The datasets say which parts are gone.
func (s Stores) readRoot(ctx context.Context, d *side, root, part string, into *datasets) (found bool, err error) {
	into.leaves = map[string]record.Leaf{}
	if root == "" {
		return false, nil
	}
	top, err := s.node(ctx, root)
	if err == nil {
		leaf, ok := top.Get(part)
		if !ok || leaf.Hash == "" {
			return false, nil
		}
		into.hash = leaf.Hash
		var node record.Node
		if node, err = s.node(ctx, leaf.Hash); err == nil {
			for i := range node {
				if node[i].Kind != record.LeafUnassigned {
					into.leaves[node[i].Name] = node[i].Leaf
				}
			}
			return true, nil
		}
	}
	if into.hash == "" {
		into.hash = root
	}
	what := map[string]string{"inputs": "inputs", "tasks": "outputs"}[part]
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		into.gone = fmt.Sprintf("which %s %s had is no longer here", what, d)
	case errors.Is(err, record.ErrType):
		into.gone = fmt.Sprintf("the %s of %s are those of the TypeScript e3", what, d)
	default:
		return false, fmt.Errorf("%s of %s: %w", what, d, err)
	}
	return false, nil
}

func (s Stores) node(ctx context.Context, hash string) (record.Node, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, s.Objects, h, record.MaxNode)
	if err != nil {
		return nil, err
	}
	return record.DecodeNode(data)
}

// outputsOfRun finds the outputs of a run: for each successful task the output in the run's snapshot, or else the
// output of the task's execution. An output that the workspace held for a failed task does not belong to the run.
func (s Stores) outputsOfRun(ctx context.Context, d *side) error {
	kinds := map[string]record.Kind{}
	if d.pkg != nil {
		for i := range d.pkg.Tasks {
			kinds[d.pkg.Tasks[i].Name] = d.pkg.Tasks[i].Output
		}
	}
	var open []*runview.TaskReport
	for i := range d.told.report.Tasks {
		t := &d.told.report.Tasks[i]
		if !succeeded(t) {
			delete(d.outputs.leaves, t.Task)
		} else if d.isOpen(t) {
			open = append(open, t)
		}
	}
	leaves := make([]record.Leaf, len(open))
	err := parallel.Each(ctx, len(open), func(ctx context.Context, k int) (err error) {
		leaves[k], err = s.outputLeaf(ctx, open[k], kinds)
		return err
	})
	if err != nil {
		return err
	}
	lost := 0
	for k, leaf := range leaves {
		if leaf.Hash == "" {
			lost++
			continue
		}
		d.outputs.leaves[open[k].Task] = leaf
	}
	switch {
	case lost == 0:
		d.outputs.gone = "" // executions made all of them known
	case d.outputs.gone == "":
		d.outputs.gone = fmt.Sprintf("the outputs of %s of %s are no longer known", human.Count(lost, "task"), d)
	}
	return nil
}

// outputLeaf returns the output of an execution as a leaf, without a hash where the execution is gone.
func (s Stores) outputLeaf(ctx context.Context, t *runview.TaskReport, kinds map[string]record.Kind) (record.Leaf, error) {
	key, ok := executions.ParseKey(t.Key)
	if !ok {
		return record.Leaf{}, nil
	}
	e, err := s.Executions.Get(ctx, key, t.ExecutionID)
	if errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed) {
		return record.Leaf{}, nil
	}
	if err != nil {
		return record.Leaf{}, err
	}
	h, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return record.Leaf{}, nil
	}
	kind, ok := kinds[t.Task]
	if !ok {
		return record.Leaf{}, nil
	}
	size, err := s.Objects.Stat(ctx, h)
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return record.Leaf{}, err
	}
	if err != nil && e.Detail != nil {
		size = e.Detail.BytesOut
	}
	return leafOf(kind, h, size), nil
}

// leafOf is the leaf of a task's output in a workspace.
func leafOf(kind record.Kind, h objectstore.Hash, size int64) record.Leaf {
	if kind == record.KindDir {
		return record.Leaf{Kind: record.LeafDir, Hash: h.String()}
	}
	return record.Leaf{Kind: record.LeafFile, Hash: h.String(), Size: size, Executable: kind == record.KindExecutable}
}

// readNext reads the inputs and results that the next start would use.
func (s Stores) readNext(ctx context.Context, d *side) error {
	next, err := s.Workspaces.Next(ctx, d.Workspace)
	if err != nil {
		return err
	}
	d.objects, d.pkg, d.PackageHash = next.Objects, next.Package, next.PackageHash
	d.Package = next.Package.Name + "@" + next.Package.Version
	for _, fault := range next.Faults {
		d.notef("a start would fail: %v", fault)
	}
	d.inputs.leaves = map[string]record.Leaf{}
	for i := range next.Inputs {
		if next.Inputs[i].Kind != record.LeafUnassigned {
			d.inputs.leaves[next.Inputs[i].Name] = next.Inputs[i].Leaf
		}
	}
	results, err := next.Planner.Results(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	d.outputs = datasets{leaves: make(map[string]record.Leaf, len(results)), open: map[string]bool{}}
	d.told.next = make([]cached, 0, len(results))
	for i := range results {
		t, r := &next.Package.Tasks[i], &results[i]
		if r.ExecutionID == "" {
			d.outputs.open[t.Name] = true
			continue
		}
		d.outputs.leaves[t.Name] = leafOf(t.Output, r.Output, r.Size)
		d.tasks[t.Name] = outcome{execution: r.ExecutionID}
		d.told.next = append(d.told.next, cached{t.Name, t.Task, r.ExecutionID})
	}
	return nil
}
