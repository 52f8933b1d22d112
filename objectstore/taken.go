package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// stampedFrom is the size from which a checked file is remembered. A smaller file is compared each time: this costs
// about as much as a lookup, and there may be too many to remember.
const stampedFrom = 64 << 10

// taken returns the state of the file under the name of an object to put. It calls find and then compares the bytes,
// because a successful put guarantees them. A file with other bytes, or one that cannot be read, is unfit: the put will
// replace it. content, if it is not nil, is the object's content; otherwise the file is hashed.
//
// The file's time is set before it is read. So a collector in between spares it, and a file that replaces it was
// written by another put.
func (w *writer) taken(ctx context.Context, info Info, content []byte) (presence, error) {
	found, err := w.find(ctx, w.file(info.Hash), info.Size)
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
