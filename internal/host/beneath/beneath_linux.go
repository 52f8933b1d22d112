package beneath

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Dir is an open folder. It is safe for concurrent use, except ReadDir and HasEntries, which share a position.
type Dir struct {
	fd       int
	users    atomic.Int64 // users of fd: the Dir until it is closed, and each call under way
	closed   atomic.Bool
	name     string
	confined bool
	listed   bool // fd has been read: its position is not the beginning
	own      sync.Once
	id       identity
}

func newDir(fd int, name string, confined bool) *Dir {
	d := &Dir{fd: fd, name: name, confined: confined}
	d.users.Store(1)
	return d
}

// An identity is the same for all descriptors of a file.
type identity struct {
	dev, ino uint64
}

const (
	folderFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	wayFlags    = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
)

// Open opens a folder by a path that the caller trusts: links in the path are followed.
func Open(path string) (*Dir, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, folderFlags, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return newDir(fd, path, false), nil
}

// Close closes the folder, once the calls that are under way have ended: their descriptor must not become another file's
// meanwhile. Later calls find [fs.ErrClosed]. A nil folder is closed.
func (d *Dir) Close() error {
	if d == nil || d.closed.Swap(true) {
		return nil
	}
	return os.NewSyscallError("close", d.release())
}

// hold keeps the descriptor open until a call of release.
func (d *Dir) hold() (int, error) {
	if d.closed.Load() {
		return -1, fs.ErrClosed
	}
	for {
		n := d.users.Load()
		if n == 0 {
			return -1, fs.ErrClosed
		}
		if d.users.CompareAndSwap(n, n+1) {
			return d.fd, nil
		}
	}
}

func (d *Dir) release() error {
	if d.users.Add(-1) > 0 {
		return nil
	}
	return unix.Close(d.fd)
}

// Control calls do with the descriptor, which is open and the folder's until do returns.
func (d *Dir) Control(do func(fd int) error) error {
	fd, err := d.hold()
	if err != nil {
		return err
	}
	defer d.release()
	return do(fd)
}

// Sub opens a folder below d.
func (d *Dir) Sub(rel string) (*Dir, error) {
	fd, err := d.open(rel, folderFlags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path(rel), Err: err}
	}
	return newDir(fd, d.path(rel), d.confined), nil
}

// OpenFile opens, or makes, a file. The flags are those of os.OpenFile. Besides regular files it opens folders, pipes
// and devices; O_NONBLOCK says whether opening a pipe or device may wait.
func (d *Dir) OpenFile(rel string, flags int, perm fs.FileMode) (*os.File, error) {
	if flags&os.O_EXCL != 0 {
		flags &^= unix.O_NONBLOCK // a new file is no pipe, and package os would try to poll it
	}
	fd, err := d.open(rel, flags|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.path(rel), Err: err}
	}
	return os.NewFile(uintptr(fd), d.path(rel)), nil
}

// canOpenat2 is false on kernels before 5.6, and under seccomp filters that do not know the call.
var canOpenat2 = sync.OnceValue(hasOpenat2)

func hasOpenat2() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// open opens what rel names, without following links.
func (d *Dir) open(rel string, flags int, perm uint32) (int, error) {
	at, err := d.hold()
	if err != nil {
		return -1, err
	}
	defer d.release()
	return way{at, d.confined}.open(rel, flags, perm)
}

// A way opens what lies below an open folder. It does not keep the folder open.
type way struct {
	fd       int
	confined bool
}

// open is [Dir.open].
func (w way) open(rel string, flags int, perm uint32) (int, error) {
	if !valid(rel) {
		return -1, ErrName
	}
	resolve := w.resolve
	if !canOpenat2() {
		resolve = w.walk
	}
	fd, err := resolve(rel, flags, perm)
	if err == unix.ENOTDIR && flags&unix.O_DIRECTORY != 0 && w.isLink(rel) {
		err = ErrLink
	}
	return fd, err
}

// resolve lets the kernel resolve the whole name.
func (w way) resolve(rel string, flags int, perm uint32) (int, error) {
	how := unix.OpenHow{
		Flags: uint64(flags | unix.O_NOFOLLOW), Mode: uint64(perm),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if w.confined {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	fd, err := retry(func() (int, error) { return unix.Openat2(w.fd, rel, &how) })
	switch err {
	case unix.ELOOP:
		err = ErrLink
	case unix.EXDEV: // the name does not lead upwards
		err = ErrMount
	}
	return fd, err
}

// walk is resolve without openat2: it opens each folder on the way.
func (w way) walk(rel string, flags int, perm uint32) (int, error) {
	at, closes := w.fd, false
	for {
		part, rest, more := strings.Cut(rel, "/")
		how, mode := flags, perm
		if more {
			how, mode = wayFlags, 0
		}
		fd, err := retry(func() (int, error) { return unix.Openat(at, part, how|unix.O_NOFOLLOW, mode) })
		if err == nil && w.confined && foreign(w.fd, fd) {
			unix.Close(fd)
			err = ErrMount
		}
		if err == unix.ELOOP || err == unix.ENOTDIR && more && isLink(at, part) {
			err = ErrLink
		}
		if closes {
			unix.Close(at)
		}
		if err != nil || !more {
			return fd, err
		}
		at, closes, rel = fd, true, rest
	}
}

// isLink tells whether the last part of rel is a link.
func (w way) isLink(rel string) bool {
	dir, base, err := split(rel)
	if err != nil || dir == "" {
		return err == nil && isLink(w.fd, base)
	}
	at, err := w.open(dir, wayFlags, 0)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	return isLink(at, base)
}

func isLink(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// foreign tells whether an open file lies on another mount than a folder: before Linux 5.8, on another file system.
func foreign(dir, file int) bool {
	var a, b unix.Statx_t
	if unix.Statx(dir, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &a) != nil || unix.Statx(file, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &b) != nil {
		return true
	}
	if a.Mask&b.Mask&unix.STATX_MNT_ID != 0 {
		return a.Mnt_id != b.Mnt_id
	}
	return a.Dev_major != b.Dev_major || a.Dev_minor != b.Dev_minor
}

// in calls do with the folder that holds rel, and rel's name in it.
func (d *Dir) in(rel string, do func(fd int, base string) error) error {
	dir, base, err := split(rel)
	if err != nil {
		return err
	}
	at, err := d.hold()
	if err != nil {
		return err
	}
	defer d.release()
	if dir != "" {
		if at, err = (way{at, d.confined}).open(dir, wayFlags, 0); err != nil {
			return err
		}
		defer unix.Close(at)
	}
	_, err = retry(func() (int, error) { return 0, do(at, base) })
	return err
}

// entry is in, with an error that names the path.
func (d *Dir) entry(op, rel string, do func(fd int, base string) error) error {
	if err := d.in(rel, do); err != nil {
		return &fs.PathError{Op: op, Path: d.path(rel), Err: err}
	}
	return nil
}

// Lstat looks at an entry, or at the folder itself.
func (d *Dir) Lstat(rel string) (fs.FileInfo, error) {
	info := &fileInfo{name: filepath.Base(rel)}
	err := d.entry("lstat", rel, func(fd int, base string) error {
		if base == "." {
			return unix.Fstat(fd, &info.st)
		}
		if !d.confined {
			return unix.Fstatat(fd, base, &info.st, unix.AT_SYMLINK_NOFOLLOW)
		}
		return info.look(fd, base)
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

// look is fstatat, but fails with ErrMount on a mount.
func (f *fileInfo) look(fd int, base string) error {
	var x unix.Statx_t
	err := unix.Statx(fd, base, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS, &x)
	switch {
	case err == unix.ENOSYS || err == unix.EPERM: // an old kernel, or a filter
		return unix.Fstatat(fd, base, &f.st, unix.AT_SYMLINK_NOFOLLOW)
	case err != nil:
		return err
	case x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return ErrMount
	}
	f.st.Dev, f.st.Ino, f.st.Mode = unix.Mkdev(x.Dev_major, x.Dev_minor), x.Ino, uint32(x.Mode)
	f.st.Uid, f.st.Gid, f.st.Size, f.st.Rdev = x.Uid, x.Gid, int64(x.Size), unix.Mkdev(x.Rdev_major, x.Rdev_minor)
	f.st.Blocks = int64(x.Blocks)
	setLinks(&f.st.Nlink, x.Nlink)
	f.st.Mtim, f.st.Ctim = unix.Timespec{Sec: x.Mtime.Sec, Nsec: int64(x.Mtime.Nsec)}, unix.Timespec{Sec: x.Ctime.Sec, Nsec: int64(x.Ctime.Nsec)}
	return nil
}

// setLinks sets a number whose type depends on the machine.
func setLinks[T uint32 | uint64](to *T, n uint32) { *to = T(n) }

// SameFile tells whether two files are one. os.SameFile accepts only infos of package os.
func SameFile(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, too := b.Sys().(*syscall.Stat_t)
	return ok && too && x.Dev == y.Dev && x.Ino == y.Ino
}

// InPlace tells whether the folder still lies at its Name, and nothing is mounted over it.
func (d *Dir) InPlace() bool {
	there := &fileInfo{}
	if err := there.look(unix.AT_FDCWD, d.name); err != nil {
		return false
	}
	return identity{there.st.Dev, there.st.Ino} == d.identity()
}

// identity asks the system only the first time.
func (d *Dir) identity() identity {
	d.own.Do(func() {
		var st unix.Stat_t
		if d.Control(func(fd int) error { return unix.Fstat(fd, &st) }) == nil {
			d.id = identity{st.Dev, st.Ino}
		}
	})
	return d.id
}

// Identity is the same for two open folders if they are one.
func (d *Dir) Identity() string {
	id := d.identity()
	return strconv.FormatUint(id.dev, 16) + ":" + strconv.FormatUint(id.ino, 16)
}

// Mkdir makes a folder. The umask applies to perm.
func (d *Dir) Mkdir(rel string, perm fs.FileMode) error {
	return d.entry("mkdir", rel, func(fd int, base string) error { return unix.Mkdirat(fd, base, uint32(perm.Perm())) })
}

// Chmod sets a mode. The mode of a link stays.
func (d *Dir) Chmod(rel string, mode fs.FileMode) error {
	return d.entry("chmod", rel, func(fd int, base string) error {
		if base == "." {
			return unix.Fchmod(fd, bits(mode))
		}
		return chmodat(fd, base, bits(mode))
	})
}

// chmodat never follows a link. Before Linux 6.6 this needs an open file.
func chmodat(dir int, name string, mode uint32) error {
	err := unix.Fchmodat(dir, name, mode, unix.AT_SYMLINK_NOFOLLOW)
	if err != unix.EOPNOTSUPP || isLink(dir, name) {
		return err
	}
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) // fails with EOPNOTSUPP for a link
}

func bits(mode fs.FileMode) uint32 {
	b := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		b |= unix.S_ISUID
	}
	if mode&fs.ModeSetgid != 0 {
		b |= unix.S_ISGID
	}
	if mode&fs.ModeSticky != 0 {
		b |= unix.S_ISVTX
	}
	return b
}

// Rename moves an entry to a name below to, and replaces what is there.
func (d *Dir) Rename(rel string, to *Dir, name string) error {
	return d.pair("rename", rel, to, name, unix.Renameat)
}

// Link gives a file, or a link, a second name.
func (d *Dir) Link(rel string, to *Dir, name string) error {
	return d.pair("link", rel, to, name, func(a int, from string, b int, to string) error { return unix.Linkat(a, from, b, to, 0) })
}

func (d *Dir) pair(op, rel string, to *Dir, name string, do func(a int, from string, b int, to string) error) error {
	err := d.in(rel, func(a int, from string) error {
		return to.in(name, func(b int, base string) error { return do(a, from, b, base) })
	})
	if err != nil {
		return &os.LinkError{Op: op, Old: d.path(rel), New: to.path(name), Err: err}
	}
	return nil
}

// Symlink makes a link.
func (d *Dir) Symlink(target, rel string) error {
	return d.entry("symlink", rel, func(fd int, base string) error { return unix.Symlinkat(target, fd, base) })
}

// Readlink returns the target of a link.
func (d *Dir) Readlink(rel string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n := 0
	err := d.entry("readlink", rel, func(fd int, base string) (err error) {
		n, err = unix.Readlinkat(fd, base, buf)
		return err
	})
	return string(buf[:max(n, 0)]), err
}

// Remove removes a file, a link or an empty folder.
func (d *Dir) Remove(rel string) error {
	return d.entry("remove", rel, func(fd int, base string) error {
		err := unix.Unlinkat(fd, base, 0)
		if err == unix.EISDIR || err == unix.EPERM {
			if e := unix.Unlinkat(fd, base, unix.AT_REMOVEDIR); e != unix.ENOTDIR {
				err = e
			}
		}
		return mountOrBusy(err)
	})
}

// mountOrBusy explains the EBUSY of a removal: something is mounted on the entry, or it is busy.
func mountOrBusy(err error) error {
	if err == unix.EBUSY {
		return ErrMount
	}
	return err
}

// Unlink removes a file or a link, never a folder.
func (d *Dir) Unlink(rel string) error {
	return d.entry("remove", rel, func(fd int, base string) error { return mountOrBusy(unix.Unlinkat(fd, base, 0)) })
}

// ReadDir lists the folder, in the order of the system.
func (d *Dir) ReadDir() ([]fs.DirEntry, error) {
	var list []fs.DirEntry
	err := d.list(func(name string, kind byte) bool {
		list = append(list, &dirEntry{d, name, kind})
		return true
	})
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: d.name, Err: err}
	}
	for _, e := range list { // from a file system that does not tell kinds
		if e := e.(*dirEntry); e.kind == unix.DT_UNKNOWN {
			info, err := d.Lstat(e.name)
			if err != nil {
				return nil, err
			}
			e.kind = byte(info.(*fileInfo).st.Mode & unix.S_IFMT >> 12)
		}
	}
	return list, nil
}

// HasEntries tells whether the folder has exactly n entries.
func (d *Dir) HasEntries(n int) bool {
	err := d.list(func(string, byte) bool {
		n--
		return n >= 0
	})
	return err == nil && n == 0
}

// list calls found with each entry, until found returns false.
func (d *Dir) list(found func(name string, kind byte) bool) error {
	at, err := d.hold()
	if err != nil {
		return err
	}
	defer d.release()
	if d.listed {
		if _, err := unix.Seek(at, 0, unix.SEEK_SET); err != nil {
			return err
		}
	}
	d.listed = true
	buf := make([]byte, 8<<10)
	for {
		n, err := retry(func() (int, error) { return unix.ReadDirent(at, buf) })
		if err != nil || n <= 0 {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			var name string
			var kind byte
			if name, kind, rest = firstEntry(rest); name != "" && !found(name, kind) {
				return nil
			}
		}
	}
}

// dirEntry is an entry with the kind that the system has told.
type dirEntry struct {
	dir  *Dir
	name string
	kind byte
}

func (e *dirEntry) Name() string               { return e.name }
func (e *dirEntry) IsDir() bool                { return e.kind == unix.DT_DIR }
func (e *dirEntry) Type() fs.FileMode          { return typeOf(uint32(e.kind) << 12) }
func (e *dirEntry) Info() (fs.FileInfo, error) { return e.dir.Lstat(e.name) }
func (e *dirEntry) String() string             { return fs.FormatDirEntry(e) }

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
		runtime.Gosched()
	}
}

// Stamp is Lstat without an fs.FileInfo for each entry: a folder can have very many.
func (d *Dir) Stamp(rel string) (Stamp, error) {
	var info fileInfo
	if !valid(rel) || strings.IndexByte(rel, '/') >= 0 {
		found, err := d.Lstat(rel)
		if err != nil {
			return Stamp{}, err
		}
		info.st = found.(*fileInfo).st
		return info.stamp(), nil
	}
	at, err := d.hold()
	if err == nil {
		defer d.release()
		for {
			if d.confined {
				err = info.look(at, rel)
			} else {
				err = unix.Fstatat(at, rel, &info.st, unix.AT_SYMLINK_NOFOLLOW)
			}
			if err != unix.EINTR {
				break
			}
		}
	}
	if err != nil {
		return Stamp{}, &fs.PathError{Op: "lstat", Path: d.path(rel), Err: err}
	}
	return info.stamp(), nil
}

// stamp takes blocks of 512 bytes: POSIX leaves open how large the counted ones are, and Linux does not.
func (f *fileInfo) stamp() Stamp {
	return Stamp{Mode: f.Mode(), Size: f.st.Size, Space: f.st.Blocks * 512, Modified: f.st.Mtim.Nano(), Changed: f.st.Ctim.Nano(),
		Inode: f.st.Ino, Links: uint64(f.st.Nlink)}
}

// fileInfo is the fs.FileInfo of an entry.
type fileInfo struct {
	name string
	st   unix.Stat_t
}

func (f *fileInfo) Name() string { return f.name }
func (f *fileInfo) Size() int64  { return f.st.Size }
func (f *fileInfo) IsDir() bool  { return f.st.Mode&unix.S_IFMT == unix.S_IFDIR }
func (f *fileInfo) Sys() any     { return (*syscall.Stat_t)(unsafe.Pointer(&f.st)) }

// Both are struct stat.
var _ [unsafe.Sizeof(unix.Stat_t{}) - unsafe.Sizeof(syscall.Stat_t{})]struct{} = [0]struct{}{}

func (f *fileInfo) ModTime() time.Time { return time.Unix(f.st.Mtim.Unix()) }

func (f *fileInfo) Mode() fs.FileMode {
	mode := fs.FileMode(f.st.Mode).Perm() | typeOf(f.st.Mode)
	if f.st.Mode&unix.S_ISUID != 0 {
		mode |= fs.ModeSetuid
	}
	if f.st.Mode&unix.S_ISGID != 0 {
		mode |= fs.ModeSetgid
	}
	if f.st.Mode&unix.S_ISVTX != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

func typeOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	case unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}

// Attributes lists the names of an entry's extended attributes; for a link, the link's own. On a file system without
// attributes the list is empty.
func (d *Dir) Attributes(rel string) ([]string, error) {
	var names []string
	err := d.attribute("list the attributes of", rel, func(path string) error {
		buf := make([]byte, 4096)
		n, err := unix.Llistxattr(path, buf)
		if err == unix.ERANGE { // at most
			buf = make([]byte, 64<<10)
			n, err = unix.Llistxattr(path, buf)
		}
		if err == unix.ENOTSUP || err == unix.EPERM {
			return nil
		}
		if err != nil {
			return err
		}
		names = strings.FieldsFunc(string(buf[:n]), func(c rune) bool { return c == 0 })
		return nil
	})
	return names, err
}

// Attribute returns an extended attribute, of at most 256 bytes; nil if there is none.
func (d *Dir) Attribute(rel, name string) (value []byte) {
	_ = d.attribute("read an attribute of", rel, func(path string) error {
		buf := make([]byte, 256)
		n, err := unix.Lgetxattr(path, name, buf)
		if err == nil {
			value = buf[:n]
		}
		return err
	})
	return value
}

// RemoveAttribute removes an extended attribute, if there is one.
func (d *Dir) RemoveAttribute(rel, name string) error {
	return d.attribute("remove attribute "+name+" of", rel, func(path string) error {
		if err := unix.Lremovexattr(path, name); err != unix.ENODATA {
			return err
		}
		return nil
	})
}

// attribute calls do with a path of an entry that begins with the descriptor of its folder.
func (d *Dir) attribute(op, rel string, do func(path string) error) error {
	return d.entry(op, rel, func(fd int, base string) error {
		return do("/proc/self/fd/" + strconv.Itoa(fd) + "/" + base)
	})
}
