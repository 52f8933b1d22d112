package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Kept is an object that was just put into a Dir, with its bytes at hand: what a store needs that
// sends them on. Somebody may remove the object's name at any time, as a Dir that is a cache
// is trimmed by several processes.
type Kept struct {
	Info

	// Bytes, if it is not nil, is the content. It is set where only a stream had it and it is small.
	Bytes []byte

	// File, if it is not nil, is open for reading and holds the very bytes that were hashed, as
	// long as it is open. Without it they are to be opened by their name, and checked: a put
	// that finds the name taken compares nothing but the size.
	File *os.File

	borrowed bool // File is the caller's
}

// Close closes the file.
func (k Kept) Close() {
	if k.File != nil && !k.borrowed {
		k.File.Close()
	}
}

// keep gives a the name of its object and keeps it open if that leaves nothing behind in a crash.
func (d *Dir) keep(w *writer, a aside, info Info) (Kept, error) {
	if a.named {
		return Kept{Info: info}, d.publish(w, a, info)
	}
	if err := d.name(w, a, info); err != nil {
		a.discard()
		return Kept{}, err
	}
	return Kept{Info: info, File: a.File}, nil
}

// KeepStream is Put. Bytes or File is set, unless the system cannot make files without a name.
func (d *Dir) KeepStream(ctx context.Context, r io.Reader) (Kept, error) {
	var small []byte
	k, err := d.put(ctx, r, func(b []byte) { small = append([]byte{}, b...) })
	k.Bytes = small
	return k, err
}

// KeepFile is PutFile.
func (d *Dir) KeepFile(ctx context.Context, f *os.File, o FileOptions) (Kept, error) {
	if err := ctx.Err(); err != nil {
		return Kept{}, err
	}
	before, err := regular(f)
	if err != nil {
		return Kept{}, err
	}
	k, err := d.putFile(ctx, f, before, o)
	if err != nil {
		k.Close()
		if changed := (*ChangedError)(nil); errors.As(err, &changed) {
			return Kept{}, err
		}
		return Kept{}, fmt.Errorf("store %s: %w", f.Name(), err)
	}
	return k, nil
}

// KeepAdopted is AdoptFile. The File that it returns may be f, whose closing remains to the caller.
func (d *Dir) KeepAdopted(ctx context.Context, f *os.File, remove func() error) (Kept, error) {
	if err := ctx.Err(); err != nil {
		return Kept{}, err
	}
	st, err := regular(f)
	if err != nil {
		return Kept{}, err
	}
	w, err := d.open()
	if err != nil {
		return Kept{}, err
	}
	if st.dev == w.dev && st.links == 1 && st.owner == os.Geteuid() && lease(f) { // root gets a lease on any file
		k, done, err := d.takeOver(ctx, w, f, st, remove)
		if err != nil {
			return Kept{}, fmt.Errorf("adopt %s: %w", f.Name(), err)
		}
		if done {
			return k, nil
		}
	}
	return d.KeepFile(ctx, f, FileOptions{})
}

// Insert stores the object h, whose bytes write brings from elsewhere into an empty file, in any
// order. It returns the object open for reading. What is not h is a *CorruptError and gets no
// name; nothing is left of it, nor of what write has written when it fails.
func (d *Dir) Insert(ctx context.Context, h Hash, write func(*os.File) error) (*os.File, error) {
	w, err := d.open()
	if err != nil {
		return nil, err
	}
	a, err := d.create(w, w.scratch)
	if err != nil {
		return nil, fmt.Errorf("store object %s: %w", h, err)
	}
	if err := write(a.File); err != nil {
		a.discard()
		return nil, err
	}
	info, err := HashReader(ctx, fromStart(a.File))
	if err == nil && info.Hash != h {
		err = &CorruptError{Want: h, Got: info.Hash, Size: info.Size}
	}
	if err != nil {
		a.discard()
		return nil, err
	}
	k, err := d.keep(w, a, info)
	if err != nil {
		return nil, err
	}
	if k.File == nil {
		return d.OpenFile(h)
	}
	if _, err := k.File.Seek(0, io.SeekStart); err != nil {
		k.Close()
		return nil, err
	}
	return k.File, nil
}

// ReaderAt returns the bytes, or nil if only their name is known.
func (k Kept) ReaderAt() io.ReaderAt {
	switch {
	case k.Bytes != nil:
		return bytes.NewReader(k.Bytes)
	case k.File != nil:
		return k.File
	}
	return nil
}
