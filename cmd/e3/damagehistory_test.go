package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/internal/testing/suite"
)

// harmDemo is a project with tasks of each form.
var harmDemo = map[string]string{
	"e3.yaml": `e3: 1
name: demo
inputs:
  data: {file: data.txt}
  rate: {value: 0.5}
  img: {dir: img}
tasks:
  split:
    in: [data]
    out: {odd: odd.txt, even: even.txt}
    run: |
      echo splitting
      sed -n '1~2p' "$data" > "$odd"
      sed -n '2~2p' "$data" > "$even"
  odd: {in: [split.odd], out: copy, run: [cp, "{odd}", "{out}"]}
  pages: {in: [img], out: pages/, run: 'echo a page >&2; mkdir "$out/sub"; cat "$img"/* > "$out/all"; echo hi > "$out/sub/page"'}
  values: {in: [rate], out: {file: r.json, kind: metrics}, run: 'echo "{\"rate\": $rate, \"list\": [1, 2]}" > "$out"'}
  spill: {out: s, run: 'seq 1 9000; echo spilled > "$out"'}
  long: {in: [data], out: l, run: 'seq 1 20000; cat "$data" "$data" > "$out"'}
  report: {in: [split, pages, values, odd, long], out: o, run: 'cat "$split/odd" "$pages/all" "$odd" "$long" > "$out"'}
`,
	"data.txt": "a\nb\nc\n", "img/one": "1\n", "img/two": "2\n",
}

// harmOther is a project with a task that fails.
var harmOther = map[string]string{
	"other/e3.yaml": `e3: 1
name: other
tasks:
  fine: {out: o, run: 'echo fine > "$out"'}
  bad: {in: [fine], out: b, run: 'echo what went wrong >&2; exit 3'}
`,
}

// An answer is the output of a command.
type answer struct {
	code        int
	out, err    string
	bytes       string // of its output
	interrupted bool
}

// A harmStage is the environment of the cases of one kind of repository.
type harmStage struct {
	t    testing.TB
	work string
	repo harmed
	env  map[string]string
	now  func() time.Time

	questions []question
	right     []answer
}

// lockedBuffer is a buffer for concurrent writes.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// e3 runs the program in this process.
func (s *harmStage) e3(args ...string) (a answer) {
	var out, errs lockedBuffer
	app := &app{
		Output: render.Output{Stdout: &out, Stderr: &errs, Now: s.now, Getenv: func(name string) string { return s.env[name] }},
		stdin:  strings.NewReader(""), warned: map[string]bool{},
	}
	ctx, cancel := context.WithTimeout(context.Background(), suite.Stuck)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			a = answer{code: -1, err: fmt.Sprintf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	a.code = run(ctx, args, app)
	a.out, a.err, a.interrupted = out.String(), errs.String(), ctx.Err() != nil
	return a
}

// must is e3 with an expected exit code.
func (s *harmStage) must(code int, args ...string) answer {
	s.t.Helper()
	a := s.e3(args...)
	if a.code != code {
		s.t.Fatalf("e3 %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), a.code, code, a.out, a.err)
	}
	return a
}

func (s *harmStage) write(files map[string]string) {
	s.t.Helper()
	for name, text := range files {
		path := filepath.Join(s.work, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// history fills a repository with every kind of data that can be damaged.
func (s *harmStage) history() {
	t := s.t
	t.Helper()
	at := s.repo.location()
	s.write(harmDemo)
	s.write(harmOther)
	s.must(0, append([]string{"init"}, s.repo.init()...)...)
	s.must(0, "start", "-f", filepath.Join(s.work, "e3.yaml"), at, "demo")
	s.must(1, "start", "-f", filepath.Join(s.work, "other/e3.yaml"), at, "other")
	s.write(map[string]string{"data.txt": "a\nb!\nc\nd\n"})
	s.must(0, "start", at, "demo")
	s.must(0, "start", at, "demo", "--force", "--filter", "odd")
	s.must(0, "reject", at, firstOf(t, s.must(0, "logs", at, "demo.pages", "--list").out), "--reason", "wrong units")
	s.must(0, "start", at, "demo")
	s.must(0, "pin", "add", at, "demo.values", "--note", "figures of the paper")
	s.must(0, "pin", "add", at, "demo.report", "--note", strings.Repeat("too long for an item ", 2000))

	s.must(0, "settings", at, "events-retention", "200d")
	s.must(0, "set", at, "demo.rate", "0.75")
	s.must(0, "package", "build", at, filepath.Join(s.work, "other/e3.yaml"))
	s.imported(at)
	s.queued(at)
	s.must(0, "start", at, "demo")
	s.must(0, "verify", at)
}

// imported imports results of another repository.
func (s *harmStage) imported(at string) {
	s.t.Helper()
	there := filepath.Join(s.work, "there")
	s.write(map[string]string{"there/e3.yaml": `e3: 1
name: far
tasks:
  far: {out: o, run: 'echo from afar; echo far > "$out"'}
`})
	s.must(0, "init", there)
	s.must(0, "start", "-f", filepath.Join(there, "e3.yaml"), there, "far")
	zip := filepath.Join(s.work, "far.zip")
	s.must(0, "workspace", "export", there, "far", zip)
	s.must(0, "workspace", "import", at, zip)
}

// queued executes a task by a worker.
func (s *harmStage) queued(at string) {
	s.t.Helper()
	s.write(map[string]string{"queued/e3.yaml": `e3: 1
name: queued
tasks:
  job: {out: o, run: 'echo at work; echo done > "$out"'}
`})
	done := make(chan answer, 1)
	go func() {
		done <- s.e3("start", "-f", filepath.Join(s.work, "queued/e3.yaml"), at, "queued", "--workers")
	}()
	for {
		if a := s.e3("worker", at, "--idle", "100ms"); a.code != 0 {
			s.t.Fatalf("e3 worker: %+v", a)
		}
		select {
		case a := <-done:
			if a.code != 0 {
				s.t.Fatalf("e3 start: %+v", a)
			}
			return
		default: // a worker ends that was idle before the job was there
		}
	}
}

func firstOf(t testing.TB, text string) string {
	for line := range strings.Lines(text) {
		if id, _, found := strings.Cut(line, "  success"); found {
			return strings.TrimRight(id, "* ")
		}
	}
	t.Fatalf("no success in %q", text)
	return ""
}

// contents summarizes the content of a file or folder.
func contents(path string) string {
	var list []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		rel, _ := filepath.Rel(path, p)
		list = append(list, fmt.Sprintf("%s=%q", rel, data))
		return err
	})
	if err != nil {
		return "nothing"
	}
	return strings.Join(list, "\n")
}

// A saved copy of folders: content, modes and times. The folders themselves are not replaced, since a repository
// identifies them by inode number.
type savedFolders struct {
	roots []string
	files map[string]savedFile
}

type savedFile struct {
	info fs.FileInfo
	data []byte
}

func saveFolders(t testing.TB, roots ...string) *savedFolders {
	t.Helper()
	s := &savedFolders{roots: roots, files: map[string]savedFile{}}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			f := savedFile{}
			if f.info, err = d.Info(); err == nil && d.Type().IsRegular() {
				f.data, err = os.ReadFile(path)
			}
			s.files[path] = f
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *savedFolders) restore(t testing.TB) {
	t.Helper()
	paths := slices.Sorted(maps.Keys(s.files))
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, root := range s.roots {
		entries, err := os.ReadDir(root)
		check(err)
		for _, e := range entries {
			path := filepath.Join(root, e.Name())
			if f, kept := s.files[path]; !kept || !f.info.IsDir() {
				check(os.RemoveAll(path))
			}
		}
	}
	for _, path := range paths {
		f := s.files[path]
		if f.info.IsDir() {
			check(s.clear(path))
			continue
		}
		if !s.unchanged(path, f) {
			_ = os.Remove(path)
			check(os.WriteFile(path, f.data, 0o644))
			check(os.Chmod(path, f.info.Mode().Perm()))
			check(os.Chtimes(path, f.info.ModTime(), f.info.ModTime()))
		}
	}
	for _, path := range slices.Backward(paths) {
		if f := s.files[path]; f.info.IsDir() {
			check(os.Chtimes(path, f.info.ModTime(), f.info.ModTime()))
		}
	}
}

// unchanged reports whether a file is unchanged, by its content.
func (s *savedFolders) unchanged(path string, f savedFile) bool {
	info, err := os.Lstat(path)
	if err != nil || !os.SameFile(info, f.info) || info.Mode() != f.info.Mode() || !info.ModTime().Equal(f.info.ModTime()) {
		return false
	}
	data, err := os.ReadFile(path)
	return err == nil && bytes.Equal(data, f.data)
}

// clear removes everything from a folder that was not saved.
func (s *savedFolders) clear(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		_ = os.Remove(path)
		return os.MkdirAll(path, s.files[path].info.Mode().Perm())
	}
	for _, e := range entries {
		p := filepath.Join(path, e.Name())
		if f, kept := s.files[p]; kept && f.info.IsDir() == e.IsDir() {
			continue
		}
		if err := os.RemoveAll(p); err != nil {
			return err
		}
	}
	return nil
}
