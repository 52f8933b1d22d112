package workspace_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// link reads the link of the workspace w.
func (p *place) link() *record.Link {
	p.t.Helper()
	rec, err := p.repo.Records.Get(p.ctx, refstore.Key{Partition: "INDEX/links", Sort: "w"})
	if err != nil {
		p.t.Fatal(err)
	}
	l, err := record.DecodeLink(rec.Value)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

// seen returns when each file of an input was last read.
func (p *place) seen(input string) map[string]int64 {
	p.t.Helper()
	l := p.link()
	i := slices.IndexFunc(l.Inputs, func(in record.LinkInput) bool { return in.Name == input })
	times := map[string]int64{}
	for _, f := range l.Inputs[i].Files {
		times[f.Path] = f.Stat.Seen
	}
	if memory := l.Inputs[i].Folder; len(memory) > 0 {
		seenIn(memory[32:], "", times)
	}
	return times
}

// seenIn reads the entries of a memory of a directory (doc/format.md, "Memory of a directory").
func seenIn(entries []byte, rel string, times map[string]int64) {
	text := func() []byte {
		n, width := binary.Uvarint(entries)
		text := entries[width : width+int(n)]
		entries = entries[width+int(n):]
		return text
	}
	for len(entries) > 0 {
		kind := entries[0]
		entries = entries[1:]
		at := path.Join(rel, string(text()))
		switch kind {
		case 0:
			seenIn(text()[32:], at, times)
		case 1:
			times[at] = int64(binary.LittleEndian.Uint64(entries[65:]))
			entries = entries[73:]
		case 2:
			text()
		}
	}
}

// age sets the times of a file back, so that its next reading proves its content.
func (p *place) age(names ...string) {
	p.t.Helper()
	for _, name := range names {
		path := filepath.Join(p.dir, name)
		old := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			p.t.Fatal(err)
		}
		await(p.t, path)
	}
}

// await waits until the file's last change is more than a clock tick old.
func await(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(suite.Stuck); ; time.Sleep(time.Millisecond) {
		probe := filepath.Join(t.TempDir(), "probe")
		if err := os.WriteFile(probe, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if stamp(t, probe) > stamp(t, path)+int64(25*time.Millisecond) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the clock of %s stands still", path)
		}
	}
}

// commands counts the commands that run.
func (p *place) commands() *atomic.Int64 {
	n, run := new(atomic.Int64), p.run
	p.run = func(ctx context.Context, script, dir string) int {
		n.Add(1)
		return run(ctx, script, dir)
	}
	return n
}

// A file that looks unchanged is not read again. A touched file is read, and runs nothing if its content is the same.
func TestFollowReadsWhatLooksChanged(t *testing.T) {
	p := newPlace(t)
	if err := os.MkdirAll(filepath.Join(p.dir, "d", "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.txt", "b.txt", "d/x", "d/sub/y"} {
		p.write(name, name)
	}
	p.age("a.txt", "b.txt", "d/x", "d/sub/y")
	const inputs = "inputs: {a: {file: a.txt}, b: {file: b.txt}, d: {dir: d}}"
	const tasks = "tasks: {t: {in: [a, b, d], out: o, run: cat $a $b $d/x $d/sub/y}}"
	p.deploy(inputs, tasks)
	n := p.commands()
	p.start()
	before := map[string]map[string]int64{"a": p.seen("a"), "b": p.seen("b"), "d": p.seen("d")}
	if len(before["d"]) != 2 {
		t.Fatalf("of the directory is remembered: %v", before["d"])
	}
	check := func(what string, commands int64, read ...string) {
		t.Helper()
		if n.Load() != commands {
			t.Errorf("%s: %d commands ran in all, want %d", what, n.Load(), commands)
		}
		var got []string
		for input := range before {
			for path, seen := range p.seen(input) {
				if was := before[input][path]; was != seen {
					got = append(got, path)
				}
			}
			before[input] = p.seen(input)
		}
		slices.Sort(got)
		if !slices.Equal(got, read) {
			t.Errorf("%s: read again were %v, want %v", what, got, read)
		}
	}
	p.start()
	check("nothing changed", 1)
	p.age("a.txt")
	p.start()
	check("touched", 1, "a.txt")
	p.start()
	check("nothing since", 1)
	p.age("d/sub/y")
	p.start()
	check("touched in the directory", 1, "sub/y")
	p.write("e3.yaml", strings.Join([]string{"e3: 1", "name: p", inputs, tasks, "# edited"}, "\n"))
	p.start()
	check("the package file was edited", 1)
	p.write("b.txt", "other")
	p.start()
	check("edited", 2, "b.txt")
	if got, want := p.read("t"), "a.txtotherd/xd/sub/y"; got != want {
		t.Errorf("the output is %q, want %q", got, want)
	}
}

// An edit that keeps the size, in the clock tick in which the file was read, leaves all times unchanged. It is noticed
// because such times prove nothing.
func TestFollowRacilyClean(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "0000")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	for i := range 20 {
		text := strings.Repeat(string(rune('a'+i)), 4)
		path := filepath.Join(p.dir, "a.txt")
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0) // the same inode, the same size
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Close(), os.Chtimes(path, before.ModTime(), before.ModTime())); err != nil {
			t.Fatal(err)
		}
		p.start()
		if got, want := p.read("t"), text+"b"; got != want {
			t.Fatalf("round %d: the output is %q, want %q", i, got, want)
		}
	}
}

// The files of a glob change.
func TestFollowGlob(t *testing.T) {
	p := newPlace(t)
	for _, dir := range []string{"src/lib", "src/empty"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.write("src/a.py", "a")
	p.write("src/notes.txt", "n")
	p.deploy(`inputs: {src: {glob: "src/**/*.py"}}`, "tasks: {t: {in: [src], out: o, run: list}}")
	p.run = func(_ context.Context, _, dir string) int {
		var names []string
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if rel, _ := filepath.Rel(dir, path); rel != "." {
				names = append(names, rel)
			}
			return err
		})
		if err != nil || os.WriteFile(filepath.Join(dir, "o"), []byte(strings.Join(names, " ")), 0o644) != nil {
			return 1
		}
		return 0
	}
	n := p.commands()
	for _, step := range []struct {
		name string
		do   func()
		want string
		runs int64
	}{
		{"at first", func() {}, "src src/a.py", 1},
		{"a new file", func() { p.write("src/lib/b.py", "b") }, "src src/a.py src/lib src/lib/b.py", 2},
		{"one that does not match", func() { p.write("src/lib/c.txt", "c") }, "src src/a.py src/lib src/lib/b.py", 2},
		{"one is removed", func() { p.remove("src/lib/b.py") }, "src src/a.py", 2}, // known inputs: a hit
		{"one is renamed", func() {
			if err := os.Rename(filepath.Join(p.dir, "src/a.py"), filepath.Join(p.dir, "src/z.py")); err != nil {
				t.Fatal(err)
			}
		}, "src src/z.py", 3},
		{"none is left", func() { p.remove("src/z.py") }, "src", 4},
	} {
		step.do()
		p.start()
		if got := p.read("t"); got != step.want || n.Load() != step.runs {
			t.Errorf("%s: the task saw %q after %d runs, want %q after %d", step.name, got, n.Load(), step.want, step.runs)
		}
	}
}

func (p *place) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// The executable bit of a file is part of the task that reads it, and part of a directory.
func TestFollowExecutableBit(t *testing.T) {
	p := newPlace(t)
	if err := os.Mkdir(filepath.Join(p.dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("tool", "x")
	p.write("d/tool", "x")
	p.deploy("inputs: {tool: {file: tool}, d: {dir: d}}", "tasks: {t: {in: [tool, d], out: o, run: mode $tool $d/tool}}")
	p.run = func(_ context.Context, script, dir string) int {
		var text string
		for _, name := range strings.Fields(script)[1:] {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				return 1
			}
			text += info.Mode().Perm().String()[3:4] // of the owner
		}
		if os.WriteFile(filepath.Join(dir, "o"), []byte(text), 0o644) != nil {
			return 1
		}
		return 0
	}
	for _, step := range []struct {
		name string
		mode fs.FileMode
		want string
	}{
		{"", 0, "--"}, {"tool", 0o755, "x-"}, {"d/tool", 0o755, "xx"}, {"tool", 0o644, "-x"}, {"d/tool", 0o644, "--"},
	} {
		if step.name != "" {
			if err := os.Chmod(filepath.Join(p.dir, step.name), step.mode); err != nil {
				t.Fatal(err)
			}
		}
		p.start()
		if got := p.read("t"); got != step.want {
			t.Errorf("%s %v: the task saw %q, want %q", step.name, step.mode, got, step.want)
		}
	}
}

// The next start uses an edited package file.
func TestFollowPackageFile(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	p.start()
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.Replace(twoInputs, "cat $a $b", "cat $b $a", 1)+"\n")
	p.start()
	if got := p.read("t"); got != "ba" {
		t.Errorf("the output is %q, want that of the new command", got)
	}
	p.write("e3.yaml", "nonsense")
	if _, err := p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Executor: p.executor, Concurrency: 1}); err == nil {
		t.Error("a broken package file is run")
	}
	p.remove("e3.yaml")
	if _, err := p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Executor: p.executor, Concurrency: 1}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "deploy it again") {
		t.Errorf("without its package file: %v, want what to do", err)
	}
}

// Every unreadable input is named, and no command runs.
func TestFollowMissingInputs(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "a")
	p.write("b.txt", "b")
	p.deploy(twoInputs)
	n := p.commands()
	p.remove("a.txt")
	p.remove("b.txt")
	_, err := p.ws.Runner.Start(p.ctx, "w", workspace.StartOptions{Executor: p.executor, Concurrency: 1})
	var input *workspace.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "input a") || !strings.Contains(err.Error(), "input b") || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, want both inputs", err)
	}
	if n.Load() > 0 {
		t.Errorf("%d commands ran", n.Load())
	}
}

// If the content of a linked input is lost from the store, the file is read again. Lost content of a set input is
// reported by the task that reads it, and other tasks continue.
func TestFollowLostContent(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "precious")
	p.write("b.txt", "b")
	p.age("a.txt", "b.txt")
	p.deploy(twoInputs)
	p.age("e3.yaml")
	p.start() // reads the file for the last time
	lose := func(text string) objectstore.Hash {
		t.Helper()
		h := objectstore.Sum([]byte(text))
		if err := p.repo.Objects.Delete(p.ctx, h); err != nil {
			t.Fatal(err)
		}
		p.forget(refstore.Key{Partition: "INDEX/proofs", Sort: "w"})
		return h
	}
	h := lose("precious")
	p.start()
	if _, err := p.repo.Objects.Stat(p.ctx, h); err != nil {
		t.Errorf("the content is not taken in again: %v", err)
	}
	p.set("a", "set once")
	p.start()
	lose("set once")
	p.start() // makes its execution known
	p.deploy("inputs: {a: {file: a.txt}, b: {file: b.txt}}", "tasks:",
		"  x: {in: [a], out: o, run: 'cat $a $a'}", "  y: {in: [b], out: o, run: 'cat $b $b'}")
	p.forget(refstore.Key{Partition: "INDEX/proofs", Sort: "w"})
	res := p.start()
	if y, _ := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: "y"}); y == nil || res.Run.FailedTask != "x" || !strings.Contains(res.Run.Error, "input a is gone") {
		t.Errorf("the run is %+v, want x to fail for its input, and y to have an output", res.Run)
	}
}

// A linked path may be a symbolic link; a directory never includes the repository in it.
func TestFollowLinksAndRepository(t *testing.T) {
	p := newPlace(t)
	p.write("real.txt", "one")
	if err := os.Symlink("real.txt", filepath.Join(p.dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	p.write("b.txt", "b")
	if err := os.MkdirAll(filepath.Join(p.dir, "sub", ".e3", "objects"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("sub/.e3/format.json", "{}")
	p.write("sub/x.json", "x")
	p.deploy(`inputs: {a: {file: a.txt}, all: {glob: "**/*.json"}, sub: {dir: sub}}`,
		"tasks: {t: {in: [a], out: o, run: cat $a}, u: {in: [all], out: p, run: all}, v: {in: [sub], out: p, run: all}}")
	p.run = func(ctx context.Context, script, dir string) int {
		if script != "all" {
			return shell(ctx, script, dir)
		}
		for _, name := range []string{".e3", "sub/.e3"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return 5
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "sub/x.json")); err != nil {
			return 6
		}
		if os.WriteFile(filepath.Join(dir, "p"), nil, 0o644) != nil {
			return 1
		}
		return 0
	}
	if res := p.start(); res.Run.State != record.RunCompleted {
		t.Fatalf("the run %v: %s", res.Run.State, res.Run.Error)
	}
	p.write("real.txt", "two")
	p.start()
	if got := p.read("t"); got != "two" {
		t.Errorf("the output is %q, want what the link leads to", got)
	}
}
