package executions

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/objectstore"
	"e3/refstore"
)

// ErrAmbiguous is wrapped if a prefix matches several executions, or runs.
var ErrAmbiguous = errors.New("more than one has this prefix")

// Find finds an execution by its id or a prefix of it, among those of a key.
func (s *Store) Find(ctx context.Context, k Key, prefix string) (*Execution, error) {
	prefix = strings.ToLower(prefix)
	if _, err := ParseID(prefix); err == nil { // a whole id
		return s.Get(ctx, k, prefix)
	}
	var found []string
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
	case len(found) > 1:
		return nil, fmt.Errorf("execution %s: %w", prefix, ErrAmbiguous)
	}
	return s.Get(ctx, k, found[0])
}

// FindTask finds an execution by its id or a prefix of it, among all executions of a task, on any inputs. A pruned
// one yields a PrunedError.
func (s *Store) FindTask(ctx context.Context, task objectstore.Hash, prefix string) (*Execution, error) {
	found, err := s.findTask(ctx, task, prefix)
	if errors.Is(err, ErrNotFound) {
		if pruned := s.prunedTask(ctx, task, prefix); pruned != nil {
			err = pruned
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
