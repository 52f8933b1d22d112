package verify_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// A site is a repository with a project beside it.
type site struct {
	*testing.T
	dir, root string
	*repo.Repo
	executor *executions.Executor
	lasting  workspace.Durability // of its runs
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, dir: t.TempDir(), lasting: workspace.None}
	var err error
	s.root, err = repo.Create(filepath.Join(s.dir, repo.DirName))
	s.must(err)
	s.Repo, err = repo.Open(context.Background(), s.root, repo.Options{Version: "test"})
	s.must(err)
	t.Cleanup(func() {
		if err := s.Repo.Close(); err != nil {
			t.Error(err)
		}
	})
	s.executor = executions.NewExecutor(s.Executions, s.Objects, s.Records, commands{}, executions.Options{
		Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: s.Scratch, Now: time.Now,
	})
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) write(name, text string) {
	s.Helper()
	path := filepath.Join(s.dir, filepath.FromSlash(name))
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	s.must(os.WriteFile(path, []byte(text), 0o644))
}

// deploy deploys e3.yaml, with the given lines, in a workspace, which it makes if necessary.
func (s *site) deploy(ws string, lines ...string) {
	s.Helper()
	s.write("e3.yaml", "e3: 1\nname: p\nversion: 1\n"+strings.Join(lines, "\n")+"\n")
	if err := s.Workspaces.Create(s.Context(), ws); !errors.Is(err, workspace.ErrExists) {
		s.must(err)
	}
	s.redeploy(ws)
}

func (s *site) redeploy(ws string) {
	s.Helper()
	_, err := s.Workspaces.Deployer.DeployFile(s.Context(), ws, filepath.Join(s.dir, "e3.yaml"))
	s.must(err)
}

func (s *site) start(ws string) *workspace.RunResult {
	s.Helper()
	res, err := s.Workspaces.Runner.Start(s.Context(), ws, workspace.StartOptions{
		Concurrency: 2, Durability: s.lasting, Process: &events.Process{PID: 1}, Executor: s.executor,
	})
	s.must(err)
	return res
}

func (s *site) curator() *executions.Curator {
	return executions.NewCurator(s.Executions, s.Records, time.Now)
}

func (s *site) stores() verify.Stores {
	return verify.Stores{Records: s.Records, Objects: s.Objects, Curator: s.curator(), Jobs: s.Queue(), Workspaces: s.Workspaces, Now: time.Now}
}

func (s *site) verify(o verify.Options) *verify.Report {
	s.Helper()
	report, err := verify.Verify(s.Context(), s.stores(), o)
	s.must(err)
	return report
}

// leaf is the leaf of a workspace under a name.
func (s *site) leaf(ws, name string) record.Leaf {
	s.Helper()
	rows, err := s.Workspaces.Datasets.Names(s.Context(), ws)
	s.must(err)
	for _, row := range rows {
		if row.Name == name {
			return row.Leaf
		}
	}
	s.Fatalf("workspace %s has no %s", ws, name)
	return record.Leaf{}
}

// entry is the hash of the entry at a path of a directory.
func (s *site) entry(dir, path string) string {
	s.Helper()
	h, err := objectstore.ParseHash(dir)
	s.must(err)
	e, err := tree.Lookup(s.Context(), s.Objects, h, path)
	s.must(err)
	return e.Hash.String()
}

// execution is the latest execution of a task.
func (s *site) execution(task string) *executions.Execution {
	s.Helper()
	var found *executions.Execution
	for e, err := range s.Executions.All(s.Context()) {
		s.must(err)
		if e.Detail.Task == task && (found == nil || e.ExecutionID > found.ExecutionID) {
			found = e
		}
	}
	if found == nil {
		s.Fatalf("task %s has no execution", task)
	}
	return found
}

func objectFile(hash string) string { return "objects/" + hash[:2] + "/" + hash[2:] }

// path is a file in the repository.
func (s *site) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// tear overwrites a file of the repository; the text may even have the same length.
func (s *site) tear(name, text string) {
	s.Helper()
	_, err := os.Lstat(s.path(name))
	s.must(err) // it must have been there
	s.must(os.Chmod(s.path(name), 0o644))
	s.must(os.WriteFile(s.path(name), []byte(text), 0o644))
}

func (s *site) remove(name string) {
	s.Helper()
	s.must(os.Remove(s.path(name)))
}

// commands understands "fail", "make <output> <text>", where an output that ends with a slash becomes a directory, and
// "vary <output>", whose output differs each time.
type commands struct{}

func (commands) Run(_ context.Context, spec runner.Spec) (runner.Result, error) {
	words := strings.Fields(spec.Argv[len(spec.Argv)-1])
	text := func() string { return words[2] }
	switch words[0] {
	case "fail":
		return runner.Result{ExitCode: 1}, nil
	case "vary":
		text = func() string { return spec.Marker }
	}
	files := map[string]string{words[1]: text()}
	if out, isDir := strings.CutSuffix(words[1], "/"); isDir {
		files = map[string]string{out + "/top": text(), out + "/sub/deep": "deep " + words[len(words)-1], out + "/same": "same"}
		if words[0] == "vary" {
			files[out+"/"+strings.ReplaceAll(text(), "=", "-")] = "new"
		}
	}
	for name, text := range files {
		path := filepath.Join(spec.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return runner.Result{}, err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return runner.Result{}, err
		}
	}
	return runner.Result{}, nil
}
