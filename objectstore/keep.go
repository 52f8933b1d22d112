package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// thisUser is the effective user of this process, which never changes.
var thisUser = sync.OnceValue(os.Geteuid)

// Kept is an object that was just put into a Dir, with its bytes at hand, for a store that uploads them. The object's
// name may vanish at any time, as several processes trim a Dir that is a cache.
type Kept struct {
	Info

	// Bytes, if it is not nil, is the content. It is set for small content that came from a stream.
	Bytes []byte

	// File, if it is not nil, is open for reading and holds exactly the bytes that were hashed, as long as it is open.
	// If it is nil, open the object by its name, and check the bytes: the file may have changed since the put compared
	// it.
	File *os.File

	borrowed bool // the caller closes File
	hashed   stat // the stat of File when it was known to hold the bytes
}

// Close closes the file.
func (k Kept) Close() {
	if k.File != nil && !k.borrowed {
		k.File.Close()
	}
}

// keep gives a the name of its object. If a has no temporary name, so that a crash leaves no second file, a stays open.
func (w *writer) keep(ctx context.Context, a aside, info Info) (Kept, error) {
	if a.named() {
		return Kept{Info: info}, w.publish(ctx, a, info)
	}
	leased := info.Size >= vouchedFrom && a.lease()
	if err := w.name(ctx, a, info); err != nil {
		a.discard()
		return Kept{}, err
	}
	if leased {
		w.vouch(ctx, info.Hash, a.File)
	}
	st, err := fstat(a.File)
	if err != nil {
		a.Close()
		return Kept{}, objectError(info.Hash, err)
	}
	return Kept{Info: info, File: a.File, hashed: st}, nil
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

// KeepAdopted is AdoptFile. The returned File may be f, which the caller still closes.
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
	if st.dev == w.dev && st.links == 1 && st.owner == thisUser() && lease(f) { // root gets a lease on any user's file
		k, done, err := w.adoptLeased(ctx, f, st, remove)
		if err != nil {
			return Kept{}, fmt.Errorf("adopt %s: %w", f.Name(), err)
		}
		if done {
			return k, nil
		}
	}
	return d.KeepFile(ctx, f, FileOptions{})
}

// Insert stores the object h: write writes its bytes into an empty file, in any order. Insert returns the object open
// for reading. If the bytes are not those of h, the error is a *CorruptError. After an error nothing is left.
func (d *Dir) Insert(ctx context.Context, h Hash, write func(*os.File) error) (*os.File, error) {
	w, err := d.open()
	if err != nil {
		return nil, err
	}
	a, err := w.create(w.scratch, ".")
	if err != nil {
		return nil, fmt.Errorf("store object %s: %w", h, err)
	}
	if err := write(a.File); err != nil {
		a.discard()
		return nil, err
	}
	info, err := HashReader(ctx, fromStart(a.File))
	if err == nil {
		err = info.Check(h)
	}
	if err != nil {
		a.discard()
		return nil, err
	}
	k, err := w.keep(ctx, a, info)
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
		return &steady{name: k.Hash, f: k.File, seen: k.hashed}
	}
	return nil
}

// steady reads a file while it holds the object of that name. When the file's stat changes, perhaps only its time, the
// file is hashed again before the caller gets the bytes read.
type steady struct {
	name Hash
	f    *os.File

	mu   sync.Mutex
	seen stat
}

// Steady returns a reader of f that fails with a *CorruptError once f does not hold the object h any more. The caller
// must have checked that f holds it now.
func Steady(h Hash, f *os.File) (io.ReaderAt, error) {
	st, err := fstat(f)
	if err != nil {
		return nil, objectError(h, err)
	}
	return &steady{name: h, f: f, seen: st}, nil
}

func (s *steady) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.f.ReadAt(p, off)
	if same := s.same(); same != nil {
		return 0, same
	}
	return n, err
}

// same checks that the file still holds the object.
func (s *steady) same() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := fstat(s.f)
	if err != nil {
		return err
	}
	if now.sameContent(s.seen) {
		return nil
	}
	if err := CheckReader(context.Background(), s.name, fromStart(s.f)); err != nil {
		return err
	}
	s.seen = now
	return nil
}
