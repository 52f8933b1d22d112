package explain

import (
	"cmp"
	"context"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// Miss gives a short reason why a task's key has no cached result. inputs are the input hashes of the key in declared
// order. Miss reads the records under the key and, if there are none, the latest few successes of that name; it does
// not go upstream. Call Prefetch before asking about many tasks. Stores.Objects must be able to read the task object
// and its inputs, even if no start has stored them yet.
func (x *Explainer) Miss(ctx context.Context, ws, task string, key executions.Key, inputs []objectstore.Hash) (Cause, error) {
	e := x.explaining(ctx)
	c := Cause{Kind: Unknown, Workspace: ws, Task: task, Text: "nothing that is still here tells why"}
	why, err := e.again(key, nil)
	if err != nil {
		return c, err
	}
	if why != nil {
		why.Workspace, why.Task = ws, task
		return *why, nil
	}
	s := &side{ws: ws, task: task}
	s.definition.task, s.key, s.inputs = key.Task, key.Inputs, inputs
	if s.object, err = e.object(key.Task); err != nil {
		return c, err
	}
	p, err := e.recent(ctx, ws, task)
	if err != nil {
		return c, err
	}
	for i := range p.list {
		if a := &p.list[i]; a.Key == key && a.Status == runview.TaskRunning {
			c.Kind, c.Execution, c.At, c.Text = RunsNow, a.ExecutionID, a.At(), "execution "+a.ExecutionID+" of it is running now"
			return c, nil
		}
	}
	if told, err := e.told(s); told != nil || err != nil {
		return *cmp.Or(told, &c), err
	}
	base, err := e.ownNearest(s, maxFew)
	if err != nil {
		return c, err
	}
	if base == nil {
		if base, err = e.sameObjectNearest(s); err != nil {
			return c, err
		}
	}
	if base == nil {
		return e.never(s)
	}
	differences := compare(&base.definition, &s.definition)
	if len(differences) == 0 {
		return c, nil // the record was made just now
	}
	d := &differences[0]
	for i := range differences { // a change of the task itself says more than a change of an input
		if differences[i].Part != Input {
			d = &differences[i]
			break
		}
	}
	if d.Part == Input {
		if err := e.content(base, d); err != nil {
			return c, err
		}
	}
	c = d.cause(ws, task)
	if n := len(differences) - 1; n > 0 {
		c.Text += ", and " + human.Count(n, "more difference")
	}
	return c, nil
}

// content compares the contents of an input; a fan-in is compared item by item.
func (x *explaining) content(base *side, d *Difference) (err error) {
	if d.kind.OfMachine() {
		return x.variable(d)
	}
	if d.kind != record.KindDir {
		d.Change, err = x.change(d.kind, d.path, d.was, d.is)
		return err
	}
	if err := x.wire(base); err != nil {
		return err
	}
	if d.wire = base.wires[d.Name]; d.wire == nil || d.wire.Kind != record.WireFanIn {
		d.Change, err = x.dirChange(d.was, d.is)
		return err
	}
	_, err = x.fanIn(d)
	if d.Part == Made {
		d.Part = Input // its producer was not examined
	}
	return err
}

func (x *explaining) sameObjectNearest(s *side) (*side, error) {
	list, err := x.sameObject(s)
	if err != nil {
		return nil, err
	}
	sortByID(list)
	return x.choose(s, list, maxFew)
}
