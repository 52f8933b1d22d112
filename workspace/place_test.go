package workspace_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/workspace"
)

// A place is a repository with a project beside it, and a runner that needs no processes.
type place struct {
	t    *testing.T
	ctx  context.Context
	repo *repo.Repo
	ws   *workspace.Workspaces
	dir  string // of the project
	// run simulates every command; its result is the exit code.
	run      func(ctx context.Context, script, dir string) int
	executor *executions.Executor
	// remembering is made when a test first asks it for the freshness of outputs.
	remembering *workspace.Planner
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	root, err := repo.Create(filepath.Join(dir, repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	r, err := repo.Open(context.Background(), root, repo.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	p := placeIn(r)
	p.t, p.ctx, p.dir = t, t.Context(), dir
	return p
}

// placeIn returns a place in an open repository.
func placeIn(r *repo.Repo) *place {
	p := &place{repo: r, ws: r.Workspaces, run: shell}
	p.executor = executions.NewExecutor(r.Executions, r.Objects, r.Records, p, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: r.Scratch, Now: time.Now,
	})
	return p
}

// shell runs only "fail <code>" and "cat <file> …": the files' contents become the output "o".
func shell(_ context.Context, script, dir string) int {
	words := strings.Fields(script)
	if words[0] == "fail" {
		return int(words[1][0] - '0')
	}
	var text []byte
	for _, name := range words[1:] {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return 9
		}
		text = append(text, data...)
	}
	if err := os.WriteFile(filepath.Join(dir, "o"), text, 0o644); err != nil {
		return 9
	}
	return 0
}

// Run implements executions.Runner.
func (p *place) Run(ctx context.Context, spec runner.Spec) (runner.Result, error) {
	script := spec.Argv[len(spec.Argv)-1]
	for _, entry := range spec.Env {
		name, text, _ := strings.Cut(entry, "=")
		script = strings.ReplaceAll(script, "$"+name, text)
	}
	code := p.run(ctx, script, spec.Dir)
	return runner.Result{ExitCode: code, Cancelled: code != 0 && ctx.Err() != nil}, nil
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// deploy writes a package file and deploys it in the workspace w.
func (p *place) deploy(lines ...string) {
	p.t.Helper()
	p.write("e3.yaml", "e3: 1\nname: p\n"+strings.Join(lines, "\n")+"\n")
	if err := p.ws.Create(p.ctx, "w"); err != nil && !strings.Contains(err.Error(), "exists") {
		p.t.Fatal(err)
	}
	if _, err := p.ws.Deployer.DeployFile(p.ctx, "w", filepath.Join(p.dir, "e3.yaml")); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) start(change ...func(*workspace.StartOptions)) *workspace.RunResult {
	p.t.Helper()
	o := workspace.StartOptions{
		Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1},
		Executor: p.executor,
	}
	for _, c := range change {
		c(&o)
	}
	res, err := p.ws.Runner.Start(p.ctx, "w", o)
	if err != nil {
		p.t.Fatal(err)
	}
	return res
}

func (p *place) set(name, text string) {
	p.t.Helper()
	if err := p.ws.Datasets.Set(p.ctx, "w", name, p.file(text)); err != nil {
		p.t.Fatal(err)
	}
}

// file stores a file dataset.
func (p *place) file(text string) record.Leaf {
	p.t.Helper()
	leaf, err := p.ws.Datasets.PutStream(p.ctx, strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return leaf
}

// read returns the content of a file dataset.
func (p *place) read(name string) string {
	p.t.Helper()
	d, err := p.ws.Datasets.Dataset(p.ctx, "w", workspace.DatasetPath{Name: name})
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(filepath.Join(p.repo.Root, "objects"), d.Hash[:2], d.Hash[2:]))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// A gate is a function that blocks until it is opened, and reports when it was reached.
type gate struct {
	reached chan struct{}
	open    chan struct{}
	once    atomic.Bool
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) wait() {
	if g.once.CompareAndSwap(false, true) {
		close(g.reached)
	}
	<-g.open
}
