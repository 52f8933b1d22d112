package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"e3/internal/host/filelock"
)

const (
	// sizeFile holds, as text, the bytes that the objects in the folder occupy, and the time at which Trim counted
	// them, in seconds since 1970. No shard has this name.
	sizeFile = "size"
	// recount is the time after which the objects are counted again; until then processes only add to the count.
	recount = 24 * time.Hour
	// trimTo is the part of the limit, in tenths, to which Trim reduces an overfull folder, so that trims are rare.
	trimTo = 9
	// block is the unit in which file systems allocate.
	block = 4096
	// abandoned is the age at which a file written aside counts as left by a killed put.
	abandoned = 24 * time.Hour
)

// occupied is the disk space of an object of size bytes.
func occupied(size int64) int64 { return max(size+block-1, block) &^ (block - 1) }

// Grown returns the disk space of the objects added by this process since the last Trim.
func (d *Dir) Grown() int64 { return d.grown.Load() }

// Trim is for a Dir that is a cache: if its objects occupy more than limit bytes, it removes the objects used longest
// ago, by their times, until a tenth of limit is free. Users of objects set their times. Trim keeps the total in a
// small file; it counts the objects when the total is too large, when the file is missing, and once a day. One process
// trims at a time; a concurrent call returns at once. The result is the number of bytes removed.
func (d *Dir) Trim(ctx context.Context, limit int64, now time.Time) (removed int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	lock, err := d.lockFile(lockPrefix + "trim")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("trim the cache: %w", err)
	}
	defer lock.Close() // nothing was written
	if errors.Is(filelock.Try(lock, true), filelock.ErrLocked) {
		return 0, nil
	}
	grown := d.grown.Swap(0)
	size, counted, known := d.readSize()
	if known && !counted.After(now) && now.Sub(counted) < recount && size+grown <= limit {
		return 0, d.writeSize(size+grown, counted)
	}
	ages, size, err := d.ages(ctx)
	if err == nil && size > limit {
		removed, err = d.removeOldest(ctx, ages, size-limit/10*trimTo)
	}
	if err == nil {
		d.removeAbandoned(now)
		err = d.writeSize(size-removed, now)
	}
	if err != nil {
		d.root.Unlink(d.sizeName()) // the next Trim counts again
		return removed, fmt.Errorf("trim the cache in %s: %w", d.Path(), err)
	}
	return removed, nil
}

func (d *Dir) readSize() (size int64, counted time.Time, ok bool) {
	b, err := d.readSmall(d.sizeName())
	var seconds int64
	if err != nil || len(b) > 64 {
		return 0, time.Time{}, false
	}
	if n, err := fmt.Sscanf(string(b), "%d %d\n", &size, &seconds); n != 2 || err != nil || size < 0 {
		return 0, time.Time{}, false
	}
	return size, time.Unix(seconds, 0), true
}

// writeSize writes in place: a torn file counts as missing.
func (d *Dir) writeSize(size int64, counted time.Time) error {
	if err := d.modes.Create(d.root, d.sizeName()); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := d.root.OpenFile(d.sizeName(), rewriteFlags|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %d\n", size, counted.Unix())
	return errors.Join(err, f.Close())
}

func (d *Dir) sizeName() string { return d.base + string(filepath.Separator) + sizeFile }

// readSmall reads the beginning of a file.
func (d *Dir) readSmall(name string) ([]byte, error) {
	f, err := d.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// ages returns the disk space of objects by the minute of their last use, and the total.
func (d *Dir) ages(ctx context.Context) (map[int64]int64, int64, error) {
	ages := map[int64]int64{}
	var size int64
	for e, err := range d.Walk(ctx) {
		if err != nil {
			return nil, 0, err
		}
		ages[minute(e.Time)] += occupied(e.Size)
		size += occupied(e.Size)
	}
	return ages, size, nil
}

func minute(t time.Time) int64 { return t.Unix() / 60 }

// removeOldest removes objects that occupy at least need bytes, the oldest minutes first. From the last minute it
// removes the objects of whole shards, of as few shards as possible.
func (d *Dir) removeOldest(ctx context.Context, ages map[int64]int64, need int64) (removed int64, err error) {
	var last, before int64
	for _, last = range slices.Sorted(maps.Keys(ages)) {
		if before+ages[last] >= need {
			break
		}
		before += ages[last]
	}
	sweep := func(shard int, minute int64) error {
		return d.SweepShard(ctx, byte(shard), time.Unix(60*minute, 0), func(Hash) bool { return false },
			func(e Entry) { removed += occupied(e.Size) })
	}
	for shard := range Shards {
		if before == 0 {
			break
		}
		if err := sweep(shard, last); err != nil {
			return removed, err
		}
	}
	for shard := range Shards {
		if removed >= need {
			break
		}
		if err := sweep(shard, last+1); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// removeAbandoned removes the files of killed puts, if files aside have names and lie in the store's directory.
func (d *Dir) removeAbandoned(now time.Time) {
	in, err := d.root.Sub(d.base)
	if err != nil {
		return
	}
	defer in.Close()
	entries, err := in.ReadDir()
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), asidePrefix) {
			continue
		}
		if fi, err := e.Info(); err == nil && now.Sub(fi.ModTime()) > abandoned {
			in.RemoveAll(e.Name())
		}
	}
}
