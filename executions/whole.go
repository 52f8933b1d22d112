package executions

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// A missingError says which object of an output is missing.
type missingError struct {
	part objectstore.Hash
	top  bool
}

func (e *missingError) Error() string {
	if e.top {
		return fmt.Sprintf("its output object %s is gone", e.part)
	}
	return fmt.Sprintf("object %s of its output is gone", e.part)
}

// LoadTask reads a task object. An object of another type is record.ErrType.
func LoadTask(ctx context.Context, objects objectstore.Store, h objectstore.Hash) (*record.Task, error) {
	data, err := objectstore.ReadAll(ctx, objects, h, record.MaxTask)
	if err != nil {
		return nil, fmt.Errorf("task object %s: %w", h, err)
	}
	return record.DecodeTask(data)
}

// kinds remembers which tasks make directories: the record of an execution does not say so.
type kinds struct{ dirs sync.Map }

// isDir tells whether a task makes a directory. It is false if the task object cannot be read; the output is not
// searched then.
func (s *Store) isDir(ctx context.Context, task objectstore.Hash) bool {
	if is, ok := s.kinds.dirs.Load(task); ok {
		return is.(bool)
	}
	data, err := objectstore.ReadAll(ctx, s.objects, task, record.MaxTask)
	if err != nil {
		return false
	}
	t, err := record.DecodeTask(data)
	is := err == nil && t.Output.IsDir()
	s.kinds.dirs.Store(task, is)
	return is
}

// whole checks that every object of an execution's output exists, and returns the size of the top one. A missing
// object, or one of another size, is a *missingError. Where the object store presumes, nothing is checked.
func (s *Store) whole(ctx context.Context, e *Execution, h objectstore.Hash) (int64, error) {
	size, err := s.outputSize(ctx, e, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return 0, &missingError{h, true}
	}
	if err == nil && e.Detail != nil && e.Detail.BytesOut >= 0 && e.Detail.BytesOut != size { // truncated, and the size is part of keys
		return 0, &missingError{h, true}
	}
	if err != nil || s.presumes || !s.isDir(ctx, e.Key.Task) {
		return size, err
	}
	return size, s.wholeTree(ctx, h, 0, map[objectstore.Hash]bool{})
}

func (s *Store) wholeTree(ctx context.Context, h objectstore.Hash, depth int, seen map[objectstore.Hash]bool) error {
	if seen[h] {
		return nil
	}
	seen[h] = true
	entries, err := tree.Read(ctx, s.objects, h)
	var malformed *tree.Error
	switch {
	case unusable(err), errors.As(err, &malformed):
		return &missingError{h, depth == 0}
	case err != nil:
		return err
	case depth > tree.MaxDepth:
		return &missingError{h, false}
	}
	for i := range entries {
		switch entry := &entries[i]; entry.Kind {
		case tree.KindDir:
			err = s.wholeTree(ctx, entry.Hash, depth+1, seen)
		case tree.KindFile:
			var size int64
			size, err = s.objects.Stat(ctx, entry.Hash)
			if errors.Is(err, objectstore.ErrNotFound) || err == nil && size != entry.Size {
				err = &missingError{entry.Hash, false}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
