package cached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"e3/objectstore"
)

// small is the size up to which an object is sent from memory without a request for its existence, which would take as
// long.
const small = 512 << 10

// compared is the size up to which an object that probably exists is read instead of looked up; both take one request.
const compared = 64 << 10

// Put stores what r yields.
func (s *Store) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	k, err := s.local.KeepStream(ctx, r)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer k.Close()
	return k.Info, s.send(ctx, k, nil)
}

// PutBytes stores b. If the cache has a copy already, as for most tasks of an edited package file, PutBytes first asks
// the remote store, at a tenth of the cost of sending.
func (s *Store) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	_, err := s.local.Stat(ctx, objectstore.Sum(b))
	likely := err == nil
	h, err := s.local.PutBytes(ctx, b)
	if err != nil {
		return objectstore.Hash{}, err
	}
	return h, s.upload(ctx, objectstore.Info{Hash: h, Size: int64(len(b))}, likely, func() (io.ReaderAt, func(), error) {
		return bytes.NewReader(b), func() {}, nil
	})
}

// PutFile stores the content of f, as objectstore.PutFile.
func (s *Store) PutFile(ctx context.Context, f *os.File, o objectstore.FileOptions) (objectstore.Info, error) {
	k, err := s.local.KeepFile(ctx, f, o)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer k.Close()
	return k.Info, s.send(ctx, k, f)
}

// Adopt stores a file that is not needed any more, as Dir.Adopt.
func (s *Store) Adopt(ctx context.Context, in objectstore.Folder, name string) (objectstore.Info, error) {
	return objectstore.Adopt(ctx, s, in, name)
}

// AdoptFile is Adopt for an open file and a function that removes its name.
func (s *Store) AdoptFile(ctx context.Context, f *os.File, remove func() error) (objectstore.Info, error) {
	k, err := s.local.KeepAdopted(ctx, f, remove)
	if err != nil {
		return objectstore.Info{}, err
	}
	defer k.Close()
	return k.Info, s.send(ctx, k, f)
}

// send uploads an object that was put into the cache. If f is not nil, it reads from f.
func (s *Store) send(ctx context.Context, k objectstore.Kept, f *os.File) error {
	return s.upload(ctx, k.Info, false, func() (io.ReaderAt, func(), error) {
		if body := k.ReaderAt(); body != nil {
			return body, func() {}, nil
		}
		return s.reopen(ctx, k.Info, f)
	})
}

// reopen opens and checks the cache's copy of an object for its upload. It makes a missing or damaged copy again from
// f.
func (s *Store) reopen(ctx context.Context, o objectstore.Info, f *os.File) (io.ReaderAt, func(), error) {
	var corrupt *objectstore.CorruptError
	for {
		if o.Size <= small {
			b, err := s.local.ReadAll(ctx, o.Hash, o.Size)
			if err == nil {
				return bytes.NewReader(b), func() {}, nil
			}
		}
		copied, err := s.local.OpenFile(o.Hash)
		if err == nil {
			var body io.ReaderAt
			if body, err = objectstore.Steady(o.Hash, copied); err == nil {
				err = objectstore.CheckReader(ctx, o.Hash, copied)
			}
			if err == nil {
				return body, func() { copied.Close() }, nil
			}
			copied.Close()
		}
		if errors.As(err, &corrupt) {
			err = s.local.Delete(ctx, o.Hash)
		}
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			return nil, nil, err
		}
		if f == nil {
			return nil, nil, fmt.Errorf("object %s was lost from the cache in %s before it was uploaded: %w; try again", o.Hash, s.local.Path(), objectstore.ErrUnsent)
		}
		k, err := s.local.KeepFile(ctx, f, objectstore.FileOptions{})
		if err != nil {
			return nil, nil, err
		}
		if k.Info != o {
			k.Close()
			return nil, nil, &objectstore.ChangedError{Path: f.Name()}
		}
		if body := k.ReaderAt(); body != nil {
			return body, k.Close, nil
		}
	}
}

// upload makes sure that the remote store has an object. open returns the object's bytes; likely means that the remote
// store probably has it. Concurrent puts of one object wait for one upload.
func (s *Store) upload(ctx context.Context, o objectstore.Info, likely bool, open func() (io.ReaderAt, func(), error)) error {
	s.trimIfGrown()
	if err := s.rely(ctx, o.Hash); err != nil {
		return err
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.known.has(o.Hash) {
			return nil
		}
		led, err := s.uploads.do(ctx, o.Hash, func() error {
			limit := s.sending
			if o.Size <= compared {
				limit = s.asking // as little memory and time as a small request
			}
			return limit.with(ctx, func() error { return s.uploadOne(ctx, o, likely, open) })
		})
		if led || err != nil {
			return err
		}
	}
}

func (s *Store) uploadOne(ctx context.Context, o objectstore.Info, likely bool, open func() (io.ReaderAt, func(), error)) error {
	if s.known.has(o.Hash) {
		return nil
	}
	if likely || o.Size > small {
		switch found, err := s.stored(ctx, o, o.Size <= compared); {
		case err != nil:
			return fmt.Errorf("store object %s: %w", o.Hash, err)
		case found == present:
			s.known.add(o.Hash)
			return nil
		case found == different:
			return s.replace(ctx, o, open)
		}
	}
	body, closeBody, err := open()
	if err != nil {
		return err
	}
	defer closeBody()
	created, err := s.remote.Put(ctx, o.Hash, body, o.Size)
	if err == nil && !created {
		var found presence
		if found, err = s.stored(ctx, o, o.Size <= small); err == nil && found != present {
			err = s.remote.Replace(ctx, o.Hash, body, o.Size)
		}
	}
	if err != nil {
		return fmt.Errorf("store object %s: %w", o.Hash, err)
	}
	s.known.add(o.Hash)
	return nil
}

// replace uploads an object in place of other content under its name.
func (s *Store) replace(ctx context.Context, o objectstore.Info, open func() (io.ReaderAt, func(), error)) error {
	body, closeBody, err := open()
	if err != nil {
		return err
	}
	defer closeBody()
	if err := s.remote.Replace(ctx, o.Hash, body, o.Size); err != nil {
		return fmt.Errorf("replace object %s, which is damaged in the shared store: %w", o.Hash, err)
	}
	s.known.add(o.Hash)
	return nil
}

func (s *Store) rely(ctx context.Context, h objectstore.Hash) error {
	if err := s.guard.Rely(ctx, h); err != nil {
		return fmt.Errorf("object %s: %w", h, err)
	}
	return nil
}

// Refresh protects h from collections until the session ends, as a put would, and reports whether it exists.
func (s *Store) Refresh(ctx context.Context, h objectstore.Hash) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if err := s.rely(ctx, h); err != nil {
		return false, err
	}
	if s.known.has(h) {
		return true, nil
	}
	_, err := s.ask(ctx, h)
	switch {
	case err == nil:
		s.known.add(h)
		return true, nil
	case errors.Is(err, objectstore.ErrNotFound):
		return false, nil
	}
	return false, fmt.Errorf("refresh object %s: %w", h, err)
}
