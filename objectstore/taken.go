package objectstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
)

// stampedFrom is the size from which a checked file is remembered. A smaller file is compared each time: a comparison
// costs about as much as a lookup, and there may be too many small files to remember.
const stampedFrom = 64 << 10

// taken returns the state of the file under the name of an object to put. It calls find and then compares the bytes,
// because a successful put guarantees them. A file that has other bytes or cannot be read is unfit: the put will
// replace it. content, if it is not nil, is the object's content; otherwise the file is hashed.
//
// The file's time is set before it is read. So a collector in between spares the file, and only another put can replace
// it.
func (w *writer) taken(ctx context.Context, info Info, content []byte) (presence, error) {
	found, err := w.find(ctx, w.file(info.Hash), info.Size)
	if found != present || err != nil {
		return found, err
	}
	if info.Size < stampedFrom {
		return w.takenSmall(info, content)
	}
	f, err := w.OpenFile(info.Hash)
	if err != nil {
		return unopened(err)
	}
	defer f.Close()
	st, err := fstat(f)
	if err != nil {
		return absent, err
	}
	if w.checked.has(info.Hash, st) {
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
	w.remember(info.Hash, f, st, seen)
	return present, nil
}

// takenSmall is taken for an object that is not remembered.
func (w *writer) takenSmall(info Info, content []byte) (presence, error) {
	buf := getBuffer()
	defer putBuffer(buf)
	got, err := w.readWhole(w.file(info.Hash), func(st stat) ([]byte, error) {
		return (*buf)[:min(st.size, info.Size+1)], nil
	})
	switch {
	case unreadable(err):
		return unfit, nil
	case err != nil:
		return unopened(objectError(info.Hash, err))
	case content != nil && bytes.Equal(got, content), content == nil && Info{Sum(got), int64(len(got))} == info:
		return present, nil
	}
	return unfit, nil
}

// unreadable reports whether a file was opened, and its bytes could not be read.
func unreadable(err error) bool {
	var failed *fs.PathError
	return errors.As(err, &failed) && failed.Op == "read"
}

// unopened returns the presence of a file that could not be opened.
func unopened(err error) (presence, error) {
	switch {
	case errors.Is(err, ErrNotFound):
		return absent, nil
	case errors.Is(err, fs.ErrPermission):
		return unfit, nil
	}
	return absent, err
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
