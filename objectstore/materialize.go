package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Materialize makes name, which must not exist in the open folder, a file with the bytes of h and the mode perm as the umask
// leaves it. The caller may change the file: it is a copy, or shares extents with the object where the file system supports
// that, but is never a link. The bytes are checked against h: other bytes are a *CorruptError. After an error the file does not
// exist.
func (d *Dir) Materialize(ctx context.Context, h Hash, in Folder, name string, perm fs.FileMode) error {
	_, err := d.materialize(ctx, h, perm, newFile(in, name))
	return err
}

// Shares reports whether a file that is made of a large object can share its blocks. It is known after the first one.
func (d *Dir) Shares() bool { return !d.noReflink.Load() }

// A target is the place of a file to be made.
type target struct {
	create func(perm fs.FileMode) (*os.File, error)
	remove func() error
	size   int64 // size of a file that is written over; the file is then cut to the bytes written
}

func newFile(in Folder, name string) *target {
	return &target{
		create: func(perm fs.FileMode) (*os.File, error) { return in.OpenFile(name, createFlags, perm) },
		remove: func() error { return in.Remove(name) },
	}
}

// fill creates the target and calls write for it. If write fails, fill removes the target.
func (t *target) fill(perm fs.FileMode, write func(*os.File) (int64, error)) (int64, error) {
	f, err := t.create(perm)
	if err != nil {
		return 0, err
	}
	n, err := write(f)
	// at the end, since ext4 writes a file that was emptied first to the disk at its close
	if err == nil && t.size > n {
		err = f.Truncate(n)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, errors.Join(err, t.remove())
	}
	return n, nil
}

// materialize is Materialize for any target and returns the size.
func (d *Dir) materialize(ctx context.Context, h Hash, perm fs.FileMode, t *target) (int64, error) {
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

// copyOut writes the object h, which is open as src, to a target and returns the size. All bytes that leave a Dir for
// a file pass through it, and it checks them.
func (d *Dir) copyOut(ctx context.Context, h Hash, src *os.File, perm fs.FileMode, t *target) (int64, error) {
	st, err := fstat(src)
	if err != nil {
		return 0, err
	}
	n, err := t.fill(perm, func(dst *os.File) (int64, error) {
		if st.size <= chunkSize {
			return copySmall(h, dst, src, st.size)
		}
		if done, err := d.clone(ctx, h, dst, src, st); done {
			return st.size, err
		}
		return d.copyLarge(ctx, h, dst, src, st)
	})
	if err != nil {
		return 0, fmt.Errorf("write object %s out: %w", h, err)
	}
	return n, nil
}

// copySmall copies with one read and one write, and checks the bytes in between.
func copySmall(h Hash, dst, src *os.File, size int64) (int64, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	b, err := readObject(h, src, (*buf)[:size])
	if err != nil {
		return 0, err
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := dst.Write(b)
	return int64(n), err
}

// readObject fills b, which has the object's size, from f and checks it. A file shorter than its measured size counts
// as corrupt.
func readObject(h Hash, f *os.File, b []byte) ([]byte, error) {
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	if err := (Info{Sum(b[:n]), int64(n)}).Check(h); err != nil {
		return nil, err
	}
	return b[:n], nil
}

// copyLarge copies src, whose stat is st. If the file was checked before and has not changed since, the kernel copies it;
// otherwise it is copied in chunks and hashed meanwhile, and the file counts as checked.
func (d *Dir) copyLarge(ctx context.Context, h Hash, dst, src *os.File, st stat) (int64, error) {
	if d.checked.has(h, st) {
		err := copyData(ctx, dst, src, st.size)
		if now, statErr := fstat(src); err == nil && statErr == nil && now.sameContent(st) {
			return st.size, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, err
		}
		return st.size, CheckReader(ctx, h, fromStart(dst)) // the file may have changed during the copy
	}
	seen := d.clock()
	info, err := pump(ctx, &span{f: src, end: st.size}, &sparseWriter{f: dst}, nil)
	if err == nil {
		err = info.Check(h)
	}
	if err != nil {
		return 0, err
	}
	d.remember(h, src, st, seen)
	return info.Size, nil
}

// clone makes dst share the extents of src, whose stat is st. If the file was not checked before, or has changed since,
// the clone is hashed: no other process can reach it. It returns false if the file system cannot clone.
func (d *Dir) clone(ctx context.Context, h Hash, dst, src *os.File, st stat) (bool, error) {
	if d.noReflink.Load() {
		return false, nil
	}
	known, seen := d.checked.has(h, st), d.clock()
	if err := d.share(dst, src); err != nil {
		d.noReflink.CompareAndSwap(false, reflinkNever(err))
		return false, nil
	}
	if known {
		if now, err := fstat(src); err == nil && now.sameContent(st) {
			return true, nil
		}
	}
	if err := CheckReader(ctx, h, fromStart(dst)); err != nil {
		return true, err
	}
	d.remember(h, src, st, seen)
	return true, nil
}

// A cacher is a store that keeps copies of its objects in a Dir.
type cacher interface {
	// Cached opens the copy of h in the Dir, and makes a missing copy first. The file is nil if the store has the
	// object but no copy can be made here.
	Cached(ctx context.Context, h Hash) (*Dir, *os.File, error)
	// Uncache removes a damaged copy, so that the next reader fetches the object.
	Uncache(ctx context.Context, h Hash) error
}

// Materialize makes a file with the bytes of h, as Dir.Materialize does, from any store, and returns its size.
func Materialize(ctx context.Context, s Store, h Hash, in Folder, name string, perm fs.FileMode) (int64, error) {
	return writeOut(ctx, s, h, perm, newFile(in, name))
}

// ErrInUse says that an inode cannot take other content, because a process has it open or mapped, or because the system
// does not tell.
var ErrInUse = errors.New("the file may be in use")

// Rewrite gives a regular file of an open folder the bytes of h and the mode perm, and returns the size. The inode
// stays: on ext4 this is several times as fast as a new file in place of a deleted one. The error wraps ErrInUse if the
// inode cannot be used: another file must be made. After any other error the file may not exist.
func Rewrite(ctx context.Context, s Store, h Hash, in Folder, name string, perm fs.FileMode) (int64, error) {
	t := &target{remove: func() error { return in.Remove(name) }}
	t.create = func(perm fs.FileMode) (f *os.File, err error) {
		f, t.size, err = reopen(in, name, perm)
		return f, err
	}
	return writeOut(ctx, s, h, perm, t)
}

// reopen opens a file that has no other name and no attributes, and that no other process has open or mapped, and
// returns its size. Until it is closed, the kernel delays every other open.
func reopen(in Folder, name string, perm fs.FileMode) (*os.File, int64, error) {
	f, err := in.OpenFile(name, rewriteFlags, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	info, err := f.Stat()
	if err == nil && !(info.Mode().IsRegular() && plain(f, info) && leaseAlone(f)) {
		err = fs.ErrExist
	}
	if err == nil && info.Mode() != perm {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = TouchNow(f)
	}
	if err == nil && info.Size() > chunkSize { // a clone would keep the file's bytes behind its own end
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close() // nothing was written
		return nil, 0, fmt.Errorf("%s: %w", name, ErrInUse)
	}
	return f, min(info.Size(), chunkSize), nil
}

// writeOut is materialize for any store.
func writeOut(ctx context.Context, s Store, h Hash, perm fs.FileMode, t *target) (int64, error) {
	switch s := s.(type) {
	case *Dir:
		return s.materialize(ctx, h, perm, t)
	case cacher:
		if n, done, err := copyOutCached(ctx, s, h, perm, t); done {
			return n, err
		}
	}
	return t.fill(perm, func(dst *os.File) (int64, error) { return Copy(ctx, dst, s, h) })
}

// copyOutCached writes the copy of h out. If the copy is damaged, it fetches another, since the object itself may be
// intact. It returns false if no copy can be made.
func copyOutCached(ctx context.Context, s cacher, h Hash, perm fs.FileMode, t *target) (int64, bool, error) {
	for attempt := 1; ; attempt++ {
		d, src, err := s.Cached(ctx, h)
		if err != nil || src == nil {
			return 0, err != nil, err
		}
		n, err := d.copyOut(ctx, h, src, perm, t)
		src.Close()
		var corrupt *CorruptError
		if attempt > 1 || !errors.As(err, &corrupt) {
			return n, true, err
		}
		if err := s.Uncache(ctx, h); err != nil {
			return 0, true, err
		}
	}
}
