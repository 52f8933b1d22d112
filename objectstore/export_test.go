package objectstore

import (
	"context"
	"io"
	"os"
)

// Internals for tests.

const (
	ChunkSize   = chunkSize
	VouchedFrom = vouchedFrom
)

// CopyThrough copies src to the empty file dst as where the kernel copies nothing.
func CopyThrough(ctx context.Context, dst, src *os.File, size int64) error {
	return copyThrough(ctx, dst, &span{f: src, end: size}, size)
}

// ForceNamed makes d behave as on a file system without unnamed files.
func (d *Dir) ForceNamed() { d.named.Store(true) }

// ForceNoReflink makes d behave as on a file system that cannot share extents.
func (d *Dir) ForceNoReflink() { d.noReflink.Store(true) }

// FakeReflink makes d clone files by copying them.
func (d *Dir) FakeReflink() {
	d.share = func(dst, src *os.File) error {
		_, err := io.Copy(dst, fromStart(src))
		return err
	}
}

// Knows reports whether the file of h was checked in its present state.
func (d *Dir) Knows(h Hash) bool {
	st, err := d.look(d.file(h))
	return err == nil && d.checked.has(h, st)
}

// File returns the path of an object.
func (d *Dir) File(h Hash) string { return d.root.Path(d.file(h)) }

// LockFile returns the path of the file that is locked for an object's shard, and makes it.
func (d *Dir) LockFile(h Hash) (string, error) {
	f, err := d.lockFile(lockPrefix + h.String()[:1])
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}
