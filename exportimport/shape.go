package exportimport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/internal/format/record"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// tasks reads each task object once.
type tasks struct {
	objects objectstore.Store

	mu    sync.Mutex
	known map[objectstore.Hash]reach.TaskShape
	kept  int // number of inputs in known
}

// maxShapes bounds the remembered task objects, and maxInputs the remembered inputs: a zip can name a task object for
// each execution.
const (
	maxShapes = 100_000
	maxInputs = 1 << 20
)

func (t *tasks) get(ctx context.Context, h objectstore.Hash) (reach.TaskShape, error) {
	t.mu.Lock()
	shape, ok := t.known[h]
	t.mu.Unlock()
	if ok {
		return shape, nil
	}
	shape, err := reach.TaskShapeOf(ctx, t.objects, h)
	if err != nil {
		return shape, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := len(shape.Dirs) + len(shape.Made)
	if t.kept += kept; t.known == nil || len(t.known) == maxShapes || t.kept > maxInputs {
		t.known, t.kept = map[objectstore.Hash]reach.TaskShape{}, kept
	}
	t.known[h] = shape
	return shape, nil
}

// whole returns the executions whose output is complete, and adds notes about the rest.
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
		ok, err := c.check(ctx, reach.Ref{Kind: task.Output, Hash: t.output}, 0)
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

// completeness finds out which references are complete. Each object is checked once.
type completeness struct {
	objects *overlay
	known   map[reach.Ref]bool
}

func (c *completeness) check(ctx context.Context, r reach.Ref, depth int) (bool, error) {
	if ok, known := c.known[r]; known {
		return ok, nil
	}
	if depth > tree.MaxDepth {
		return false, fmt.Errorf("object %s: directories nest deeper than %d levels", r.Hash, tree.MaxDepth)
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
