package explain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/events"
	"e3/internal/host/runner"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	"e3/internal/repo"
	"e3/workspace"
)

// commands runs the commands of all houses.
var commands *runner.Supervisor

func TestMain(m *testing.M) {
	runner.Main()
	var err error
	if commands, err = runner.New(runner.Options{Grace: time.Millisecond}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	commands.Close()
	os.Exit(code)
}

// tester is the part of testing.TB that a house uses; rapid.T has it too.
type tester interface {
	Helper()
	Context() context.Context
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A house is a repository with a project beside it. Its commands are run by bash.
type house struct {
	tester
	dir string
	*repo.Repo
	executor *executions.Executor
	ahead    time.Duration // of the clock that explains
	gone     string        // the execution that was pruned
	made     string        // the execution that was put on record by hand
}

func newHouse(t tester, dir string) *house {
	t.Helper()
	root, err := repo.Create(filepath.Join(dir, repo.DirName))
	h := &house{tester: t, dir: dir}
	h.must(err)
	h.Repo, err = repo.Open(context.Background(), root, repo.Options{Version: "test", Now: func() time.Time { return time.Now().Add(h.ahead) }})
	h.must(err)
	h.executor = executions.NewExecutor(h.Executions, h.Objects, h.Records, commands, executions.Options{
		Worker: "ann@lab", Version: "test", Path: os.Getenv("PATH"), Getenv: os.LookupEnv, Scratch: h.Scratch, Now: time.Now,
	})
	return h
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%v", err)
	}
}

// write writes a file of the project.
func (h *house) write(name, text string) {
	h.Helper()
	path := filepath.Join(h.dir, name)
	h.must(os.MkdirAll(filepath.Dir(path), 0o755))
	h.must(os.WriteFile(path, []byte(text), 0o644))
}

// edit replaces a part of the package file.
func (h *house) edit(was, is string) {
	h.Helper()
	path := filepath.Join(h.dir, "e3.yaml")
	text, err := os.ReadFile(path)
	h.must(err)
	if strings.Count(string(text), was) != 1 {
		h.Fatalf("e3.yaml holds %q %d times", was, strings.Count(string(text), was))
	}
	h.write("e3.yaml", strings.Replace(string(text), was, is, 1))
}

func (h *house) deploy(ws string) {
	h.Helper()
	if err := h.Workspaces.Create(h.Context(), ws); !errors.Is(err, workspace.ErrExists) {
		h.must(err)
	}
	_, err := h.Workspaces.Deployer.DeployFile(h.Context(), ws, filepath.Join(h.dir, "e3.yaml"))
	h.must(err)
}

func (h *house) start(ws string, adjust ...func(*workspace.StartOptions)) *workspace.RunResult {
	h.Helper()
	return h.startIn(h.Context(), ws, adjust...)
}

func (h *house) startIn(ctx context.Context, ws string, adjust ...func(*workspace.StartOptions)) *workspace.RunResult {
	h.Helper()
	o := workspace.StartOptions{
		Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1, User: "ann", Host: "lab"}, Executor: h.executor,
	}
	for _, a := range adjust {
		a(&o)
	}
	res, err := h.Workspaces.Runner.Start(ctx, ws, o)
	h.must(err)
	return res
}

func forced(filter string) func(*workspace.StartOptions) {
	return func(o *workspace.StartOptions) { o.Force, o.Filter = true, filter }
}

func (h *house) stores() explain.Stores {
	return explain.Stores{
		Stores:     history.Stores{Records: h.Records, Executions: h.Executions, Runs: h.Workspaces.Runs},
		Workspaces: h.Workspaces.View(), Objects: h.Objects,
	}
}

func (h *house) explainer() *explain.Explainer { return explain.New(h.stores()) }

// why explains <workspace>.<task>[@<execution>].
func (h *house) why(target string) *explain.Explanation {
	h.Helper()
	ws, task, _ := strings.Cut(target, ".")
	task, id, _ := strings.Cut(task, "@")
	w, err := h.explainer().Why(h.Context(), ws, task, id)
	h.must(err)
	return w
}

// latest is the latest execution of a task, whatever its outcome is.
func (h *house) latest(ws, task string) *executions.Execution {
	h.Helper()
	list, err := history.Attempts(h.Context(), history.Stores{Records: h.Records, Executions: h.Executions, Runs: h.Workspaces.Runs}, ws, task)
	h.must(err)
	for _, a := range list {
		if a.Execution != nil {
			return a.Execution
		}
	}
	h.Fatalf("%s.%s has no execution", ws, task)
	return nil
}

func (h *house) curator() *executions.Curator {
	return executions.NewCurator(h.Executions, h.Records, time.Now)
}

// archive is the repository for exports and imports.
func (h *house) archive() *exportimport.Repository {
	return &exportimport.Repository{
		Records: h.Records, Objects: h.Objects, Locks: h.Records, Workspaces: h.Workspaces, Executions: h.Executions,
		Curator: h.curator(), Now: time.Now, User: "bob@far", Location: "/far/.e3", Version: "test",
	}
}

// send exports a workspace with its history and imports it into another house.
func (h *house) send(to *house, ws string, o exportimport.ImportOptions) {
	h.Helper()
	h.sendWith(to, ws, exportimport.ExportOptions{AllHistory: true}, o)
}

func (h *house) sendWith(to *house, ws string, e exportimport.ExportOptions, o exportimport.ImportOptions) {
	h.Helper()
	path := filepath.Join(h.dir, "out.zip")
	_, err := h.archive().ExportWorkspace(h.Context(), ws, path, e)
	h.must(err)
	f, err := os.Open(path)
	h.must(err)
	defer f.Close()
	info, err := f.Stat()
	h.must(err)
	_, err = to.archive().Import(h.Context(), f, info.Size(), o)
	h.must(err)
}

// file is the path of a record or an object in the repository.
func (h *house) file(parts ...string) string {
	return filepath.Join(append([]string{h.Root}, parts...)...)
}

// recordFile is the file of an execution's record.
func (h *house) recordFile(e *executions.Execution) string {
	return h.file("executions", e.Key.Task.String(), e.Key.Inputs.String(), e.ExecutionID, "status.beast2")
}

func (h *house) removeObject(hash string) {
	h.Helper()
	h.must(os.Remove(h.file("objects", hash[:2], hash[2:])))
}

// lines encodes events of w as in a stream.
func (h *house) lines(list ...events.Event) []byte {
	h.Helper()
	var data []byte
	for i := range list {
		list[i].Seq, list[i].Workspace = int64(i+1), "w"
		var err error
		data, err = events.AppendLine(data, &list[i])
		h.must(err)
	}
	return data
}
