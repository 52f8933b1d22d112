package beneath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"e3/internal/host/beneath"
)

// eachWay runs a test with the calls of this kernel, and with those of older ones.
func eachWay(t *testing.T, test func(t *testing.T)) {
	t.Run("openat2", test)
	beneath.WithoutOpenat2(func() { t.Run("openat", test) })
}

// A mount below a confined folder is not entered, and nothing is removed through it.
func TestMount(t *testing.T) { eachWay(t, testMount) }

func testMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount: run the tests as root")
	}
	outside, dir := secret(t), t.TempDir()
	d := open(t, dir).Confine()
	must(t, os.MkdirAll(filepath.Join(dir, "a", "with space"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "a", "file"), nil, 0o600))
	must(t, d.Mkdir("work", 0o700))
	work, err := d.Sub("work")
	must(t, err)
	defer work.Close()
	points := []string{"a/with space", "a/with space", "a/file", "work"}
	for _, rel := range points {
		from := outside
		if rel == "a/file" {
			from = filepath.Join(outside, "key")
		}
		if err := unix.Mount(from, filepath.Join(dir, rel), "", unix.MS_BIND, ""); err != nil {
			t.Skip("this root cannot mount: run the tests outside of a container, or with CAP_SYS_ADMIN:", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(dir, rel), unix.MNT_DETACH) })
	}
	if _, err := d.Sub("a/with space/sub"); !errors.Is(err, beneath.ErrMount) {
		t.Errorf("a folder below a mount: %v", err)
	}
	if _, err := d.OpenFile("a/file", os.O_RDONLY, 0); !errors.Is(err, beneath.ErrMount) {
		t.Errorf("a mounted file: %v", err)
	}
	if work.InPlace() {
		t.Error("a folder with a mount over it passes for itself")
	}
	for _, rel := range []string{"a", "work"} {
		if err := d.RemoveAll(rel); !errors.Is(err, beneath.ErrMount) {
			t.Errorf("remove %s: %v", rel, err)
		}
	}
	for _, rel := range []string{"a", "a/file", "work"} {
		if _, err := d.Lstat(rel); (rel != "a") != errors.Is(err, beneath.ErrMount) {
			t.Errorf("lstat of %s: %v", rel, err)
		}
		if _, err := d.Stamp(rel); (rel != "a") != errors.Is(err, beneath.ErrMount) {
			t.Errorf("the stamp of %s: %v", rel, err)
		}
	}
	must(t, d.Discard("a"))
	must(t, d.Discard("work"))
	if !d.HasEntries(0) {
		t.Error("something is left")
	}
}
