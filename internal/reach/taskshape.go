package reach

import (
	"context"
	"errors"

	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A TaskShape has the kinds of data that the executions of a task name.
type TaskShape struct {
	Output Kind  // of the executions' outputs; FileOrDir if the task object does not say
	Dirs   []int // the inputs that are directories

	leaf bool // the task object is whole and refers to nothing
}

// TaskShapeOf reads a task object. For a missing or damaged one it returns an unknown shape and no error: following
// the reference finds the fault.
func TaskShapeOf(ctx context.Context, objects objectstore.Store, task objectstore.Hash) (TaskShape, error) {
	unknown := TaskShape{Output: FileOrDir}
	data, err := objectstore.ReadAll(ctx, objects, task, record.MaxTask)
	if damaged(err) || errors.Is(err, objectstore.ErrNotFound) {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	if eastref.IsTask(data) { // outputs of the reference's tasks are values
		return TaskShape{Output: File}, nil
	}
	t, err := record.DecodeTask(data)
	if err != nil {
		return unknown, nil
	}
	shape := TaskShape{Output: File, leaf: t.Image == ""}
	if t.Output.IsDir() {
		shape.Output = Dir
	}
	for i := range t.Inputs {
		if t.Inputs[i].Kind == record.KindDir {
			shape.Dirs = append(shape.Dirs, i)
		}
	}
	return shape, nil
}

// damaged reports whether an object exists and does not match its name.
func damaged(err error) bool {
	var corrupt *objectstore.CorruptError
	var large *objectstore.TooLargeError
	return errors.As(err, &corrupt) || errors.As(err, &large)
}
