package exportimport_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"archive/zip"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/workspace"
)

// failer is the part of *testing.T that rapid.T also has.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A site is a repository with a project beside it, and a runner that needs no processes.
type site struct {
	t        failer
	ctx      context.Context
	dir      string // of the project
	repo     *repo.Repo
	executor *executions.Executor
	results  *exportimport.Repository
	now      time.Time    // time of its clock, if not zero
	ran      atomic.Int64 // commands
	during   func()       // is called when a command runs
}

// newSite makes a repository in a fresh folder. user is user@host.
func newSite(t *testing.T, user string) *site {
	t.Helper()
	s := openSite(t, t.TempDir(), user)
	t.Cleanup(s.close)
	return s
}

func openSite(t failer, dir, user string) *site {
	t.Helper()
	s := &site{t: t, ctx: context.Background(), dir: dir}
	root, err := repo.Create(filepath.Join(dir, repo.DirName))
	s.must(err)
	clock := func() time.Time {
		if s.now.IsZero() {
			return time.Now()
		}
		return s.now
	}
	s.repo, err = repo.Open(context.Background(), root, repo.Options{Version: "test", Now: clock})
	s.must(err)
	r := s.repo
	s.executor = executions.NewExecutor(r.Executions, r.Objects, r.Records, s, executions.Options{
		Worker: user, Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: r.Scratch, Now: clock,
	})
	s.results = &exportimport.Repository{
		Records: r.Records, Objects: r.Objects, Locks: r.Records, Workspaces: r.Workspaces, Executions: r.Executions,
		Curator: executions.NewCurator(r.Executions, r.Records, clock), Now: clock, User: user, Location: root, Version: "test",
	}
	return s
}

func (s *site) close() { s.must(s.repo.Close()) }

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%v", err)
	}
}

// Run implements executions.Runner. It understands "cat $<output>. $<input>. …", "dir $<output>. $<input>. …", "say <word> …" and
// "fail", in lines: what cat reads becomes the output, what dir reads becomes files in it.
func (s *site) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	s.ran.Add(1)
	if s.during != nil {
		s.during()
	}
	script := spec.Argv[len(spec.Argv)-1]
	for _, entry := range spec.Env {
		name, text, _ := strings.Cut(entry, "=")
		script = strings.ReplaceAll(script, "$"+name+".", text)
	}
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var text []byte
		switch words[0] {
		case "fail":
			return runner.Result{ExitCode: 3}, nil
		case "say":
			if _, err := spec.Stdout.WriteString(strings.Join(words[1:], " ") + "\n"); err != nil {
				return runner.Result{}, err
			}
			continue
		}
		made := filepath.Join(spec.Dir, words[1])
		for _, name := range words[2:] {
			data, err := readAny(filepath.Join(spec.Dir, name))
			if err != nil {
				return runner.Result{ExitCode: 9}, nil
			}
			if words[0] == "dir" {
				if err := os.MkdirAll(filepath.Join(made, "below"), 0o755); err != nil {
					return runner.Result{}, err
				}
				if err := os.WriteFile(filepath.Join(made, "below", filepath.Base(name)), data, 0o644); err != nil {
					return runner.Result{}, err
				}
			}
			text = append(text, data...)
		}
		if words[0] == "cat" {
			if err := os.WriteFile(made, text, 0o644); err != nil {
				return runner.Result{}, err
			}
		}
	}
	return runner.Result{}, nil
}

// readAny reads a file, or all files of a folder.
func readAny(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return os.ReadFile(path)
	}
	var all []byte
	err := filepath.Walk(path, func(p string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		all = append(all, data...)
		return err
	})
	return all, err
}

func (s *site) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(text), 0o644))
}

// deploy writes a package file and deploys it in a workspace.
func (s *site) deploy(ws, text string) {
	s.t.Helper()
	s.write("e3.yaml", text)
	if err := s.repo.Workspaces.Create(s.ctx, ws); err != nil && !strings.Contains(err.Error(), "exists") {
		s.must(err)
	}
	_, err := s.repo.Workspaces.Deployer.DeployFile(s.ctx, ws, filepath.Join(s.dir, "e3.yaml"))
	s.must(err)
}

func (s *site) start(ws string, change ...func(*workspace.StartOptions)) *record.Run {
	s.t.Helper()
	o := workspace.StartOptions{Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1}, Executor: s.executor}
	for _, c := range change {
		c(&o)
	}
	res, err := s.repo.Workspaces.Runner.Start(s.ctx, ws, o)
	s.must(err)
	return res.Run
}

func (s *site) set(ws, input, text string) {
	s.t.Helper()
	leaf, err := s.repo.Workspaces.Datasets.PutStream(s.ctx, strings.NewReader(text))
	s.must(err)
	s.must(s.repo.Workspaces.Datasets.Set(s.ctx, ws, input, leaf))
}

// export exports a workspace to a new file and returns its path.
func (s *site) export(ws string, o exportimport.ExportOptions) (string, *exportimport.Exported) {
	s.t.Helper()
	dir, err := os.MkdirTemp(s.dir, "zip")
	s.must(err)
	path := filepath.Join(dir, ws+".zip")
	res, err := s.results.ExportWorkspace(s.ctx, ws, path, o)
	s.must(err)
	return path, res
}

// tryImport imports a zip.
func (s *site) tryImport(path string, o exportimport.ImportOptions) (*exportimport.Imported, error) {
	s.t.Helper()
	f, err := os.Open(path)
	s.must(err)
	defer f.Close()
	info, err := f.Stat()
	s.must(err)
	o.File = filepath.Base(path)
	return s.results.Import(s.ctx, f, info.Size(), o)
}

func (s *site) importZip(path string, o exportimport.ImportOptions) *exportimport.Imported {
	s.t.Helper()
	res, err := s.tryImport(path, o)
	if err != nil {
		s.t.Fatalf("import %s: %v", filepath.Base(path), err)
	}
	return res
}

// entries returns the names in a zip and the content of each.
func entries(t failer, path string) (names []string, content map[string]string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer z.Close()
	content = map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatalf("%v", err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		names, content[f.Name] = append(names, f.Name), string(data)
	}
	return names, content
}

// sameBut compares two zips except for the named entries and the list of sums.
func sameBut(t failer, a, b string, but ...string) {
	t.Helper()
	if len(but) > 0 {
		but = append(but, "SHA256SUMS")
	}
	namesA, contentA := entries(t, a)
	namesB, contentB := entries(t, b)
	if !slices.Equal(namesA, namesB) {
		t.Fatalf("entries differ:\n%s\n%s", strings.Join(namesA, "\n"), strings.Join(namesB, "\n"))
	}
	for _, name := range but {
		delete(contentA, name)
		delete(contentB, name)
	}
	for _, name := range slices.Sorted(maps.Keys(contentA)) {
		if contentA[name] != contentB[name] {
			t.Errorf("entry %s differs", name)
		}
	}
	// The bytes before the first differing entry are the same.
	first := slices.IndexFunc(namesA, func(n string) bool { return slices.Contains(but, n) })
	if first < 0 {
		first = len(namesA)
	}
	dataA, dataB := head(t, a, first), head(t, b, first)
	if !bytes.Equal(dataA, dataB) {
		t.Errorf("%s and %s differ in their bytes before entry %d", filepath.Base(a), filepath.Base(b), first)
	}
}

// head returns the bytes of a zip before its n-th entry.
func head(t failer, path string, n int) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if n == len(z.File) {
		return data
	}
	at, err := z.File[n].DataOffset()
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data[:at-30-int64(len(z.File[n].Name))]
}

// all returns every execution on record.
func (s *site) all() []*executions.Execution {
	s.t.Helper()
	var list []*executions.Execution
	for e, err := range s.repo.Executions.All(s.ctx) {
		s.must(err)
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *executions.Execution) int { return strings.Compare(a.ExecutionID, b.ExecutionID) })
	return list
}

func (s *site) log(e *executions.Execution, stream executions.Stream) string {
	s.t.Helper()
	r, err := s.repo.Executions.OpenLog(s.ctx, e.Key, e.ExecutionID, stream, 0)
	s.must(err)
	defer r.Close()
	text, err := io.ReadAll(r)
	s.must(err)
	return string(text)
}

// content returns the bytes of a dataset.
func (s *site) content(ws, name string) string {
	s.t.Helper()
	d, err := s.repo.Workspaces.Datasets.Dataset(s.ctx, ws, workspace.DatasetPath{Name: name})
	s.must(err)
	h, err := objectstore.ParseHash(d.Hash)
	s.must(err)
	data, err := objectstore.ReadAll(s.ctx, s.repo.Objects, h, 1<<20)
	s.must(err)
	return string(data)
}

// pipeline is a package with a file, a directory and a value as inputs, and each kind of wire.
const pipeline = `e3: 1
name: flow
version: 1.0.0
inputs:
  text:   {file: text.txt}
  images: {dir: images}
  secret: {file: secret.txt, export: false}
tasks:
  first:  {in: {t: text}, out: one, run: "say hello\ncat $out. $t."}
  second: {in: {d: images, f: first}, out: {made: {dir: two}, also: three}, run: "dir $made. $d. $f.\ncat $also. $f."}
  third:  {in: {s: secret, g: second.made}, out: four, run: "cat $out. $s. $g."}
`

func (s *site) pipeline(ws string) {
	s.t.Helper()
	s.write("text.txt", "some text")
	s.write("secret.txt", "nobody may see this")
	s.write("images/a.png", "image a")
	s.write("images/deep/b.png", "image b")
	s.deploy(ws, pipeline)
}
