package workspace

import (
	"context"
	"slices"

	"e3/internal/packages"
	"e3/objectstore"
)

// A run's record and its first and last events name snapshots: root nodes, with the nodes of inputs and tasks below.
// They come from the workspace's state, which any process may replace at any time, even without a lock. So a node is
// refreshed before a record names it, like any object that is named without a put (doc/design.md, §13, rule 2).
// Protecting it would not suffice: a collector may read the runs before the record exists, and ask for protected
// objects after the run has ended.
//
// If a refresh is a request, every object that a session protects during a collection stays protected until the
// collection ends, so the run's held objects need no refresh. A snapshot from the proven run needs no refresh either:
// runs are listed in the order of their ids, and the earlier record is deleted only after the later record exists.

// snapshots are the nodes that the run's record names, directly or indirectly.
type snapshots struct {
	before, after []string
	kept          map[string]bool // refreshed, so they may be named
}

// keepSnapshots refreshes the nodes that the run's record names.
func (r *run) keepSnapshots(ctx context.Context) error {
	for _, node := range slices.Concat(r.before, r.after) {
		if r.kept[node] {
			continue
		}
		if err := r.keepNode(ctx, node); err != nil {
			return err
		}
		if r.kept == nil {
			r.kept = map[string]bool{}
		}
		r.kept[node] = true
	}
	return nil
}

// snapInputs makes a node of inputs the input snapshot of the run's record. known is the hash of an existing snapshot
// of that node, or "".
func (r *run) snapInputs(ctx context.Context, inputs, known string) error {
	there := false
	if h, err := objectstore.ParseHash(known); err == nil {
		if there = r.w.proofs.presumes(); there {
			r.kept = map[string]bool{known: true}
		} else if there, err = r.w.states.Objects.Refresh(ctx, h); err != nil {
			return err
		}
	}
	if !there {
		var err error
		if known, err = r.w.states.writeRoot(ctx, inputs, ""); err != nil {
			return err
		}
	}
	r.rec.InputSnapshot, r.before = known, []string{known, inputs}
	return nil
}

// snapOutputs makes a state's tree the final snapshot of the run's record.
func (r *run) snapOutputs(root, inputs, tasks string) {
	r.rec.OutputSnapshot, r.after = root, []string{root, inputs, tasks}
}

// keepNode refreshes a node that the run is about to name.
func (r *run) keepNode(ctx context.Context, node string) error {
	if node == "" || r.w.proofs.presumes() && r.holds(node) {
		return nil
	}
	h, err := objectstore.ParseHash(node)
	if err != nil {
		return err
	}
	there, err := r.w.states.Objects.Refresh(ctx, h)
	if err == nil && !there {
		err = packages.Part("workspace node "+node, objectstore.ErrNotFound)
	}
	return err
}

// holds tells whether the run protects a node, because the state that it works from names it.
func (r *run) holds(node string) bool {
	return node == r.state.RootHash || node == r.inputs || node == r.tasks
}
