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

	"e3/refstore"
)

// A stream is a plain file that grows in place. Changes hold a lock on the file itself. A sealed stream's file cannot
// be written by anyone: that its mode has no write bit is what "sealed" means.

// Append implements [refstore.Streams]. A process that is killed within the call may leave a part of data: a torn tail.
func (s *Store) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	path, err := s.checkStream(ctx, key, offset)
	if err == nil {
		err = s.change(ctx, path, offset == 0, func(f *os.File, size int64) error {
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
		f, err = openStream(path, os.O_RDONLY)
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

// Size implements [refstore.Streams].
func (s *Store) Size(ctx context.Context, key refstore.Key) (refstore.StreamInfo, error) {
	path, err := s.checkStream(ctx, key, 0)
	var info iofs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err == nil && !info.Mode().IsRegular() {
		err = &iofs.PathError{Op: "stat", Path: path, Err: errNotRegular}
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
		err = s.change(ctx, path, false, func(f *os.File, now int64) error {
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
		err = s.change(ctx, path, true, func(f *os.File, _ int64) error { return f.Chmod(0o444) })
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
		err = os.Remove(path)
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
			p, err = s.streamPlace(q.Partition)
		}
		var sorts []string
		if err == nil {
			sorts, err = p.sorts()
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

func (p streamPlace) sorts() ([]string, error) {
	var sorts []string
	for _, own := range p.own {
		if info, err := os.Lstat(filepath.Join(p.dir, own)); err == nil && info.Mode().IsRegular() {
			sorts = append(sorts, own)
		}
	}
	files := place{dir: p.rest, suffix: p.suffix}
	others, err := files.sorts()
	return append(sorts, others...), err
}

func (s *Store) checkStream(ctx context.Context, key refstore.Key, offset int64) (string, error) {
	if offset < 0 {
		return "", fmt.Errorf("%w: negative offset", refstore.ErrInvalid)
	}
	path, err := s.streamPath(key)
	if err != nil {
		return "", err
	}
	return path, ctx.Err()
}

func sealed(info iofs.FileInfo) bool { return info.Mode().Perm()&0o222 == 0 }

// change runs f on a stream's file, with its size, under its lock. It makes the file if create says so.
func (s *Store) change(ctx context.Context, path string, create bool, f func(file *os.File, size int64) error) error {
	for {
		file, err := openStream(path, os.O_RDWR)
		if create && errors.Is(err, iofs.ErrNotExist) {
			err = s.inParent(path, func() (err error) {
				file, err = openStream(path, os.O_RDWR|os.O_CREATE)
				return err
			})
		}
		if err != nil {
			if errors.Is(err, iofs.ErrPermission) {
				if info, e := os.Lstat(path); e == nil && info.Mode().IsRegular() && sealed(info) {
					return refstore.ErrSealed
				}
			}
			return err
		}
		if err := waitLock(ctx, file); err != nil {
			return err
		}
		info, err := file.Stat()
		switch {
		case err != nil:
		case !samePath(file): // removed before it was locked
			file.Close() // nothing was written
			continue
		case sealed(info):
			err = refstore.ErrSealed
		default:
			err = f(file, info.Size())
		}
		return errors.Join(err, file.Close())
	}
}
