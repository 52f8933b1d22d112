package watch_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/watch"
	"e3/internal/testing/suite"
)

func TestTouched(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"written": func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), []byte("y"), 0o644) },
		"made":    func(dir string) error { return os.WriteFile(filepath.Join(dir, "g"), nil, 0o644) },
		"removed": func(dir string) error { return os.Remove(filepath.Join(dir, "f")) },
		"mode":    func(dir string) error { return os.Chmod(filepath.Join(dir, "f"), 0o600) },
		"folder":  func(dir string) error { return os.Chmod(dir, 0o700) },
		"moved":   func(dir string) error { return os.Rename(dir, dir+"2") },
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		w := folders(t, dir)
		if _, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || w.Touched() {
			t.Errorf("%s: touched by reading (%v)", name, err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		for range 2 { // once seen, it stays so
			if !w.Touched() {
				t.Errorf("%s: not seen", name)
			}
		}
		w.Close()
	}
	if _, err := watch.Folders([]string{filepath.Join(t.TempDir(), "absent")}); err == nil {
		t.Error("a folder that is not there can be watched")
	}
}

// folders watches a folder. Other programs of this user may have as many watches as the kernel allows: then it waits.
func folders(t *testing.T, dir string) *watch.Tree {
	t.Helper()
	for deadline := time.Now().Add(suite.Stuck); ; <-time.After(10 * time.Millisecond) {
		w, err := watch.Folders([]string{dir})
		if err == nil {
			return w
		}
		if !errors.Is(err, syscall.EMFILE) || time.Now().After(deadline) {
			t.Fatalf("watch %s: %v", dir, err)
		}
	}
}
