package repo_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/internal/repo"
	"e3/internal/verify"
	"e3/workspace"
)

func TestMain(m *testing.M) {
	runner.Main()
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "make the golden repositories and zips that are missing")

// golden holds a folder for every version, and in it repositories as plain files, each beside a description of what it
// must be found to hold, and zips (doc/format.md, "Version"). What 0.1.0 or a later e3 wrote is never rewritten. Until
// then a change of the format makes all of them anew: remove basic*, kept* in v1, and follow the hint.
const golden = "../../testdata/format"

// hint says how the golden files are made: they must not name a user or a machine.
const hint = `make it with: USER=golden unshare -u sh -c "hostname host; go test ./internal/repo -run TestMakeGolden -update"; ` +
	`then TestGoldenZips says which numbers of goldenZips have changed`

func TestMakeGolden(t *testing.T) {
	for _, g := range []struct {
		name string
		make func(t *testing.T) string
	}{
		{"basic", makeGolden},
		{"kept", makeKept},
	} {
		t.Run(g.name, func(t *testing.T) {
			dir := filepath.Join(golden, fmt.Sprintf("v%d", repo.FormatVersion), g.name)
			if !missing(t, dir) {
				return
			}
			root := g.make(t)
			writeJSON(t, dir+".json", describe(t, root))
			copyTree(t, root, dir, func(rel string) bool {
				// A machine's record of its own files, and the locks.
				switch top := strings.Split(rel, string(filepath.Separator)); top[0] {
				case "locks", "tmp":
					return false
				case "objects":
					return len(top) < 2 || !strings.HasPrefix(top[1], "lock-")
				case "index":
					return len(top) < 2 || top[1] != "links" && top[1] != "files"
				}
				return true
			})
		})
	}
}

// missing tells whether a golden file is to be made.
func missing(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err == nil {
		return false
	}
	if !errors.Is(err, fs.ErrNotExist) || !*update {
		t.Fatalf("%v; %s", err, hint)
	}
	if who := repo.UserAtHost(); who != "golden@host" {
		t.Fatalf("this is %s; %s", who, hint)
	}
	return true
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
	built, err := r.Workspaces.Deployer.Build(ctx, filepath.Join(project, "e3.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ref := workspace.PackageRef{Name: built.Package.Name, Version: built.Package.Version, Hash: built.Hash}
	if err := r.Workspaces.Packages.Add(ctx, ref); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"prod", "dev", "empty"} {
		if err := r.Workspaces.Create(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Workspaces.Deployer.Deploy(ctx, "prod", ref); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Workspaces.Deployer.DeployFile(ctx, "dev", filepath.Join(project, "e3.yaml")); err != nil {
		t.Fatal(err)
	}
	leaf, err := r.Workspaces.Datasets.PutValue(ctx, int64(7))
	if err == nil {
		err = r.Workspaces.Datasets.Set(ctx, "dev", "limit", leaf)
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
	r, err := repo.Open(context.Background(), root, repo.Options{Version: "golden"})
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
		o.Executor, o.Concurrency, o.Process = x, 2, &events.Process{PID: 1, Host: "host", User: "golden"}
		return start(t, r, ws, want, o)
	}
}

func start(t *testing.T, r *repo.Repo, ws string, want record.RunState, o workspace.StartOptions) *record.Run {
	t.Helper()
	res, err := r.Workspaces.Runner.Start(t.Context(), ws, o)
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
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("if the format was changed, remove basic* and kept* in v1, and " + hint)
		}
	})
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
			r := open(t, root)
			start := starter(t, r)
			for _, w := range want.Workspaces {
				if w.Run == nil || w.Run.State != record.RunCompleted.String() {
					continue
				}
				if w.East {
					var err *workspace.NotRunnableError
					if _, got := r.Workspaces.Runner.Start(t.Context(), w.Name, workspace.StartOptions{}); !errors.As(got, &err) {
						t.Errorf("start of %s: got %v, want that it cannot be run here", w.Name, got)
					}
					continue
				}
				for _, how := range []string{"from records", "from the proof"} {
					hitsOnly(t, w, how, start(w.Name, record.RunCompleted, workspace.StartOptions{}))
				}
			}
			sound(t, r, want.Workspaces)
		})
	}
}

// hitsOnly insists that a run of a workspace was answered by what answered it when the workspace was described.
func hitsOnly(t *testing.T, w workspaceDescription, how string, run *record.Run) {
	t.Helper()
	if s := run.Summary; s.Cached != s.Total || s.Total != int64(len(w.Run.Tasks)) {
		t.Errorf("start of %s, %s: got %d cached of %d, want all %d", w.Name, how, s.Cached, s.Total, len(w.Run.Tasks))
	}
	for e := range run.Tasks.All() {
		if want, _, _ := strings.Cut(w.Run.Tasks[e.Task], " "); e.ExecutionID != want {
			t.Errorf("start of %s, %s: %s is answered by %s, want %s", w.Name, how, e.Task, e.ExecutionID, want)
		}
	}
}

// sound insists that a repository has no fault, and that only content is missed which an export has left out.
func sound(t *testing.T, r *repo.Repo, workspaces []workspaceDescription) {
	t.Helper()
	report, err := verify.Verify(t.Context(), verify.Stores{
		Records: r.Records, Objects: r.Objects, Curator: executions.NewCurator(r.Executions, r.Records, time.Now),
		Jobs: r.Queue(), Workspaces: r.Workspaces, Now: time.Now,
	}, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Faults {
		t.Errorf("%s %s: %s", f.Kind, f.Where, f.Problem)
	}
	elsewhere := false
	for _, w := range workspaces {
		for _, data := range w.Data {
			elsewhere = elsewhere || strings.HasPrefix(data, "elsewhere")
		}
	}
	odd := slices.ContainsFunc(report.Notes, func(n string) bool { return !strings.Contains(n, "an export may leave it out") })
	if odd || len(report.Notes) > 0 != elsewhere {
		t.Errorf("verify notes %q; content is elsewhere: %v", report.Notes, elsewhere)
	}
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
