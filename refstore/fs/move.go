package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"

	"e3/refstore"
)

// maxInPlace is the largest value that is written in place: one page, in which no signal interrupts a write.
const maxInPlace = 4096

// staysInPlace tells whether a new value overwrites the record's file, which saves making a file and removing one: the
// value is a job's, and longer than the value with the given stamp. Versions differ by the length, even if the writer
// is killed before the time is set.
func (w *writer) staysInPlace(at slot, old stamp) bool {
	size := int64(len(w.record.Value))
	return at.grows && !w.durable && w.sum == nil && old.size > 0 && size > old.size && size <= maxInPlace && !w.store.files.looks.network
}

// inPlace overwrites the file of a job with a longer value, if the file has the given number of names. With
// errElsewhere the value belongs into a new file.
func (w *writer) inPlace(old stamp, names uint64) (stamp, error) {
	if !w.staysInPlace(w.slot, old) {
		return stamp{}, errElsewhere
	}
	st, err := w.overwrite(w.slot.value(), old, names, old.mtime)
	if err == nil {
		w.store.files.touch(w.slot.dir, w.store.now())
	}
	return st, err
}

// overwrite writes the value over the file with a stamp, which gets a time above floor.
func (w *writer) overwrite(path string, old stamp, names uint64, floor int64) (stamp, error) {
	st, err := w.store.files.overwrite(path, w.record.Value, old, names, max(w.store.now().UnixNano(), floor+1))
	if err == nil && st.mtime <= floor {
		st, err = w.store.raise(path, floor)
	}
	return st, err
}

// Settle returns when no write in place of the record is in progress: a reader may have read half of such a write. It
// fails with errors.ErrUnsupported for records that are never written in place.
func (s *Store) Settle(ctx context.Context, key refstore.Key) error {
	sl, err := s.files.slot(key)
	if err == nil && !sl.grows {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return err
	}
	sh, err := s.lockShard(ctx, key)
	if err != nil {
		return err
	}
	return sh.Close()
}

// Move moves a job that has ended, for records that are files without fields.
func (s *Store) Move(ctx context.Context, from refstore.Key, v refstore.Version, r refstore.Record) (refstore.Version, error) {
	sl, err := s.files.slot(from)
	w := writer{store: s, record: r}
	if err == nil {
		w.slot, err = s.files.slot(r.Key)
	}
	if err = errors.Join(err, r.Validate(), ctx.Err()); err == nil {
		var st stamp
		if st, err = w.replace(ctx, sl, v); err == nil {
			w.note()
			return st.version(), nil
		}
	}
	return refstore.Absent, fmt.Errorf("move %q: %w", from, err)
}

// replace creates the record in place of another record. It holds the lock of the replaced record; the creation of a
// file without fields needs no lock.
func (w *writer) replace(ctx context.Context, from slot, v refstore.Version) (stamp, error) {
	s := w.store
	if from.shape != fileShape || w.slot.shape != fileShape || len(w.record.Fields) > 0 || w.record.Version != refstore.Absent ||
		hasFields(s, w.slot) {
		return stamp{}, errors.ErrUnsupported
	}
	sh, err := s.lockShard(ctx, from.key)
	if err != nil {
		return stamp{}, err
	}
	old, err := s.expect(from, v)
	err = notFound(err)
	var st stamp
	if err == nil {
		st, err = w.renameOver(from, sh, old)
	}
	if errors.Is(err, errElsewhere) {
		st, err = w.createPlain()
		if err = exists(err); err == nil {
			s.touch(w.slot)
			err = s.removeLocked(from, sh, old)
		}
	}
	return st, errors.Join(err, sh.Close())
}

// renameOver writes the value into the file of another record, and gives the file the name of this one. So no file is
// made and none removed. A writer that dies in between leaves the value under the old name. With errElsewhere the value
// belongs into a new file.
func (w *writer) renameOver(from slot, sh shard, old stamp) (stamp, error) {
	if !from.bare || !w.slot.bare || !w.staysInPlace(from, old) {
		return stamp{}, errElsewhere
	}
	s := w.store
	if s.files.tree.exists(w.slot.path) == nil {
		return stamp{}, fmt.Errorf("%w: %s exists", refstore.ErrConflict, s.files.Path(w.slot.path))
	}
	floor, err := s.files.floor(w.slot.key)
	if err != nil {
		return stamp{}, err
	}
	st, err := w.overwrite(from.path, old, 1, max(old.mtime, floor))
	if err == nil {
		err = sh.raiseFloor(st.mtime)
	}
	if err == nil {
		err = s.files.inParent(w.slot.path, func() error { return s.files.renameExclusive(from.path, w.slot.path) })
		s.files.unsynced.note(false, filepath.Dir(from.path))
	}
	return st, exists(err)
}

// Alias gives a job a second key: the alias is another name of the job's file.
func (s *Store) Alias(ctx context.Context, key, alias refstore.Key) error {
	of, as, err := s.files.aliased(key, alias)
	if err = errors.Join(err, ctx.Err()); err == nil {
		err = s.files.inParent(as.path, func() error { return s.files.Link(of.path, s.files.Dir, as.path) })
	}
	switch {
	case err == nil:
		s.files.unsynced.note(false, filepath.Dir(as.path))
		return nil
	case errors.Is(err, iofs.ErrExist):
		err = fmt.Errorf("%w: %w", refstore.ErrConflict, err)
	case errors.Is(err, iofs.ErrNotExist):
		err = notFound(err)
	case ctx.Err() == nil && !errors.Is(err, refstore.ErrInvalid): // for example a file system without links
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fmt.Errorf("alias of %q: %w", key, err)
}

// PutUnaliased replaces a job and drops its alias.
func (s *Store) PutUnaliased(ctx context.Context, r refstore.Record, alias refstore.Key) (v refstore.Version, gone bool, err error) {
	of, as, err := s.files.aliased(r.Key, alias)
	if err = errors.Join(err, r.Validate(), ctx.Err()); err == nil {
		if r.Version == refstore.Absent || len(r.Fields) > 0 {
			err = refstore.ErrInvalid
		}
	}
	if err == nil {
		w := writer{store: s, slot: of, record: r, alias: as.path}
		if v, err = w.update(ctx); err == nil {
			w.note()
		}
		gone = w.unaliased
	}
	if err != nil {
		return refstore.Absent, false, fmt.Errorf("put %q: %w", r.Key, err)
	}
	return v, gone, nil
}

// aliased returns the places of a record and of its alias.
func (s *files) aliased(key, alias refstore.Key) (of, as slot, err error) {
	if of, err = s.slot(key); err == nil {
		as, err = s.slot(alias)
	}
	if err == nil && (!of.grows || as.shape != fileShape || s.looks.network) {
		err = errors.ErrUnsupported
	}
	return of, as, err
}

// names returns the number of names that the record's file may have: with more, a copy of the repository may share the
// file.
func (w *writer) names(old stamp) uint64 {
	if w.alias == "" {
		return 1
	}
	st, err := w.store.files.statFile(w.alias)
	w.unaliased = errors.Is(err, iofs.ErrNotExist)
	if err == nil && st.inode == old.inode && old.inode != 0 {
		return 2
	}
	return 1
}

// dropAlias removes the alias, if there was one.
func (w *writer) dropAlias(names uint64) {
	if names == 2 {
		w.unaliased = w.store.files.remove(w.alias) == nil
		w.store.files.unsynced.note(false, filepath.Dir(w.alias))
	}
}
