//go:build amd64 || arm64

package executions_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// closedReader is reader in a closed room.
func closedReader(text, version string) *record.Task {
	task := reader(text, version)
	task.Room.Closed = true
	return task
}

// TestLayerIsClean: a command in a closed room finds a large folder as it was stored, whatever commands before it did to
// theirs, and nothing is copied for it.
func TestLayerIsClean(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	const look = `find data -printf '%P %y %m %n %s %l\n' | sort; find data -type f | sort | xargs sha256sum; grep -c ' /e3 .*overlay' /proc/self/mountinfo`
	want := l.run(t, closedReader(look, "fresh"), h)
	if !strings.HasSuffix(want, "\n1\n") {
		t.Fatalf("the folder is not a layer:\n%s", want)
	}
	for i, harm := range []string{
		`echo more >> data/sub/f7; test "$(tail -1 data/sub/f7)" = "file 7more"`,
		`rm -r data/sub; mkdir data/sub; echo x > data/sub/f1`,
		`chmod 4777 data/link; chmod 000 data/sub`,
		`mv data/sub/f1 data/sub/f2; ln data/sub/f3 data/sub/f3b; mv data/sub/f4 .`,
		`rm data/link; ln -s /etc/passwd data/link; mkfifo data/sub/p`,
		`touch -d 2001-01-01 data/sub/f9; mkdir -p data/new/deep/er; chmod 0 data/new/deep`,
	} {
		l.run(t, closedReader(harm, fmt.Sprint(i)), h)
		if got := l.run(t, closedReader(look, fmt.Sprint("after ", i)), h); got != want {
			t.Fatalf("after %s a task finds\n%s\nwant\n%s", harm, got, want)
		}
	}
	if got := l.run(t, reader(`cat data/sub/f7; cat data/link`, "open"), h); got != "file 7first" {
		t.Errorf("a task in the open finds %q", got)
	}
}

// TestLayerTouched: what something else has changed in a lent checkout is made anew.
func TestLayerTouched(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	l.run(t, closedReader("true", "1"), h)
	files, err := filepath.Glob(filepath.Join(l.dir, "tmp", "*", "k*", "tree", "work", "data", "sub", "f7"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the checkouts have %v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("harmed"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := l.run(t, closedReader("cat data/sub/f7", "2"), h); got != "file 7" {
		t.Errorf("a task finds %q", got)
	}
}

// TestLayersTogether: commands that run at once share a checkout, and do not see what the others write.
func TestLayersTogether(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for k := range 3 {
				text := fmt.Sprintf(`echo %d > data/sub/f1; touch data/mine; sleep 0.02; test "$(cat data/sub/f1)" = %[1]d; test "$(ls data | wc -l)" = 3`, i)
				req := l.request(closedReader(text, fmt.Sprint(i, k)), h)
				if res, err := l.Do(t.Context(), req); err != nil || res.State != record.Success {
					t.Errorf("got %+v, %v", res, err)
				}
			}
		})
	}
	all.Wait()
	trees, err := filepath.Glob(filepath.Join(l.dir, "tmp", "*", "k*", "tree"))
	if err != nil || len(trees) != 1 {
		t.Errorf("there are the checkouts %v, %v", trees, err)
	}
}

// BenchmarkLayer measures a command with a folder of 5,000 files in a closed room, beside one without inputs.
func BenchmarkLayer(b *testing.B) {
	for _, files := range []int{0, 5000} {
		b.Run(fmt.Sprint(files), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "many")
			for i := range max(files, 1) {
				path := filepath.Join(dir, fmt.Sprint("d", i%20), fmt.Sprint("f", i))
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					b.Fatal(err)
				}
				if err := os.WriteFile(path, fmt.Append(nil, "file ", i), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			l, err := openLab(b.TempDir(), func(*executions.Options) {})
			if err != nil {
				b.Fatal(err)
			}
			var inputs []objectstore.Hash
			h, _, err := tree.Put(b.Context(), l.objects, dir, tree.PutOptions{})
			if err != nil {
				b.Fatal(err)
			}
			inputs = append(inputs, h)
			best, i := time.Hour, 0
			for b.Loop() {
				i++
				began := time.Now()
				if res, err := l.Do(b.Context(), l.request(closedReader("true", fmt.Sprint(i)), inputs...)); err != nil || res.State != record.Success {
					b.Fatal(res, err)
				}
				best = min(best, time.Since(began))
			}
			b.ReportMetric(float64(best.Microseconds()), "min-us")
		})
	}
}

// TestKeptFolderLeavesLayers: a command whose folder is kept no longer uses the checkouts below its layers, which would
// otherwise stay until the process ends. Its files are in the folder, and are removed with it, whatever their modes.
func TestKeptFolderLeavesLayers(t *testing.T) {
	folders := remains.In(t.TempDir())
	l := newLab(t, func(o *executions.Options) { o.Kept = folders })
	h := manyFiles(t, l, "first")
	task := closedReader(`echo left > data/sub/f7; rm data/link; mkdir -p data/deep/er; chmod 0 data/deep; exit 3`, "fails")
	req := l.request(task, h)
	req.Name, req.Workspace = "fails", "ws"
	res := l.do(t, req)
	f := folders.Find(res.ExecutionID)
	if f == nil {
		t.Fatalf("the folder of %+v is not kept", res)
	}
	if n := l.LayerUsers(); n != 0 {
		t.Errorf("%d commands use checkouts, though none runs", n)
	}
	found := false
	if err := filepath.WalkDir(f.Root, func(path string, d fs.DirEntry, err error) error {
		found = found || d.Name() == "f7"
		return nil
	}); err != nil || !found {
		t.Errorf("what the command wrote is not there: %v", err)
	}
	folders.Clear("ws")
	if _, err := os.Lstat(f.Root); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}
