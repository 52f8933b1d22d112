package reach

import (
	"context"
	"errors"
	"iter"

	"e3/internal/jobs/queue"
	"e3/objectstore"
)

// Jobs are the queues of a repository.
type Jobs interface {
	// Unfinished yields all unfinished jobs. An unreadable one is a queue.ErrMalformed, which does not end the iteration.
	Unfinished(ctx context.Context) iter.Seq2[queue.Job, error]
}

// JobRoots enumerates the objects that unfinished jobs need: the task object, and the inputs with their content. Any
// of them may be missing: then the job fails. The job's run may be gone.
func (s *Stores) JobRoots(ctx context.Context, sink Sink) error {
	shapes := map[objectstore.Hash]TaskShape{} // so that many jobs of one task read its object once
	for j, err := range s.Jobs.Unfinished(ctx) {
		if errors.Is(err, queue.ErrMalformed) {
			err = sink.RecordFault(&Fault{Owner: Owner{Kind: AJob}, Err: &RecordError{Record: "of a job", Err: err}})
			if err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if err := s.jobRoots(ctx, &j, shapes, sink); err != nil {
			return err
		}
	}
	return nil
}

// maxShapes bounds the number of remembered tasks.
const maxShapes = 1 << 12

func (s *Stores) jobRoots(ctx context.Context, j *queue.Job, shapes map[objectstore.Hash]TaskShape, sink Sink) error {
	owner := Owner{Kind: AJob, Name: j.Workspace, ID: j.Ref(), Role: "task"}
	malformed := func(err error) error {
		return sink.RecordFault(&Fault{Owner: owner, Err: &RecordError{Record: "of job " + j.Ref(), Err: err}})
	}
	task, err := objectstore.ParseHash(j.TaskHash)
	if err != nil {
		return malformed(err)
	}
	shape, known := shapes[task]
	if !known {
		if shape, err = TaskShapeOf(ctx, s.Objects, task); err != nil {
			return err
		}
		if len(shapes) >= maxShapes {
			clear(shapes)
		}
		shapes[task] = shape
	}
	if err := sink.Root(Root{Ref: Ref{Task, task}, Weak: true, Owner: owner, followed: shape.leaf}); err != nil {
		return err
	}
	owner.Role = "input"
	for i, text := range j.Inputs {
		h, err := objectstore.ParseHash(text)
		if err != nil {
			return malformed(err)
		}
		if err := sink.Root(Root{Ref: Ref{shape.input(i), h}, Weak: true, Owner: owner}); err != nil {
			return err
		}
	}
	return nil
}

// input returns the kind of an input, with its content.
func (s *TaskShape) input(i int) Kind {
	if !s.leaf {
		return FileOrDir // the kind is unknown
	}
	for _, dir := range s.Dirs {
		if dir == i {
			return Dir
		}
	}
	return File
}
