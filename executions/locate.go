package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"e3/internal/human"
	"e3/objectstore"
	"e3/refstore"
)

// finder is a store of records with an index of executions by id. Where each read is a request, the index spares a
// search of all keys.
type finder interface {
	// FindExecutions yields the keys of records, some of which may be gone or not there yet. prefix is in lower case.
	FindExecutions(ctx context.Context, prefix string) iter.Seq2[refstore.Key, error]
}

// Locate finds an execution by its id or a prefix of the id, in the whole repository. Without a finder it searches
// every key. A pruned execution yields a PrunedError. An id that exists under two keys, which imports can cause, is
// ambiguous like a prefix.
func (s *Store) Locate(ctx context.Context, prefix string) (*Execution, error) {
	prefix = strings.ToLower(prefix)
	named := s.findIn(ctx, s.Keys(ctx), prefix)
	if f, ok := s.records.(finder); ok {
		named = s.named(ctx, f, prefix)
	}
	found, err := onlyOne(prefix, named)
	if found != nil || err != nil {
		return found, err
	}
	for gone, err := range s.Tombstones(ctx) {
		if err == nil && strings.HasPrefix(gone.ExecutionID, prefix) {
			return nil, &PrunedError{Tombstone: gone.Tombstone}
		}
	}
	return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
}

// onlyOne returns the only execution that is yielded; nil if there is none.
func onlyOne(prefix string, named iter.Seq2[*Execution, error]) (found *Execution, err error) {
	for e, err := range named {
		if err != nil {
			return nil, err
		}
		if found != nil {
			return nil, &AmbiguousError{What: "execution", Prefix: prefix, Fits: []string{found.ExecutionID, e.ExecutionID}}
		}
		found = e
	}
	return found, nil
}

// findIn yields the executions of some keys whose ids begin with prefix, without a finder.
func (s *Store) findIn(ctx context.Context, keys iter.Seq2[Key, error], prefix string) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		for k, err := range keys {
			var e *Execution
			if err == nil {
				if e, err = s.Find(ctx, k, prefix); errors.Is(err, ErrNotFound) {
					continue
				}
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// named yields the executions whose ids begin with prefix.
func (s *Store) named(ctx context.Context, f finder, prefix string) iter.Seq2[*Execution, error] {
	return func(yield func(*Execution, error) bool) {
		for key, err := range f.FindExecutions(ctx, prefix) {
			if err != nil {
				yield(nil, err)
				return
			}
			k, ok := ParseKey(strings.TrimPrefix(key.Partition, "EXECUTION/"))
			if !ok {
				continue
			}
			e, err := s.Get(ctx, k, key.Sort)
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// LocateAll yields the executions with these ids that exist, in no order. Without a finder it reads all executions. An
// unreadable one comes with its RecordError, as in All.
func (s *Store) LocateAll(ctx context.Context, ids []string) iter.Seq2[*Execution, error] {
	if f, ok := s.records.(finder); ok {
		each := func(yield func(string, error) bool) {
			for _, id := range ids {
				if _, err := ParseID(id); err == nil && !yield(id, nil) {
					return
				}
			}
		}
		return inOrder(ctx, s.parallel, each, func(ctx context.Context, id string) iter.Seq2[*Execution, error] {
			return func(yield func(*Execution, error) bool) {
				for e, err := range s.named(ctx, f, id) {
					yield(e, err)
					return
				}
			}
		})
	}
	return func(yield func(*Execution, error) bool) {
		wanted := make(map[string]bool, len(ids))
		for _, id := range ids {
			wanted[id] = true
		}
		if len(wanted) == 0 {
			return
		}
		for e, err := range s.All(ctx) {
			if err == nil {
				if !wanted[e.ExecutionID] {
					continue
				}
				delete(wanted, e.ExecutionID)
			}
			if !yield(e, err) || len(wanted) == 0 {
				return
			}
		}
	}
}

// ErrAmbiguous is wrapped if a prefix matches several executions, or runs.
var ErrAmbiguous = errors.New("more than one has this prefix")

// An AmbiguousError says which a prefix matches. errors.Is(err, ErrAmbiguous) is true.
type AmbiguousError struct {
	What   string // "execution" or "run"
	Prefix string
	Fits   []string // ids, as far as they are known
}

func (e *AmbiguousError) Error() string {
	short := make([]string, len(e.Fits))
	for i, id := range e.Fits {
		if short[i] = human.Short(id); slices.Contains(short[:i], short[i]) {
			return e.text(e.Fits)
		}
	}
	return e.text(short)
}

func (e *AmbiguousError) text(ids []string) string {
	return fmt.Sprintf("%s %s: %v: %s", e.What, e.Prefix, ErrAmbiguous, human.Few(ids))
}

// Unwrap returns ErrAmbiguous.
func (e *AmbiguousError) Unwrap() error { return ErrAmbiguous }

// Find finds an execution of a key by its id or a prefix of the id.
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
		return nil, &AmbiguousError{What: "execution", Prefix: prefix, Fits: found}
	}
	return s.Get(ctx, k, found[0])
}

// FindTask finds an execution of a task, on any inputs, by its id or a prefix of the id. A pruned execution yields a
// PrunedError.
func (s *Store) FindTask(ctx context.Context, task objectstore.Hash, prefix string) (*Execution, error) {
	found, err := onlyOne(prefix, func(yield func(*Execution, error) bool) {
		for e, err := range s.findIn(ctx, s.keysOf(ctx, task), prefix) {
			if !yield(e, err) || err == nil && e.ExecutionID == prefix {
				return
			}
		}
	})
	if found != nil || err != nil {
		return found, err
	}
	if pruned := s.prunedTask(ctx, task, prefix); pruned != nil {
		return nil, pruned
	}
	return nil, fmt.Errorf("execution %s: %w", prefix, ErrNotFound)
}
