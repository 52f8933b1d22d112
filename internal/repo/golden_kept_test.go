package repo_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/exportimport"
	"e3/gc"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

// keyFile holds the key that the golden zips are signed with. It is public.
const keyFile = golden + "/v1/test-key-trust-nowhere.pem"

func testKey(t *testing.T) *signature.Key {
	t.Helper()
	data, err := os.ReadFile(keyFile) // by hand: settings.LoadKey refuses what others can read
	if err != nil {
		t.Fatal(err)
	}
	key, err := signature.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// travels is a package with inputs that stay at home, and a task that can fail.
const travels = `e3: 1
name: flow
version: 1.0.0
inputs:
  text:    {file: text.txt}
  secret:  {file: secret.txt, export: false}
  private: {dir: private, export: false}
tasks:
  upper: {in: [text], out: upper.txt, run: 'tr a-z A-Z < "$text" > "$out"; echo "in capitals"'}
  count: {in: [secret, private, upper], out: count.txt, run: 'cat "$secret" "$private"/* "$upper" | wc -c | tr -d " " > "$out"'}
  flaky:
    in: [upper]
    out: flaky/
    run: 'echo trying >&2; test -z "${GOLDEN_FIRST-}"; mkdir -p "$out"; cp "$upper" "$out/copy"'
    pass_env: [GOLDEN_FIRST]
`

// stays is a package whose executions are pruned, pinned and rejected.
const stays = `e3: 1
name: home
version: 2.1.0
inputs:
  n: {value: 1}
tasks:
  make:
    in: [n]
    out: made.txt
    run: 'echo "made of $n"; test -z "${GOLDEN_FIRST-}"; echo "$n" > "$out"'
    pass_env: [GOLDEN_FIRST]
  next: {in: [make], out: next.txt, run: 'cat "$make" "$make" > "$out"'}
`

// A house is a repository with its user.
type house struct {
	*testing.T
	*repo.Repo
	start   func(ws string, want record.RunState, o workspace.StartOptions) *record.Run
	results *exportimport.Repository
}

// newHouse makes an empty repository. Others know it by the name.
func newHouse(t *testing.T, user, name string) *house {
	t.Helper()
	root, err := repo.Create(filepath.Join(t.TempDir(), repo.DirName))
	if err != nil {
		t.Fatal(err)
	}
	return enter(t, root, user, name)
}

// enter opens a repository.
func enter(t *testing.T, root, user, name string) *house {
	t.Helper()
	r := open(t, root)
	return &house{T: t, Repo: r, start: starter(t, r), results: &exportimport.Repository{
		Records: r.Records, Objects: r.Objects, Locks: r.Records, Workspaces: r.Workspaces, Executions: r.Executions,
		Curator: executions.NewCurator(r.Executions, r.Records, time.Now), Now: time.Now,
		User: user, Location: name, Version: "golden",
	}}
}

// in is h for a subtest.
func (h *house) in(t *testing.T) *house {
	sub := *h
	sub.T = t
	return &sub
}

func (h *house) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// deploy makes a workspace with a package that lies beside the files it names.
func (h *house) deploy(ws, pkg string, files map[string]string) {
	h.Helper()
	dir := h.TempDir()
	for file, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(file))
		h.must(os.MkdirAll(filepath.Dir(path), 0o755))
		h.must(os.WriteFile(path, []byte(text), 0o644))
	}
	file := filepath.Join(dir, "e3.yaml")
	h.must(os.WriteFile(file, []byte(pkg), 0o644))
	h.must(h.Workspaces.Create(h.Context(), ws))
	_, err := h.Workspaces.Deployer.DeployFile(h.Context(), ws, file)
	h.must(err)
}

func (h *house) export(ws string, o exportimport.ExportOptions) string {
	h.Helper()
	path := filepath.Join(h.TempDir(), ws+".zip")
	_, err := h.results.ExportWorkspace(h.Context(), ws, path, o)
	h.must(err)
	return path
}

func (h *house) tryImport(path string, o exportimport.ImportOptions) (*exportimport.Imported, error) {
	h.Helper()
	f, err := os.Open(path)
	h.must(err)
	defer f.Close()
	info, err := f.Stat()
	h.must(err)
	o.File = filepath.Base(path)
	return h.results.Import(h.Context(), f, info.Size(), o)
}

func (h *house) take(path string, o exportimport.ImportOptions) *exportimport.Imported {
	h.Helper()
	res, err := h.tryImport(path, o)
	h.must(err)
	return res
}

// the execution of a task in a run.
func (h *house) the(run *record.Run, task string) *executions.Execution {
	h.Helper()
	for e := range run.Tasks.All() {
		if e.Task == task {
			found, err := h.Executions.Locate(h.Context(), e.ExecutionID)
			h.must(err)
			return found
		}
	}
	h.Fatalf("run %s has no task %s", run.RunID, task)
	return nil
}

func (h *house) mark(e *executions.Execution, rejected bool, reason string) {
	h.Helper()
	mark := &record.Rejection{Rejected: rejected, By: h.results.User, At: time.Now(), Reason: reason}
	changed, err := h.results.Curator.Reject(h.Context(), e.Key, e.ExecutionID, mark)
	if err != nil || !changed {
		h.Fatalf("reject %s: %v, %v", e.ExecutionID, changed, err)
	}
}

// reference is a zip that the TypeScript e3 has written.
func reference(name string) string {
	return filepath.Join("../../exportimport/testdata/reference", name)
}

// makeKept makes a repository with what has come from elsewhere, by two steps and from the reference, and with all
// that people can say of what is on record.
func makeKept(t *testing.T) string {
	ctx := t.Context()
	const first = "GOLDEN_FIRST"
	completed := func(h *house, ws string, o workspace.StartOptions) *record.Run {
		t.Helper()
		t.Setenv(first, "")
		return h.start(ws, record.RunCompleted, o)
	}
	failed := func(h *house, ws string) {
		t.Helper()
		t.Setenv(first, "1")
		h.start(ws, record.RunFailed, workspace.StartOptions{})
	}

	ann := newHouse(t, "ann@alpha", "alpha/.e3")
	ann.deploy("flow", travels, map[string]string{
		"text.txt": "some text\n", "secret.txt": "nobody else may see this\n", "private/a.txt": "nor this\n", "private/b.txt": "nor that\n",
	})
	failed(ann, "flow")
	completed(ann, "flow", workspace.StartOptions{})
	ann.mark(ann.the(completed(ann, "flow", workspace.StartOptions{Force: true, Filter: "count"}), "count"), true, "counted on a bad day")
	completed(ann, "flow", workspace.StartOptions{})
	bob := newHouse(t, "bob@beta", "beta/.e3")
	bob.take(ann.export("flow", exportimport.ExportOptions{AllHistory: true, NoData: true, Key: testKey(t)}), exportimport.ImportOptions{NewWorkspace: true})
	travelled := bob.export("flow", exportimport.ExportOptions{AllHistory: true, NoData: true})

	cid := newHouse(t, "cid@gamma", "gamma/.e3")
	cid.deploy("home", stays, nil)
	once := completed(cid, "home", workspace.StartOptions{})
	for _, n := range []int64{2, 3} {
		leaf, err := cid.Workspaces.Datasets.PutValue(ctx, n)
		cid.must(err)
		cid.must(cid.Workspaces.Datasets.Set(ctx, "home", "n", leaf))
		if n == 2 {
			failed(cid, "home")
		}
		completed(cid, "home", workspace.StartOptions{})
	}
	pinned := cid.the(once, "next")
	_, err := cid.results.Curator.Pin(ctx, pinned.Key, pinned.ExecutionID, cid.results.User, "the first of all")
	cid.must(err)
	pruned, err := gc.Prune(ctx, cid.prune(), gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}, By: cid.results.User, Now: time.Now()})
	if err != nil || pruned.Executions != 4 {
		t.Fatalf("pruned %+v, %v", pruned, err)
	}
	// The collector has no session of its own, or all new objects would be spared.
	h, err := repo.Open(context.Background(), cid.Root, repo.Options{})
	cid.must(err)
	cid.must(cid.Close())
	_, err = gc.Collect(ctx, gc.Stores{
		Records: h.Records, Objects: h.Objects, Executions: h.Executions, Jobs: h.Queue(), Now: time.Now, Holder: h.Workspaces.Holder,
	}, gc.Options{})
	cid.must(errors.Join(err, h.Close()))

	cid = enter(t, cid.Root, "cid@gamma", "gamma/.e3")
	cid.mark(cid.the(completed(cid, "home", workspace.StartOptions{Force: true, Filter: "make"}), "make"), true, "made of the wrong stuff")
	doubted := cid.the(completed(cid, "home", workspace.StartOptions{Force: true, Filter: "next"}), "next")
	cid.mark(doubted, true, "looked wrong")
	cid.mark(doubted, false, "was right")
	completed(cid, "home", workspace.StartOptions{})
	cid.take(travelled, exportimport.ImportOptions{NewWorkspace: true})
	cid.take(reference("run1-all-executed.zip"), exportimport.ImportOptions{NewWorkspace: true, Workspace: "east"})
	cid.take(reference("run2-failed-forced.zip"), exportimport.ImportOptions{})
	_, err = settings.Update(ctx, cid.Records, func(s *settings.Settings) error {
		s.RequireSigned = true
		return s.Trust(settings.TrustedKey{
			Name: "for tests", Key: testKey(t).Public(), AddedBy: cid.results.User, AddedAt: time.Now().UTC().Truncate(time.Second),
		})
	})
	cid.must(err)
	return cid.Root
}

func (h *house) prune() gc.PruneStores {
	return gc.PruneStores{Records: h.Records, Objects: h.Objects, Workspaces: h.Workspaces, Curator: h.results.Curator, Jobs: h.Queue()}
}

// TestKept asks what the records of the golden repository mean, beside what they say.
func TestKept(t *testing.T) {
	var want description
	readJSON(t, inVersion("kept.json"), &want)
	root := filepath.Join(t.TempDir(), "repository")
	copyTree(t, inVersion("kept"), root, func(string) bool { return true })
	h := enter(t, root, "dan@delta", "delta/.e3")

	t.Run("rejected", func(t *testing.T) {
		h := h.in(t)
		marks := map[bool]int{}
		for e, err := range h.Executions.All(t.Context()) {
			h.must(err)
			if e.Rejection == nil {
				continue
			}
			marks[e.Rejected()]++
			answer, err := h.Executions.Lookup(t.Context(), e.Key)
			h.must(err)
			if answer.Hit == nil || (answer.Hit.ExecutionID == e.ExecutionID) == e.Rejected() {
				t.Errorf("rejected %v: %s is answered by %+v", e.Rejected(), e.ExecutionID, answer.Hit)
			}
		}
		if marks[true] != 2 || marks[false] != 1 {
			t.Errorf("got %v, want two that are rejected and one that is not any more", marks)
		}
	})

	t.Run("pruned", func(t *testing.T) {
		h := h.in(t)
		if len(want.Pruned) != 4 {
			t.Errorf("got %q, want four", want.Pruned)
		}
		for p, err := range h.Executions.Tombstones(t.Context()) {
			h.must(err)
			var gone *executions.PrunedError
			if _, err := h.Executions.Locate(t.Context(), p.ExecutionID); !errors.As(err, &gone) || gone.Reason != p.Reason {
				t.Errorf("%s: got %v, want that it was pruned", p.ExecutionID, err)
			}
		}
	})

	t.Run("pinned", func(t *testing.T) {
		pruned, err := gc.Prune(t.Context(), h.prune(), gc.PruneOptions{Rules: gc.Rules{OlderThan: 1}, DryRun: true, Now: time.Now().AddDate(1, 0, 0)})
		if err != nil || pruned.Protected.Pinned != 1 || len(want.Pinned) != 1 {
			t.Errorf("got %+v, %v, want one that is pinned", pruned, err)
		}
	})

	t.Run("trusted", func(t *testing.T) {
		h := h.in(t)
		if _, err := h.tryImport(reference("run1-all-executed.zip"), exportimport.ImportOptions{}); !errors.Is(err, settings.ErrUnsigned) {
			t.Errorf("a zip that is not signed: got %v, want that it is refused", err)
		}
		res := h.take(inVersion("basic.zip"), exportimport.ImportOptions{})
		if res.Verdict.Trust != settings.Trusted || res.Verdict.TrustedAs != "for tests" {
			t.Errorf("a zip that is signed: got %v, want that it is trusted", res.Verdict)
		}
	})

	t.Run("travelled", func(t *testing.T) {
		steps := map[int]int{}
		for _, e := range want.Executions {
			steps[len(e.Steps)]++
		}
		for n := range 3 {
			if steps[n] < 4 {
				t.Errorf("%d executions have come by %d steps, want more", steps[n], n)
			}
		}
		data := want.Workspaces[slices.IndexFunc(want.Workspaces, func(w workspaceDescription) bool { return w.Name == "flow" })].Data
		for _, name := range slices.Sorted(maps.Keys(data)) {
			home := strings.HasPrefix(name, "inputs/secret") || strings.HasPrefix(name, "inputs/private")
			if strings.HasPrefix(data[name], "elsewhere") != home {
				t.Errorf("flow.%s is %s", name, data[name])
			}
		}
	})
}
