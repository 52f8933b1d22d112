package reach

import (
	"context"
	"errors"

	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A TaskShape has the kinds of the objects that the executions of a task name.
type TaskShape struct {
	Output Kind  // of the executions' outputs; FileOrDir if the task object does not say
	Dirs   []int // the inputs that are directories
	Made   []int // other inputs that e3 makes: values, variables, tools, manifests of fan-ins

	leaf bool // the task object is whole and refers to nothing
}

// TaskShapeOf reads a task object. For a missing or damaged object it returns an unknown shape and no error:
// following the reference finds the fault.
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
		switch in := &t.Inputs[i]; {
		case in.Kind == record.KindDir:
			shape.Dirs = append(shape.Dirs, i)
		case in.Made():
			shape.Made = append(shape.Made, i)
		}
	}
	return shape, nil
}

// Inputs yields the objects that an execution keeps of its inputs, given the inputs' hashes: objects that e3 has
// made, since no file holds their content. These are directory objects, without the content of files, and the inputs
// in Made. i is the index of the input. All may be missing: an export may leave them out.
func (s *TaskShape) Inputs(hashes []string, yield func(i int, r Ref) error) error {
	for _, of := range []struct {
		kind   Kind
		inputs []int
	}{{Dirs, s.Dirs}, {File, s.Made}} {
		for _, i := range of.inputs {
			if i >= len(hashes) {
				break
			}
			h, err := objectstore.ParseHash(hashes[i])
			if err == nil {
				err = yield(i, Ref{of.kind, h})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// damaged reports whether an object exists and does not match its name.
func damaged(err error) bool {
	var corrupt *objectstore.CorruptError
	var large *objectstore.TooLargeError
	return errors.As(err, &corrupt) || errors.As(err, &large)
}
