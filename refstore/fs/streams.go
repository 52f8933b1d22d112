package fs

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"e3/refstore"
)

// A stream is a plain file that grows in place. Changes hold the lock of its key's shard; for a log, of its execution's
// shard. A lock on the file itself would be open to every reader. A sealed stream is a file without a write bit.

// Append implements [refstore.Streams]. A process that is killed within the call may leave a part of data: a torn tail.
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	path, err := s.checkStream(ctx, key, offset)
	if err == nil {
		err = s.change(ctx, key, path, offset == 0, func(f *os.File, size int64) error {
			if size != offset {
				return fmt.Errorf("%w: it has %d bytes", refstore.ErrConflict, size)
			}
			if len(data) == 0 {
				return nil
			}
			if _, err := f.WriteAt(data, offset); err != nil {
				return errors.Join(err, f.Truncate(offset))
			}
			return nil
		})
		if offset != 0 && errors.Is(err, iofs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", refstore.ErrConflict, err)
		}
	}
	if err != nil {
		return fmt.Errorf("append to %q at %d: %w", key, offset, err)
	}
	return nil
}

// Open implements [refstore.Streams].
func (s *Store) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	path, err := s.checkStream(ctx, key, offset)
	var f *os.File
	if err == nil {
		f, err = s.files.openThere(path, os.O_RDONLY)
	}
	if err == nil && offset > 0 {
		if _, err = f.Seek(offset, io.SeekStart); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", key, notFound(err))
	}
	return f, nil
}

// ShortLogs returns true: a log in a field of its execution's record is the same file as the stream.
func (s *Store) ShortLogs() bool { return true }

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	path, err := s.checkStream(ctx, key, 0)
	var info iofs.FileInfo
	if err == nil {
		info, err = s.files.lstat(path)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = &iofs.PathError{Op: "stat", Path: s.files.Path(path), Err: notRegular(info)}
	}
	if err != nil {
		return refstore.StreamInfo{}, fmt.Errorf("size of %q: %w", key, notFound(err))
	}
	return refstore.StreamInfo{Size: info.Size(), Sealed: sealed(info)}, nil
}

// Cut implements [refstore.Streams].
func (s *Store) Cut(ctx context.Context, key refstore.Key, size int64) error {
	path, err := s.checkStream(ctx, key, size)
	if err == nil {
		err = s.change(ctx, key, path, false, func(f *os.File, now int64) error {
			if size > now {
				return fmt.Errorf("%w: it has %d bytes", refstore.ErrConflict, now)
			}
			return f.Truncate(size)
		})
	}
	if err != nil {
		return fmt.Errorf("cut %q to %d: %w", key, size, notFound(err))
	}
	return nil
}

// Seal implements [refstore.Streams].
func (s *Store) Seal(ctx context.Context, key refstore.Key) error {
	path, err := s.checkStream(ctx, key, 0)
	if err == nil {
		err = s.change(ctx, key, path, true, func(f *os.File, _ int64) error {
			info, err := f.Stat()
			if err == nil {
				err = f.Chmod(info.Mode().Perm() &^ 0o222)
			}
			return err
		})
		if errors.Is(err, refstore.ErrSealed) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("seal %q: %w", key, err)
	}
	return nil
}

// Remove implements [refstore.Streams].
func (s *Store) Remove(ctx context.Context, key refstore.Key) error {
	path, err := s.checkStream(ctx, key, 0)
	if err == nil {
		if sl, ok, bad := executionOf(s, key); ok {
			err = removeLog(ctx, s, sl, path)
		} else if err = bad; err == nil {
			err = s.files.remove(path)
		}
		s.files.unsynced.note(false, filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", key, notFound(err))
	}
	return nil
}

// ListStreams implements [refstore.Streams].
func (s *Store) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		err := q.Validate()
		if err == nil {
			err = ctx.Err()
		}
		var p streamPlace
		if err == nil {
			p, err = s.files.streamPlace(q.Partition)
		}
		var sorts []string
		if err == nil {
			sorts, err = s.files.streams(p)
		}
		if err != nil {
			yield(refstore.Key{}, fmt.Errorf("list streams %q: %w", q.Partition, err))
			return
		}
		for i, sort := range q.Select(sorts) {
			if q.Limit > 0 && i == q.Limit || !yield(refstore.Key{Partition: q.Partition, Sort: sort}, nil) {
				return
			}
		}
	}
}

// ListPartitions implements [refstore.Streams].
func (s *Store) ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := refstore.Query{Partition: kind}.Validate()
		var dir string
		var segments int
		if err == nil {
			dir, segments, err = s.files.streamKind(kind)
		}
		if err == nil {
			_, err = s.files.below(ctx, dir, kind, segments, func(partition string) bool { return yield(partition, nil) })
		}
		if err != nil {
			yield("", fmt.Errorf("list partitions of %q: %w", kind, err))
		}
	}
}

// below calls f for the partitions that are segments levels below a folder, until f returns false.
func (s *files) below(ctx context.Context, dir, partition string, segments int, f func(partition string) bool) (more bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if segments == 0 {
		return f(partition), nil
	}
	folders := place{shape: virtualShape, dir: dir}
	names, err := s.sorts(folders)
	if err != nil {
		return false, err
	}
	slices.Sort(names)
	for _, name := range names {
		path, _ := folders.path(name) // the key was found, so it has a path
		if more, err := s.below(ctx, path, partition+"/"+name, segments-1, f); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// WatchStreams implements [refstore.Streams]. Changes made on this host wake at once where file notification works.
// Each poll wakes, because an append does not change the folder's time.
func (s *Store) WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error) {
	err := refstore.Query{Partition: partition}.Validate()
	var p streamPlace
	if err == nil {
		p, err = s.files.streamPlace(partition)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return watchFolder(ctx, &folderWatch{store: s, dir: p.dir, always: true}), nil
}

// streams returns the sort keys of a partition.
func (s *files) streams(p streamPlace) ([]string, error) {
	var sorts []string
	for _, own := range p.own {
		if _, err := s.statFile(join(p.dir, own)); err == nil {
			sorts = append(sorts, own)
		}
	}
	files := place{dir: p.rest, suffix: p.suffix}
	others, err := s.sorts(files)
	return append(sorts, others...), err
}

func (s *Store) checkStream(ctx context.Context, key refstore.Key, offset int64) (string, error) {
	if offset < 0 {
		return "", fmt.Errorf("%w: negative offset", refstore.ErrInvalid)
	}
	path, err := s.files.streamPath(key)
	if err != nil {
		return "", err
	}
	return path, ctx.Err()
}

func sealed(info iofs.FileInfo) bool { return info.Mode().Perm()&0o222 == 0 }

// change runs f on a stream's file, with its size, under its lock. It makes the file if create is true.
func (s *Store) change(ctx context.Context, key refstore.Key, path string, create bool, f func(file *os.File, size int64) error) error {
	for {
		file, err := s.files.openThere(path, os.O_RDWR)
		if create && errors.Is(err, iofs.ErrNotExist) {
			if err = createStream(ctx, s, key, path); err == nil {
				continue
			}
		}
		if err != nil {
			if errors.Is(err, iofs.ErrPermission) {
				if info, e := s.files.Lstat(path); e == nil && info.Mode().IsRegular() && sealed(info) {
					return refstore.ErrSealed
				}
			}
			return err
		}
		sh, err := s.lockShard(ctx, lockOf(key))
		if err != nil {
			file.Close() // nothing was written
			return err
		}
		info, err := file.Stat()
		switch {
		case err != nil:
		case !s.files.same(file, path): // removed before it was locked
			file.Close() // nothing was written
			sh.Close()
			continue
		case sealed(info):
			err = refstore.ErrSealed
		default:
			err = f(file, info.Size())
			s.files.unsynced.file(false, path)
		}
		return errors.Join(err, file.Close(), sh.Close())
	}
}

// lockOf returns the key whose shard is locked for a change of a stream.
func lockOf(key refstore.Key) refstore.Key {
	execution, ok := strings.CutPrefix(key.Partition, "LOG/")
	if !ok {
		return key
	}
	at := strings.LastIndexByte(execution, '/')
	return refstore.Key{Partition: "EXECUTION/" + execution[:at], Sort: execution[at+1:]}
}

// createStream makes the file of a stream, unless it is there.
func createStream(ctx context.Context, s *Store, key refstore.Key, path string) error {
	create := func(path string) error {
		file, err := s.files.makeStream(path)
		if err != nil {
			return err
		}
		return file.Close()
	}
	sl, ok, err := executionOf(s, key)
	switch {
	case err != nil:
		return err
	case ok:
		return makeLog(ctx, s, sl, path, create)
	}
	return s.files.inParent(path, func() error { return create(path) })
}
