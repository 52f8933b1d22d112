package objectstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"time"

	"e3/internal/host/beneath"
)

// Shards is the number of parts into which names are divided, by their first byte.
const Shards = 256

// An Entry is an object found by Walk. Time, by the file system's clock, is the time at which it was put, or later
// refreshed by a session that began after the put.
type Entry struct {
	Info
	Time time.Time
}

// Walk yields every object in the order of the names, shard by shard. It skips files that are no objects, and objects
// removed meanwhile. After an error, the walk continues with the next shard if the caller continues.
func (d *Dir) Walk(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for i := range Shards {
			if !d.walkShard(ctx, byte(i), yield) {
				return
			}
			if ctx.Err() != nil {
				return // the shard has yielded the error
			}
		}
	}
}

// WalkShard is Walk for the objects whose names begin with one byte. It holds the names of one
// shard in memory. Several shards may be walked at the same time.
func (d *Dir) WalkShard(ctx context.Context, first byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { d.walkShard(ctx, first, yield) }
}

func (d *Dir) walkShard(ctx context.Context, first byte, yield func(Entry, error) bool) bool {
	if err := ctx.Err(); err != nil {
		return yield(Entry{}, err)
	}
	s, names, err := d.openShard(first)
	if err != nil {
		return yield(Entry{}, fmt.Errorf("walk objects: %w", err))
	}
	if s == nil {
		return true
	}
	defer s.Close()
	slices.SortFunc(names, Hash.Compare)
	for _, h := range names {
		st, err := statIn(s, name(h))
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !st.regular:
			continue
		case err != nil:
			err = objectError(h, err)
		}
		if !yield(Entry{Info{h, st.size}, time.Unix(0, st.mtime)}, err) {
			return false
		}
	}
	return true
}

// openShard opens a shard's folder and returns the names of its objects, in no order. The folder is nil if there is
// none.
func (d *Dir) openShard(first byte) (*os.File, []Hash, error) {
	prefix := hex.EncodeToString([]byte{first})
	name := d.base + string(filepath.Separator) + prefix
	f, err := d.root.OpenFile(name, os.O_RDONLY|beneath.Folder, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, d.foreign(name+string(filepath.Separator)+".", err) // the "." asks for a folder
	}
	list, err := f.Readdirnames(-1)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	hashes := make([]Hash, 0, len(list))
	for _, name := range list {
		if h, err := ParseHash(prefix + name); err == nil {
			hashes = append(hashes, h)
		}
	}
	return f, hashes, nil
}

// name returns the name of the object's file in its shard.
func name(h Hash) string { return hex.EncodeToString(h[1:]) }

// ShardTimes returns the modification times of the 256 shards in nanoseconds, 0 for a missing
// shard. Adding or removing an object changes the time of its shard; refreshing does not.
func (d *Dir) ShardTimes() ([Shards]int64, error) {
	var times [Shards]int64
	for shard := range times {
		name := d.base + string(filepath.Separator) + hex.EncodeToString([]byte{byte(shard)})
		switch st, err := d.look(name); {
		case err == nil:
			times[shard] = st.mtime
		case !errors.Is(err, fs.ErrNotExist):
			return times, fmt.Errorf("object store: %w", err)
		}
	}
	return times, nil
}

// Removal and refreshing of an object exclude each other by a lock on its shard, which refreshers share. A collector
// checks and removes the object without releasing the lock in between; so an object refreshed under the lock stays.

// Delete removes h, whatever its age. Removing an absent object succeeds.
func (d *Dir) Delete(ctx context.Context, h Hash) error {
	_, err := d.delete(ctx, h, func(string) (bool, error) { return true, nil })
	return err
}

// DeleteBefore removes h if it was last put or refreshed before cutoff, and reports whether it has removed h. On
// systems with flock there is no race with a put that refreshes the object: either DeleteBefore sees the new time, or
// the put finds the object gone and writes it again. SweepShard does this for many objects.
func (d *Dir) DeleteBefore(ctx context.Context, h Hash, cutoff time.Time) (bool, error) {
	return d.delete(ctx, h, func(path string) (bool, error) {
		st, err := d.look(path)
		return err == nil && st.mtime < cutoff.UnixNano(), err
	})
}

// delete removes h if old returns true. It calls old under the lock.
func (d *Dir) delete(ctx context.Context, h Hash, old func(path string) (bool, error)) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	path := d.file(h)
	unlock, err := d.lock(ctx, path, true)
	yes := false
	if err == nil {
		defer unlock()
		yes, err = old(path)
	}
	if err == nil && yes {
		err = d.foreign(path, d.root.Unlink(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete object %s: %w", h, err)
	}
	return yes, nil
}

// sweepHold bounds the time for which a sweep blocks the refreshers of a shard, and sweepCheck is the number of objects
// between two checks of that time.
const (
	sweepHold  = 2 * time.Millisecond
	sweepCheck = 16
)

// SweepShard removes the objects of a shard that were last put or refreshed before cutoff, as DeleteBefore does, and
// calls removed for each. Objects for which keep returns true stay. It is much faster than a DeleteBefore for each
// object. Several shards may be swept at the same time; keep and removed are called by the caller's goroutine. The
// sweep continues after an object that cannot be removed.
func (d *Dir) SweepShard(ctx context.Context, first byte, cutoff time.Time, keep func(Hash) bool, removed func(Entry)) error {
	s, names, err := d.openShard(first)
	if err != nil {
		return fmt.Errorf("sweep objects: %w", err)
	}
	if s == nil {
		return nil
	}
	defer s.Close()
	names = slices.DeleteFunc(names, keep)
	var errs []error
	for len(names) > 0 {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		n, err := d.sweepSome(ctx, s, names, cutoff.UnixNano(), removed)
		names = names[n:]
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweepSome sweeps while it holds the shard's lock once, and returns the number of names that it has handled. An error
// concerns the last of these.
func (d *Dir) sweepSome(ctx context.Context, s *os.File, names []Hash, cutoff int64, removed func(Entry)) (int, error) {
	unlock, err := d.lock(ctx, d.file(names[0]), true)
	if err != nil {
		return len(names), fmt.Errorf("sweep objects: %w", err)
	}
	defer unlock()
	began := time.Now()
	for i, h := range names {
		if i%sweepCheck == sweepCheck-1 && time.Since(began) > sweepHold {
			return i, nil
		}
		name := name(h)
		st, err := statIn(s, name)
		if err == nil && st.regular && st.mtime < cutoff {
			if err = removeIn(s, name); err == nil {
				removed(Entry{Info{h, st.size}, time.Unix(0, st.mtime)})
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return i + 1, fmt.Errorf("sweep object %s: %w", h, err)
		}
	}
	return len(names), nil
}
