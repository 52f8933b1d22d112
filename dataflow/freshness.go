package dataflow

import (
	"context"
	"slices"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

// Freshness compares a task's dataset with the result of a run now.
type Freshness uint8

// The freshness of a dataset.
const (
	Absent  Freshness = iota // the task has no output yet
	Stale                    // a run would look again: an input, the task or something upstream has changed
	Current                  // a run would leave it as it is
	LeftOut                  // it has no output since its task has failed, and its readers are current without it
)

func (s Freshness) String() string {
	switch s {
	case Stale:
		return "stale"
	case Current:
		return "current"
	case LeftOut:
		return "left out"
	}
	return "missing"
}

// MarshalText gives the freshness its word in answers.
func (s Freshness) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadFreshness compares the datasets in outputs with what a run on the given inputs would produce, by index of the
// graph. Everything downstream of a stale dataset counts as stale; a run may still find it unchanged by early
// cut-off. A gate is as fresh as the tasks that make its list. An item below a gate that is not current is stale,
// since it may be gone. Tasks that the baseline proves are not looked up. Nothing is written if the Put of objects keeps
// nothing. Of the options, only Inputs, Baseline and Lookups matter.
func ReadFreshness(ctx context.Context, g *Graph, objects objectstore.Store, x Lookup, outputs record.Node, opts *Options) ([]Freshness, error) {
	r := newReader(ctx, g, objects, objects, opts)
	if opts.Baseline != nil {
		r.proof = prove(g, opts.Baseline, opts.Inputs)
	}
	all := make([]Freshness, g.Len())
	err := each(ctx, g, opts.Lookups, func(_ context.Context, i int32) error {
		if !g.IsTask(i) {
			all[i] = r.known(i, all)
			return nil
		}
		leaf, _ := outputs.Get(g.Name(i))
		h, err := objectstore.ParseHash(leaf.Hash)
		if err != nil {
			h, leaf.Size = objectstore.Hash{}, 0 // unassigned
		}
		r.results[i] = TaskResult{Output: h, Size: leaf.Size}
		fresh, err := r.freshness(i, all, x)
		if !h.IsZero() {
			all[i] = fresh
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	order := g.Order()
	for k := len(order) - 1; k >= 0 && g.AnyTolerant(); k-- {
		if i := order[k]; all[i] == Absent && r.isGone(i) && r.isDoneWithout(i, all) {
			all[i] = LeftOut
		}
	}
	return all, nil
}

// isDoneWithout reports whether all that reads task i is left out with it, or current and tolerates its failure.
func (r *reader) isDoneWithout(i int32, all []Freshness) bool {
	readers := r.g.Dependents(i)
	return len(readers) > 0 && !slices.ContainsFunc(readers, func(d int32) bool {
		return all[d] != LeftOut && (all[d] != Current || !r.g.Tolerates(d, i))
	})
}

// known returns the freshness of a gate's list. A pending family has no tasks, and so no outputs that could be
// current.
func (r *reader) known(i int32, all []Freshness) Freshness {
	if !r.g.IsGate(i) {
		return Absent
	}
	for _, d := range r.g.Dependencies(i) {
		if all[d] != Current {
			return Stale
		}
	}
	return Current
}

// freshness compares the output of task i with the answer for its present inputs. If the task has failed on these
// inputs, or cannot run because another task has failed, its state is set to Failed or Skipped: a reader that can
// leave it out is current without it.
func (r *reader) freshness(i int32, known []Freshness, x Lookup) (Freshness, error) {
	for _, d := range r.g.Dependencies(i) {
		switch {
		case known[d] == Current, r.isGone(d) && r.g.Tolerates(i, d):
		case r.isGone(d):
			r.results[i].State = Skipped
			return Stale, nil
		default:
			return Stale, nil
		}
	}
	if tooFew(r, i) >= 0 {
		r.results[i].State = Skipped
		return Stale, nil
	}
	if fresh, yes := r.provenFreshness(i); yes {
		return fresh, nil
	}
	inputs, _, err := r.resolve(i)
	if err != nil {
		if r.ctx.Err() != nil {
			return Stale, context.Cause(r.ctx)
		}
		return Stale, nil // an input without a value, or a missing object: a run would report it
	}
	if !r.g.AnyTolerant() && r.results[i].Output.IsZero() {
		return Absent, nil
	}
	a, err := x.Lookup(r.ctx, executions.NewKey(r.g.Hashes[i], inputs))
	if err == nil && a.Hit == nil && a.Latest != nil && (a.Latest.State == record.Failed || a.Latest.State == record.Error) {
		r.results[i].State = Failed
	}
	if err != nil || a.Hit == nil || a.Hit.Output != r.results[i].Output {
		return Stale, err
	}
	return Current, nil
}

// provenFreshness compares the output of task i, whose inputs are current, with the baseline's answer; false: the baseline has
// none for these inputs.
func (r *reader) provenFreshness(i int32) (Freshness, bool) {
	p := r.proof
	if p == nil {
		return Absent, false
	}
	if p.dirty[i] {
		if !p.same[i] {
			return Absent, false
		}
		if same, err := r.sameInputs(i); err != nil || !same {
			return Absent, false
		}
	}
	if p.result(i).Output != r.results[i].Output {
		return Stale, true
	}
	return Current, true
}
