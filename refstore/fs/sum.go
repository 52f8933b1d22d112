package fs

import (
	"context"
	"errors"
	iofs "io/fs"
	"os"
	"slices"

	"e3/refstore"
)

// The sum of a record that is a file lies in a file beside it, which is written in place and never synced: what a crash leaves of it
// says nothing, as its own sum tells. A record with its sum in its value has a witness there instead. The file is there only while the
// record is: it comes after a new value, and goes before one that is deleted. So it alone means that the record's file was removed.
const sumSuffix = "~sum"

// takeSum takes the sum, or the witness, out of the fields that are to be written.
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

// putSum writes the sum, if there is one. It needs the shard's lock.
func (w *writer) putSum() error {
	if w.sum == nil {
		return nil
	}
	f, err := w.store.makeStream(w.slot.path+sumSuffix, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(w.sum, 0)
	if info, e := f.Stat(); err == nil && (e != nil || info.Size() != int64(len(w.sum))) {
		err = errors.Join(e, f.Truncate(int64(len(w.sum)))) // most have the size of the one before
	}
	if err == nil && w.record.Version != refstore.Absent && w.durable && !w.witness {
		err = f.Sync() // or the value could survive a loss of power, and the sum before it not
	}
	return errors.Join(err, f.Close())
}

// sumBefore writes the sum before a value is replaced. That of an empty one goes: a file that is cut to nothing must not be taken for what
// was there before. So does that of a value whose successor need not survive a loss of power: an older one must not be left beside it.
// A witness goes with every value.
func (w *writer) sumBefore(old stamp) error {
	if w.witness {
		return nil
	}
	if w.sum == nil || old.size == 0 || !w.durable {
		return w.slot.removeSum()
	}
	return w.putSum()
}

// sumAfter writes the sum after an empty value was replaced, and a witness that is not there.
func (w *writer) sumAfter(old stamp) error {
	if w.witness {
		if err := w.store.exists(w.slot.path + sumSuffix); !errors.Is(err, iofs.ErrNotExist) {
			return err
		}
		return w.putSum()
	}
	if old.size > 0 {
		return nil
	}
	return w.putSum()
}

func (s slot) removeSum() error {
	if s.shape != fileShape {
		return nil
	}
	err := os.Remove(s.path + sumSuffix)
	if errors.Is(err, iofs.ErrNotExist) {
		return nil
	}
	return err
}

// removeFile removes a record's file, and its sum before it. It needs the shard's lock.
func (s slot) removeFile() error {
	if err := s.removeSum(); err != nil {
		return err
	}
	return os.Remove(s.path)
}

// gone tells whether a record that was not found has left what is only there with it: its sum, or the sums of an execution.
func (s *Store) gone(sl slot) bool {
	left := sl.path + sumSuffix
	switch sl.shape {
	case dirShape:
		left = sl.field(executionSums)
	case virtualShape:
		return false
	}
	if _, err := os.Lstat(left); err != nil {
		return false
	}
	if sl.shape == dirShape { // what is left may be about to become a record (fillDir)
		if sh, err := s.lockShard(context.Background(), sl.key); err == nil {
			defer sh.Close() // nothing was written
		}
	}
	_, err := os.Lstat(sl.value()) // it may just have been created
	return errors.Is(err, iofs.ErrNotExist)
}

// removeGone removes what a record has left that is gone.
func (s *Store) removeGone(ctx context.Context, sl slot) error {
	sh, err := s.lockShard(ctx, sl.key)
	if err != nil {
		return err
	}
	defer sh.Close() // nothing is written to it
	if _, err := os.Lstat(sl.value()); !errors.Is(err, iofs.ErrNotExist) {
		return errors.Join(refstore.ErrConflict, err)
	}
	if err := sl.removeSum(); err != nil {
		return err
	}
	if err := s.removeDir(sl.fields()); !errors.Is(err, iofs.ErrNotExist) {
		return err
	}
	return nil
}

// withSums adds the sort keys of records that have left their sums, to those that were found from an index on.
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
