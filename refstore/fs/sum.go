package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"slices"

	"e3/refstore"
)

// The sum of a record that is a file lies in a second file, which is overwritten and never synced. A sum that was torn
// by a crash is detected by its own checksum, and ignored. If a record's value holds its sum, a witness takes the
// place of this file. The second file is written after a new value, and removed before its record is deleted. So if it
// exists alone, the record's file was removed by other means.
const sumSuffix = "~sum"

// takeSum removes the sum, or the witness, from the fields to write.
func (w *writer) takeSum() {
	if w.slot.shape != fileShape {
		return
	}
	isSum := func(f refstore.Field) bool { return f.Name == refstore.SumField || f.Name == refstore.WitnessField }
	if i := slices.IndexFunc(w.record.Fields, isSum); i >= 0 {
		w.sum = append([]byte{}, w.record.Fields[i].Value...)
		w.witness = w.record.Fields[i].Name == refstore.WitnessField
		w.record.Fields = slices.DeleteFunc(slices.Clone(w.record.Fields), isSum)
	}
}

// putSum writes the sum, if there is one. If a value that is not empty, old, is about to be replaced, putSum only notes
// the sum's file for the sync. It needs the shard's lock.
func (w *writer) putSum(old stamp) error {
	if w.sum == nil {
		return nil
	}
	f, err := w.store.files.makeStream(w.slot.path + sumSuffix)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(w.sum, 0)
	if info, e := f.Stat(); err == nil && (e != nil || info.Size() != int64(len(w.sum))) {
		err = errors.Join(e, f.Truncate(int64(len(w.sum)))) // usually the size is unchanged
	}
	if err == nil && w.record.Version != refstore.Absent && w.durable && !w.witness {
		if old.size > 0 {
			w.sumPath = []string{w.slot.path + sumSuffix} // otherwise the value could survive a loss of power without its sum
		} else {
			err = f.Sync()
		}
	}
	w.store.files.unsynced.file(false, w.slot.path+sumSuffix)
	return errors.Join(err, f.Close())
}

// sumBefore writes the sum before a value is replaced. In two cases it removes the sum instead: if the old value is
// empty, since a truncated file must not pass as that value; and if the new value need not survive a loss of power,
// since the old sum must not stay beside the new value. A witness fits every value and stays.
func (w *writer) sumBefore(old stamp) error {
	if w.witness {
		return nil
	}
	if w.sum == nil || old.size == 0 || !w.durable {
		return w.store.files.removeSum(w.slot)
	}
	return w.putSum(old)
}

// sumAfter writes the sum after the replacement of an empty value. It also writes a missing witness.
func (w *writer) sumAfter(old stamp) error {
	if w.witness {
		if err := w.store.files.exists(w.slot.path + sumSuffix); !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		return w.putSum(stamp{})
	}
	if old.size > 0 {
		return nil
	}
	return w.putSum(stamp{})
}

func (s *files) removeSum(sl slot) error {
	if sl.shape != fileShape || sl.bare {
		return nil
	}
	return s.removeIfThere(sl.path + sumSuffix)
}

// removeFile removes a record's sum and then its file. It needs the shard's lock.
func (s *files) removeFile(sl slot) error {
	if err := s.removeSum(sl); err != nil {
		return err
	}
	return s.remove(sl.path)
}

// gone reports whether a record that was not found has left its sum, its witness or the empty folder of an execution.
func (s *Store) gone(ctx context.Context, sl slot) bool {
	if sl.shape == virtualShape || sl.bare {
		return false
	}
	remains := func() bool { return s.files.tree.exists(sl.path+sumSuffix) == nil }
	if sl.shape == dirShape {
		remains = func() bool { return s.files.emptied(sl) }
	}
	if !remains() {
		return false
	}
	if sl.shape == dirShape { // the files may soon be a record (fillDir), or the folder was removed while it was read
		if sh, err := s.lockShard(ctx, sl.key); err == nil {
			defer sh.Close() // nothing was written
			if !remains() {
				return false
			}
		}
	}
	return errors.Is(s.files.tree.exists(sl.value()), iofs.ErrNotExist) // the record may just have been created
}

// removeGone removes the sum and the side fields of a record that is gone.
func (s *Store) removeGone(ctx context.Context, sl slot) error {
	sh, err := s.lockShard(ctx, sl.key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing is written to it
	if err := s.files.tree.exists(sl.value()); !errors.Is(err, iofs.ErrNotExist) {
		return errors.Join(refstore.ErrConflict, err)
	}
	if err := s.files.removeSum(sl); err != nil {
		return err
	}
	if err := s.removeDir(sl.fields()); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// withSums adds to sorts, from index from on, the sort keys for which only a sum exists.
func withSums(sorts []string, from int, sums []string) []string {
	if len(sums) == 0 {
		return sorts
	}
	found := make(map[string]bool, len(sorts)-from)
	for _, sort := range sorts[from:] {
		found[sort] = true
	}
	for _, sort := range sums {
		if !found[sort] {
			sorts = append(sorts, sort)
		}
	}
	return sorts
}
