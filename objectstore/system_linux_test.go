package objectstore_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// leased skips the test unless files of dir's file system can be adopted without a copy.
func leased(t *testing.T, dir string) {
	t.Helper()
	f, err := os.CreateTemp(dir, "probe")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	defer os.Remove(f.Name())
	f, err = os.Open(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		t.Skipf("needs a file system with leases; set TMPDIR to one, such as ext4 (%v)", err)
	}
}

func TestAdoptTakesOver(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	for _, size := range []int{0, 100, 4096, 3 << 20} {
		d := newDirIn(t, t.TempDir())
		path := filepath.Join(base, "out")
		writeFile(t, path, 1, size)
		if _, same := adopted(t, d, path); !same {
			t.Errorf("%d bytes were copied", size)
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the file is still at its old place: %v", err)
		}
	}
}

func TestAdoptWithWriter(t *testing.T) {
	base := t.TempDir()
	d := newDirIn(t, base)
	path := filepath.Join(base, "out")
	writeFile(t, path, 1, 5000)
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	h, same := adopted(t, d, path)
	if same {
		t.Error("a file that is open for writing was taken over")
	}
	if _, err := writer.WriteAt([]byte("later"), 0); err != nil {
		t.Error(err)
	}
	if err := d.Verify(t.Context(), h); err != nil {
		t.Error(err)
	}
}

func TestAdoptWithWritableMapping(t *testing.T) {
	base := t.TempDir()
	d := newDirIn(t, base)
	path := filepath.Join(base, "out")
	writeFile(t, path, 1, 5000)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	h, same := adopted(t, d, path)
	if same {
		t.Error("a file that is mapped for writing was taken over")
	}
	copy(mem, "later")
	if err := d.Verify(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// A process that opens the file for writing while it is hashed must wait for the lease; afterwards the file must not be
// the object.
func TestAdoptWithLateWriter(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	d := newDirIn(t, base)
	path := filepath.Join(base, "out")
	writeFile(t, path, 1, 3<<20)
	opened := make(chan *os.File, 1)
	ctx := &hookContext{t.Context(), 4, func() {
		if _, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK, 0); err != unix.EWOULDBLOCK {
			t.Errorf("open for writing during the lease: got %v, want EWOULDBLOCK", err)
		}
		go func() {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
			}
			opened <- f
		}()
	}}
	info, err := d.Adopt(ctx, suite.Paths{}, path)
	f := <-opened
	var changed *objectstore.ChangedError
	if err != nil && !errors.As(err, &changed) {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("later"), 0); err != nil {
		t.Error(err)
	}
	f.Close()
	if err == nil {
		if err := d.Verify(t.Context(), info.Hash); err != nil {
			t.Error(err)
		}
	}
	checkAll(t, d)
}

// Another file at the same path must not get the name of the hashed file.
func TestAdoptOfReplacedPath(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	d := newDirIn(t, base)
	path := filepath.Join(base, "out")
	b := writeFile(t, path, 1, 3<<20)
	ctx := &hookContext{t.Context(), 4, func() {
		writeFile(t, path+"2", 2, 3<<20)
		if err := os.Rename(path+"2", path); err != nil {
			t.Error(err)
		}
	}}
	info, err := d.Adopt(ctx, suite.Paths{}, path)
	if err != nil || info.Hash != objectstore.Sum(b) {
		t.Errorf("got %v, %v, want the file that was opened", info, err)
	}
	if n := checkAll(t, d); n != 1 {
		t.Errorf("got %d objects, want 1", n)
	}
}

// If the file gets another name while it is hashed, the object is a copy.
func TestAdoptOfFileLinkedMeanwhile(t *testing.T) {
	base := t.TempDir()
	leased(t, base)
	d := newDirIn(t, base)
	path := filepath.Join(base, "out")
	writeFile(t, path, 1, 3<<20)
	ctx := &hookContext{t.Context(), 4, func() {
		if err := os.Link(path, path+"2"); err != nil {
			t.Error(err)
		}
	}}
	info, err := d.Adopt(ctx, suite.Paths{}, path)
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(path+"2", 0o600)
	if err := os.WriteFile(path+"2", []byte("later"), 0o600); err != nil {
		t.Error(err)
	}
	if err := d.Verify(t.Context(), info.Hash); err != nil {
		t.Error(err)
	}
}

func TestAdoptFromOtherFileSystem(t *testing.T) {
	d := newDir(t)
	other := onOtherFileSystem(t)
	for _, size := range []int{10, 3 << 20} {
		path := filepath.Join(other, "out")
		writeFile(t, path, 1, size)
		h, _ := adopted(t, d, path)
		dst := filepath.Join(other, "in")
		if err := d.Materialize(t.Context(), h, suite.Paths{}, dst, 0o644); err != nil {
			t.Error(err)
		}
		os.Remove(dst)
	}
}

// onOtherFileSystem makes a folder on another file system than that of t.TempDir: in memory, or beside the tests.
func onOtherFileSystem(t *testing.T) string {
	t.Helper()
	device := func(path string) uint64 {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			return 0
		}
		return st.Dev
	}
	here := device(t.TempDir())
	for _, parent := range []string{"/dev/shm", "/var/tmp", "."} {
		if there := device(parent); there == here || there == 0 {
			continue
		}
		dir, err := os.MkdirTemp(parent, ".e3-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Skip("needs a second file system that can be written: /dev/shm, /var/tmp or the folder of the tests")
	return ""
}

// mount mounts a file system for the duration of the test.
func mount(t *testing.T, dir, kind, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a file system")
	}
	if err := unix.Mount("none", dir, kind, 0, options); err != nil {
		t.Skipf("needs the right to mount %s: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestFullDisk(t *testing.T) {
	for _, named := range []bool{false, true} {
		base := t.TempDir()
		mount(t, base, "tmpfs", "size=2m")
		d := newDirIn(t, base)
		if named {
			d.ForceNamed()
		}
		small := put(t, d, []byte("small"))
		big := bytes.Repeat([]byte("12345678"), 1<<19)
		src := filepath.Join(t.TempDir(), "big")
		os.WriteFile(src, big, 0o600)
		attempts := map[string]func() error{
			"Put":      func() error { _, err := d.Put(t.Context(), bytes.NewReader(big)); return err },
			"PutBytes": func() error { _, err := d.PutBytes(t.Context(), big); return err },
			"PutFile": func() error {
				_, err := d.PutFile(t.Context(), openFile(t, src), objectstore.FileOptions{})
				return err
			},
			"Adopt": func() error { _, err := d.Adopt(t.Context(), suite.Paths{}, src); return err },
			"tree.Put": func() error {
				_, _, err := tree.Put(t.Context(), d, filepath.Dir(src), tree.PutOptions{})
				return err
			},
		}
		for name, attempt := range attempts {
			err := attempt()
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("%s, named %v: got %v, want no space left on device", name, named, err)
			}
			if n := checkAll(t, d); n != 1 {
				t.Errorf("%s, named %v: %d objects, want 1", name, named, n)
			}
		}
		if err := d.Verify(t.Context(), small); err != nil {
			t.Error(err)
		}
		put(t, d, []byte("small files still fit"))
	}
}

func TestReadOnlyStore(t *testing.T) {
	base := t.TempDir()
	mount(t, base, "tmpfs", "size=4m")
	h := put(t, newDirIn(t, base), []byte("here"))
	if err := unix.Mount("none", base, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := d.ReadAll(t.Context(), h, 10); err != nil || string(b) != "here" {
		t.Errorf("ReadAll: got %q, %v", b, err)
	}
	if missing, err := d.Missing(t.Context(), []objectstore.Hash{h, {}}); err != nil || len(missing) != 1 {
		t.Errorf("Missing: got %v, %v, want one", missing, err)
	}
	if err := d.Verify(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := d.Materialize(t.Context(), h, suite.Paths{}, filepath.Join(t.TempDir(), "out"), 0o644); err != nil {
		t.Error(err)
	}
	if _, err := d.PutBytes(t.Context(), []byte("new")); !errors.Is(err, unix.EROFS) {
		t.Errorf("PutBytes: got %v, want EROFS", err)
	}
	if err := d.Delete(t.Context(), h); !errors.Is(err, unix.EROFS) {
		t.Errorf("Delete: got %v, want EROFS", err)
	}
}

func TestReflink(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount an XFS image")
	}
	mkfs, err := exec.LookPath("mkfs.xfs")
	if err != nil {
		t.Skip("needs mkfs.xfs, of the package xfsprogs")
	}
	base := t.TempDir()
	image, mnt := filepath.Join(base, "image"), filepath.Join(base, "mnt")
	os.Mkdir(mnt, 0o777)
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 512<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs, "-q", "-m", "reflink=1", image).CombinedOutput(); err != nil {
		t.Skipf("needs an mkfs.xfs that makes small images: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, mnt).CombinedOutput(); err != nil {
		t.Skipf("needs loop devices and XFS in the kernel: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d := newDirIn(t, mnt)
	free := func() uint64 {
		var st unix.Statfs_t
		f := openFile(t, mnt)
		if err := errors.Join(unix.Syncfs(int(f.Fd())), f.Close(), unix.Statfs(mnt, &st)); err != nil {
			t.Fatal(err)
		}
		return st.Bfree * uint64(st.Bsize)
	}
	const size = 64 << 20
	src := filepath.Join(mnt, "src")
	b := writeFile(t, src, 1, size)
	start := free()
	f := openFile(t, src)
	info, err := d.PutFile(t.Context(), f, objectstore.FileOptions{})
	if err != nil || info.Hash != objectstore.Sum(b) {
		t.Fatalf("PutFile: got %v, %v", info, err)
	}
	dst := filepath.Join(mnt, "dst")
	if err := d.Materialize(t.Context(), info.Hash, suite.Paths{}, dst, 0o644); err != nil {
		t.Fatal(err)
	}
	if used := int64(start) - int64(free()); used > size/2 {
		t.Errorf("storing %d bytes and writing them out took %d bytes of disk: nothing was shared", size, used)
	}
	for _, path := range []string{src, dst} {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.WriteString("later")
		w.Close()
	}
	if n := checkAll(t, d); n != 1 {
		t.Errorf("got %d objects, want 1", n)
	}
	if _, same := adopted(t, d, src); !same {
		t.Error("Adopt copied")
	}
}

func TestTreeSpecialFiles(t *testing.T) {
	d := newDir(t)
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "sub"), 0o777)
	path := filepath.Join(dir, "sub", "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var special *objectstore.SpecialFileError
	_, _, err := tree.Put(t.Context(), d, dir, tree.PutOptions{})
	if !errors.As(err, &special) || special.Path != path || !strings.Contains(err.Error(), "named pipe") {
		t.Errorf("tree.Put: got %v, want *SpecialFileError for the pipe %s", err, path)
	}
	if _, err := d.Adopt(t.Context(), suite.Paths{}, path); !errors.As(err, &special) {
		t.Errorf("Adopt: got %v, want *SpecialFileError", err)
	}
	os.Remove(path)
	bad := string([]byte{'a', 0xff})
	if err := os.WriteFile(filepath.Join(dir, "sub", bad), nil, 0o600); err != nil {
		t.Skipf("needs a file system that takes any bytes as a name: %v", err)
	}
	var rule *tree.Error
	if _, _, err := tree.Put(t.Context(), d, dir, tree.PutOptions{}); !errors.As(err, &rule) || rule.Path != "sub/"+bad {
		t.Errorf("tree.Put of a name that is not UTF-8: got %v, want *tree.Error", err)
	}
}

// A named file aside is closed before it gets its object's name. On NFS, data is sent at the latest on close. So the
// data is on the server before another process can see the name, and a failed send is an error of the put.
func TestClosedBeforeNamed(t *testing.T) {
	for name, store := range map[string]func(d *objectstore.Dir, b []byte) error{
		"PutBytes": func(d *objectstore.Dir, b []byte) error { _, err := d.PutBytes(t.Context(), b); return err },
		"Put":      func(d *objectstore.Dir, b []byte) error { _, err := d.Put(t.Context(), bytes.NewReader(b)); return err },
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			d := newDirIn(t, base)
			d.ForceNamed()
			put(t, d, []byte("so that the store is open"))
			data := bytes.Repeat([]byte("data"), objectstore.ChunkSize)
			path := d.File(objectstore.Sum(data))
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
			if err != nil {
				t.Skipf("needs file notification: %v", err)
			}
			defer unix.Close(fd)
			for _, dir := range []string{filepath.Dir(path), filepath.Join(base, "scratch")} {
				if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_CLOSE_WRITE); err != nil {
					t.Fatal(err)
				}
			}
			if err := store(d, data); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 4096)
			n, err := unix.Read(fd, buf)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for buf = buf[:n]; len(buf) > 0; {
				mask, size := binary.NativeEndian.Uint32(buf[4:]), binary.NativeEndian.Uint32(buf[12:]) // of struct inotify_event
				what := map[uint32]string{unix.IN_CREATE: "create", unix.IN_CLOSE_WRITE: "close"}[mask]
				buf = buf[unix.SizeofInotifyEvent:]
				if string(bytes.TrimRight(buf[:size], "\x00")) == filepath.Base(path) {
					what = "name"
				}
				got, buf = append(got, what), buf[size:]
			}
			if want := []string{"create", "close", "name"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
