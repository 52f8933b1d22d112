package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"e3/objectstore"
	"e3/refstore"
)

// ErrAmbiguous is wrapped where a prefix fits several executions, or runs.
var ErrAmbiguous = errors.New("more than one has this prefix")

// Find looks an execution up by its id or a prefix of it, among those of a key.
func (s *Store) Find(ctx context.Context, k Key, prefix string) (*Execution, error) {
	var found []string
	prefix = strings.ToLower(prefix)
	q := refstore.Query{Partition: partition(k), Prefix: prefix, KeysOnly: true, Limit: 2}
	for rec, err := range s.records.List(ctx, q) {
		if err != nil {
			return nil, err
		}
		found = append(found, rec.Key.Sort)
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
	case len(found) > 1 && !slices.Contains(found, prefix):
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrAmbiguous)
	}
	return s.Get(ctx, k, found[0])
}

// FindTask looks an execution up by its id or a prefix of it, among all that a task ever had, on whatever inputs. Of
// one that was pruned it says so with a PrunedError.
func (s *Store) FindTask(ctx context.Context, task objectstore.Hash, prefix string) (*Execution, error) {
	found, err := s.findTask(ctx, task, prefix)
	if errors.Is(err, ErrNotFound) {
		if gone := s.prunedTask(ctx, task, prefix); gone != nil {
			err = gone
		}
	}
	return found, err
}

func (s *Store) findTask(ctx context.Context, task objectstore.Hash, prefix string) (*Execution, error) {
	var found *Execution
	for inputs, err := range s.Inputs(ctx, task) {
		if err != nil {
			return nil, err
		}
		e, err := s.Find(ctx, Key{Task: task, Inputs: inputs}, prefix)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return nil, err
		case e.ExecutionID == prefix:
			return e, nil
		case found != nil:
			return nil, fmt.Errorf("execution %s: %w", prefix, ErrAmbiguous)
		default:
			found = e
		}
	}
	if found == nil {
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
	}
	return found, nil
}

// Locate looks an execution up by its id or a prefix of it, in the whole repository: it looks into every folder. Of one
// that was pruned it says so with a PrunedError. An id that is there under two keys, as an import can bring about, is
// ambiguous like a prefix.
func (s *Store) Locate(ctx context.Context, prefix string) (*Execution, error) {
	var found *Execution
	for task, err := range s.Tasks(ctx) {
		if err != nil {
			return nil, err
		}
		for inputs, err := range s.Inputs(ctx, task) {
			if err != nil {
				return nil, err
			}
			e, err := s.Find(ctx, Key{Task: task, Inputs: inputs}, prefix)
			switch {
			case errors.Is(err, ErrNotFound):
				continue
			case err != nil:
				return nil, err
			case found != nil:
				return nil, fmt.Errorf("execution %s: %w", prefix, ErrAmbiguous)
			}
			found = e
		}
	}
	if found != nil {
		return found, nil
	}
	for gone, err := range s.Tombstones(ctx) {
		if err == nil && strings.HasPrefix(gone.ExecutionID, strings.ToLower(prefix)) {
			return nil, &PrunedError{Tombstone: gone.Tombstone}
		}
	}
	return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
}

// All yields every execution of the repository with all that is beside its status, task by task, for each key the
// latest first. An execution that cannot be read comes with its RecordError and does not end the list; any other error
// does.
func (s *Store) All(ctx context.Context) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		for task, err := range s.Tasks(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			for inputs, err := range s.Inputs(ctx, task) {
				if err != nil {
					yield(nil, err)
					return
				}
				for e, err := range s.List(ctx, Key{Task: task, Inputs: inputs}) {
					if !yield(e, err) || err != nil && !errors.Is(err, ErrMalformed) {
						return
					}
				}
			}
		}
	}
}
