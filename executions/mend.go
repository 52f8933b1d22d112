package executions

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// maxTask bounds a task object.
const maxTask = 16 << 20

// idSkew is how far an id, which has the time of the machine that made it, may lag behind the time of the file
// system, in which the moment of a loss is given.
const idSkew = time.Hour

// StoredObjects is what mending asks of an object store.
type StoredObjects interface {
	Walk(ctx context.Context) iter.Seq2[objectstore.Entry, error]
	Verify(ctx context.Context, h objectstore.Hash) error
	Delete(ctx context.Context, h objectstore.Hash) error
}

// Mend makes good what a loss of power has done to what was written since a moment and not
// synced: objects that are torn go, and so do records of executions that cannot be read. A
// success of which a part is gone loses the rest, so that it is a miss. It hashes what is
// younger than the moment and is meant for the next start after the loss.
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

// mendTombstones removes those that are torn: they keep collections from removing anything, and whom they were written
// for has gone with the power.
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

// mendKey looks at the executions of a key that are young enough.
func (s *Store) mendKey(ctx context.Context, objects StoredObjects, k Key, since time.Time) error {
	since = since.Add(-idSkew)
	q := refstore.Query{Partition: partition(k), Fields: append([]string{fieldOutput}, sideFields...)}
	for rec, bad := range s.records.List(ctx, q) {
		if bad != nil && !errors.Is(bad, refstore.ErrDamaged) {
			return bad
		}
		made, err := ParseID(rec.Key.Sort)
		if err != nil {
			continue
		}
		e, err := opened(k, rec, bad)
		torn := err != nil
		if made.Before(since) && (torn || e.Metadata == nil || e.Metadata.ImportedAt.Before(since)) {
			continue // synced; a record of an import that is torn is a miss until it is imported again
		}
		if !torn && e.State == record.Success {
			output, _ := rec.Field(fieldOutput)
			torn = string(output) != e.OutputHash+"\n"
		}
		switch {
		case torn:
			err = s.records.Delete(ctx, rec.Key, rec.Version)
			if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
				err = nil // another has mended it
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

// mendOutput removes the directory that an execution has made unless all of it is there.
func (s *Store) mendOutput(ctx context.Context, objects StoredObjects, e *Execution) error {
	data, err := objectstore.ReadAll(ctx, s.objects, e.Key.Task, maxTask)
	if lost(err) {
		return nil // nobody can ask for it
	}
	if err != nil {
		return err
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		return nil // the reference's, or no task: nobody can run it
	}
	if !task.Output.IsDir() {
		return nil
	}
	top, err := objectstore.ParseHash(e.OutputHash)
	if err != nil {
		return nil // a miss by itself
	}
	err = objectstore.WalkTree(ctx, s.objects, top, func(_ string, entry objectstore.TreeEntry) error {
		if entry.Kind != objectstore.KindFile {
			return nil
		}
		_, err := s.objects.Stat(ctx, entry.Hash)
		return err
	})
	var malformed *objectstore.TreeError
	if lost(err) || errors.As(err, &malformed) {
		err = objects.Delete(ctx, top)
		if errors.Is(err, objectstore.ErrNotFound) {
			err = nil
		}
	}
	return err
}

// lost tells whether an object is gone or damaged.
func lost(err error) bool {
	var corrupt *objectstore.CorruptError
	return errors.Is(err, objectstore.ErrNotFound) || errors.As(err, &corrupt)
}
