package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
)

// An execution is doubtful if its command may have read wrong bytes. That is so if an e3 that did not check reads made
// it here (record.Detail.Checked), and if an object that it read is damaged, or was damaged before a repair. An
// execution that read the output of a doubtful one is doubtful too, unless another success vouches for that output.

// suspect notes an object that an earlier repair found damaged. That repair rejected only the object's producer.
func (v *verifier) suspect(e *executions.Execution) {
	if e.Rejection == nil || e.Rejection.By != repairer {
		return
	}
	text, ok := strings.CutPrefix(e.Rejection.Reason, CorruptObject.String()+": ")
	h, err := objectstore.ParseHash(text)
	if !ok || err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.suspects == nil {
		v.suspects = map[objectstore.Hash]time.Time{}
	}
	if e.Rejection.At.After(v.suspects[h]) {
		v.suspects[h] = e.Rejection.At
	}
}

// doubtful reports the doubtful executions. It looks for them only if an object is or was damaged.
func (v *verifier) doubtful(ctx context.Context) error {
	t := &taint{
		v: v, objects: map[objectstore.Hash]suspicion{}, readers: map[objectstore.Hash][]*reading{}, makers: map[objectstore.Hash]int{},
		holders: map[objectstore.Hash][]objectstore.Hash{}, expanded: map[objectstore.Hash]bool{}, shapes: map[objectstore.Hash]reach.TaskShape{},
	}
	for h, at := range v.suspects {
		t.suspect(h, suspicion{before: at, why: fmt.Sprintf("object %s, which was damaged on %s", h, at.UTC().Format(time.DateOnly))})
	}
	for h, d := range v.corrupt {
		if d.kind == CorruptObject {
			t.suspect(h, suspicion{why: fmt.Sprintf("object %s, which is damaged", h)})
		}
	}
	if len(t.pending) == 0 {
		return nil
	}
	for e, err := range v.Curator.All(ctx) {
		if errors.Is(err, executions.ErrMalformed) {
			continue // a fault of its own
		}
		if err == nil {
			err = t.add(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("find doubtful executions: %w", err)
		}
	}
	if err := t.spread(ctx); err != nil {
		return fmt.Errorf("find doubtful executions: %w", err)
	}
	return nil
}

// A taint spreads from objects to the executions that may have read them.
type taint struct {
	v *verifier

	objects map[objectstore.Hash]suspicion
	pending []objectstore.Hash // objects whose readers were not visited yet

	readers  map[objectstore.Hash][]*reading         // executions that may be doubtful, by what they have read
	makers   map[objectstore.Hash]int                // by output: number of successes that are not doubtful
	holders  map[objectstore.Hash][]objectstore.Hash // directories that hold an object, as far as they were expanded
	expanded map[objectstore.Hash]bool
	shapes   map[objectstore.Hash]reach.TaskShape
}

// A suspicion says why wrong bytes may have been read under a name.
type suspicion struct {
	before time.Time // by executions that began before; zero: by any
	why    string
}

// A reading is an execution that may have read wrong bytes without noticing.
type reading struct {
	*executions.Execution
	output   objectstore.Hash
	doubtful bool
}

func (t *taint) suspect(h objectstore.Hash, s suspicion) {
	if old, known := t.objects[h]; known && (old.before.IsZero() || !s.before.IsZero()) {
		return
	}
	t.objects[h] = s
	t.pending = append(t.pending, h)
}

// add adds an execution. If its rejection was withdrawn, a user has judged it.
func (t *taint) add(ctx context.Context, e *executions.Execution) error {
	if e.State != record.Success || e.Rejected() {
		return nil
	}
	output, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return nil // a fault of its own
	}
	t.makers[output]++
	if e.Detail != nil && e.Detail.Checked || e.Rejection != nil || e.Metadata != nil || e.Provenance != nil {
		return nil
	}
	r := &reading{Execution: e, output: output}
	for i, text := range e.InputHashes {
		h, err := objectstore.ParseHash(text)
		if err != nil {
			return nil
		}
		t.readers[h] = append(t.readers[h], r)
		kind, err := t.inputKind(ctx, e.Key.Task, i)
		if err == nil {
			err = t.expand(ctx, reach.Ref{Kind: kind, Hash: h})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inputKind is how an input is read; if the task cannot be read, the bytes decide.
func (t *taint) inputKind(ctx context.Context, task objectstore.Hash, i int) (reach.Kind, error) {
	shape, err := t.shape(ctx, task)
	switch {
	case err != nil:
		return 0, err
	case shape.Output == reach.FileOrDir:
		return reach.FileOrDir, nil
	case slices.Contains(shape.Dirs, i):
		return reach.Dir, nil
	}
	return reach.File, nil
}

func (t *taint) shape(ctx context.Context, task objectstore.Hash) (reach.TaskShape, error) {
	shape, known := t.shapes[task]
	if known {
		return shape, nil
	}
	shape, err := reach.TaskShapeOf(ctx, t.v.Objects, task)
	if err == nil {
		t.shapes[task] = shape
	}
	return shape, err
}

// expand notes the content of a directory. An unreadable one has none.
func (t *taint) expand(ctx context.Context, r reach.Ref) error {
	if r.Kind == reach.File || t.expanded[r.Hash] {
		return nil
	}
	t.expanded[r.Hash] = true
	children, err := reach.Refs(ctx, t.v.Objects, r)
	if err != nil {
		return ctx.Err()
	}
	for _, c := range children {
		t.holders[c.Hash] = append(t.holders[c.Hash], r.Hash)
		if err := t.expand(ctx, c.Ref); err != nil {
			return err
		}
	}
	return nil
}

// spread reports the readers of suspected objects, and suspects their outputs, until it finds nothing new.
func (t *taint) spread(ctx context.Context) error {
	for len(t.pending) > 0 {
		h := t.pending[len(t.pending)-1]
		t.pending = t.pending[:len(t.pending)-1]
		if err := t.spreadOver(ctx, h, t.objects[h]); err != nil {
			return err
		}
	}
	return nil
}

func (t *taint) spreadOver(ctx context.Context, h objectstore.Hash, s suspicion) error {
	seen := map[objectstore.Hash]bool{h: true}
	for above := []objectstore.Hash{h}; len(above) > 0; {
		at := above[len(above)-1]
		above = above[:len(above)-1]
		for _, r := range t.readers[at] {
			if r.doubtful || !s.before.IsZero() && !r.StartedAt.Before(s.before) {
				continue
			}
			if err := t.doubt(ctx, r, s); err != nil {
				return err
			}
		}
		for _, dir := range t.holders[at] {
			if !seen[dir] {
				seen[dir] = true
				above = append(above, dir)
			}
		}
	}
	return nil
}

// doubt reports an execution, and suspects its output unless another success has the same output.
func (t *taint) doubt(ctx context.Context, r *reading, s suspicion) error {
	r.doubtful = true
	t.v.doubtfulFault(r, s)
	if t.makers[r.output]--; t.makers[r.output] > 0 {
		return nil
	}
	return t.suspectOutput(ctx, r)
}

// suspectOutput suspects an output with everything below it.
func (t *taint) suspectOutput(ctx context.Context, r *reading) error {
	shape, err := t.shape(ctx, r.Key.Task)
	if err != nil {
		return err
	}
	why := fmt.Sprintf("the output of execution %s, which may have read damaged bytes", r.ExecutionID)
	return t.suspectBelow(ctx, reach.Ref{Kind: shape.Output, Hash: r.output}, suspicion{why: why})
}

// suspectBelow suspects the files of a directory. It skips empty files and files that other executions have made too,
// since their maker is unknown.
func (t *taint) suspectBelow(ctx context.Context, r reach.Ref, s suspicion) error {
	if t.makers[r.Hash] > 0 || r.Hash == emptyObject {
		return nil
	}
	if old, known := t.objects[r.Hash]; known && old.before.IsZero() {
		return nil
	}
	t.suspect(r.Hash, s)
	children, err := reach.Refs(ctx, t.v.Objects, r)
	if err != nil {
		return ctx.Err() // an unreadable object is a fault of its own
	}
	for _, c := range children {
		if err := t.suspectBelow(ctx, c.Ref, s); err != nil {
			return err
		}
	}
	return nil
}

var emptyObject = objectstore.Sum(nil)

func (v *verifier) doubtfulFault(r *reading, s suspicion) {
	e := r.Execution
	v.fault(Fault{
		Kind: DoubtfulExecution, Where: executionPath(e.Key, e.ExecutionID), For: []string{describe(e)},
		Problem: "it may have read " + s.why + ": the e3 that recorded it checked no reads",
		Advice:  "with --repair it is rejected, and the next start makes it again",
		mend:    func(ctx context.Context) (string, bool, error) { return v.rejectDoubtful(ctx, e, s) },
	})
}

// rejectDoubtful rejects an execution, whose record stays, and removes its output from the workspaces that show it.
func (v *verifier) rejectDoubtful(ctx context.Context, e *executions.Execution, s suspicion) (remedy string, whole bool, err error) {
	_, err = v.Curator.Reject(ctx, e.Key, e.ExecutionID, v.rejection("it may have read "+s.why))
	if errors.Is(err, executions.ErrNotFound) {
		return "it is gone", true, nil
	}
	if err != nil {
		return "", false, err
	}
	v.retired[e.ExecutionID] = true
	done := []string{"rejected (e3 reject --undo takes that back)"}
	shown, err := v.currentTasks(ctx)
	if err != nil {
		return done[0], false, err
	}
	for _, t := range shown[e.ExecutionID] {
		gone, err := v.Workspaces.Deployer.Unassign(ctx, t.workspace, map[string]string{t.task: e.OutputHash})
		if err != nil {
			return strings.Join(done, ", "), false, err
		}
		for _, task := range gone {
			v.lostOutput(t.workspace, task)
			done = append(done, "took "+t.workspace+"."+task+" off its workspace")
		}
	}
	return strings.Join(done, ", "), true, nil
}

// currentTask is a task of the latest run of a workspace.
type currentTask struct{ workspace, task string }

// currentTasks returns the tasks in the latest runs of workspaces by their executions. Unreadable runs are faults of
// their own.
func (v *verifier) currentTasks(ctx context.Context) (map[string][]currentTask, error) {
	if v.current != nil {
		return v.current, nil
	}
	current := map[string][]currentTask{}
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "WORKSPACE"}) {
		if errors.Is(err, refstore.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := record.DecodeWorkspaceState(rec.Value)
		if err != nil || s == nil || s.CurrentRunID == "" {
			continue
		}
		data, err := v.Records.Get(ctx, refstore.Key{Partition: "DATAFLOW/" + rec.Key.Sort, Sort: s.CurrentRunID})
		if err != nil {
			continue
		}
		run, err := record.DecodeRun(data.Value)
		if err != nil {
			continue
		}
		for t := range run.Tasks.All() {
			current[t.ExecutionID] = append(current[t.ExecutionID], currentTask{rec.Key.Sort, t.Task})
		}
	}
	v.current = current
	return current, nil
}
