package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
)

// idSkew bounds the difference of two clocks: an id is dated by its machine, a loss of power by the file system.
const idSkew = time.Hour

// StoredObjects is the part of an object store that mending needs.
type StoredObjects interface {
	Walk(ctx context.Context) iter.Seq2[objectstore.Entry, error]
	Verify(ctx context.Context, h objectstore.Hash) error
	Delete(ctx context.Context, h objectstore.Hash) error
}

// Mend repairs what a loss of power has done to unsynced writes after since. It removes torn objects and records of
// executions that cannot be read. If a part of an output directory is missing, its top object is removed too, so that
// the success is a miss. Mend hashes every object younger than since, and is meant for the first start after the loss.
func (s *Store) Mend(ctx context.Context, objects StoredObjects, generation *Generation, since time.Time) error {
	end, err := generation.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for entry, err := range objects.Walk(ctx) {
		if err == nil && !entry.Time.Before(since) {
			err = removeTorn(ctx, objects, entry.Hash)
		}
		if err != nil {
			return fmt.Errorf("after a loss of power: %w", err)
		}
	}
	for task, err := range s.Tasks(ctx) {
		if err != nil {
			return err
		}
		for inputs, err := range s.Inputs(ctx, task) {
			if err != nil {
				return err
			}
			if err := s.mendKey(ctx, objects, Key{Task: task, Inputs: inputs}, since); err != nil {
				return fmt.Errorf("after a loss of power: %w", err)
			}
		}
	}
	if err := s.mendTombstones(ctx); err != nil {
		return fmt.Errorf("after a loss of power: %w", err)
	}
	return nil
}

// mendTombstones removes torn tombstones, which would keep collections from removing anything. The processes that
// needed them died with the power.
func (s *Store) mendTombstones(ctx context.Context) error {
	for rec, err := range s.records.List(ctx, refstore.Query{Partition: tombstones}) {
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return err
		}
		if err == nil {
			_, err = record.DecodeTombstones(rec.Value)
		}
		if err == nil {
			continue
		}
		err = s.records.Delete(ctx, rec.Key, rec.Version)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
	return nil
}

func removeTorn(ctx context.Context, objects StoredObjects, h objectstore.Hash) error {
	err := objects.Verify(ctx, h)
	var torn *objectstore.CorruptError
	switch {
	case errors.As(err, &torn):
		return objects.Delete(ctx, h)
	case errors.Is(err, objectstore.ErrNotFound):
		return nil
	}
	return err
}

// mendKey mends the executions of a key that are young enough.
func (s *Store) mendKey(ctx context.Context, objects StoredObjects, k Key, since time.Time) error {
	since = since.Add(-idSkew)
	q := refstore.Query{Partition: partition(k), Fields: append([]string{fieldOutput}, sideFields...)}
	for rec, bad := range s.records.List(ctx, q) {
		if bad != nil && !errors.Is(bad, refstore.ErrDamaged) {
			return bad
		}
		madeAt, err := ParseID(rec.Key.Sort)
		if err != nil {
			continue
		}
		e, err := decodeFound(k, rec, bad)
		torn := err != nil
		if madeAt.Before(since) && (torn || e.Metadata == nil || e.Metadata.Origin.ImportedAt.Before(since)) {
			continue // it was synced; a torn record of an import is a miss until it is imported again
		}
		if !torn && e.State == record.Success {
			output, _ := rec.Field(fieldOutput)
			torn = string(output) != e.OutputHash+"\n"
		}
		switch {
		case torn:
			err = s.records.Delete(ctx, rec.Key, rec.Version)
			if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
				err = nil // another process has mended it
			}
		case e.State == record.Success:
			err = s.mendOutput(ctx, objects, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mendOutput removes an execution's output directory unless it is complete.
func (s *Store) mendOutput(ctx context.Context, objects StoredObjects, e *Execution) error {
	data, err := objectstore.ReadAll(ctx, s.objects, e.Key.Task, record.MaxTask)
	if unusable(err) {
		return nil // without the task object no process can ask for the output
	}
	if err != nil {
		return err
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		return nil // a task of the reference, or no task: no process can run it
	}
	if !task.Output.IsDir() {
		return nil
	}
	top, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return nil // a lookup takes it for a miss
	}
	err = tree.Walk(ctx, s.objects, top, func(_ string, entry tree.Entry) error {
		if entry.Kind != tree.KindFile {
			return nil
		}
		_, err := s.objects.Stat(ctx, entry.Hash)
		return err
	})
	var malformed *tree.Error
	if unusable(err) || errors.As(err, &malformed) {
		err = objects.Delete(ctx, top)
		if errors.Is(err, objectstore.ErrNotFound) {
			err = nil
		}
	}
	return err
}

// unusable tells whether err says that an object is missing or damaged.
func unusable(err error) bool {
	var corrupt *objectstore.CorruptError
	return errors.Is(err, objectstore.ErrNotFound) || errors.As(err, &corrupt)
}
