package compare_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/host/runner"
	"e3/internal/insight/compare"
	"e3/internal/repo"
	"e3/workspace"
)

// A place is a repository with a project beside it, and a runner that needs no processes.
type place struct {
	t        testing.TB
	ctx      context.Context
	repo     *repo.Repo
	dir      string
	executor *executions.Executor
	ahead    atomic.Int64 // of the clock, ns: commands take the time that they say
}

func newPlace(t testing.TB) *place {
	t.Helper()
	p := &place{t: t, ctx: context.Background(), dir: tempDir(t)}
	root, err := repo.Create(filepath.Join(p.dir, repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	if p.repo, err = repo.Open(context.Background(), root, repo.Options{Version: "test", Now: p.now}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.repo.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	p.executor = executions.NewExecutor(p.repo.Executions, p.repo.Objects, p.repo.Records, p, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: p.repo.Scratch, Now: p.now,
	})
	return p
}

// tempDir is a folder in memory, if there is one: no test here depends on a disk, and deployments are faster without
// syncs.
func tempDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "e3-compare-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (p *place) now() time.Time { return time.Now().Add(time.Duration(p.ahead.Load())) }

// Run implements executions.Runner. A script is statements with semicolons: "join <src>… <dst>" writes what the sources hold to
// dst, "wait <duration>" takes that long, "fail <code>" ends it.
func (p *place) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	script := spec.Argv[len(spec.Argv)-1]
	for _, entry := range spec.Env {
		name, text, _ := strings.Cut(entry, "=")
		script = strings.ReplaceAll(script, "$"+name, text)
	}
	for statement := range strings.SplitSeq(script, ";") {
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "fail":
			return runner.Result{ExitCode: int(words[1][0] - '0')}, nil
		case "wait":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				return runner.Result{}, err
			}
			p.ahead.Add(int64(d))
		case "join":
			if err := join(spec.Dir, words[1:]); err != nil {
				return runner.Result{}, err
			}
		default:
			return runner.Result{}, fmt.Errorf("statement %q", statement)
		}
	}
	return runner.Result{}, nil
}

func join(dir string, names []string) error {
	var text []byte
	for _, name := range names[:len(names)-1] {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			text = append(text, data...)
			return err
		})
		if err != nil {
			return err
		}
	}
	dst := filepath.Join(dir, names[len(names)-1])
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	return os.WriteFile(dst, text, 0o644)
}

func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) remove(name string) {
	p.t.Helper()
	if err := os.RemoveAll(filepath.Join(p.dir, name)); err != nil {
		p.t.Fatal(err)
	}
}

// define writes the package file.
func (p *place) define(text string) {
	p.t.Helper()
	p.write("e3.yaml", "e3: 1\nname: p\n"+text)
}

// deploy deploys the package file in a workspace.
func (p *place) deploy(ws string) {
	p.t.Helper()
	if err := p.repo.Workspaces.Create(p.ctx, ws); err != nil && !errors.Is(err, workspace.ErrExists) {
		p.t.Fatal(err)
	}
	if _, err := p.repo.Workspaces.Deployer.DeployFile(p.ctx, ws, filepath.Join(p.dir, "e3.yaml")); err != nil {
		p.t.Fatal(err)
	}
}

// start runs a workspace and returns the id of the run.
func (p *place) start(ws string, change ...func(*workspace.StartOptions)) string {
	p.t.Helper()
	o := workspace.StartOptions{Executor: p.executor, Concurrency: 2, Durability: workspace.None}
	for _, c := range change {
		c(&o)
	}
	res, err := p.repo.Workspaces.Runner.Start(p.ctx, ws, o)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.Run.RunID
}

func (p *place) set(ws, name, text string) {
	p.t.Helper()
	leaf, err := p.repo.Workspaces.Datasets.PutStream(p.ctx, strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.repo.Workspaces.Datasets.Set(p.ctx, ws, name, leaf); err != nil {
		p.t.Fatal(err)
	}
}

// destroy removes an object from the store.
func (p *place) destroy(hash string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(filepath.Join(p.repo.Root, "objects"), hash[:2], hash[2:])); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) stores() compare.Stores {
	return compare.Stores{
		Records: p.repo.Records, Objects: p.repo.Objects, Executions: p.repo.Executions,
		Workspaces: p.repo.Workspaces.View(), Runs: p.repo.Workspaces.Runs, Packages: p.repo.Workspaces.Packages,
	}
}

func (p *place) compare(a, b string) *compare.Difference {
	p.t.Helper()
	was, err := compare.ParseSide(a, "")
	if err != nil {
		p.t.Fatal(err)
	}
	is, err := compare.ParseSide(b, was.Workspace)
	if err != nil {
		p.t.Fatal(err)
	}
	d, err := compare.Compare(p.ctx, p.stores(), was, is)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

// brief lists the differences, one per line.
func brief(d *compare.Difference) []string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	datasets := func(what string, list *compare.Datasets) {
		for _, c := range list.Changes {
			text := fmt.Sprintf("%s %s %s: %s → %s", what, c.Name, c.Change, content(c.Was), content(c.Is))
			if c.Files != nil {
				text = fmt.Sprintf("%s %s %s: +%d -%d ~%d %d bytes", what, c.Name, c.Change, c.Files.Added, c.Files.Removed, c.Files.Changed, c.Files.Bytes)
				for _, f := range c.Files.Changes {
					text += fmt.Sprintf("; %s %s", f.Path, f.Change)
				}
				if c.Files.Unknown != "" {
					text += "; " + c.Files.Unknown
				}
			}
			lines = append(lines, text)
		}
		if list.Unknown != "" {
			add("%ss: %s", what, list.Unknown)
		}
	}
	datasets("input", &d.Inputs)
	for _, c := range d.Tasks.Changes {
		text := fmt.Sprintf("task %s %s", c.Name, c.Change)
		for _, part := range c.Parts {
			text += fmt.Sprintf("; %s", strings.TrimRight(part.Part+" "+part.Name, " "))
			if part.Was != "" || part.Is != "" {
				text += fmt.Sprintf(": %s → %s", part.Was, part.Is)
			}
		}
		if c.Was != "" || c.Is != "" {
			text += fmt.Sprintf("; %s → %s", c.Was, c.Is)
		}
		lines = append(lines, text)
	}
	if d.Tasks.Unknown != "" {
		add("tasks: %s", d.Tasks.Unknown)
	}
	datasets("output", &d.Outputs)
	for _, m := range d.Metrics {
		for _, c := range m.Changes {
			text := fmt.Sprintf("metric %s.%s %s %s: %s → %s", m.Task, m.Entry, c.Key, c.Change, c.Was, c.Is)
			if c.Delta != nil {
				text += fmt.Sprintf(" %+g", *c.Delta)
			}
			if c.Percent != nil {
				text += fmt.Sprintf(" %+.1f%%", *c.Percent)
			}
			lines = append(lines, text)
		}
		if m.Unknown != "" {
			add("metrics %s.%s: %s", m.Task, m.Entry, m.Unknown)
		}
	}
	return lines
}

func content(d *compare.Dataset) string {
	switch {
	case d == nil:
		return "nothing"
	case d.Open:
		return "open"
	case d.Value != nil:
		return string(d.Value)
	}
	text := d.Kind
	if d.Executable {
		text = "executable"
	}
	if d.Files != nil {
		text += fmt.Sprintf(" of %d files", *d.Files)
	}
	if d.Size != nil {
		text += fmt.Sprintf(" %d", *d.Size)
	}
	return text
}
