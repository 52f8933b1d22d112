package workspace

import (
	"context"
	"slices"

	"e3/internal/packages"
	"e3/objectstore"
)

// A run's record and its first and last events name snapshots: root nodes, with the nodes of inputs and tasks below. The workspace's
// state, from which these come, may be replaced at any moment, also by a process that takes no lock. So a node is refreshed before a record
// names it, as any name without a put (doc/design.md, §13, rule 2). To protect it would not be enough: a collector may read the runs
// before the record is there, and ask what is protected after the run has ended.
//
// Where a refresh is a request, what a session protects during a collection stays protected until its end, so what the run holds
// needs no refresh. Nor does the snapshot that a run takes over from the proven one: runs are listed there in the order of their ids,
// and the earlier record goes after the later one has come.

// snapshots are the nodes that the run's record names, directly or below what it names.
type snapshots struct {
	before, after []string
	kept          map[string]bool // they may be named
}

// keepSnapshots refreshes what the run's record names.
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

// snapInputs makes a node of inputs the one that the run's record names as read. known, if it is a hash, is a snapshot of that node.
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

// snapOutputs makes a state's tree the one that the run's record names as left.
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

// holds tells whether the run protects a node, as it is in the state that it works from.
func (r *run) holds(node string) bool {
	return node == r.state.RootHash || node == r.inputs || node == r.tasks
}
