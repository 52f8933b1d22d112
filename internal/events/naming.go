package events

import (
	"context"
	"errors"

	"e3/refstore"
)

// naming decides whether a bulk event stands for the selected task.
type naming struct {
	streams refstore.Streams
	f       *Filter
	known   map[RunRef]bool // whether the run has the task
}

// learn records that a run has the task, because it has an event of it.
func (n *naming) learn(m match) {
	if n.f.inBulk() {
		n.set(RunRef{m.Workspace, m.Run}, true)
	}
}

func (n *naming) set(run RunRef, has bool) {
	if n.known == nil {
		n.known = map[RunRef]bool{}
	}
	n.known[run] = has
}

// standsFor reports whether a bulk event stands for the task.
func (n *naming) standsFor(ctx context.Context, m match) (bool, error) {
	if n.f.HasTask != nil && m.pkg != "" {
		if has, known := n.f.HasTask(ctx, m.pkg); known {
			return has, nil
		}
	}
	return n.has(ctx, RunRef{m.Workspace, m.Data.As})
}

// has reports whether a run has the task: by an event of its own, or because a bulk event of it stands for the task. A
// run without a log, or with a log that refers to itself, does not.
func (n *naming) has(ctx context.Context, run RunRef) (bool, error) {
	if has, ok := n.known[run]; ok {
		return has, nil
	}
	n.set(run, false)
	f := Filter{Task: n.f.Task}
	q := query{streams: n.streams, f: &f}
	var bulk *match
	has := false
	var fault error
	q.run(ctx, run, 0, nil, func(fd found, _ int) bool {
		switch {
		case fd.err != nil:
			var damaged *DamagedError
			if !errors.As(fd.err, &damaged) {
				fault = fd.err
			}
			return fault == nil
		case fd.bulk:
			bulk = &fd.match
			return true
		}
		has = true
		return false
	})
	if fault != nil || ctx.Err() != nil {
		return false, errors.Join(fault, context.Cause(ctx))
	}
	if bulk != nil {
		var err error
		if has, err = n.standsFor(ctx, *bulk); err != nil {
			return false, err
		}
	}
	n.set(run, has)
	return has, nil
}
