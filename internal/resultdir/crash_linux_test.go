package resultdir_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/resultdir"
	"e3/objectstore"
)

const crashers = "E3_TEST_CRASH_RESULTS"

// TestKilled kills a process that leaves results again and again. Each file is one of the two contents, whole, and the
// next write takes none of them for an edit.
func TestKilled(t *testing.T) {
	if place := os.Getenv(crashers); place != "" {
		writeForEver(t, place)
		return
	}
	rounds := 30
	if testing.Short() {
		rounds = 8
	}
	place := t.TempDir()
	for _, dir := range []string{"out", "repo", "objects"} {
		if err := os.Mkdir(filepath.Join(place, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), crashers+"="+place)
		ready, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := ready.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(30*time.Millisecond))), func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		timer.Stop()
		t.Run("", func(t *testing.T) {
			b := crashBench(t, place)
			report := b.leave(resultdir.Options{}, crashItems(b, "third")...)
			if len(report.Kept) > 0 {
				t.Fatalf("round %d: taken for edits: %v", round, report.Kept)
			}
			for _, item := range crashItems(b, "third") {
				data, err := os.ReadFile(filepath.Join(b.dir, item.Path))
				if err != nil || string(data) != crashContent("third", item.Path) {
					t.Fatalf("round %d: %s has %d bytes, %v", round, item.Path, len(data), err)
				}
			}
		})
	}
}

func crashBench(t *testing.T, place string) *bench {
	objects, err := objectstore.OpenDir(filepath.Join(place, "objects"), objectstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return openBench(t, filepath.Join(place, "out"), filepath.Join(place, "repo"), objects)
}

func crashContent(what, path string) string { return strings.Repeat(what+" "+path+"\n", 2000) }

func crashItems(b *bench, what string) (items []resultdir.Item) {
	for _, p := range []string{"a", "b/c", "b/d", "e", "f/g/h", what + "-only"} {
		items = append(items, b.file(p, crashContent(what, p)))
	}
	return items
}

func writeForEver(t *testing.T, place string) {
	b := crashBench(t, place)
	first, second := crashItems(b, "first"), crashItems(b, "second")
	os.Stdout.Write([]byte("."))
	for {
		b.leave(resultdir.Options{}, first...)
		b.leave(resultdir.Options{}, second...)
	}
}

// TestFullDisk leaves the folder as it was.
func TestFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("", func(t *testing.T) { // so that the folder is closed before it is unmounted
		whole := newBench(t)
		b := openBench(t, small, t.TempDir(), whole.Objects)
		b.leave(resultdir.Options{}, b.file("a", "1"), b.file("gone", "1"))
		big := strings.Repeat("x", 200<<10)
		_, err := b.Write(t.Context(), []resultdir.Item{b.file("a", "2"), b.file("b", big), b.file("c", big+"y")}, resultdir.Options{})
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("got %v, want ENOSPC", err)
		}
		b.noRemains()
		b.holds("a=1", "gone=1")
	})
}
