package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/objectstore"
	"e3/refstore"
)

// Tombstones are kept for TombstoneLifetime; the tombstone of each key's latest success for a year.
const (
	latestTombstoneLifetime = 365 * 24 * time.Hour
	TombstoneLifetime       = 30 * 24 * time.Hour
)

const tombstones = "TOMBSTONE" // the partition

func tombstoneKey(task objectstore.Hash) refstore.Key {
	return refstore.Key{Partition: tombstones, Sort: task.String()}
}

// Pruned is an execution that was pruned. If pruning was interrupted it may still exist.
type Pruned struct {
	Key Key
	record.Tombstone
}

// PrunedError says that an execution once existed and was pruned. It wraps ErrNotFound.
type PrunedError struct {
	record.Tombstone
	Now time.Time // if set, the message gives the age
}

func (e *PrunedError) Error() string {
	when := "on " + day(e.PrunedAt)
	if !e.Now.IsZero() {
		when = human.Ago(e.Now, e.PrunedAt)
	}
	text := fmt.Sprintf("execution %s was pruned %s by %s", e.ExecutionID, when, e.By)
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	return text
}

// Unwrap returns ErrNotFound.
func (e *PrunedError) Unwrap() error { return ErrNotFound }

func newTombstones(victims []Victim, at time.Time, by, reason string) record.Tombstones {
	list := make(record.Tombstones, len(victims))
	for i := range victims {
		v := &victims[i]
		list[i] = record.Tombstone{
			InputsHash: v.Inputs.String(), ExecutionID: v.ExecutionID, OutputHash: v.OutputHash, PrunedAt: at, By: by, Reason: reason,
		}
	}
	return list
}

// putTombstones adds tombstones of a task, and drops those of spared executions. A record that cannot be read, for
// example after a loss of power, is replaced.
func (c *Curator) putTombstones(ctx context.Context, task objectstore.Hash, add record.Tombstones, drop map[string]bool) error {
	key := tombstoneKey(task)
	for {
		rec, err := c.records.Get(ctx, key)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged) {
			return fmt.Errorf("tombstones of task %s: %w", task, err)
		}
		var old record.Tombstones
		if err == nil {
			old, _ = record.DecodeTombstones(rec.Value)
		}
		merged := mergeTombstones(old, add, drop, c.now())
		_, err = c.records.Put(ctx, refstore.Record{Key: key, Value: merged.Encode(), Version: rec.Version})
		if err == nil {
			return nil
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return fmt.Errorf("tombstones of task %s: %w", task, err)
		}
	}
}

// mergeTombstones merges two lists, the later second, without those that have expired.
func mergeTombstones(old, add record.Tombstones, drop map[string]bool, now time.Time) record.Tombstones {
	type name struct{ inputs, id string }
	again := make(map[name]bool, len(add))
	for i := range add {
		again[name{add[i].InputsHash, add[i].ExecutionID}] = true
	}
	all := make(record.Tombstones, 0, len(old)+len(add))
	for i := range old {
		if !again[name{old[i].InputsHash, old[i].ExecutionID}] {
			all = append(all, old[i])
		}
	}
	all = append(all, add...)
	latest := make(map[string]string) // success by inputs hash
	for i := range all {
		if t := &all[i]; t.OutputHash != "" && !drop[t.ExecutionID] {
			latest[t.InputsHash] = max(latest[t.InputsHash], t.ExecutionID)
		}
	}
	kept := all[:0]
	for _, t := range all {
		age := now.Sub(t.PrunedAt)
		needed := age < TombstoneLifetime || t.OutputHash != "" && t.ExecutionID == latest[t.InputsHash]
		if age < latestTombstoneLifetime && needed && !drop[t.ExecutionID] {
			kept = append(kept, t)
		}
	}
	return kept
}

// TaskTombstones returns the tombstones of a task; none if the record cannot be read.
func (s *Store) TaskTombstones(ctx context.Context, task objectstore.Hash) (record.Tombstones, error) {
	rec, err := s.records.Get(ctx, tombstoneKey(task))
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tombstones of task %s: %w", task, err)
	}
	list, _ := record.DecodeTombstones(rec.Value) // tombstones are only hints
	return list, nil
}

// Tombstone returns the tombstone that explains a miss: for the key's latest pruned success, else its latest pruned
// failure; nil if there is none.
func (s *Store) Tombstone(ctx context.Context, k Key) (*record.Tombstone, error) {
	list, err := s.TaskTombstones(ctx, k.Task)
	var found *record.Tombstone
	inputs := k.Inputs.String()
	for i := range list {
		t := &list[i]
		if t.InputsHash != inputs {
			continue
		}
		if found == nil || (t.OutputHash != "") == (found.OutputHash != "") && t.ExecutionID > found.ExecutionID || t.OutputHash != "" && found.OutputHash == "" {
			found = t
		}
	}
	return found, err
}

// prunedTask returns a PrunedError for a tombstone of the task whose id has the prefix; nil if there is none or the
// record cannot be read.
func (s *Store) prunedTask(ctx context.Context, task objectstore.Hash, prefix string) error {
	list, err := s.TaskTombstones(ctx, task)
	if err != nil {
		return nil
	}
	for _, t := range list {
		if strings.HasPrefix(t.ExecutionID, strings.ToLower(prefix)) {
			return &PrunedError{Tombstone: t}
		}
	}
	return nil
}

// Tombstones yields all tombstones, task by task. A record that cannot be read comes with an error that wraps
// ErrMalformed, and does not end the list; any other error does.
func (s *Store) Tombstones(ctx context.Context) iter.Seq2[Pruned, error] {
	return func(yield func(Pruned, error) bool) {
		for rec, err := range s.records.List(ctx, refstore.Query{Partition: tombstones}) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				yield(Pruned{}, err)
				return
			}
			task, stray := objectstore.ParseHash(rec.Key.Sort)
			if stray != nil {
				continue // a stray file
			}
			var list record.Tombstones
			if err == nil {
				list, err = record.DecodeTombstones(rec.Value)
			}
			if err != nil && !yield(Pruned{Key: Key{Task: task}}, fmt.Errorf("tombstones of task %s: %w: %w", task, ErrMalformed, err)) {
				return
			}
			for _, t := range list {
				inputs, err := objectstore.ParseHash(t.InputsHash)
				if err != nil {
					err = fmt.Errorf("tombstone of execution %s: %w: %w", t.ExecutionID, ErrMalformed, err)
				}
				if !yield(Pruned{Key: Key{Task: task, Inputs: inputs}, Tombstone: t}, err) {
					return
				}
			}
		}
	}
}
