package fs

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"iter"
	"path/filepath"
	"strings"

	"e3/refstore"
)

// entry is a name in a folder and its kind.
type entry struct {
	name string
	kind entryKind
}

type entryKind byte

const (
	isOther entryKind = iota
	isFile
	isDir
	isUnknown // the file system does not report the kind
)

// List implements [refstore.Store].
func (s *Store) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	return func(yield func(refstore.Record, error) bool) {
		fail := func(err error) { yield(refstore.Record{}, fmt.Errorf("list %q: %w", q.Partition, err)) }
		err := q.Validate()
		var p place
		if err == nil {
			p, err = s.files.place(q.Partition)
		}
		var sorts []string
		if err == nil {
			sorts, err = s.files.sorts(p)
			if err == nil && len(sorts) == 0 && s.files.looks.network && s.files.refresh(p.dir) {
				sorts, err = s.files.sorts(p)
			}
		}
		if err != nil {
			fail(err)
			return
		}
		n := 0
		for _, sort := range q.Select(sorts) {
			if err := ctx.Err(); err != nil {
				fail(err)
				return
			}
			path, _ := p.path(sort) // the key was found, so it has a path
			sl := slot{place: p, key: refstore.Key{Partition: q.Partition, Sort: sort}, path: path}
			r, err := s.list(ctx, sl, q)
			if errors.Is(err, iofs.ErrNotExist) {
				continue // the record was deleted meanwhile
			}
			if errors.Is(err, refstore.ErrDamaged) {
				err = fmt.Errorf("list %q: %w", q.Partition, err)
			} else if err != nil {
				fail(err)
				return
			}
			if !yield(r, err) {
				return
			}
			if n++; n == q.Limit {
				return
			}
		}
	}
}

// list reads the parts of a record that q asks for.
func (s *Store) list(ctx context.Context, sl slot, q refstore.Query) (refstore.Record, error) {
	if !q.KeysOnly {
		return s.record(ctx, sl, q.Fields)
	}
	var err error
	if sl.shape == dirShape { // a folder without a value is no record
		_, err = s.files.stat(sl.value())
	}
	return refstore.Record{Key: sl.key}, s.files.ownFault(sl, err)
}

// sorts returns the sort keys whose file or folder is in the partition, or a link or a pipe in place of it. It skips
// names that this package does not make.
func (s *files) sorts(p place) ([]string, error) {
	var sorts []string
	add := func(dir, before, want string, kind entryKind) error {
		var sums []string
		from := len(sorts)
		err := s.walk(dir, "", func(path string, e entry) error {
			path, sum := strings.CutSuffix(path, sumSuffix)
			name, ok := strings.CutSuffix(path, want)
			if ok && sum {
				if segment, ok := unescape(name); ok && kind == isFile {
					sums = append(sums, before+segment)
				}
				return nil
			}
			if !ok || !s.is(e, kind, join(dir, path)) && !s.is(e, isOther, join(dir, path)) {
				return nil
			}
			if segment, ok := unescape(name); ok && before+segment != "" {
				sorts = append(sorts, before+segment)
			}
			return nil
		})
		sorts = withSums(sorts, from, sums)
		return err
	}
	if !p.paired {
		kind := isDir
		if p.shape == fileShape {
			kind = isFile
		}
		err := add(p.dir, "", p.suffix, kind)
		return sorts, err
	}
	err := s.walk(p.dir, "", func(path string, e entry) error {
		folder := join(p.dir, path)
		segment, ok := unescape(path)
		if !ok || s.is(e, isFile, folder) {
			return nil
		}
		return add(folder, segment+"/", p.suffix, isFile)
	})
	return sorts, err
}

// walk calls f for the entries of a folder, and of the folders in which long names continue. The path is relative to
// dir.
func (s *files) walk(dir, below string, f func(path string, e entry) error) error {
	entries, err := s.readDir(filepath.Join(dir, below))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := e.name
		if below != "" {
			path = below + string(filepath.Separator) + e.name
		}
		if continues(e.name) {
			if !s.is(e, isFile, join(dir, path)) {
				if err := s.walk(dir, path, f); err != nil {
					return err
				}
			}
			continue
		}
		if err := f(path, e); err != nil {
			return err
		}
	}
	return nil
}

// is reports whether the entry is of a kind. It asks the system if the folder did not tell the kind.
func (s *files) is(e entry, kind entryKind, path string) bool {
	if e.kind != isUnknown {
		return e.kind == kind
	}
	info, err := s.Lstat(path)
	if err != nil {
		return false
	}
	switch kind {
	case isDir:
		return info.IsDir()
	case isFile:
		return info.Mode().IsRegular()
	}
	return !info.IsDir() && !info.Mode().IsRegular()
}

// ListTime returns the modification time of the folder that has an entry for each record of a partition, in nanoseconds;
// 0 if there is none. A record that is created or removed, by whatever means, changes it.
func (s *Store) ListTime(partition string) (int64, error) {
	p, err := s.files.place(partition)
	if err != nil {
		return 0, err
	}
	info, err := s.files.lstat(p.dir)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list %q: %w", partition, err)
	}
	return info.ModTime().UnixNano(), nil
}
