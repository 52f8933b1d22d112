package objectstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// RefreshAge bounds how stale the modification time of an object can be after it was put:
// putting an object that is there sets its time only if it is older than that, so that
// warm runs write nothing. A collector must therefore spare whatever is younger than the
// beginning of the oldest live session minus RefreshAge. Both are the file system's
// times, never this machine's.
const RefreshAge = time.Hour

// Options adjust a Dir. The zero value is usable.
type Options struct {
	// Scratch names an existing directory on the same file system for what is written
	// aside. It is called once, before the first put, so that a caller may open its
	// session there; an error fails that put and the next one asks again. The caller
	// removes what a crash leaves in it. Without Scratch the store's own directory is used.
	Scratch func() (string, error)
}

// A Dir keeps objects as files of mode 0444, <2 hex>/<62 hex> under one directory. An object
// appears under its name whole or not at all: it is written without a name, or aside,
// and then linked to its name, which fails if the name is taken. Nothing is synced here;
// whoever writes a reference syncs the file system first. After a loss of power without that,
// an object may have lost its end; a put of the same bytes notices the size and replaces it.
type Dir struct {
	path    string
	scratch func() (string, error)

	writerMu  sync.Mutex
	writer    atomic.Pointer[writer]
	named     atomic.Bool // the file system cannot make files without a name
	noReflink atomic.Bool // it cannot share extents between files
}

// A writer is what a Dir learns about its file system before it first writes.
type writer struct {
	scratch string
	dev     uint64        // the file system's number
	chmod   bool          // the umask takes bits from 0444
	skew    time.Duration // the file system's clock minus ours
}

// objectMode is the mode of every object.
const objectMode fs.FileMode = 0o444

// OpenDir opens the store in path, the objects folder of a repository. A folder that does
// not exist is an empty store; the first put makes it.
func OpenDir(path string, o Options) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open object store: %w", err)
	}
	switch fi, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open object store: %w", err)
	case !fi.IsDir():
		return nil, fmt.Errorf("open object store: %s is not a directory", path)
	}
	return &Dir{path: path, scratch: o.Scratch}, nil
}

// Path returns the store's directory.
func (d *Dir) Path() string { return d.path }

// file returns the path of the object h.
func (d *Dir) file(h Hash) string {
	b := make([]byte, 0, len(d.path)+hashText+2)
	b = append(b, d.path...)
	b = append(b, filepath.Separator)
	b = hex.AppendEncode(b, h[:1])
	b = append(b, filepath.Separator)
	return string(hex.AppendEncode(b, h[1:]))
}

// OpenFile opens the file of h for reading. It must not be changed.
func (d *Dir) OpenFile(h Hash) (*os.File, error) {
	f, err := os.OpenFile(d.file(h), openFlags, 0)
	if err != nil {
		return nil, objectError(h, err)
	}
	return f, nil
}

// Open is OpenFile for a Store.
func (d *Dir) Open(ctx context.Context, h Hash) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := d.OpenFile(h)
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil ReadCloser
	}
	return f, nil
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
	st, err := lstat(d.file(h))
	switch {
	case err != nil:
		return 0, objectError(h, err)
	case !st.regular:
		return 0, fmt.Errorf("object %s: %s is not a regular file", h, d.file(h))
	}
	return st.size, nil
}

// ReadAll reads an object that fits in limit bytes and checks it against its name.
func (d *Dir) ReadAll(ctx context.Context, h Hash, limit int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := d.OpenFile(h)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, objectError(h, err)
	}
	if fi.Size() > limit {
		return nil, &TooLargeError{Hash: h, Limit: limit}
	}
	b := make([]byte, fi.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	return checkBytes(h, b, limit)
}

// Missing asks for each object once, on all cores.
func (d *Dir) Missing(ctx context.Context, hs []Hash) ([]Hash, error) {
	const chunk = 256 // large enough to make hand-over cheap
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
				_, err := lstat(d.file(hs[i]))
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

// Verify reads an object and checks it against its name: a *CorruptError tells that it is
// something else.
func (d *Dir) Verify(ctx context.Context, h Hash) error {
	f, err := d.OpenFile(h)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := hashReader(ctx, f)
	if err != nil {
		return fmt.Errorf("verify object %s: %w", h, err)
	}
	if info.Hash != h {
		return &CorruptError{Want: h, Got: info.Hash, Size: info.Size}
	}
	return nil
}

// An Entry is an object found by Walk. Time is when it was last put, at most RefreshAge
// too early, by the file system's clock.
type Entry struct {
	Info
	Time time.Time
}

// Walk yields every object in the order of the names, shard by shard. What has no object's
// name is passed over, and so is what goes away meanwhile. After an error, the walk goes on
// with the next shard if the caller does.
func (d *Dir) Walk(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for shard := range 256 {
			if err := ctx.Err(); err != nil {
				yield(Entry{}, err)
				return
			}
			if !d.walkShard(byte(shard), yield) {
				return
			}
		}
	}
}

func (d *Dir) walkShard(shard byte, yield func(Entry, error) bool) bool {
	prefix := hex.EncodeToString([]byte{shard})
	names, err := readNames(filepath.Join(d.path, prefix))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return true
		}
		return yield(Entry{}, fmt.Errorf("walk objects: %w", err))
	}
	for _, name := range names {
		h, err := ParseHash(prefix + name)
		if err != nil {
			continue
		}
		st, err := lstat(d.file(h))
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && !st.regular:
			continue
		case err != nil:
			err = objectError(h, err)
		}
		if !yield(Entry{Info{h, st.size}, time.Unix(0, st.mtime)}, err) {
			return false
		}
	}
	return true
}

// ShardTimes returns the modification times of the 256 shards in nanoseconds, 0 for one that
// does not exist. Adding or removing an object changes the time of its shard; refreshing
// does not.
func (d *Dir) ShardTimes() ([256]int64, error) {
	var times [256]int64
	for shard := range times {
		path := filepath.Join(d.path, hex.EncodeToString([]byte{byte(shard)}))
		switch st, err := lstat(path); {
		case err == nil:
			times[shard] = st.mtime
		case !errors.Is(err, fs.ErrNotExist):
			return times, fmt.Errorf("object store: %w", err)
		}
	}
	return times, nil
}

// readNames returns the names in a directory, sorted.
func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// Delete removes h, whatever its age. Removing what is absent succeeds.
func (d *Dir) Delete(ctx context.Context, h Hash) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Remove(d.file(h)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete object %s: %w", h, err)
	}
	return nil
}

// DeleteBefore removes h if it was last put before cutoff and reports whether it did. On
// systems with flock this cannot cross a put that refreshes the object: either the put is
// seen here, or the put sees the object gone and writes it again.
func (d *Dir) DeleteBefore(ctx context.Context, h Hash, cutoff time.Time) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	unlock, err := lockDir(d.path, true)
	if err != nil {
		return false, fmt.Errorf("delete object %s: %w", h, err)
	}
	defer unlock()
	path := d.file(h)
	st, err := lstat(path)
	if err == nil && st.mtime >= cutoff.UnixNano() {
		return false, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete object %s: %w", h, err)
	}
	return true, nil
}
