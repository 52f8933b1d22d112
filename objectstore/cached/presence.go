package cached

import (
	"context"
	"errors"
	"io"

	"e3/objectstore"
)

// presence tells what is in the remote store under the name of an object to put.
type presence int

const (
	absent presence = iota
	present
	different // other bytes
)

// stored finds out what the remote store has under the name of an object. With read, or while the store is distrusted,
// the bytes are read. Otherwise the remote store is asked for their size, and for their hash if it keeps one. If only
// the hash differs, the bytes are read, since the hash is no proof.
func (s *Store) stored(ctx context.Context, o objectstore.Info, read bool) (presence, error) {
	var there objectstore.Info
	var err error
	if read || s.distrusts.Load() > 0 {
		there, err = s.contents(ctx, o)
	} else {
		var e objectstore.Entry
		e, err = s.remote.Stat(ctx, o.Hash)
		there = e.Info
	}
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return absent, nil
	case err != nil:
		return absent, err
	case there == o:
		return present, nil
	case there.Size == o.Size && !read && s.distrusts.Load() == 0:
		return s.stored(ctx, o, true) // a server may keep the hash of replaced bytes
	}
	return different, nil
}

// contents hashes the bytes that the remote store has under the name of an object. It reads no more than needed to see
// a difference.
func (s *Store) contents(ctx context.Context, o objectstore.Info) (objectstore.Info, error) {
	r, err := s.remote.Open(ctx, o.Hash)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer r.Close()
	return objectstore.HashReader(ctx, io.LimitReader(r, o.Size+1))
}
