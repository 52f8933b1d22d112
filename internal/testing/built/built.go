// Package built builds e3 for tests that run it, once for all packages.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of a program e3, which is removed when the test ends. The test's working directory is the folder
// of a package, as go test has it.
func Program(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e3")
	if err := WriteProgram(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WriteProgram writes it to path. Flags are those of "go build".
//
// Linking takes several seconds of processor time. "go build" links each time that it writes to a new place, whereas
// "go run" keeps what it has linked in Go's cache, and has the command of -exec run it: here cp, which copies it.
func WriteProgram(path string, flags ...string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if err := visit(); err != nil {
		return err
	}
	args := append([]string{"run", "-buildvcs=false", "-exec", "cp"}, flags...)
	if out, err := exec.Command("go", append(args, "e3/cmd/e3", path)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build e3: %w\n%s", err, out)
	}
	return nil
}

// visit reads the folder of the program's sources, so that go test repeats a test after they have changed: it compares the
// files and folders of the module that a test has read.
func visit() error {
	for dir := "."; ; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			_, err = os.ReadDir(filepath.Join(dir, "cmd/e3"))
			return err
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == filepath.Dir(abs) {
			return fmt.Errorf("no go.mod above the test's folder: %w", os.ErrNotExist)
		}
	}
}
