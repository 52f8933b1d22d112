package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Materialize makes dst, which must not exist, a file with the bytes of h and the mode perm
// as the umask leaves it. The file is the caller's: it shares extents with the object where
// the file system can do that, and is a copy elsewhere, never a link. After an error dst does
// not exist. The bytes are not checked against h.
func (d *Dir) Materialize(ctx context.Context, h Hash, dst string, perm fs.FileMode) error {
	_, err := d.materialize(ctx, h, perm, pathTarget(dst))
	return err
}

// A target is where a file is to be made.
type target struct {
	create func(perm fs.FileMode) (*os.File, error)
	remove func() error
}

func pathTarget(path string) target {
	return target{
		create: func(perm fs.FileMode) (*os.File, error) { return os.OpenFile(path, createFlags, perm) },
		remove: func() error { return os.Remove(path) },
	}
}

func rootTarget(root *os.Root, name string) target {
	return target{
		create: func(perm fs.FileMode) (*os.File, error) { return root.OpenFile(name, createFlags, perm) },
		remove: func() error { return root.Remove(name) },
	}
}

// fill creates the target and has write write it; when that fails the target is removed.
func (t target) fill(perm fs.FileMode, write func(*os.File) (int64, error)) (int64, error) {
	f, err := t.create(perm)
	if err != nil {
		return 0, err
	}
	n, err := write(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, errors.Join(err, t.remove())
	}
	return n, nil
}

// materialize is Materialize for any target and returns the size.
func (d *Dir) materialize(ctx context.Context, h Hash, perm fs.FileMode, t target) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	src, err := d.OpenFile(h)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	return d.copyOut(ctx, h, src, perm, t)
}

// copyOut writes the object h, which is open as src, to a target and returns the size.
func (d *Dir) copyOut(ctx context.Context, h Hash, src *os.File, perm fs.FileMode, t target) (int64, error) {
	st, err := fstat(src)
	if err != nil {
		return 0, err
	}
	n, err := t.fill(perm, func(dst *os.File) (int64, error) {
		if st.size > chunkSize {
			return d.copyLarge(ctx, dst, src, st.size)
		}
		return copySmall(dst, src, int(st.size))
	})
	if err != nil {
		return 0, fmt.Errorf("write object %s out: %w", h, err)
	}
	return n, nil
}

// copySmall copies with one read and one write.
func copySmall(dst, src *os.File, size int) (int64, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	n, err := io.ReadFull(src, (*buf)[:size])
	if err != nil {
		return 0, err
	}
	if n > 0 {
		n, err = dst.Write((*buf)[:n])
	}
	return int64(n), err
}

// copyLarge clones, or else copies inside the kernel where it can: io.CopyN uses
// copy_file_range for files. It does so in steps, so that it can be cancelled.
func (d *Dir) copyLarge(ctx context.Context, dst, src *os.File, size int64) (int64, error) {
	if !d.noReflink.Load() {
		err := reflink(dst, src)
		if err == nil {
			return size, nil
		}
		d.noReflink.CompareAndSwap(false, reflinkNever(err))
	}
	const step = 64 << 20
	var done int64
	for done < size {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		n, err := io.CopyN(dst, src, min(step, size-done))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// A cacher is a store that keeps copies of its objects in a Dir.
type cacher interface {
	// Cached opens the checked copy of h that lies in the Dir, after making it if need be. The file is
	// nil if no copy can be made here, while the store has the object.
	Cached(ctx context.Context, h Hash) (*Dir, *os.File, error)
}

// Materialize makes dst a file with the bytes of h, as Dir.Materialize does, from any store.
func Materialize(ctx context.Context, s Store, h Hash, dst string, perm fs.FileMode) error {
	_, err := writeOut(ctx, s, h, perm, pathTarget(dst))
	return err
}

// writeOut is materialize for any store. Bytes from a store that keeps nothing here may have come
// a long way: they are checked.
func writeOut(ctx context.Context, s Store, h Hash, perm fs.FileMode, t target) (int64, error) {
	switch s := s.(type) {
	case *Dir:
		return s.materialize(ctx, h, perm, t)
	case cacher:
		d, src, err := s.Cached(ctx, h)
		if err != nil {
			return 0, err
		}
		if src != nil {
			defer src.Close()
			return d.copyOut(ctx, h, src, perm, t)
		}
	}
	return t.fill(perm, func(dst *os.File) (int64, error) { return Copy(ctx, dst, s, h) })
}
