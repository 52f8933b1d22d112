package fs

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/host/filelock"
	"e3/refstore"
)

// maxFile bounds a value that is read into memory. e3 writes no value of this size, so a larger file is not e3's.
const maxFile = 1 << 30

var (
	errElsewhere  = errors.New("not written in place")
	errNotRegular = refstore.ErrForeign
	errNotFolder  = notFolder{}
)

// stamp holds the parts of a version.
type stamp struct {
	mtime int64 // ns since 1970
	inode uint64
	size  int64
}

func (st stamp) version() refstore.Version {
	b := make([]byte, 0, 48)
	b = strconv.AppendInt(b, st.mtime, 36)
	b = append(b, '.')
	b = strconv.AppendUint(b, st.inode, 36)
	b = append(b, '.')
	b = strconv.AppendInt(b, st.size, 36)
	return refstore.Version(b)
}

// virtualVersion is the version of a record that is just a folder.
const virtualVersion refstore.Version = "folder"

// raise gives a file, which only this process uses, a modification time above floor, even after the file system has
// rounded it: some file systems keep only microseconds, seconds or even pairs of seconds.
func (s *Store) raise(name string, floor int64) (stamp, error) {
	next := max(s.now().UnixNano(), floor+1)
	for _, step := range []time.Duration{0, time.Microsecond, time.Millisecond, time.Second, 2 * time.Second} {
		if err := s.files.SetTime(name, time.Unix(0, next+int64(step))); err != nil {
			return stamp{}, err
		}
		st, err := s.files.statFile(name)
		if err != nil || st.mtime > floor {
			return st, err
		}
	}
	return stamp{}, fmt.Errorf("%s: the file system does not store a modification time after %v", s.files.Path(name), time.Unix(0, floor))
}

// shard is a held lock file. It also keeps the floor: the greatest modification time of a value that was deleted
// under this lock.
type shard struct {
	*os.File
	path string
	kept *keptLocks // nil: the file is closed with the lock
}

// Close gives the lock back.
func (sh shard) Close() error {
	if sh.kept == nil {
		return sh.File.Close()
	}
	// Not by closing: a process that is being started may have the open file for a moment.
	if err := filelock.Unlock(sh.File); err != nil || !sh.kept.put(sh.path, sh.File) {
		return errors.Join(err, sh.File.Close())
	}
	return nil
}

// keptLocks are lock files that stay open for their next lock, one of each: opening one takes longer than locking it.
type keptLocks struct {
	mu     sync.Mutex
	closed bool
	files  map[string]*os.File // by path
}

// take returns an open lock file that nobody uses; nil if there is none.
func (k *keptLocks) take(path string) *os.File {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.files[path]
	delete(k.files, path)
	return f
}

func (k *keptLocks) put(path string, f *os.File) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.files[path] != nil {
		return false
	}
	if k.files == nil {
		k.files = make(map[string]*os.File)
	}
	k.files[path] = f
	return true
}

func (k *keptLocks) close() (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, f := range k.files {
		err = errors.Join(err, f.Close())
	}
	k.files = nil
	return err
}

func (s *files) shardPath(key refstore.Key) string {
	h := fnv.New32a()
	h.Write([]byte(key.Partition))
	h.Write([]byte{0})
	h.Write([]byte(key.Sort))
	sum := byte(h.Sum32() >> 24)
	return join("locks", "records", string([]byte{hexDigits[sum>>4], hexDigits[sum&15]}))
}

// lockShard waits for the lock of the key's shard. The caller closes it.
func (s *Store) lockShard(ctx context.Context, key refstore.Key) (shard, error) {
	name := s.files.shardPath(key)
	var kept *keptLocks
	var f *os.File
	var err error
	if !s.files.looks.network {
		kept = &s.kept
		if f = kept.take(name); f != nil && !s.files.same(f, name) {
			f.Close() // somebody has removed or renamed it, or a folder above it; nothing was written
			f = nil
		}
	}
	if f == nil {
		err = s.files.inParent(name, func() (err error) {
			f, err = s.files.makeLock(name)
			return err
		})
	}
	if err == nil {
		err = s.waiting.Wait(ctx, f, true)
	}
	if err != nil {
		return shard{}, err
	}
	return shard{f, name, kept}, nil
}

// floor reads a shard's floor. It needs no lock. A missing or empty file means that there is no floor.
func (s *files) floor(key refstore.Key) (int64, error) {
	text := make([]byte, floorSize)
	n, err := s.floors.read(s, s.shardPath(key), text)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	return parseFloor(text[:n]), err
}

// floors are lock files that are kept open, to read floors. They are never replaced.
type floors struct {
	mu     sync.Mutex
	closed bool
	files  map[string]*os.File // by path
}

// read reads the beginning of a lock file. The client of a network file system may cache an older content of an open
// file.
func (f *floors) read(s *files, path string, text []byte) (int, error) {
	f.mu.Lock()
	file := f.files[path]
	f.mu.Unlock()
	if file == nil {
		var err error
		if file, err = s.openThere(path, os.O_RDONLY); err != nil {
			return 0, err
		}
		if s.looks.network || !f.keep(path, file) {
			defer file.Close() // nothing was written
		}
	}
	n, err := file.ReadAt(text, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// keep keeps a file open, unless there is one already.
func (f *floors) keep(path string, file *os.File) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.files[path] != nil {
		return false
	}
	if f.files == nil {
		f.files = make(map[string]*os.File)
	}
	f.files[path] = file
	return true
}

func (f *floors) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	var err error
	for _, file := range f.files {
		err = errors.Join(err, file.Close())
	}
	f.files = nil
	return err
}

// floorSize is the length of a lock file with a floor.
const floorSize = len("00000000000000000000\n")

func parseFloor(text []byte) int64 {
	floor, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0 // empty until the first deletion
	}
	return floor
}

// raiseFloor is called before a value with the given modification time is deleted.
func (sh shard) raiseFloor(mtime int64) error {
	text := make([]byte, floorSize)
	n, err := sh.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if mtime <= parseFloor(text[:n]) {
		return nil
	}
	_, err = sh.WriteAt(fmt.Appendf(nil, "%020d\n", mtime), 0)
	return err
}

// touch changes the time of the partition's folder, for watchers, after a write that changed only a deeper folder. It
// is a hint, so failures are ignored.
func (s *Store) touch(sl slot) {
	if filepath.Dir(sl.value()) != sl.dir {
		s.files.touch(sl.dir, s.now())
	}
}

func (s *files) touch(dir string, now time.Time) { _ = s.SetTime(dir, now) }
