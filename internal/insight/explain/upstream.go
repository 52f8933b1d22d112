package explain

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// differ fills in a reason with the differences between two sides, and follows differences that were made upstream.
func (x *explaining) differ(r *Reason, was, is *side, depth int) error {
	list := compare(&was.definition, &is.definition)
	if len(list) > maxParts {
		r.More, list = len(list)-maxParts, list[:maxParts]
	}
	if err := x.wire(was); err != nil {
		return err
	}
	if err := x.wire(is); err != nil {
		return err
	}
	type edge struct {
		task, entry string
		was, is     objectstore.Hash
	}
	var follow []edge
	kept := list[:0]
	for i := range list {
		d := list[i]
		if d.Part != Input {
			kept = append(kept, d)
			continue
		}
		from, to := was.wires[d.Name], is.wires[d.Name]
		d.wire = cmp.Or(to, from)
		if d.wire != nil && d.wire.Kind == record.WireInput {
			d.Input = d.wire.Name
		}
		if from != nil && to != nil && !sameSource(from, to) {
			d.Part, d.Was, d.Is, d.Input = InputSource, source(from), source(to), ""
			kept = append(kept, d)
			continue
		}
		if w := d.wire; w != nil && w.Kind == record.WireFanIn {
			items, err := x.fanIn(&d)
			if err != nil {
				return err
			}
			for _, it := range items {
				if it.How == "changed" && it.wire != nil && it.wire.Input == "" {
					follow = append(follow, edge{it.wire.Task, it.wire.Entry, it.was, it.is})
				}
			}
			kept = append(kept, d)
			continue
		}
		if d.kind.OfMachine() {
			if err := x.variable(&d); err != nil {
				return err
			}
			kept = append(kept, d)
			continue
		}
		change, err := x.change(d.kind, d.path, d.was, d.is)
		if err != nil {
			return err
		}
		d.Change = change
		if w := d.wire; w != nil && w.Kind == record.WireOutput {
			d.Part, d.Producer = Made, w.Name
			follow = append(follow, edge{w.Name, w.Entry, d.was, d.is})
		}
		kept = append(kept, d)
	}
	r.Differences = kept
	done := map[edge]bool{}
	for _, e := range follow {
		if done[e] {
			continue
		}
		done[e] = true
		if len(r.Upstream) == maxFollowed || depth >= maxDepth || x.budget <= 0 {
			r.Omitted++
			continue
		}
		up, err := x.producer(is, was, e.task, e.entry, e.was, e.is, depth+1)
		if err != nil {
			return err
		}
		r.Upstream = append(r.Upstream, up)
	}
	r.Cause = r.first()
	return nil
}

// variable fills in the old and new values of an environment variable that is an input.
func (x *evidence) variable(d *Difference) error {
	if d.kind == record.KindTool {
		return x.tool(d)
	}
	was, wasText, err := x.variableText(d.was)
	if err != nil {
		return err
	}
	is, isText, err := x.variableText(d.is)
	if err != nil {
		return err
	}
	if d.Was, d.Is = truncateBoth(was, is, maxText); wasText {
		d.Was = strconv.Quote(d.Was)
	}
	if isText {
		d.Is = strconv.Quote(d.Is)
	}
	return nil
}

// tool fills in which files of a program differ.
func (x *evidence) tool(d *Difference) error {
	was, _, err := x.variableText(d.was)
	if err != nil {
		return err
	}
	is, _, err := x.variableText(d.is)
	d.Is = strings.Join(record.ToolChanges(was, is), ", ")
	return err
}

// variableText is the text of a variable. If there is no text, the bool is false and the string says why.
func (x *evidence) variableText(h objectstore.Hash) (string, bool, error) {
	plain, err := x.value(h)
	if x.ctx.Err() != nil {
		return "", false, context.Cause(x.ctx)
	}
	if err != nil {
		return "a value that cannot be shown: " + err.Error(), false, nil
	}
	text, ok := plain.(string)
	if !ok {
		text = "unset"
	}
	return text, ok, nil
}

// first is the direct cause of a task's execution, before it is traced upstream.
func (r *Reason) first() Cause {
	var made *Difference
	for i := range r.Differences {
		if d := &r.Differences[i]; d.Part != Made {
			return d.cause(r.Workspace, r.Task)
		} else if made == nil {
			made = d
		}
	}
	if made != nil {
		return made.cause(r.Workspace, r.Task)
	}
	return Cause{Kind: Unknown, Workspace: r.Workspace, Task: r.Task, Text: "nothing that is still here tells what changed"}
}

func sameSource(a, b *record.Wire) bool {
	if a.Kind != b.Kind {
		return false
	}
	return a.Kind == record.WireFanIn || a.Name == b.Name && a.Entry == b.Entry
}

// fanIn returns the items of a fan-in that differ, and lists the first ones in d.
func (x *evidence) fanIn(d *Difference) ([]Item, error) {
	items, err := x.items(d)
	if err != nil {
		return nil, err
	}
	d.Part = Made
	for _, it := range items {
		switch {
		case it.How == "added":
			d.Part = ItemAdded
		case it.How == "removed" && d.Part == Made:
			d.Part = ItemRemoved
		}
	}
	d.Items, d.More = fewItems(slices.Clone(items))
	return items, nil
}

// items compares two directories of a fan-in, item by item.
func (x *evidence) items(d *Difference) ([]Item, error) {
	was, err := x.tree(d.was)
	if err != nil {
		return nil, err
	}
	is, err := x.tree(d.is)
	if err != nil {
		return nil, err
	}
	if was == nil || is == nil {
		d.Change = &ContentChange{Gone: "the directory that gathers its items is no longer here: which of them changed is not known"}
		return nil, nil
	}
	byLabel := make(map[string]*record.FanItem, len(d.wire.Items))
	for i := range d.wire.Items {
		byLabel[d.wire.Items[i].Label] = &d.wire.Items[i]
	}
	var items []Item
	add := func(e *tree.Entry, how string) *Item {
		it := Item{Label: e.Name, How: how, wire: byLabel[e.Name]}
		if it.wire != nil {
			it.Task = it.wire.Task
		}
		items = append(items, it)
		return &items[len(items)-1]
	}
	for i := range is {
		e := &is[i]
		old, ok := was.Find(e.Name)
		switch {
		case !ok:
			add(e, "added")
		case old.Hash != e.Hash || old.Executable != e.Executable || old.Kind != e.Kind:
			it := add(e, "changed")
			it.was, it.is = old.Hash, e.Hash
		}
	}
	for i := range was {
		if _, ok := is.Find(was[i].Name); !ok {
			add(&was[i], "removed")
		}
	}
	return items, nil
}

// fewItems returns the first items and the number of the rest; added and removed items come before changed ones.
func fewItems(items []Item) ([]Item, int) {
	slices.SortStableFunc(items, func(a, b Item) int {
		rank := map[string]int{"added": 0, "removed": 1, "changed": 2}
		return rank[a.How] - rank[b.How]
	})
	n := min(len(items), maxFiles)
	return items[:n], len(items) - n
}

// producer explains why the output of a task upstream has changed.
func (x *explaining) producer(is, was *side, task, entry string, old, now objectstore.Hash, depth int) (*Reason, error) {
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	r := &Reason{Workspace: is.ws, Task: task, final: true}
	unknown := func(text string) (*Reason, error) {
		r.Cause = Cause{Kind: Unknown, Workspace: is.ws, Task: task, Text: text}
		return r, nil
	}
	made, err := x.maker(is, task, entry, now)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return unknown("the execution of " + truncate(task, maxText) + " that made it is no longer on record")
	}
	before, err := x.makerBefore(was, is, task, entry, old, made)
	if err != nil {
		return nil, err
	}
	if before == nil {
		r, err := x.executed(made, depth)
		if err == nil {
			r.Notes = append(r.Notes, "the execution of "+truncate(task, maxText)+" that made what was read before is no longer on record")
		}
		return r, err
	}
	return x.pair(made, before, depth)
}

// maker finds the execution of a task that made the content that a side read; nil if none is on record. It prefers the
// execution that took part in the side's own run over executions that left the same content at other times.
func (x *explaining) maker(s *side, task, entry string, content objectstore.Hash) (*history.Attempt, error) {
	if id := s.hits[task]; id != "" {
		return x.attempt(s.ws, task, id)
	}
	list, err := x.makers(s.ws, task, entry, content, s.id)
	if err != nil {
		return nil, err
	}
	for _, run := range s.runs {
		for _, a := range list {
			if a.MadeBy == run || slices.Contains(a.Runs, run) {
				return a, nil
			}
		}
	}
	var best *history.Attempt
	for _, a := range list { // the latest before the consumer, else the first after it
		if best == nil || s.id != "" && best.ExecutionID > s.id {
			best = a
		}
	}
	return best, nil
}

// makers are the executions of a task that left the given content, the latest first. They are sought in the recent
// runs, and in older runs if no recent maker came before the consumer; the consumer "" is the next start.
func (x *explaining) makers(ws, task, entry string, content objectstore.Hash, consumer string) (found []*history.Attempt, err error) {
	err = x.search(x.ctx, ws, task, func(p past) (bool, error) {
		found = nil
		for i := range p.list {
			if p.list[i].Status != runview.TaskSuccess {
				continue
			}
			h, err := x.outputHash(&p.list[i], entry)
			if err != nil {
				return false, err
			}
			if h == content {
				found = append(found, &p.list[i])
			}
		}
		n := len(found)
		return n > 0 && (consumer == "" || found[n-1].ExecutionID < consumer), nil
	})
	return found, err
}

// makerBefore is the maker of the content that was read before, to be compared with made. If several executions left
// that content, it is the execution with the fewest differences from made: further differences did not change the
// content, so they are irrelevant.
func (x *explaining) makerBefore(was, is *side, task, entry string, content objectstore.Hash, made *history.Attempt) (*history.Attempt, error) {
	best, err := x.maker(was, task, entry, content)
	if best == nil || err != nil {
		return nil, err
	}
	list, err := x.makers(was.ws, task, entry, content, was.id)
	if err != nil {
		return nil, err
	}
	to, err := x.sideOf(made)
	if err != nil {
		return nil, err
	}
	distance := func(a *history.Attempt) (int, error) {
		s, err := x.sideOf(a)
		if err != nil {
			return 0, err
		}
		return weigh(compare(&s.definition, &to.definition)), nil
	}
	fewest, err := distance(best)
	if err != nil {
		return nil, err
	}
	limit := is.made()
	for _, a := range list[:min(len(list), maxCompared)] {
		if a.ExecutionID == made.ExecutionID || is.id != "" && a.ExecutionID > is.id {
			continue
		}
		n, err := distance(a)
		if err != nil {
			return nil, err
		}
		if n < fewest || n == fewest && answeredLast(a, limit) > answeredLast(best, limit) {
			best, fewest = a, n
		}
	}
	return best, nil
}

// attempt finds an attempt by its id, in the recent history or else under the key that the next start has.
func (x *evidence) attempt(ws, task, id string) (*history.Attempt, error) {
	p, err := x.recent(x.ctx, ws, task)
	if err != nil {
		return nil, err
	}
	for i := range p.list {
		if p.list[i].ExecutionID == id {
			return &p.list[i], nil
		}
	}
	if x.next == nil || x.next.keys[task] == nil {
		return nil, nil
	}
	e, err := x.Executions.Get(x.ctx, *x.next.keys[task], id)
	if err != nil {
		return nil, x.passing(err)
	}
	return history.Of(ws, task, e), nil
}

// pair explains why two executions of a task made different outputs.
func (x *explaining) pair(is, was *history.Attempt, depth int) (*Reason, error) {
	at := [2]string{is.ExecutionID, was.ExecutionID}
	if r := x.known(at); r != nil {
		return r, nil
	}
	x.budget--
	r := &Reason{Workspace: is.Workspace, Task: is.Task, Execution: ref(is), Compared: ref(was)}
	x.seen[at] = r
	switch {
	case is.ExecutionID == was.ExecutionID:
		r.final = true
		r.Cause = Cause{Kind: Unknown, Workspace: is.Workspace, Task: is.Task, Text: "one execution made both: something else of it is read"}
		return r, nil
	case is.Key == was.Key:
		r.final = true
		why, err := x.again(is.Key, is)
		if err != nil {
			return nil, err
		}
		r.Cause = Cause{Kind: Nondeterministic, Workspace: is.Workspace, Task: is.Task, Execution: is.ExecutionID, At: is.At(),
			Text: "it was run again with the same command on the same inputs, and made another output"}
		if why != nil {
			r.Cause.Text += " (" + why.Text + ")"
			r.Cause.By, r.Cause.Reason = why.By, string(why.Kind)
		}
		return r, nil
	}
	a, err := x.sideOf(was)
	if err != nil {
		return nil, err
	}
	b, err := x.sideOf(is)
	if err != nil {
		return nil, err
	}
	return r, x.differ(r, a, b, depth)
}
