// Package objectstore keeps immutable bytes under the SHA-256 of their content.
//
// [Store] is the interface of every backend, with three methods. [Dir] is the backend that keeps objects as files; it
// adds operations that only a local disk supports: adopting files without a copy, cloning objects to files, and walks
// and deletions for garbage collection. Directories of files are objects too, one per
// level: see package tree.
//
// An object has no kind. The place of a reference tells whether the object is a file, a tree or a record; the kind is
// never guessed from the bytes.
package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// Info is the name and the size of stored bytes.
type Info struct {
	Hash Hash
	Size int64
}

// A Store keeps objects. All methods may be called concurrently, and by several processes if they share the backend.
type Store interface {
	// Put stores the bytes of r until io.EOF, in constant memory. When r fails nothing is stored. Putting bytes that
	// exist already succeeds and protects them from a collection that is under way.
	Put(ctx context.Context, r io.Reader) (Info, error)

	// Open returns the bytes of h, which are checked while they are read, as by Checking; the caller closes them. An
	// absent object is ErrNotFound.
	Open(ctx context.Context, h Hash) (io.ReadCloser, error)

	// Missing returns the hashes in hs that are absent, each once, in the order of their first appearance.
	Missing(ctx context.Context, hs []Hash) ([]Hash, error)
}

// ErrNotFound says that no object has the name.
var ErrNotFound = errors.New("object not found")

// ErrUnanswered says that objects were removed, but that an earlier attempt got no answer. That attempt may still take
// effect, and remove an object that was put again since.
var ErrUnanswered = errors.New("removed, but an earlier request got no answer and may still arrive")

// ErrRefused says that some objects were not removed, and that no attempt can still take effect, since each was
// answered.
var ErrRefused = errors.New("not removed")

// ErrUnsent says that an object is gone from this machine before it was sent to the shared store: it must be put again.
var ErrUnsent = errors.New("it is neither here nor in the shared store")

// A CorruptError says that the bytes stored under a name do not match it.
type CorruptError struct {
	Want Hash // the name
	Got  Hash // the name of the bytes found; zero if only the size was compared
	Size int64
}

func (e *CorruptError) Error() string {
	if e.Got.IsZero() {
		return fmt.Sprintf("object %s is corrupt: it has %d bytes, which is not its size", e.Want, e.Size)
	}
	return fmt.Sprintf("object %s is corrupt: its %d bytes hash to %s", e.Want, e.Size, e.Got)
}

// A TooLargeError says that an object exceeds its reader's limit.
type TooLargeError struct {
	Hash  Hash
	Limit int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("object %s is larger than %d bytes", e.Hash, e.Limit)
}

// bytesPutter and bytesReader are implemented by stores that handle an object in memory more efficiently than through
// Put and Open.
type bytesPutter interface {
	PutBytes(ctx context.Context, b []byte) (Hash, error)
}

type bytesReader interface {
	ReadAll(ctx context.Context, h Hash, limit int64) ([]byte, error)
}

// PutBytes stores b.
func PutBytes(ctx context.Context, s Store, b []byte) (Hash, error) {
	if s, ok := s.(bytesPutter); ok {
		return s.PutBytes(ctx, b)
	}
	info, err := s.Put(ctx, bytes.NewReader(b))
	return info.Hash, err
}

// ReadAll returns the bytes of h after checking them against the name: other bytes are a *CorruptError, more than limit
// bytes are a *TooLargeError.
func ReadAll(ctx context.Context, s Store, h Hash, limit int64) ([]byte, error) {
	if s, ok := s.(bytesReader); ok {
		return s.ReadAll(ctx, h, limit)
	}
	r, err := s.Open(ctx, h)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return ReadStream(h, r, limit)
}

// Copy writes the bytes of h to w and returns their number. Bytes that h does not name give a *CorruptError, but only
// after some or all of them were written: the caller must be able to discard w's content. Use CopyChecked if it cannot.
func Copy(ctx context.Context, w io.Writer, s Store, h Hash) (int64, error) {
	r, err := s.Open(ctx, h)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	r = Checking(h, r, UnknownSize)
	buf := getBuffer()
	defer putBuffer(buf)
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, contextReader{ctx, r}, *buf)
	if err != nil {
		return n, fmt.Errorf("copy object %s: %w", h, err)
	}
	return n, nil
}

// contextReader fails once the context is done, so that a long copy can be cancelled.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
