package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"path/filepath"
	"slices"

	"e3/refstore"
)

// Get implements [refstore.Store].
func (s *Store) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	sl, err := s.files.slot(key)
	if err == nil {
		err = ctx.Err()
	}
	var r refstore.Record
	if err == nil {
		r, err = s.record(ctx, sl, fields)
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return r, fmt.Errorf("get %q: %w", key, err)
	}
	if err != nil {
		return refstore.Record{}, fmt.Errorf("get %q: %w", key, notFound(err))
	}
	return r, nil
}

// record reads the value and then the fields; writers use the opposite order.
func (s *Store) record(ctx context.Context, sl slot, fields []string) (refstore.Record, error) {
	r := refstore.Record{Key: sl.key}
	if sl.shape == virtualShape {
		r.Version = virtualVersion
		return r, s.files.ownFault(sl, s.files.again(sl.path, func() error { return s.files.isFolder(sl.path) }))
	}
	value, st, err := s.files.read(sl.value(), sl.grows || sl.aliases)
	if errors.Is(err, iofs.ErrNotExist) && s.gone(ctx, sl) && ctx.Err() == nil {
		return r, fmt.Errorf("%w: its file %s is gone", refstore.ErrDamaged, s.files.Path(sl.path))
	}
	if ctx.Err() != nil { // the context may have ended while gone waited for a lock
		return refstore.Record{}, ctx.Err()
	}
	if err = s.files.ownFault(sl, err); errors.Is(err, refstore.ErrDamaged) {
		r.Version = foreignVersion
		return r, err
	}
	if err != nil {
		return refstore.Record{}, err
	}
	var within []refstore.Field
	if sl.shape == dirShape {
		value, within = unfold(value)
	}
	r.Value, r.Version = value, st.version()
	for _, name := range fields {
		if sl.foldsField(name) {
			if i := slices.IndexFunc(within, func(f refstore.Field) bool { return f.Name == name }); i >= 0 {
				r.Fields = append(r.Fields, within[i])
			}
			continue
		}
		value, _, err := s.files.read(sl.field(name), false)
		switch {
		case err == nil:
			r.Fields = append(r.Fields, refstore.Field{Name: name, Value: value})
		case !errors.Is(err, iofs.ErrNotExist):
			return refstore.Record{}, err
		}
	}
	return r, nil
}

// foreignVersion is the version of a record in whose place there is something foreign. No call changes or removes the
// foreign thing.
const foreignVersion refstore.Version = "foreign"

// ownFault makes the error of a link or a pipe in place of one record the error of a damaged record. A link in place of
// a folder above concerns all records there, and its error stays.
func (s *files) ownFault(sl slot, err error) error {
	if e, ok := errors.AsType[*iofs.PathError](err); ok && errors.Is(err, refstore.ErrForeign) && (e.Path == s.Path(sl.path) || e.Path == s.Path(sl.value())) {
		return fmt.Errorf("%w: %w", refstore.ErrDamaged, err)
	}
	return err
}

// notFound adds refstore.ErrNotFound to the error of a missing file.
func notFound(err error) error {
	if errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: %w", refstore.ErrNotFound, err)
	}
	return err
}

// Put implements [refstore.Store].
func (s *Store) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.put(ctx, r, false)
}

// PutSync is Put, and returns once the record survives power loss. If the sync fails, the record may have been written.
func (s *Store) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.put(ctx, r, true)
}

func (s *Store) put(ctx context.Context, r refstore.Record, durable bool) (refstore.Version, error) {
	err := r.Validate()
	var sl slot
	if err == nil {
		sl, err = s.files.slot(r.Key)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return refstore.Absent, err
	}
	var w writer
	var v refstore.Version
	err = s.withRoom(func() (err error) {
		w = writer{store: s, slot: sl, record: r, durable: durable} // a new one for each call, since put folds fields
		w.takeSum()
		v, err = w.put(ctx)
		return err
	})
	switch {
	case err != nil:
	case durable:
		err = s.files.syncDirs(sl)
	default:
		w.note()
	}
	if err != nil {
		return refstore.Absent, fmt.Errorf("put %q: %w", r.Key, err)
	}
	return v, nil
}

// writer carries out one Put.
type writer struct {
	store   *Store
	slot    slot
	record  refstore.Record
	sum     []byte // the sum or witness to write beside a record that is a file; nil: none
	witness bool   // sum is a witness
	durable bool
	filled  bool     // the folder of the execution existed, with logs
	sumPath []string // the file of a sum that must be durable before the value gets its name

	alias     string // the path of the record's other name; "": none
	unaliased bool   // there is no file of that name any more
}

// put chooses the way to write by the record's shape.
func (w *writer) put(ctx context.Context) (refstore.Version, error) {
	switch {
	case w.slot.bare && len(w.record.Fields) > 0:
		return refstore.Absent, fmt.Errorf("a record of this kind has no fields: %w", refstore.ErrInvalid)
	case w.slot.shape == virtualShape:
		return w.makeVirtual()
	case w.record.Version != refstore.Absent:
		return w.update(ctx)
	case w.slot.shape == dirShape:
		return w.createDir(ctx)
	}
	return w.createFile(ctx)
}

func (w *writer) makeVirtual() (refstore.Version, error) {
	switch {
	case w.record.Version != refstore.Absent:
		return refstore.Absent, fmt.Errorf("a record that is a folder does not change: %w", errors.ErrUnsupported)
	case len(w.record.Value) > 0 || len(w.record.Fields) > 0:
		return refstore.Absent, fmt.Errorf("a record that is a folder has no value and no fields: %w", errors.ErrUnsupported)
	}
	_, err := w.store.begin() // while the folder is unsynced, the session tells other processes so
	if err == nil {
		err = w.store.files.inParent(w.slot.path, func() error { return w.store.files.mkdir(w.slot.path) })
	}
	return virtualVersion, exists(err)
}

// exists turns the error of an exclusive creation into ErrConflict.
func exists(err error) error {
	if errors.Is(err, iofs.ErrExist) {
		return fmt.Errorf("%w: %w", refstore.ErrConflict, err)
	}
	return err
}

// createDir builds the record's folder aside and renames it into place.
func (w *writer) createDir(ctx context.Context) (refstore.Version, error) {
	w.fold(nil)
	var folder string
	var st stamp
	err := w.store.aside(func(path string) error {
		folder = path
		if err := w.store.files.mkdir(path); err != nil {
			return err
		}
		err := w.writeFields(path)
		if err == nil {
			st, err = w.writeNew(path + string(filepath.Separator) + executionValue)
		}
		if err == nil && w.durable {
			err = w.store.files.sync(path)
		}
		return w.discardOn(err, path)
	})
	if err != nil {
		return refstore.Absent, err
	}
	// Most executions are the first of their key, so the folder above is missing.
	if err := w.store.files.mkdirs(filepath.Dir(w.slot.path)); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return refstore.Absent, w.discardOn(err, folder)
	}
	const tries = 20
	for try := 1; ; try++ {
		err = w.store.files.inParent(w.slot.path, func() error { return w.store.files.rename(folder, w.slot.path) })
		if errors.Is(err, iofs.ErrExist) {
			err = w.fillDir(ctx, folder)
		}
		if try == tries || !errors.Is(err, errFolderGone) {
			break
		}
	}
	if err != nil {
		return refstore.Absent, w.discardOn(err, folder)
	}
	return st.version(), nil
}

// errFolderGone says that a leftover folder with the record's name has been removed.
var errFolderGone = errors.New("the folder of the record has gone")

// fillDir moves the files of a folder built aside into the record's folder, which exists: logs were written before the
// record. The value is moved last, which creates the record. If it returns errFolderGone, nothing has changed.
func (w *writer) fillDir(ctx context.Context, folder string) error {
	value := w.slot.value()
	if w.store.files.tree.exists(value) == nil {
		return fmt.Errorf("%w: %s exists", refstore.ErrConflict, w.store.files.Path(value))
	}
	sh, err := w.store.lockShard(ctx, w.slot.key)
	if err != nil {
		return err
	}
	defer sh.Close() // only deletions write to it, and check errors
	if w.store.files.tree.exists(value) == nil {
		return fmt.Errorf("%w: %s exists", refstore.ErrConflict, w.store.files.Path(value))
	}
	if err := w.store.files.exists(w.slot.path); errors.Is(err, iofs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errFolderGone, err)
	}
	for _, f := range w.record.Fields {
		name := escapeBytes(f.Name)
		if err := w.store.files.rename(join(folder, name), join(w.slot.path, name)); err != nil {
			return err
		}
	}
	if err := w.store.files.renameExclusive(join(folder, executionValue), value); err != nil {
		return exists(err)
	}
	if w.durable {
		if err := w.store.files.sync(w.slot.path); err != nil {
			return err
		}
	}
	w.filled = true
	w.store.touch(w.slot)
	return w.store.files.removeAll(folder)
}

// createFile writes the value aside and renames it to a path that must be free.
func (w *writer) createFile(ctx context.Context) (refstore.Version, error) {
	// If the record exists, return early, without a write. This is an optimization only.
	if !w.slot.bare { // such a record is nearly always new
		if w.store.files.tree.exists(w.slot.path) == nil {
			return refstore.Absent, fmt.Errorf("%w: %s exists", refstore.ErrConflict, w.store.files.Path(w.slot.path))
		}
	}
	fields := len(w.record.Fields) > 0 || hasFields(w.store, w.slot)
	if fields || w.sum != nil {
		sh, err := w.store.lockShard(ctx, w.slot.key)
		if err != nil {
			return refstore.Absent, err
		}
		defer sh.Close() // only deletions write to it, and check errors
	}
	if fields {
		if err := w.replaceFields(); err != nil {
			return refstore.Absent, err
		}
	}
	st, err := w.createPlain()
	if err == nil {
		if err = w.putSum(stamp{}); err != nil { // for example a full disk: a record without its sum must not exist
			err = errors.Join(err, w.store.files.removeFile(w.slot))
		}
	}
	if err != nil {
		return refstore.Absent, exists(err)
	}
	w.store.touch(w.slot)
	return st.version(), nil
}

// createPlain writes the value aside and gives it a path that must be free.
func (w *writer) createPlain() (st stamp, err error) {
	err = w.store.aside(func(path string) (err error) {
		if st, err = w.writeNew(path); err == nil {
			err = w.store.files.inParent(w.slot.path, func() error { return w.store.files.renameExclusive(path, w.slot.path) })
		}
		return w.discardOn(err, path)
	})
	return st, err
}

// replaceFields puts the folder of side fields in place before its record is created. It replaces leftovers of a
// crash. It needs the shard's lock.
func (w *writer) replaceFields() error {
	if w.store.files.tree.exists(w.slot.path) == nil { // another process has created it before
		return fmt.Errorf("%w: %s exists", refstore.ErrConflict, w.store.files.Path(w.slot.path))
	}
	if err := w.store.removeDir(w.slot.fields()); err != nil && !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	if len(w.record.Fields) == 0 {
		return nil
	}
	return w.store.aside(func(path string) error {
		err := w.store.files.mkdir(path)
		if err == nil {
			err = w.writeFields(path)
		}
		if err == nil && w.durable {
			err = w.store.files.sync(path)
		}
		if err == nil {
			err = w.store.files.inParent(w.slot.fields(), func() error { return w.store.files.rename(path, w.slot.fields()) })
		}
		return w.discardOn(err, path)
	})
}

// update replaces fields and value under the shard's lock.
func (w *writer) update(ctx context.Context) (refstore.Version, error) {
	sh, err := w.store.lockShard(ctx, w.slot.key)
	if err != nil {
		return refstore.Absent, err
	}
	defer sh.Close() // only deletions write to it, and check errors
	old, err := w.store.expect(w.slot, w.record.Version)
	if errors.Is(err, iofs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", refstore.ErrConflict, err)
	}
	if err == nil {
		err = w.sumBefore(old)
	}
	if err == nil {
		err = w.foldOnto()
	}
	if err != nil {
		return refstore.Absent, err
	}
	for _, f := range w.record.Fields {
		to := w.slot.field(f.Name)
		err := w.store.aside(func(path string) error {
			_, err := w.store.files.createFile(path, f.Value, w.durable)
			if err == nil {
				err = w.store.files.inParent(to, func() error { return w.store.files.rename(path, to) })
			}
			return w.discardOn(err, path)
		})
		if err != nil {
			return refstore.Absent, err
		}
	}
	if w.durable && len(w.record.Fields) > 0 { // the fields must be durable before their value
		if err := w.store.files.syncAbove(w.slot.field(w.record.Fields[0].Name)); err != nil {
			return refstore.Absent, err
		}
	}
	names := w.names(old)
	st, err := w.inPlace(old, names)
	if errors.Is(err, errElsewhere) {
		err = w.store.aside(func(path string) error {
			_, err := w.store.files.createFile(path, w.record.Value, false)
			if err == nil {
				st, err = w.store.raise(path, old.mtime)
			}
			if err == nil && w.durable {
				err = syncEach(w.store.files.tree, append(w.sumPath, path)) // together, so that a journal is written once
			}
			if err == nil {
				err = w.store.files.rename(path, w.slot.value())
			}
			return w.discardOn(err, path)
		})
	}
	if err == nil {
		err = w.sumAfter(old)
	}
	if err != nil {
		return refstore.Absent, err
	}
	w.dropAlias(names)
	w.store.touch(w.slot)
	return st.version(), nil
}

// expect returns the stamp of the value if its version is v. It needs the shard's lock.
func (s *Store) expect(sl slot, v refstore.Version) (stamp, error) {
	st, err := s.files.stat(sl.value())
	if err == nil && st.version() != v {
		err = refstore.ErrConflict
	}
	return st, err
}

// writeNew writes the value of a new record, with a version that the key never had.
func (w *writer) writeNew(path string) (stamp, error) {
	st, err := w.store.files.createFile(path, w.record.Value, w.durable)
	if err != nil {
		return stamp{}, err
	}
	floor, err := w.store.files.floor(w.slot.key)
	if err == nil && st.mtime <= floor {
		st, err = w.store.raise(path, floor)
	}
	return st, err
}

func (w *writer) writeFields(dir string) error {
	for _, f := range w.record.Fields {
		if _, err := w.store.files.createFile(join(dir, escapeBytes(f.Name)), f.Value, w.durable); err != nil {
			return err
		}
	}
	return nil
}

// discardOn removes a file written aside if err is not nil.
func (w *writer) discardOn(err error, path string) error {
	if err != nil {
		err = errors.Join(err, w.store.files.removeAll(path))
	}
	return err
}

// Delete implements [refstore.Store]. The folder of an EXECUTION is removed at once, with its logs.
func (s *Store) Delete(ctx context.Context, key refstore.Key, v refstore.Version) error {
	sl, err := s.files.slot(key)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		if sl.shape == virtualShape {
			err = s.files.removeVirtual(sl, v)
		} else {
			err = s.withRoom(func() error { return s.remove(ctx, sl, v) })
		}
	}
	if err != nil {
		return fmt.Errorf("delete %q: %w", key, notFound(err))
	}
	return nil
}

// removeVirtual removes an empty folder; a folder with content is a conflict.
func (s *files) removeVirtual(sl slot, v refstore.Version) error {
	if err := s.isFolder(sl.path); err != nil {
		return err
	}
	if v != virtualVersion {
		return refstore.ErrConflict
	}
	err := s.remove(sl.path)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		if entries, _ := s.readDir(sl.path); len(entries) > 0 {
			err = fmt.Errorf("%w: %w", refstore.ErrConflict, err)
		}
	}
	return err
}

func (s *Store) remove(ctx context.Context, sl slot, v refstore.Version) error {
	if v == refstore.Absent && s.gone(ctx, sl) {
		return s.removeGone(ctx, sl)
	}
	if _, err := s.files.stat(sl.value()); err != nil { // no lock file for a record that does not exist
		return err
	}
	sh, err := s.lockShard(ctx, sl.key)
	if err != nil {
		return err
	}
	st, err := s.expect(sl, v)
	if err == nil {
		err = s.removeLocked(sl, sh, st)
	}
	return errors.Join(err, sh.Close())
}

// removeLocked removes a record whose value has a stamp, under the shard's lock.
func (s *Store) removeLocked(sl slot, sh shard, st stamp) error {
	if err := sh.raiseFloor(st.mtime); err != nil {
		return err
	}
	defer s.files.unsynced.note(false, filepath.Dir(sl.path))
	if sl.shape == dirShape {
		return s.removeDir(sl.path)
	}
	if err := s.files.removeFile(sl); err != nil {
		return err
	}
	s.touch(sl)
	if sl.bare {
		return nil
	}
	if err := s.removeDir(sl.fields()); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// removeDir first renames a folder away, so that it disappears atomically, and then removes its content.
func (s *Store) removeDir(dir string) error {
	if err := s.files.exists(dir); err != nil {
		return err
	}
	return s.aside(func(path string) error {
		if err := s.files.rename(dir, path); err != nil {
			return err
		}
		return s.files.removeAll(path)
	})
}
