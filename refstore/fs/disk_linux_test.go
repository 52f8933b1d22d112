package fs_test

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"e3/refstore"
	"e3/refstore/fs"
)

// tmpfs mounts a small file system that the test may fill or freeze.
func tmpfs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	dir := tmpfs(t)
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	small := put(t, s, refstore.Record{Key: job("a"), Value: []byte("small")})
	exec := refstore.Key{Partition: "EXECUTION/t/i", Sort: "e"}
	first := put(t, s, refstore.Record{Key: exec, Value: []byte("small")})
	if err := s.Append(t.Context(), eventsKey, 0, []byte("line\n")); err != nil {
		t.Fatal(err)
	}

	big := make([]byte, 1<<20)
	for name, write := range map[string]func() error{
		"create file": func() error { _, err := s.Put(t.Context(), refstore.Record{Key: job("b"), Value: big}); return err },
		"update file": func() error {
			_, err := s.Put(t.Context(), refstore.Record{Key: job("a"), Value: big, Version: small})
			return err
		},
		"create execution": func() error {
			_, err := s.Put(t.Context(), refstore.Record{
				Key: refstore.Key{Partition: exec.Partition, Sort: "f"}, Fields: []refstore.Field{{Name: "output", Value: big}},
			})
			return err
		},
		"update execution": func() error {
			_, err := s.Put(t.Context(), refstore.Record{Key: exec, Value: big, Version: first})
			return err
		},
		"append": func() error { return s.Append(t.Context(), eventsKey, 5, big) },
	} {
		err := write()
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want ENOSPC with a path", name, err)
		}
	}
	session, err := s.SessionDir()
	if err != nil {
		t.Fatal(err)
	}
	if left := names(t, session); len(left) > 0 {
		t.Errorf("the session holds %q after failed writes, want nothing", left)
	}
	for _, want := range []refstore.Record{
		{Key: job("a"), Value: []byte("small"), Version: small}, {Key: exec, Value: []byte("small"), Version: first},
	} {
		r, err := s.Get(t.Context(), want.Key)
		if err != nil || string(r.Value) != string(want.Value) || r.Version != want.Version {
			t.Errorf("get %q: got %q %q, %v, want what was there before", want.Key, r.Value, r.Version, err)
		}
	}
	if info, err := s.Size(t.Context(), eventsKey); err != nil || info.Size != 5 {
		t.Errorf("stream has %d bytes, %v, want the 5 from before", info.Size, err)
	}
	put(t, s, refstore.Record{Key: job("c"), Value: []byte("there is room again")})
}

// An execution that is written once more, since a sweep has made room for it, is as it would have been.
func TestRoomForExecution(t *testing.T) {
	dir := tmpfs(t)
	dead, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	session, err := dead.SessionDir()
	if err == nil {
		err = os.WriteFile(filepath.Join(session, "left"), make([]byte, 100<<10), 0o600)
	}
	dead.KeepSession()
	if err := errors.Join(err, dead.Close()); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir, fs.Options{})
	exec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/t/i", Sort: "e"}, Value: []byte("value"), Fields: []refstore.Field{
		{Name: "output", Value: make([]byte, 20<<10)},
	}}
	put(t, s, refstore.Record{Key: job("a"), Value: []byte("small")})
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: %v, want ENOSPC", err)
	}
	put(t, s, exec)
	r, err := s.Get(t.Context(), exec.Key, "output")
	if err != nil || string(r.Value) != "value" || len(r.Fields) != 1 || len(r.Fields[0].Value) != 20<<10 {
		t.Errorf("got the value %.40q, %d fields, %v", r.Value, len(r.Fields), err)
	}
}

func TestReadOnlyFileSystem(t *testing.T) {
	dir := tmpfs(t)
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := put(t, s, refstore.Record{Key: job("a"), Value: []byte("value")})
	if err := errors.Join(s.Append(t.Context(), eventsKey, 0, []byte("line\n")), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	readOnly(t, dir, v, unix.EROFS)
}

// readOnly checks a repository with job a and five bytes of events that cannot be written.
func readOnly(t *testing.T, dir string, v refstore.Version, want error) {
	t.Helper()
	s := open(t, dir, fs.Options{})
	ctx := t.Context()
	r, err := s.Get(ctx, job("a"))
	if err != nil || string(r.Value) != "value" {
		t.Errorf("get: %q, %v", r.Value, err)
	}
	for _, err := range s.List(ctx, refstore.Query{Partition: job("a").Partition}) {
		if err != nil {
			t.Errorf("list: %v", err)
		}
	}
	if info, err := s.Size(ctx, eventsKey); err != nil || info.Size != 5 {
		t.Errorf("size: %d, %v", info.Size, err)
	}
	if _, held, err := s.Holder(ctx, "run"); err != nil || held {
		t.Errorf("holder: %v, %v", held, err)
	}
	for name, write := range map[string]func() error{
		"create": func() error { _, err := s.Put(ctx, refstore.Record{Key: job("b")}); return err },
		"update": func() error { _, err := s.Put(ctx, refstore.Record{Key: job("a"), Version: v}); return err },
		"create execution": func() error {
			_, err := s.Put(ctx, refstore.Record{Key: refstore.Key{Partition: "EXECUTION/t/i", Sort: "e"}})
			return err
		},
		"delete":  func() error { return s.Delete(ctx, job("a"), v) },
		"append":  func() error { return s.Append(ctx, eventsKey, 5, []byte("x")) },
		"seal":    func() error { return s.Seal(ctx, eventsKey) },
		"lock":    func() error { _, err := s.TryLock(ctx, "run", refstore.Exclusive, nil); return err },
		"claim":   func() error { _, err := s.TryClaim(t.Context(), claimKey, nil); return err },
		"session": func() error { _, err := s.SessionDir(); return err },
	} {
		err := write()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want %v with a path", name, err, want)
		}
	}
}

// TestReadOnlyFolders tests missing permissions; it cannot run as root, which always has them.
func TestReadOnlyFolders(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("file modes do not bind root: run the tests as another user; TestReadOnlyFileSystem covers root")
	}
	dir := t.TempDir()
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := put(t, s, refstore.Record{Key: job("a"), Value: []byte("value")})
	put(t, s, refstore.Record{Key: job("z"), Value: []byte("value")})
	if err := errors.Join(s.Append(t.Context(), eventsKey, 0, []byte("line\n")), s.Close()); err != nil {
		t.Fatal(err)
	}
	chmod := func(dirs, files os.FileMode) {
		err := filepath.WalkDir(dir, func(path string, e iofs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				return os.Chmod(path, dirs)
			}
			return os.Chmod(path, files)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o555, 0o644)
	if err := os.Chmod(filepath.Join(dir, "events", "prod", "run.ndjson"), 0o444); err != nil {
		t.Fatal(err)
	}
	defer chmod(0o755, 0o644)
	if _, err := open(t, dir, fs.Options{}).Put(t.Context(), refstore.Record{Key: job("b"), Version: refstore.Absent}); !errors.Is(err, iofs.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("put: got %v, want a permission error with a path", err)
	}
	if err := open(t, dir, fs.Options{}).Delete(t.Context(), job("a"), v); !errors.Is(err, iofs.ErrPermission) {
		t.Errorf("delete: got %v, want a permission error", err)
	}
}

// TestReserveIsTold: each command that met the full disk learns that the reserve was used, also if another goroutine used
// it; another process does not.
func TestReserveIsTold(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	if s.UseReserve() {
		t.Error("there is a reserve before it was kept")
	}
	put(t, s, refstore.Record{Key: job("a"), Value: []byte("small")}) // makes tmp/
	s.KeepReserve()
	for i := range 2 {
		if !s.UseReserve() {
			t.Errorf("use %d: there is no reserve", i+1)
		}
	}
	if open(t, dir, fs.Options{}).UseReserve() {
		t.Error("another store has used the reserve, want that there is none")
	}
}
