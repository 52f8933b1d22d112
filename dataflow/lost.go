package dataflow

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// losses are the objects that a task could not read.
type losses struct {
	tasks  map[int32][]objectstore.Hash // lost objects by the upstream task that made them
	inputs []error                      // lost inputs that cannot be restored
	found  bool                         // something was lost
}

// A LostInputError says that a task cannot run, although it has no answer: an input is missing or damaged, and no
// task makes it. Only this task fails, not the run: tasks that do not depend on it go on.
type LostInputError struct {
	Workspace, Input string // Input is "" for the task's own object
	Object           objectstore.Hash
	Kind             record.LeafKind
}

func (e *LostInputError) Error() string {
	if e.Input == "" {
		return fmt.Sprintf("task object %s is gone or damaged; deploy the package again with: e3 workspace deploy <repo> %s <package or e3.yaml>", e.Object, e.Workspace)
	}
	what := "@<path>"
	if e.Kind == record.LeafValue {
		what = "<value>"
	}
	return fmt.Sprintf("object %s of input %s is gone or damaged, and no linked file holds it; set it with: e3 set <repo> %s.%s %s", e.Object, e.Input, e.Workspace, e.Input, what)
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *LostInputError) Unwrap() error { return objectstore.ErrNotFound }

// missesInput tells whether an attempt failed because an input is missing or damaged.
func missesInput(res *executions.Result, err error) bool {
	if err != nil {
		lost, _ := objectstore.IsLost(err)
		return lost
	}
	return res.Reason == executions.ReasonInput
}

// losses finds the lost inputs of a task. Every output that the task reads is checked completely, including parts
// that the task does not read, so that one rerun of the producer restores the whole output. Damaged objects are
// removed, and contents of linked files are stored again.
func (r *reader) losses(ctx context.Context, i int32) (*losses, error) {
	l := &losses{tasks: map[int32][]objectstore.Hash{}}
	discard := func(ctx context.Context, h objectstore.Hash) (bool, error) {
		return objectstore.Discard(ctx, r.objects, h)
	}
	for _, d := range producers(r, i) {
		lost, err := r.lostOutput(ctx, d, discard)
		if err != nil {
			return nil, err
		}
		if len(lost) > 0 {
			l.found, l.tasks[d] = true, lost
		}
	}
	lost, err := r.lostInputs(ctx, i, discard)
	if err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		l.found = true
		if r.opts.Restore != nil {
			if err := r.opts.Restore(ctx); err != nil {
				return nil, err
			}
			if lost, err = r.lostInputs(ctx, i, discard); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range lost {
		if r.marked[e.Input] { // an export may have left it out
			l.inputs = append(l.inputs, &LackingError{Workspace: e.Workspace, Input: e.Input, Kind: e.Kind})
			continue
		}
		l.inputs = append(l.inputs, e)
	}
	wires := r.g.Package.Tasks[i].Wiring
	for j := range wires {
		r.present.Delete(wires[j].Name)
		if !isGathered(&wires[j]) || len(l.tasks) > 0 {
			continue
		}
		h, _, err := r.gathered(r.dirs, wires, j) // e3 stores it again before the task runs
		if err != nil {
			return nil, err
		}
		gone, err := discard(ctx, h)
		if err != nil {
			return nil, err
		}
		l.found = l.found || gone
	}
	return l, nil
}

// producers returns the tasks that a task reads from, each once.
func producers(r *reader, i int32) []int32 {
	list := slices.DeleteFunc(slices.Clone(r.g.Dependencies(i)), func(d int32) bool { return !r.g.IsTask(d) || r.isGone(d) })
	slices.Sort(list)
	return slices.Compact(list)
}

// lostOutput returns the lost objects of a settled task's output.
func (r *reader) lostOutput(ctx context.Context, d int32, look func(context.Context, objectstore.Hash) (bool, error)) ([]objectstore.Hash, error) {
	lost, err := tree.FindLost(ctx, r.objects, r.results[d].Output, r.g.Package.Tasks[d].Output == record.KindDir, look)
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", r.g.Name(d), err)
	}
	return lost, nil
}

// lostInputs returns the inputs of a task that have lost objects, including the task's own object.
func (r *reader) lostInputs(ctx context.Context, i int32, look func(context.Context, objectstore.Hash) (bool, error)) ([]*LostInputError, error) {
	var list []*LostInputError
	find := func(e LostInputError, h objectstore.Hash, dir bool) error {
		lost, err := tree.FindLost(ctx, r.objects, h, dir, look)
		if err == nil && len(lost) > 0 {
			e.Object = lost[0]
			list = append(list, &e)
		}
		return err
	}
	if err := find(LostInputError{Workspace: r.opts.Workspace}, r.g.Hashes[i], false); err != nil {
		return nil, fmt.Errorf("task object: %w", err)
	}
	var err error
	inputParts(r.g.Package.Tasks[i].Wiring, func(name, path string) bool {
		leaf, _ := r.opts.Inputs.Get(name)
		if leaf.Kind == record.LeafUnassigned {
			return true
		}
		var h objectstore.Hash
		h, err = objectstore.ParseHash(leaf.Hash)
		dir := leaf.Kind == record.LeafDir
		if err == nil && path != "" {
			h, dir, err = r.partToFind(h, path)
		}
		if err == nil && !h.IsZero() {
			err = find(LostInputError{Workspace: r.opts.Workspace, Input: name, Kind: leaf.Kind}, h, dir)
		}
		if err != nil {
			err = fmt.Errorf("input %s: %w", name, err)
		}
		return err == nil
	})
	return list, err
}

// A LostAgainError says that an output was lost again after it was remade.
type LostAgainError struct {
	Task   string
	Object objectstore.Hash
}

func (e *LostAgainError) Error() string {
	return fmt.Sprintf("object %s of the output of %s was made again in this run, and is gone or damaged again: look at the disk, or the store, with: e3 verify <repo>", e.Object, e.Task)
}

// Unwrap makes errors.Is(err, objectstore.ErrNotFound) true.
func (e *LostAgainError) Unwrap() error { return objectstore.ErrNotFound }

// lostAgain returns an error if a lost object was already remade in this run.
func (s *scheduler) lostAgain(t *turn, l *losses) error {
	for d, lost := range l.tasks {
		for _, h := range lost {
			if s.unchangedSince(d, t.view) && s.heals.lost[d][h] {
				return fmt.Errorf("task %s: %w", s.g.Name(t.task), &LostAgainError{s.g.Name(d), h})
			}
		}
	}
	return nil
}

// lostText names the lost objects.
func lostText(lost []objectstore.Hash) string {
	const most = 3
	names := make([]string, 0, most)
	for _, h := range lost[:min(len(lost), most)] {
		names = append(names, h.String())
	}
	text, verb := "object ", " is"
	if len(lost) > 1 {
		text, verb = "objects ", " are"
	}
	text += strings.Join(names, ", ")
	if n := len(lost) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text + verb + " gone or damaged"
}
