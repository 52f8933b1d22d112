package repo_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/record"
	"e3/internal/repo"
	"e3/internal/runner"
	"e3/internal/value"
	"e3/objectstore"
	"e3/workspace"
)

func TestMain(m *testing.M) {
	runner.Main()
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "make the golden repositories that are missing; those that exist are never rewritten")

// golden holds a folder for every layout version, and in it repositories as plain files,
// each beside a description of what it must be found to hold (doc/format.md, "For ever").
const golden = "../../testdata/format"

func TestMakeGolden(t *testing.T) {
	dir := filepath.Join(golden, fmt.Sprintf("v%d", repo.LayoutVersion), "basic")
	_, err := os.Stat(dir)
	if err == nil {
		return
	}
	if !*update {
		t.Fatalf("%v; make it with: go test ./internal/repo -run TestMakeGolden -update", err)
	}
	root := makeGolden(t)
	writeJSON(t, dir+".json", describe(t, root))
	copyTree(t, root, dir, func(rel string) bool {
		// What one machine remembers of its own files, and who holds what.
		switch top := strings.Split(rel, string(filepath.Separator)); top[0] {
		case "locks", "tmp":
			return false
		case "index":
			return len(top) < 2 || top[1] != "links" && top[1] != "files"
		}
		return true
	})
}

// makeGolden makes a repository with some of everything: executions of all kinds, retried,
// failed, broken, forced and cached ones, and workspaces in all states.
func makeGolden(t *testing.T) string {
	ctx := t.Context()
	project := t.TempDir()
	copyTree(t, filepath.Join(golden, "project"), project, func(string) bool { return true })
	root, err := repo.Create(filepath.Join(project, repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, root)
	built, err := r.Workspaces.Build(ctx, filepath.Join(project, "e3.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := workspace.PackageRef{Name: built.Package.Name, Version: built.Package.Version, Hash: built.Hash}
	if err := r.Workspaces.Register(ctx, ref); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prod", "dev", "empty"} {
		if err := r.Workspaces.Create(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Workspaces.Deploy(ctx, "prod", ref); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Workspaces.DeployFile(ctx, "dev", filepath.Join(project, "e3.yaml")); err != nil {
		t.Fatal(err)
	}
	leaf, err := r.Workspaces.PutValue(ctx, int64(7))
	if err == nil {
		err = r.Workspaces.Set(ctx, "dev", "limit", leaf)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOLDEN_FIRST", "1")
	start := starter(t, r)
	start("prod", record.RunFailed, workspace.StartOptions{})
	t.Setenv("GOLDEN_FIRST", "")
	start("prod", record.RunCompleted, workspace.StartOptions{})
	start("prod", record.RunCompleted, workspace.StartOptions{Force: true, Filter: "count*"})
	start("prod", record.RunCompleted, workspace.StartOptions{})
	return root
}

func open(t *testing.T, root string) *repo.Repo {
	t.Helper()
	r, err := repo.Open(root, repo.Options{Version: "golden"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// starter returns a function that starts a workspace of r and insists on how it ends. A
// repository has one.
func starter(t *testing.T, r *repo.Repo) func(ws string, want record.RunState, o workspace.StartOptions) *record.Run {
	t.Helper()
	x, err := r.Executor(repo.ExecutorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return func(ws string, want record.RunState, o workspace.StartOptions) *record.Run {
		t.Helper()
		o.Executor, o.Concurrency, o.Process = x, 2, r.Process()
		return start(t, r, ws, want, o)
	}
}

func start(t *testing.T, r *repo.Repo, ws string, want record.RunState, o workspace.StartOptions) *record.Run {
	t.Helper()
	res, err := r.Workspaces.Start(t.Context(), ws, o)
	if err != nil {
		t.Fatal(err)
	}
	if res.Run.State != want {
		t.Fatalf("run of %s: got %s (%s: %s), want %s", ws, res.Run.State, res.Run.FailedTask, res.Run.Error, want)
	}
	return res.Run
}

// TestGolden opens a copy of every golden repository, compares what is in it with what it
// held when it was made, and starts its workspaces: nothing may run.
func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(golden, "v*", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) == 0 {
		t.Fatal("there are no golden repositories")
	}
	for _, file := range dirs {
		dir := strings.TrimSuffix(file, ".json")
		rel, err := filepath.Rel(golden, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.ToSlash(rel), func(t *testing.T) {
			var want description
			readJSON(t, file, &want)
			root := filepath.Join(t.TempDir(), "repository")
			copyTree(t, dir, root, func(string) bool { return true })
			if diff := gocmp.Diff(want, describe(t, root)); diff != "" {
				t.Errorf("what the repository holds (-want +got):\n%s", diff)
			}
			start := starter(t, open(t, root))
			for _, w := range want.Workspaces {
				if w.Run == nil || w.Run.State != record.RunCompleted.String() {
					continue
				}
				for _, how := range []string{"from records", "from the proof"} {
					run := start(w.Name, record.RunCompleted, workspace.StartOptions{})
					if s := run.Summary; s.Cached != s.Total || s.Total != int64(len(w.Run.Tasks)) {
						t.Errorf("start of %s, %s: got %d cached of %d, want all %d", w.Name, how, s.Cached, s.Total, len(w.Run.Tasks))
					}
				}
			}
		})
	}
}

// A description is what can be asked of a repository, in words that outlast its bytes.
type description struct {
	Packages   []string
	Workspaces []workspaceDescription
	Executions []executionDescription
	Objects    int
}

type workspaceDescription struct {
	Name    string
	Package string
	Root    string
	Run     *runDescription
	Data    map[string]string // dataset → its content, of a directory the names in it
	Events  map[string][]string
}

type runDescription struct {
	ID, State string
	Tasks     map[string]string // task → execution
	Summary   record.Summary
}

type executionDescription struct {
	Key, ID, State, Started, Ended string
	Message                        string `json:",omitempty"`
	ExitCode                       int64  `json:",omitempty"`
	Output                         string `json:",omitempty"`
	Task                           string
	Attempt                        int64
	Stdout, Stderr                 string
}

func describe(t *testing.T, root string) description {
	t.Helper()
	ctx, r := t.Context(), open(t, root)
	var d description
	packages, err := r.Workspaces.Packages(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		if _, err := r.Workspaces.LoadPackage(ctx, p.Hash); err != nil {
			t.Errorf("package %s: %v", p, err)
		}
		d.Packages = append(d.Packages, p.String()+" "+p.Hash)
	}
	names, err := r.Workspaces.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		d.Workspaces = append(d.Workspaces, describeWorkspace(t, r, name))
	}
	d.Executions = describeExecutions(t, r)
	for e, err := range r.Objects.Walk(ctx) {
		if err == nil {
			err = r.Objects.Verify(ctx, e.Hash)
		}
		if err != nil {
			t.Errorf("object %s: %v", e.Hash, err)
		}
		d.Objects++
	}
	return d
}

func describeWorkspace(t *testing.T, r *repo.Repo, name string) workspaceDescription {
	t.Helper()
	ctx := t.Context()
	state, err := r.Workspaces.State(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	d := workspaceDescription{Name: name}
	if !state.Deployed {
		return d
	}
	d.Package, d.Root = state.PackageName+"@"+state.PackageVersion+" "+state.PackageHash, state.RootHash
	d.Data = map[string]string{}
	describeNode(t, r, state.RootHash, "", d.Data)
	run, err := r.Workspaces.Run(ctx, name, "")
	switch {
	case errors.Is(err, workspace.ErrNoRun):
		return d
	case err != nil:
		t.Fatal(err)
	}
	d.Run = &runDescription{ID: run.RunID, State: run.State.String(), Tasks: map[string]string{}, Summary: run.Summary}
	for e := range run.Tasks.All() {
		d.Run.Tasks[e.Task] = fmt.Sprintf("%s cached=%v", e.ExecutionID, e.Cached)
	}
	d.Events = map[string][]string{}
	runs, err := os.ReadDir(filepath.Join(r.Root, "events", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range runs {
		id := strings.TrimSuffix(f.Name(), ".ndjson")
		for e, err := range events.Read(ctx, r.Records, name, id) {
			if err != nil {
				t.Fatal(err)
			}
			d.Events[id] = append(d.Events[id], strings.TrimSpace(fmt.Sprintf("%d %s %s %s", e.Seq, e.Type, e.Task, e.Execution)))
		}
	}
	return d
}

// describeNode reads every dataset below a node.
func describeNode(t *testing.T, r *repo.Repo, hash, prefix string, data map[string]string) {
	t.Helper()
	node, err := record.DecodeNode(readHash(t, r, hash))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range node {
		name := prefix + e.Name
		switch e.Kind {
		case record.LeafNode:
			describeNode(t, r, e.Hash, name+"/", data)
		case record.LeafUnassigned:
			data[name] = "unassigned"
		case record.LeafValue:
			v, err := value.Decode(readHash(t, r, e.Hash))
			if err != nil {
				t.Fatal(err)
			}
			text, err := v.JSON()
			if err != nil {
				t.Fatal(err)
			}
			data[name] = "value " + string(text)
		case record.LeafFile:
			data[name] = fmt.Sprintf("file %q", readHash(t, r, e.Hash))
		case record.LeafDir:
			describeTree(t, r, e.Hash, name+"/", data)
		}
	}
}

func describeTree(t *testing.T, r *repo.Repo, hash, prefix string, data map[string]string) {
	t.Helper()
	tree, err := objectstore.DecodeTree(readHash(t, r, hash))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree) == 0 {
		data[prefix] = "empty directory"
	}
	for _, e := range tree {
		switch e.Kind {
		case objectstore.KindDir:
			describeTree(t, r, e.Hash.String(), prefix+e.Name+"/", data)
		case objectstore.KindLink:
			data[prefix+e.Name] = "link to " + e.Target
		default:
			data[prefix+e.Name] = fmt.Sprintf("file executable=%v %q", e.Executable, readHash(t, r, e.Hash.String()))
		}
	}
}

func describeExecutions(t *testing.T, r *repo.Repo) []executionDescription {
	t.Helper()
	ctx := t.Context()
	var list []executionDescription
	for task, err := range r.Executions.Tasks(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		for inputs, err := range r.Executions.Inputs(ctx, task) {
			if err != nil {
				t.Fatal(err)
			}
			key := executions.Key{Task: task, Inputs: inputs}
			for e, err := range r.Executions.List(ctx, key) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, describeExecution(t, r, e))
			}
		}
	}
	slices.SortFunc(list, func(a, b executionDescription) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func describeExecution(t *testing.T, r *repo.Repo, e *executions.Execution) executionDescription {
	t.Helper()
	stamp := func(at time.Time) string { return at.Format(time.RFC3339Nano) }
	d := executionDescription{
		Key: e.Key.String(), ID: e.ExecutionID, State: e.State.String(), Started: stamp(e.StartedAt), Ended: stamp(e.CompletedAt),
		Message: e.Message, ExitCode: e.ExitCode, Output: e.OutputHash,
	}
	if e.Detail != nil {
		d.Task, d.Attempt = e.Detail.Task, e.Detail.Attempt
	}
	for stream, text := range map[executions.Stream]*string{executions.Stdout: &d.Stdout, executions.Stderr: &d.Stderr} {
		log, err := r.Executions.OpenLog(t.Context(), e.Key, e.ExecutionID, stream, 0)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(log)
		log.Close()
		if err != nil {
			t.Fatal(err)
		}
		*text = string(data)
	}
	return d
}

func readHash(t *testing.T, r *repo.Repo, hash string) []byte {
	t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		t.Fatal(err)
	}
	data, err := objectstore.ReadAll(t.Context(), r.Objects, h, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// copyTree copies files and folders, empty ones too.
func copyTree(t *testing.T, from, to string, want func(rel string) bool) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch target := filepath.Join(to, rel); {
		case rel != "." && !want(rel) && e.IsDir():
			return fs.SkipDir
		case rel != "." && !want(rel):
			return nil
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			return os.WriteFile(target, data, info.Mode().Perm()|0o200)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
