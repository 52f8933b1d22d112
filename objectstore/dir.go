package objectstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/format/digest"
	"e3/internal/host/beneath"
	"e3/internal/host/filelock"
	"e3/internal/host/modes"
)

// Options adjust a Dir. The zero value is usable.
type Options struct {
	// Session is called before the first put. It begins the caller's session, or returns the session that has begun.
	// dir is an existing directory on the same file system for files written aside. began is the time from which
	// collectors know the session, by the file system's clock. If Session fails, so does the put; the next put calls
	// it again. The caller removes files that a crash leaves in the directory. Without Session the store's own
	// directory is used, and the first put is the beginning.
	//
	// Every object that is put or refreshed afterwards gets a time no earlier than began. A collector spares all
	// objects younger than the oldest live session, so it keeps these.
	Session func() (dir string, began time.Time, err error)
	// Modes are the modes of the repository. The zero value makes objects with mode 0444, and folders as the umask
	// says.
	Modes modes.Modes
	// Wrote, which may be nil, is told the path of each new object, and of each folder made for an object, so that the
	// repository can sync these files alone. It may be called from several goroutines.
	Wrote func(path string)
	// Root, if it is not nil, is the open folder above the store's folder: the repository. The store does not close it.
	Root *beneath.Dir
	// Waiting says how to wait for locks.
	Waiting filelock.Waiter
}

// A Dir keeps objects as read-only files, <2 hex>/<62 hex> under one directory. An object appears under its name whole
// or not at all: it is written without a name, or aside, and then linked to its name, which fails if the name is taken.
// Dir syncs nothing: whoever writes a reference first syncs what Dir has written. Without this, an object may lose its
// end when the power fails; a put of the same bytes detects and replaces it.
//
// All files are reached through the folder above the store's folder. It is opened once. A symbolic link in the place of
// a folder or an object is [ErrForeign], and nothing behind it is opened, written or removed.
type Dir struct {
	root    *beneath.Dir
	base    string // the store's folder in root
	modes   modes.Modes
	session func() (dir string, began time.Time, err error)
	wrote   func(name string)
	waiting filelock.Waiter

	writerMu  sync.Mutex
	writer    atomic.Pointer[writer]
	named     atomic.Bool // the file system cannot make files without a name
	noReflink atomic.Bool // the file system cannot share extents between files
	share     func(dst, src *os.File) error
	checked   stamps // files with bytes that were found to match their names

	grown atomic.Int64 // size of new objects since the last Trim
}

// A writer makes the objects of a Dir. It holds properties of the file system that were determined before the first
// put.
type writer struct {
	*Dir
	scratch *beneath.Dir
	began   int64         // the session's beginning, by the file system's clock, in nanoseconds since 1970
	dev     uint64        // the file system's number
	chmod   bool          // the umask clears bits of the mode of objects
	skew    time.Duration // the file system's clock minus this process's
}

// OpenDir opens the store in path, the objects folder of a repository. A folder that does
// not exist is an empty store; the first put makes it.
func OpenDir(path string, o Options) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	d := &Dir{root: o.Root, base: filepath.Base(path), modes: o.Modes, session: o.Session, waiting: o.Waiting, share: reflink}
	if d.root == nil {
		if d.root, err = beneath.Open(filepath.Dir(path)); err != nil {
			return nil, fmt.Errorf("open object store: %w", err)
		}
		runtime.AddCleanup(d, func(root *beneath.Dir) { root.Close() }, d.root)
	}
	d.wrote = func(string) {}
	if o.Wrote != nil {
		d.wrote = func(name string) { o.Wrote(d.root.Path(name)) }
	}
	return d, nil
}

// ErrForeign reports that something other than a folder is in place of a folder of the store, or a link in place of an
// object.
var ErrForeign = errors.New("e3 makes none here: remove it")

// foreign turns the error of a call for a name in root into an ErrForeign that names the thing in the way, if there is
// one.
func (d *Dir) foreign(name string, err error) error {
	at, mode, ok := d.root.Obstacle(name, err)
	if !ok {
		return err
	}
	kind := "a file"
	if !mode.IsRegular() {
		kind = KindOf(mode)
	}
	return &fs.PathError{Op: "open", Path: d.root.Path(at), Err: fmt.Errorf("it is %s; %w", kind, ErrForeign)}
}

// Path returns the store's directory.
func (d *Dir) Path() string { return d.root.Path(d.base) }

// file returns the name of the object h in root.
func (d *Dir) file(h Hash) string {
	b := make([]byte, 0, len(d.base)+digest.TextLen+2)
	b = append(b, d.base...)
	b = append(b, filepath.Separator)
	b = hex.AppendEncode(b, h[:1])
	b = append(b, filepath.Separator)
	return string(hex.AppendEncode(b, h[1:]))
}

// OpenFile opens the file of h for reading. The caller must not change the file, and checks its bytes.
func (d *Dir) OpenFile(h Hash) (*os.File, error) {
	f, err := d.root.OpenFile(d.file(h), openFlags, 0)
	if err != nil {
		return nil, objectError(h, d.foreign(d.file(h), err))
	}
	return f, nil
}

// Open opens the object h for reading; reading checks it.
func (d *Dir) Open(ctx context.Context, h Hash) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := d.OpenFile(h)
	if err != nil {
		return nil, err // a nil *os.File in a ReadCloser is not nil
	}
	return CheckingFile(h, f)
}

// CheckingFile is Checking for an object's file.
func CheckingFile(h Hash, f *os.File) (io.ReadCloser, error) {
	st, err := fstat(f)
	if err != nil {
		f.Close()
		return nil, objectError(h, err)
	}
	return Checking(h, f, st.size), nil
}

// objectError names the object in err, and makes absence ErrNotFound.
func objectError(h Hash, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("object %s: %w", h, ErrNotFound)
	}
	return fmt.Errorf("object %s: %w", h, err)
}

// Stat returns the size of h in bytes.
func (d *Dir) Stat(_ context.Context, h Hash) (int64, error) {
	st, err := d.look(d.file(h))
	switch {
	case err != nil:
		return 0, objectError(h, err)
	case !st.regular:
		return 0, fmt.Errorf("object %s: %s is not a regular file", h, d.root.Path(d.file(h)))
	}
	return st.size, nil
}

// ReadAll reads an object that fits in limit bytes and checks it against its name.
func (d *Dir) ReadAll(ctx context.Context, h Hash, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := d.readWhole(d.file(h), func(st stat) ([]byte, error) {
		if st.size > limit {
			return nil, &TooLargeError{Hash: h, Limit: limit}
		}
		return make([]byte, st.size), nil
	})
	if tooLarge := (*TooLargeError)(nil); errors.As(err, &tooLarge) {
		return nil, err
	}
	if err != nil {
		return nil, objectError(h, err)
	}
	if err := (Info{Sum(b), int64(len(b))}).Check(h); err != nil {
		return nil, err
	}
	return b, nil
}

// ReadFile is ReadAll for an object's file.
func ReadFile(h Hash, f *os.File, limit int64) ([]byte, error) {
	st, err := fstat(f)
	if err != nil {
		return nil, objectError(h, err)
	}
	if st.size > limit {
		return nil, &TooLargeError{Hash: h, Limit: limit}
	}
	return readObject(h, f, make([]byte, st.size))
}

// Missing checks each object once, on all cores.
func (d *Dir) Missing(ctx context.Context, hs []Hash) ([]Hash, error) {
	const chunk = 256 // many for each hand-over, which is then cheap
	absent := make([]bool, len(hs))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := 0; from < len(hs); from += chunk {
		to := min(from+chunk, len(hs))
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			for i := from; i < to; i++ {
				_, err := d.look(d.file(hs[i]))
				if errors.Is(err, fs.ErrNotExist) {
					absent[i] = true
				} else if err != nil {
					return objectError(hs[i], err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var missing []Hash
	seen := map[Hash]bool{}
	for i, h := range hs {
		if absent[i] && !seen[h] {
			seen[h] = true
			missing = append(missing, h)
		}
	}
	return missing, nil
}

// Verify reads an object and checks it against its name: other bytes are a *CorruptError.
func (d *Dir) Verify(ctx context.Context, h Hash) error {
	f, err := d.OpenFile(h)
	if err != nil {
		return err
	}
	defer f.Close()
	return CheckReader(ctx, h, f)
}
