package exportimport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// attempts finds the executions in the events of a run, because the run's record names only the last attempt of a
// task. Events that cannot be read end the search.
func (f *finder) attempts(ctx context.Context, ws string, run *record.Run) error {
	for e, err := range events.Read(ctx, f.repo.Records, ws, run.RunID) {
		if err != nil {
			return context.Cause(ctx)
		}
		if e.Execution == "" || e.Data == nil {
			continue
		}
		key, ok := executions.ParseKey(e.Data.Key)
		if !ok || f.has(key, e.Execution) {
			continue
		}
		x, err := f.get(ctx, key, e.Execution)
		switch {
		case err != nil:
			return err
		case x != nil:
			f.add(x)
		case (e.Type == events.TaskFailed || e.Type == events.TaskCompleted) && !e.Data.NoRecord:
			f.note("execution %s of task %s is gone and is left out", e.Execution, e.Task)
		}
	}
	return nil
}

// answers finds the executions that a start on the workspace's datasets would use, and the executions that made its
// outputs. For a task without either it adds a note with the reason.
func (f *finder) answers(ctx context.Context, s *snapshot) error {
	graph, err := graph.New(s.pkg)
	if err != nil {
		return fmt.Errorf("package %s@%s: %w", s.pkg.Name, s.pkg.Version, err)
	}
	a := &answering{finder: f, graph: graph, inputs: s.inputs, tasks: make([]answered, graph.Len())}
	if err := dataflow.Keys(ctx, graph, f.repo.Objects, s.inputs, f.repo.Workspaces.Lookups, func(i int32, key *executions.Key) (*dataflow.Produced, error) {
		return a.look(ctx, i, key)
	}); err != nil {
		return err
	}
	if err := a.makers(ctx, s.tasks); err != nil {
		return err
	}
	a.tell()
	return nil
}

// answering is the search for the results of a package's tasks.
type answering struct {
	*finder
	graph  *dataflow.Graph
	inputs record.Node
	tasks  []answered // by index of the graph
}

// answered is the result of the search for a task.
type answered struct {
	found  bool
	output objectstore.Hash // of the execution that a start would use
	why    string           // why there is no result
}

// look finds the result of a task. Meanwhile no other goroutine uses the task's element of tasks.
func (a *answering) look(ctx context.Context, i int32, key *executions.Key) (*dataflow.Produced, error) {
	t := &a.tasks[i]
	if key == nil {
		t.why = a.unknown(i)
		return nil, nil
	}
	answer, err := a.repo.Executions.Lookup(ctx, *key)
	if err != nil {
		return nil, err
	}
	hit := answer.Hit
	if hit == nil {
		t.why, err = a.missed(ctx, *key, &answer)
		return nil, err
	}
	if !a.has(*key, hit.ExecutionID) {
		e, err := a.get(ctx, *key, hit.ExecutionID)
		if err != nil {
			return nil, err
		}
		if e == nil {
			return nil, &prunedError{hit.ExecutionID}
		}
		a.add(e)
	}
	t.found, t.output = true, hit.Output
	return &dataflow.Produced{Output: hit.Output, Size: hit.Size}, nil
}

// unknown says why the key of a task is unknown.
func (a *answering) unknown(i int32) string {
	for _, w := range a.graph.Package.Tasks[i].Wiring {
		if leaf, ok := a.inputs.Get(w.Name); w.Kind == record.WireInput && (!ok || leaf.Kind == record.LeafUnassigned) {
			return fmt.Sprintf("its input %s has no value", w.Name)
		}
	}
	for _, d := range a.graph.Dependencies(i) {
		if !a.tasks[d].found {
			return fmt.Sprintf("it reads what task %s makes, which has none either", a.graph.Name(d))
		}
	}
	return "what it reads is gone"
}

// missed says why a key has no result.
func (a *answering) missed(ctx context.Context, key executions.Key, answer *executions.Answer) (string, error) {
	if len(answer.Passed) > 0 {
		p := answer.Passed[0] // the latest
		return fmt.Sprintf("its latest execution, %.13s, is no answer: %s", p.ExecutionID, shorten(p.Reason)), nil
	}
	pruned, err := a.repo.Executions.Tombstone(ctx, key)
	if err != nil {
		return "", err
	}
	if pruned != nil {
		return (&executions.PrunedError{Tombstone: *pruned}).Error(), nil
	}
	return "it has not run on what the workspace holds", nil
}

// product is an output of a task object.
type product struct{ task, output objectstore.Hash }

// makers finds the executions that made the workspace's outputs, for tasks whose output is not their present result:
// inputs were set since, another task of this name was deployed, or the result was rejected.
func (a *answering) makers(ctx context.Context, shown record.Node) error {
	byTask := map[product]int32{}
	byName := map[string]product{} // by the task's name: any task object may have made it
	a.mu.Lock()
	have := map[string]bool{} // by the task's name and its output
	for _, t := range a.found {
		have[t.task+"/"+t.output.String()] = t.state == record.Success
	}
	a.mu.Unlock()
	for i := range a.tasks {
		name := a.graph.Name(int32(i))
		leaf, ok := shown.Get(name)
		if !ok || leaf.Kind == record.LeafUnassigned {
			continue
		}
		h, err := objectstore.ParseHash(leaf.Hash)
		if err != nil {
			return fmt.Errorf("dataset %s: %w", name, err)
		}
		if a.tasks[i].found && a.tasks[i].output == h {
			continue
		}
		if have[name+"/"+leaf.Hash] { // the search by the run has found it
			a.tasks[i].found = true
			continue
		}
		byTask[product{a.graph.Hashes[i], h}] = int32(i)
	}
	for m, i := range byTask {
		e, err := a.maker(ctx, m)
		switch {
		case err != nil:
			return err
		case e != nil:
			a.add(e)
			a.tasks[i].found = true
		default:
			byName[a.graph.Name(i)] = m
		}
	}
	return a.former(ctx, byName)
}

// eastMakers finds the executions that made the outputs of a workspace of the reference. No start answers here, so
// there is nothing else to find. For an output without such an execution it adds a note.
func (f *finder) eastMakers(ctx context.Context, s *snapshot) error {
	tasks, err := f.repo.Workspaces.Datasets.EastTasks(ctx, &s.state)
	if err != nil {
		return fmt.Errorf("workspace %s: %w", s.workspace, err)
	}
	have := map[product]bool{}
	for _, t := range f.found {
		have[product{t.key.Task, t.output}] = t.state == record.Success
	}
	var lost []string
	for i := range tasks {
		t := &tasks[i]
		if t.Output.Kind == record.LeafUnassigned {
			continue
		}
		h, err := objectstore.ParseHash(t.Output.Hash)
		made := product{t.Object, h}
		if err == nil && have[made] {
			continue
		}
		var e *executions.Execution
		if err == nil { // null has no object
			if e, err = f.maker(ctx, made); err != nil {
				return err
			}
		}
		if e == nil {
			lost = append(lost, t.Name)
			continue
		}
		f.add(e)
	}
	if len(lost) > 0 {
		f.note("no result of %s is exported: nothing on record has made what the workspace shows", some("task", lost))
	}
	return nil
}

// maker returns the latest execution of a task object that made an output, or nil. It prefers executions that are not
// rejected.
func (f *finder) maker(ctx context.Context, m product) (*executions.Execution, error) {
	var best *executions.Execution
	for inputs, err := range f.repo.Executions.Inputs(ctx, m.task) {
		if err != nil {
			return nil, err
		}
		for e, err := range f.repo.Executions.List(ctx, executions.Key{Task: m.task, Inputs: inputs}) {
			if errors.Is(err, executions.ErrMalformed) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if made := e.State == record.Success && e.OutputHash == m.output.String(); made && betterMaker(e, best) {
				best = e
			}
		}
	}
	return best, nil
}

func betterMaker(e, than *executions.Execution) bool {
	if than == nil || e.Rejected() != than.Rejected() {
		return than == nil || than.Rejected()
	}
	return e.ExecutionID > than.ExecutionID
}

// former searches all executions, by task name, for outputs that were made when the tasks had other objects.
func (a *answering) former(ctx context.Context, wanted map[string]product) error {
	if len(wanted) == 0 {
		return nil
	}
	best := map[string]*executions.Execution{}
	for e, err := range a.repo.Executions.All(ctx) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			return err
		}
		if e.State != record.Success || e.Detail == nil {
			continue
		}
		m, ok := wanted[e.Detail.Task]
		if ok && e.OutputHash == m.output.String() && betterMaker(e, best[e.Detail.Task]) {
			best[e.Detail.Task] = e
		}
	}
	for name, m := range wanted {
		i, _ := a.graph.Find(name)
		t := &a.tasks[i]
		if e := best[name]; e != nil {
			a.add(e)
			t.found = true
		} else if !t.found { // otherwise a result for a start is exported, which suffices
			t.why = fmt.Sprintf("nothing on record has made its output %.8s; %s", m.output, t.why)
		}
	}
	return nil
}

// tell adds notes about the tasks without exported results, grouped by reason.
func (a *answering) tell() {
	byWhy := map[string][]string{}
	for i := range a.tasks {
		if t := &a.tasks[i]; !t.found {
			byWhy[t.why] = append(byWhy[t.why], a.graph.Name(int32(i)))
		}
	}
	for why, names := range byWhy {
		a.note("no result of %s is exported: %s", some("task", names), why)
	}
}

// some names the first of many things: "task a", "tasks a, b and 7 more".
func some(what string, names []string) string {
	const most = 8
	slices.Sort(names)
	switch n := len(names); {
	case n == 1:
		return what + " " + shorten(names[0])
	case n <= most:
		return what + "s " + strings.Join(names, ", ")
	default:
		return fmt.Sprintf("%ss %s and %d more", what, strings.Join(names[:most], ", "), n-most)
	}
}

// has reports whether an execution was found before.
func (f *finder) has(key executions.Key, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found[key.String()+"/"+id] != nil
}
