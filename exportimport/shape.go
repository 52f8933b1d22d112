package exportimport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/internal/eastref"
	"e3/internal/reach"
	"e3/internal/record"
	"e3/objectstore"
)

// taskShape is what the task object says about the datasets of executions.
type taskShape struct {
	output reach.Kind
	dirs   []int // the inputs that are directories
}

// tasks reads each task object once.
type tasks struct {
	objects objectstore.Store

	mu    sync.Mutex
	known map[objectstore.Hash]taskShape
}

// maxShapes is how many task objects are remembered: a zip can name as many as it has executions.
const maxShapes = 100_000

const maxTask = 16 << 20

// get reads a task object. Of one that is gone or damaged the walk will tell.
func (t *tasks) get(ctx context.Context, h objectstore.Hash) (taskShape, error) {
	t.mu.Lock()
	shape, ok := t.known[h]
	t.mu.Unlock()
	if ok {
		return shape, nil
	}
	data, err := objectstore.ReadAll(ctx, t.objects, h, maxTask)
	var large *objectstore.TooLargeError
	if err != nil && !lost(err) && !errors.As(err, &large) {
		return shape, err
	}
	shape = shapeOf(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil || len(t.known) == maxShapes {
		t.known = map[objectstore.Hash]taskShape{}
	}
	t.known[h] = shape
	return shape, nil
}

// shapeOf reads a task object. Outputs of the reference's are values.
func shapeOf(data []byte) taskShape {
	if eastref.IsTask(data) {
		return taskShape{output: reach.File}
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		return taskShape{output: reach.FileOrDir}
	}
	shape := taskShape{output: reach.File}
	if task.Output.Multi || task.Output.Entries[0].Kind == record.KindDir {
		shape.output = reach.Dir
	}
	for i := range task.Inputs {
		if task.Inputs[i].Kind == record.KindDir {
			shape.dirs = append(shape.dirs, i)
		}
	}
	return shape
}

// whole returns the executions all of whose output is there; of the others there is a note.
func (x *exporter) whole(ctx context.Context, s *snapshot, list []*taken) ([]*taken, error) {
	c := completeness{objects: x.objects, known: map[reach.Ref]bool{}}
	var kept []*taken
	for _, t := range list {
		if t.state != record.Success {
			kept = append(kept, t)
			continue
		}
		task, err := x.tasks.get(ctx, t.key.Task)
		if err != nil {
			return nil, err
		}
		ok, err := c.check(ctx, reach.Ref{Kind: task.output, Hash: t.output}, 0)
		if err != nil {
			return nil, &MissingError{What: "the output of execution " + t.id, Err: err}
		}
		if !ok {
			s.notes = append(s.notes, fmt.Sprintf("execution %s is left out: its output is gone", t.id))
			continue
		}
		kept = append(kept, t)
	}
	if len(kept) == len(list) {
		return nil, fmt.Errorf("outputs of executions come and go while they are exported: %w", objectstore.ErrNotFound)
	}
	return kept, nil
}

// completeness finds out of which references everything is there. Each object is looked at once.
type completeness struct {
	objects *overlay
	known   map[reach.Ref]bool
}

func (c *completeness) check(ctx context.Context, r reach.Ref, depth int) (bool, error) {
	if ok, known := c.known[r]; known {
		return ok, nil
	}
	if depth > objectstore.MaxTreeDepth {
		return false, fmt.Errorf("object %s: directories nest deeper than %d levels", r.Hash, objectstore.MaxTreeDepth)
	}
	_, err := c.objects.Stat(ctx, r.Hash)
	var children []reach.Child
	if err == nil {
		children, err = reach.Refs(ctx, c.objects, r)
	}
	whole := err == nil
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return false, err
	}
	for _, child := range children {
		ok, err := c.check(ctx, child.Ref, depth+1)
		if err != nil {
			return false, err
		}
		whole = whole && ok
	}
	c.known[r] = whole
	return whole, nil
}
