package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// stampedFrom is the size from which a checked file is remembered. A smaller one is compared each time: that costs
// about as much as a lookup, and there may be very many.
const stampedFrom = 64 << 10

// taken returns what a put finds under the name of its object: it is look, and then a read, because a put that
// succeeds promises the bytes. Other bytes are unfit, and so is a file that cannot be read: the put has the right
// ones. content, if it is not nil, is the object's content; otherwise the file is hashed.
//
// A file is dated before it is read. A collector that comes between spares it, and a file that replaces it was
// written by a put.
func (w *writer) taken(ctx context.Context, info Info, content []byte) (presence, error) {
	found, err := w.look(w.file(info.Hash), info.Size)
	if found != present || err != nil {
		return found, err
	}
	f, err := w.OpenFile(info.Hash)
	switch {
	case errors.Is(err, ErrNotFound):
		return absent, nil
	case errors.Is(err, fs.ErrPermission):
		return unfit, nil
	case err != nil:
		return absent, err
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return absent, err
	}
	if st.size >= stampedFrom && w.checked.has(info.Hash, st) {
		return present, nil
	}
	seen := w.clock()
	same, err := matches(ctx, f, info, content)
	switch {
	case err != nil:
		return absent, err
	case !same:
		return unfit, nil
	}
	if st.size >= stampedFrom {
		w.remember(info.Hash, f, st, seen)
	}
	return present, nil
}

// matches reports whether a file has the bytes of an object; a file that cannot be read does not.
func matches(ctx context.Context, f *os.File, info Info, content []byte) (bool, error) {
	if content != nil {
		return equal(f, content), nil
	}
	got, err := HashReader(ctx, fromStart(f))
	if err != nil {
		return false, ctx.Err()
	}
	return got == info, nil
}

// equal compares a file with content, a chunk at a time.
func equal(f *os.File, content []byte) bool {
	buf := getBuffer()
	defer putBuffer(buf)
	for len(content) > 0 {
		b := (*buf)[:min(len(content), len(*buf))]
		if _, err := io.ReadFull(f, b); err != nil || !bytes.Equal(b, content[:len(b)]) {
			return false
		}
		content = content[len(b):]
	}
	return true
}
