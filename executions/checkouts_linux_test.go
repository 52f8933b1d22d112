package executions_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// manyFiles stores a folder of as many files as are kept; the first has the given content.
func manyFiles(t *testing.T, l *lab, first string) objectstore.Hash {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "many")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		content := fmt.Sprint("file ", i)
		if i == 0 {
			content = first
		}
		if err := os.WriteFile(filepath.Join(dir, "sub", fmt.Sprint("f", i)), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("sub/f0", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	h, _, err := tree.Put(t.Context(), l.objects, dir, tree.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// reader is a task that reads the folder data; version makes its key another.
func reader(text, version string) *record.Task {
	return &record.Task{Shell: text + "; echo x > out", Version: version, Output: single("out", record.KindFile),
		Inputs: []record.Input{{Name: "data", Path: "data", Kind: record.KindDir}}}
}

// keepHere makes checkouts stay for the next executor of the repository.
func keepHere(t *testing.T) func(*executions.Options) {
	dir := t.TempDir()
	return func(o *executions.Options) { o.Checkouts = func() (string, error) { return dir, nil } }
}

const lookAtData = `find . "$HOME" "$TMPDIR" -printf '%P %y %m %n %s %l\n' | sort; find data -type f | sort | xargs sha256sum`

// A command finds a large folder as it was stored, whatever the commands before it did to theirs.
func TestKeptCheckoutIsClean(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	want := l.run(t, reader(lookAtData, "fresh"), h)
	if n := strings.Count(want, "\n"); n < 600 {
		t.Fatalf("%d lines:\n%s", n, want)
	}
	for i, harm := range []string{
		`echo more >> data/sub/f7`,
		`printf 'FILE 8' > data/sub/f8`, // of the same size
		`touch -d 2001-01-01 data/sub/f9`,
		`m=$(stat -c %y data/sub/f9); printf 'FILE 9' > data/sub/f9; touch -d "$m" data/sub/f9`,
		`rm -r data/sub; mkdir data/sub`,
		`rm -r data; ln -s / data`,
		`rm -r data; echo x > data`,
		`mv data other; mkdir data`,
		`mkdir -p data/sub/__pycache__; echo x > data/sub/__pycache__/f.pyc`,
		`chmod 000 data/sub`,
		`chmod 4777 data/sub/f1; chmod 777 data`,
		`ln data/sub/f1 data/sub/f1b; ln data/sub/f2 f2`,
		`rm data/link; ln -s /etc/passwd data/link`,
		`rm data/sub/f3; mkfifo data/sub/f3`,
	} {
		for round := range 2 {
			l.run(t, reader("cd data; cd ..; "+harm, fmt.Sprint(i, round)), h)
			if got := l.run(t, reader(lookAtData, fmt.Sprint("after ", i, round)), h); got != want {
				t.Fatalf("after %s a task finds\n%s\nwant\n%s", harm, got, want)
			}
		}
	}
}

// Commands that run at the same time have checkouts of their own.
func TestKeptCheckoutsAreApart(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	met := t.TempDir()
	l.run(t, reader("true", "before"), h) // one checkout is idle
	var all sync.WaitGroup
	for _, names := range [][2]string{{"a", "b"}, {"b", "a"}} {
		mine, other := names[0], names[1]
		text := fmt.Sprintf(`echo %s > data/sub/f1; touch data/%[1]s %[3]s/%[1]s
			until test -e %[3]s/%[2]s; do read -rt 0.01 <> <(:) || :; done
			test ! -e data/%[2]s; test "$(cat data/sub/f1)" = %[1]s`, mine, other, met)
		all.Go(func() {
			req := l.request(reader(text, mine), h)
			if res, err := l.Do(t.Context(), req); err != nil || res.State != record.Success {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
	all.Wait()
}

// numbers returns the inode numbers of the folder's files.
func numbers(t *testing.T, l *lab, version string, h objectstore.Hash) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(l.run(t, reader(`stat -c '%n %i' data/sub/*; cat data/link`, version), h)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = number
	}
	return all
}

func sameNumbers(a, b map[string]string) int {
	n := 0
	for name, number := range a {
		if strings.HasPrefix(name, "data/") && b[name] == number {
			n++
		}
	}
	return n
}

// The files of a folder are not made again for the next command, in this process or a later one.
func TestKeptCheckoutIsUsedAgain(t *testing.T) {
	keep := keepHere(t)
	l := newLab(t, keep)
	one, two := manyFiles(t, l, "first"), manyFiles(t, l, "second")
	before := numbers(t, l, "1", one)
	if n := sameNumbers(before, numbers(t, l, "2", one)); n != 300 {
		t.Errorf("%d of 300 files stay for the next command", n)
	}
	if got := numbers(t, l, "3", two); sameNumbers(before, got) < 299 || !has(got, "second") {
		t.Errorf("%d of 300 files stay when one has changed, %v", sameNumbers(before, got), has(got, "second"))
	}
	before = numbers(t, l, "4", two)
	if err := l.Rest(); err != nil {
		t.Fatal(err)
	}
	next, err := openLab(l.dir, keep)
	if err != nil {
		t.Fatal(err)
	}
	defer next.records.Close()
	if got := numbers(t, next, "5", one); sameNumbers(before, got) < 299 || !has(got, "first") {
		t.Errorf("%d of 300 files stay for the next process", sameNumbers(before, got))
	}
}

func has(all map[string]string, line string) bool { _, ok := all[line]; return ok }

// A checkout is left alone as long as another process works in it or has something of it open.
func TestKeptCheckoutInUse(t *testing.T) {
	keep := keepHere(t)
	for _, later := range []bool{false, true} {
		for _, where := range []string{".", "sub", "sub/f5"} {
			t.Run(fmt.Sprint(later, where), func(t *testing.T) {
				l := newLab(t, keep)
				h := manyFiles(t, l, "first "+fmt.Sprint(later, where))
				before := numbers(t, l, "1", h)
				found, err := filepath.Glob(filepath.Join(l.dir, "tmp", "session-*", "k*", "tree", where))
				if err != nil || len(found) != 1 {
					t.Fatalf("the checkout is not at %v, %v", found, err)
				}
				other := exec.Command("cat")
				f, err := os.Open(found[0])
				if err != nil {
					t.Fatal(err)
				}
				other.ExtraFiles = []*os.File{f}
				in, err := other.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				f.Close()
				defer func() {
					in.Close()
					other.Wait()
				}()
				if later {
					if err := l.Rest(); err != nil {
						t.Fatal(err)
					}
				}
				if n := sameNumbers(before, numbers(t, l, "2", h)); n != 0 {
					t.Errorf("%d files were given to another command", n)
				}
			})
		}
	}
}

// Small folders, and those that share a place with another input or output, are staged as ever.
func TestNotKept(t *testing.T) {
	l := newLab(t)
	h := manyFiles(t, l, "first")
	for name, change := range map[string]func(*record.Task) []objectstore.Hash{
		"output in it": func(task *record.Task) []objectstore.Hash {
			task.Output.Entries[0].Path = "data/out"
			task.Shell = "echo x > data/out"
			return nil
		},
		"folder of outputs around it": func(task *record.Task) []objectstore.Hash {
			task.Inputs[0].Path = "data/in"
			task.Output.Entries[0] = record.OutputEntry{Name: "out", Path: "data", Kind: record.KindDir}
			task.Shell = "test -e data/in/sub/f5"
			return nil
		},
		"file in it": func(task *record.Task) []objectstore.Hash {
			task.Inputs = append(task.Inputs, record.Input{Name: "more", Path: "data/sub/more", Kind: record.KindFile})
			task.Shell = "cat data/sub/more data/sub/f5 > out"
			return []objectstore.Hash{l.put(t, "more")}
		},
		"folder in it": func(task *record.Task) []objectstore.Hash {
			task.Inputs = append(task.Inputs, record.Input{Name: "more", Path: "data/sub", Kind: record.KindDir})
			task.Shell = "cat data/sub/more data/sub/f5 > out"
			data, err := tree.Encode(tree.Entries{{Name: "more", Kind: tree.KindFile, Hash: l.put(t, "more"), Size: 4}})
			if err != nil {
				t.Fatal(err)
			}
			return []objectstore.Hash{l.put(t, string(data))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			task := reader("test -e data/sub/f5", name)
			more := change(task)
			l.run(t, task, append([]objectstore.Hash{h}, more...)...)
			if found, _ := filepath.Glob(filepath.Join(l.dir, "tmp", "session-*", "k*")); len(found) > 0 {
				t.Errorf("kept as %v", found)
			}
		})
	}
}

// The checkouts that stay for the next process are bounded in number, in files, in blocks and in age; one that a process
// uses stays.
func TestKeptCheckoutsAreBounded(t *testing.T) {
	type one struct{ bytes, files, age int }
	roomy := tree.Usage{Files: 1 << 16, Bytes: 1 << 30}
	for _, c := range []struct {
		what  string
		there []one
		bound tree.Usage
		all   bool
		stay  int
	}{
		{"number", slices.Repeat([]one{{100, 2, 0}}, 18), roomy, false, 16},
		{"blocks", []one{{600 << 20, 1, 1}, {300 << 20, 1, 2}, {200 << 20, 1, 3}, {100 << 20, 1, 4}}, roomy, false, 3},
		{"files", []one{{1, 40, 1}, {1, 40, 2}, {1, 30, 3}, {1, 20, 4}}, tree.Usage{Files: 100, Bytes: 1 << 30}, false, 3},
		{"age", []one{{1, 1, 7*24*60 - 1}, {1, 1, 7*24*60 + 1}}, roomy, false, 1},
		{"all", []one{{1, 1, 1}, {1, 1, 2}}, roomy, true, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			for i, o := range c.there {
				path := filepath.Join(dir, fmt.Sprintf("label%d-%d-%d-%d-%d", i, i, o.bytes, o.files, i))
				at := now.Add(-time.Duration(o.age) * time.Minute)
				if err := errors.Join(os.Mkdir(path, 0o700), os.Chtimes(path, at, at)); err != nil {
					t.Fatal(err)
				}
			}
			stored := executions.StoredCheckouts(dir)
			dry, err := stored.Trim(now, c.bound, c.all, true)
			if left := entriesIn(t, dir); err != nil || left != len(c.there) {
				t.Errorf("a dry run leaves %d of %d, %v", left, len(c.there), err)
			}
			done, err := stored.Trim(now, c.bound, c.all, false)
			if left := entriesIn(t, dir); err != nil || left != c.stay || done != dry || done.Kept != c.stay || done.Removed != len(c.there)-c.stay {
				t.Errorf("%d stay, want %d: %+v, %+v after a dry run, %v", left, c.stay, done, dry, err)
			}
		})
	}
}

func entriesIn(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Kept checkouts count as what they take of the disk. A trim leaves alone one that a process uses, and removes what a dead
// process has begun to remove.
func TestStoredCheckouts(t *testing.T) {
	dir := t.TempDir()
	bound := tree.Usage{Files: 1 << 16, Bytes: 1 << 30}
	keep := func(o *executions.Options) {
		o.Checkouts, o.CheckoutBound = func() (string, error) { return dir, nil }, func() (tree.Usage, error) { return bound, nil }
	}
	l := newLab(t, keep)
	h := manyFiles(t, l, "first")
	l.run(t, reader("true", "1"), h)
	if err := l.Rest(); err != nil {
		t.Fatal(err)
	}
	stored := executions.StoredCheckouts(dir)
	got, err := stored.Trim(time.Now(), bound, true, true)
	if err != nil || got.Removed != 1 || got.RemovedFiles != 303 || got.RemovedBytes < 300*512 { // 300 files, a link and two folders
		t.Errorf("there is %+v, %v; want one with 303 files, of at least a block each", got, err)
	}

	found, err := filepath.Glob(filepath.Join(dir, "*", "tree"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the checkout is not at %v, %v", found, err)
	}
	user := exec.Command("cat")
	user.Dir = found[0]
	in, err := user.StdinPipe()
	if err == nil {
		err = user.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stored.Trim(time.Now(), bound, true, false); err != nil || got.Removed != 0 || got.Kept != 1 {
		t.Errorf("while a process is in it: %+v, %v; want it kept", got, err)
	}
	in.Close()
	if err := errors.Join(user.Wait(), os.Mkdir(filepath.Join(dir, "gone-1"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if got, err := stored.Trim(time.Now(), bound, true, false); err != nil || got.Removed != 1 || entriesIn(t, dir) != 0 {
		t.Errorf("afterwards: %+v, %d entries, %v; want none", got, entriesIn(t, dir), err)
	}

	// A checkout of more than half of what all may take is not kept, here for its files.
	bound = tree.Usage{Files: 600, Bytes: 1 << 30}
	l.run(t, reader("true", "2"), h)
	if err := l.Rest(); err != nil || entriesIn(t, dir) != 0 {
		t.Errorf("%d are kept, %v; want none", entriesIn(t, dir), err)
	}
}
