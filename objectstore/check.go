package objectstore

import (
	"context"
	"fmt"
	"io"
	"math"
)

// Check compares bytes with the name under which they were read: other bytes are a *CorruptError. Every byte that
// leaves a store was checked by Check, or by its callers (doc/design.md, "Reading").
func (i Info) Check(h Hash) error {
	if i.Hash != h {
		return &CorruptError{Want: h, Got: i.Hash, Size: i.Size}
	}
	return nil
}

// CheckReader reads r to its end and checks its bytes against h.
func CheckReader(ctx context.Context, h Hash, r io.Reader) error {
	info, err := HashReader(ctx, r)
	if err != nil {
		return fmt.Errorf("verify object %s: %w", h, err)
	}
	return info.Check(h)
}

// UnknownSize is the size of a stream of unknown length.
const UnknownSize = -1

// Checking returns a reader as Store.Open must: it yields the size bytes of r and hashes them. If the bytes do not
// match h, or end early, the last read fails with a *CorruptError. The end of a stream of UnknownSize is known only
// after its last byte: then the error takes the place of io.EOF. A reader closed before its end has checked nothing.
// If r already checks for h, it is returned unchanged.
func Checking(h Hash, r io.ReadCloser, size int64) io.ReadCloser {
	if c, ok := r.(*checking); ok && c.name == h {
		return c
	}
	return &checking{ReadCloser: r, name: h, size: size, hasher: NewHasher()}
}

type checking struct {
	io.ReadCloser
	name   Hash
	size   int64 // number of bytes, or UnknownSize
	n      int64 // hashed so far
	hasher *Hasher
	end    error // the result at the end: io.EOF if the bytes were right; nil before the end
}

func (c *checking) Read(p []byte) (int, error) {
	switch {
	case c.end != nil:
		return 0, c.end
	case c.size == c.n: // an empty object
		c.end = c.verdict()
		return 0, c.end
	case c.size != UnknownSize:
		p = p[:min(int64(len(p)), c.size-c.n)]
	}
	n, err := c.ReadCloser.Read(p)
	c.hasher.Write(p[:n])
	c.n += int64(n)
	switch {
	case err == io.EOF, c.n == c.size:
		c.end = c.verdict()
		if c.end != io.EOF {
			return 0, c.end
		}
		return n, nil
	}
	return n, err
}

// verdict is io.EOF if the bytes are right.
func (c *checking) verdict() error {
	if err := (Info{c.hasher.Hash(), c.n}).Check(c.name); err != nil {
		return err
	}
	return io.EOF
}

// ReadStream is ReadAll for a stream of the object's bytes.
func ReadStream(h Hash, r io.ReadCloser, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(Checking(h, r, UnknownSize), min(limit, math.MaxInt64-1)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read object %s: %w", h, err)
	case int64(len(b)) > limit:
		return nil, &TooLargeError{Hash: h, Limit: limit}
	}
	return b, nil
}

// CopyChecked is Copy for a writer whose output cannot be undone, such as a pipe: it reads and checks all bytes before
// it writes the first one. If the object changes between the two reads, wrong bytes may be written before the
// *CorruptError.
func CopyChecked(ctx context.Context, w io.Writer, s Store, h Hash) (int64, error) {
	r, err := s.Open(ctx, h)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, contextReader{ctx, Checking(h, r, UnknownSize)})
	r.Close()
	if err != nil {
		return 0, fmt.Errorf("read object %s: %w", h, err)
	}
	return Copy(ctx, w, s, h)
}

// Holds reports whether a regular file in an open folder has the bytes of h.
func Holds(ctx context.Context, in Folder, name string, h Hash) bool {
	f, _, err := OpenFileIn(in, name)
	if err != nil {
		return false
	}
	defer f.Close()
	return CheckReader(ctx, h, f) == nil
}
