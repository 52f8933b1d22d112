package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Put stores the bytes of r.
func (d *Dir) Put(ctx context.Context, r io.Reader) (Info, error) {
	k, err := d.put(ctx, r, nil)
	k.Close()
	return k.Info, err
}

// put stores the bytes of r. small, if it is not nil, is called with content that fits in one chunk.
func (d *Dir) put(ctx context.Context, r io.Reader, small func(b []byte)) (Kept, error) {
	if err := ctx.Err(); err != nil {
		return Kept{}, err
	}
	buf := getBuffer()
	n, err := io.ReadFull(r, *buf)
	switch err {
	case nil:
		return d.putStream(ctx, r, buf)
	case io.EOF, io.ErrUnexpectedEOF:
		defer putBuffer(buf)
		b := (*buf)[:n]
		info := Info{Sum(b), int64(n)}
		if err := d.putNamed(ctx, info, b); err != nil {
			return Kept{}, err
		}
		if small != nil {
			small(b)
		}
		return Kept{Info: info}, nil
	default:
		putBuffer(buf)
		return Kept{}, fmt.Errorf("store object: read: %w", err)
	}
}

// PutBytes stores b. If the object exists, its bytes are compared.
func (d *Dir) PutBytes(ctx context.Context, b []byte) (Hash, error) {
	if err := ctx.Err(); err != nil {
		return Hash{}, err
	}
	info := Info{Sum(b), int64(len(b))}
	if err := d.putNamed(ctx, info, b); err != nil {
		return Hash{}, err
	}
	return info.Hash, nil
}

// putNamed stores b, whose name is known.
func (d *Dir) putNamed(ctx context.Context, info Info, b []byte) error {
	w, err := d.open()
	if err != nil {
		return err
	}
	path := d.file(info.Hash)
	switch found, err := w.taken(ctx, info, b); {
	case err != nil:
		return objectError(info.Hash, err)
	case found == present:
		return nil
	}
	// In the shard itself, as renames and links between directories cost several times more.
	a, err := w.create(d.root, filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.mkdir(filepath.Dir(path)); err == nil {
			a, err = w.create(d.root, filepath.Dir(path))
		}
	}
	if err != nil {
		return fmt.Errorf("store object %s: %w", info.Hash, err)
	}
	if _, err := a.Write(b); err != nil {
		a.discard()
		return fmt.Errorf("store object %s: %w", info.Hash, err)
	}
	return w.publish(ctx, a, info)
}

// putStream stores head and then the bytes of r. It takes ownership of head, which may be nil.
func (d *Dir) putStream(ctx context.Context, r io.Reader, head *[]byte) (Kept, error) {
	w, err := d.open()
	if err != nil {
		return Kept{}, err
	}
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return Kept{}, fmt.Errorf("store object: %w", err)
	}
	info, err := pump(ctx, r, a.fill(), head)
	if err != nil {
		a.discard()
		return Kept{}, fmt.Errorf("store object: %w", err)
	}
	return w.keep(ctx, a, info)
}

// FileOptions adjust PutFile.
type FileOptions struct {
	// Probe means that the bytes are probably stored already. A large file is then hashed first, and read a second time
	// only if it has to be stored.
	Probe bool
}

// A ChangedError says that a file changed while it was read. Bytes that may have been stored have no reference; the
// caller may try again.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s changed while it was read; try again when nothing writes to it", e.Path)
}

// A SpecialFileError says that a path is neither a file nor a directory nor a symbolic link.
type SpecialFileError struct {
	Path string
	Mode fs.FileMode
}

func (e *SpecialFileError) Error() string {
	return fmt.Sprintf("%s is %s and cannot be stored", e.Path, KindOf(e.Mode))
}

// KindOf names the kind of a path that is no regular file, such as "a named pipe".
func KindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "not a regular file"
}

// OpenFile opens a file for reading, also through symbolic links. A pipe, socket or device is a *SpecialFileError at
// once: opening a pipe would wait for its writer, which no signal interrupts.
func OpenFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = &SpecialFileError{Path: path, Mode: fi.Mode()}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// OpenFileIn opens a regular file of an open folder for reading and returns its permissions. It follows no symbolic link, and
// waits for no pipe's writer.
func OpenFileIn(in Folder, name string) (*os.File, fs.FileMode, error) {
	f, err := in.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, 0, err
	}
	st, err := regular(f)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.perm, nil
}

type filePutter interface {
	PutFile(ctx context.Context, f *os.File, o FileOptions) (Info, error)
}

// PutFile stores the content of f from its start, by the most efficient method of the store. It fails with
// *ChangedError if size, times or identity of the file changed meanwhile, and with *SpecialFileError if it is no
// regular file.
func PutFile(ctx context.Context, s Store, f *os.File, o FileOptions) (Info, error) {
	if s, ok := s.(filePutter); ok {
		return s.PutFile(ctx, f, o)
	}
	before, err := regular(f)
	if err != nil {
		return Info{}, err
	}
	info, err := s.Put(ctx, fromStart(f))
	if err != nil {
		return Info{}, fmt.Errorf("store %s: %w", f.Name(), err)
	}
	return info, unchanged(f, before, info.Size)
}

// regular returns the stat of an open regular file.
func regular(f *os.File) (stat, error) {
	st, err := fstat(f)
	if err != nil {
		return stat{}, err
	}
	if !st.regular {
		fi, err := f.Stat()
		if err != nil {
			return stat{}, err
		}
		return stat{}, &SpecialFileError{Path: f.Name(), Mode: fi.Mode()}
	}
	return st, nil
}

// unchanged fails if f has changed since the stat before, or does not have the given size.
func unchanged(f *os.File, before stat, size int64) error {
	after, err := fstat(f)
	if err != nil {
		return err
	}
	if size != before.size || !after.sameContent(before) {
		return &ChangedError{Path: f.Name()}
	}
	return nil
}

// PutFile stores the content of f from its start. It clones the file if the file system can share extents, and else
// hashes and writes it in one pass.
func (d *Dir) PutFile(ctx context.Context, f *os.File, o FileOptions) (Info, error) {
	k, err := d.KeepFile(ctx, f, o)
	k.Close()
	return k.Info, err
}

func (d *Dir) putFile(ctx context.Context, f *os.File, before stat, o FileOptions) (Kept, error) {
	if before.size <= chunkSize {
		info, err := d.putSmall(ctx, f, before)
		return Kept{Info: info}, err
	}
	if o.Probe {
		info, err := HashReader(ctx, fromStart(f))
		if err != nil {
			return Kept{}, err
		}
		if err := unchanged(f, before, info.Size); err != nil {
			return Kept{}, err
		}
		w, err := d.open()
		if err != nil {
			return Kept{}, err
		}
		found, err := w.taken(ctx, info, nil)
		if err != nil || found == present {
			return Kept{Info: info}, err
		}
	}
	if k, done, err := d.putClone(ctx, f, before); done {
		return k, err
	}
	k, err := d.putStream(ctx, fromStart(f), nil)
	if err == nil {
		err = unchanged(f, before, k.Size)
	}
	if err != nil {
		k.Close()
		return Kept{}, err
	}
	return k, nil
}

// putSmall stores a file that fits in one chunk. It reads the file, checks that the file did not change, and stores
// the content.
func (d *Dir) putSmall(ctx context.Context, f *os.File, before stat) (Info, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	// Ask for at least one byte: some files of the kernel have size 0 and yet content.
	b := (*buf)[:max(before.size, 1)]
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return Info{}, err
	}
	if err := unchanged(f, before, int64(n)); err != nil {
		return Info{}, err
	}
	info := Info{Sum(b[:n]), int64(n)}
	return info, d.putNamed(ctx, info, b[:n])
}

// putClone stores a file by sharing its extents. It hashes the clone, which no other process can reach. It returns
// false if cloning is impossible and nothing was stored.
func (d *Dir) putClone(ctx context.Context, f *os.File, before stat) (Kept, bool, error) {
	if d.noReflink.Load() {
		return Kept{}, false, nil
	}
	w, err := d.open()
	if err != nil {
		return Kept{}, true, err
	}
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return Kept{}, true, err
	}
	if err := d.share(a.File, f); err != nil {
		a.discard()
		d.noReflink.CompareAndSwap(false, reflinkNever(err))
		return Kept{}, false, nil
	}
	info, err := HashReader(ctx, fromStart(a.File))
	if err == nil {
		err = unchanged(f, before, info.Size)
	}
	if err != nil {
		a.discard()
		return Kept{}, true, err
	}
	k, err := w.keep(ctx, a, info)
	return k, true, err
}
