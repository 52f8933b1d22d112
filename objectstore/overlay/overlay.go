// Package overlay is an object store over a base store, which is only read. New objects stay in a folder of this
// machine; objects that are not in the folder are read from the base.
//
// A put never asks the base, so an object may be in both. Removals, walks and collections concern the folder alone.
package overlay

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"e3/objectstore"
)

// Base is the store that is read.
type Base interface {
	objectstore.Store
	Stat(ctx context.Context, h objectstore.Hash) (int64, error)
	ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error)
	Materialize(ctx context.Context, h objectstore.Hash, in objectstore.Folder, name string, perm fs.FileMode) error
	Verify(ctx context.Context, h objectstore.Hash) error
}

// Store is an overlay. Methods that are not here are the folder's: puts, removals, walks. It is safe for concurrent
// use.
type Store struct {
	*objectstore.Dir
	base Base
}

// Far is an overlay over a remote store.
type Far struct {
	*Store
	parallel int
}

// Parallel is the number of requests to the base at a time.
func (f *Far) Parallel() int { return f.parallel }

var (
	_ objectstore.Discarder = (*Store)(nil)
	_ objectstore.Adopter   = (*Store)(nil)
)

// New returns an overlay of a folder over base.
func New(base Base, local *objectstore.Dir) *Store { return &Store{Dir: local, base: base} }

// NewFar is New over a remote base, which takes up to parallel requests at a time.
func NewFar(base Base, local *objectstore.Dir, parallel int) *Far {
	return &Far{New(base, local), parallel}
}

// either reads an object here, or else in the base.
func either[T any](here, there func() (T, error)) (T, error) {
	v, err := here()
	if errors.Is(err, objectstore.ErrNotFound) {
		return there()
	}
	return v, err
}

// Presumes reports whether objects that a record names count as present. The base decides: no collection removes
// objects here.
func (s *Store) Presumes() bool {
	p, ok := s.base.(interface{ Presumes() bool })
	return ok && p.Presumes()
}

// Open implements [objectstore.Store].
func (s *Store) Open(ctx context.Context, h objectstore.Hash) (io.ReadCloser, error) {
	return either(
		func() (io.ReadCloser, error) { return s.Dir.Open(ctx, h) },
		func() (io.ReadCloser, error) { return s.base.Open(ctx, h) })
}

// ReadAll returns an object's bytes, at most limit of them.
func (s *Store) ReadAll(ctx context.Context, h objectstore.Hash, limit int64) ([]byte, error) {
	return either(
		func() ([]byte, error) { return s.Dir.ReadAll(ctx, h, limit) },
		func() ([]byte, error) { return s.base.ReadAll(ctx, h, limit) })
}

// Stat returns an object's size.
func (s *Store) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	return either(
		func() (int64, error) { return s.Dir.Stat(ctx, h) },
		func() (int64, error) { return s.base.Stat(ctx, h) })
}

// Materialize writes a copy of an object.
func (s *Store) Materialize(ctx context.Context, h objectstore.Hash, in objectstore.Folder, name string, perm fs.FileMode) error {
	_, err := either(
		func() (struct{}, error) { return struct{}{}, s.Dir.Materialize(ctx, h, in, name, perm) },
		func() (struct{}, error) { return struct{}{}, s.base.Materialize(ctx, h, in, name, perm) })
	return err
}

// Verify reads an object and compares it with its name.
func (s *Store) Verify(ctx context.Context, h objectstore.Hash) error {
	_, err := either(
		func() (struct{}, error) { return struct{}{}, s.Dir.Verify(ctx, h) },
		func() (struct{}, error) { return struct{}{}, s.base.Verify(ctx, h) })
	return err
}

// Missing implements [objectstore.Store].
func (s *Store) Missing(ctx context.Context, hs []objectstore.Hash) ([]objectstore.Hash, error) {
	missing, err := s.Dir.Missing(ctx, hs)
	if err != nil || len(missing) == 0 {
		return missing, err
	}
	return s.base.Missing(ctx, missing)
}

// Refresh protects an object here from a collection here, and reports whether either store has it. In the base nothing
// is protected: that would be a write.
func (s *Store) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	there, err := s.Dir.Refresh(ctx, h)
	if there || err != nil {
		return there, err
	}
	_, err = s.base.Stat(ctx, h)
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Discard removes a damaged object here. It reports whether the name is free in both stores: a damaged object of the
// base stays, and an object put under its name is read from here.
func (s *Store) Discard(ctx context.Context, h objectstore.Hash) (gone bool, err error) {
	gone, err = s.Dir.Discard(ctx, h)
	if !gone || err != nil {
		return gone, err
	}
	return objectstore.IsLost(s.base.Verify(ctx, h))
}

// Lacks reports whether an object cannot be read.
func (s *Store) Lacks(ctx context.Context, h objectstore.Hash) (bool, error) {
	lost, err := objectstore.IsLost(s.Dir.Verify(ctx, h))
	if !lost || err != nil {
		return lost, err
	}
	return objectstore.Lost(ctx, s.base, h)
}

// ShardTimes reports every shard as just changed, since an object may vanish from the base unnoticed.
func (s *Store) ShardTimes() (times [objectstore.Shards]int64, err error) {
	now := time.Now().UnixNano()
	for i := range times {
		times[i] = now
	}
	return times, nil
}
