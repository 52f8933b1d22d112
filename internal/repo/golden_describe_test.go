package repo_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// A description is what can be asked of a repository, in words that outlast its bytes.
type description struct {
	Packages   []string
	Workspaces []workspaceDescription
	Executions []executionDescription
	Objects    int
	Imported   []importedDescription `json:",omitempty"`
	Pruned     []string              `json:",omitempty"`
	Pinned     []string              `json:",omitempty"`
	Settings   []string              `json:",omitempty"`
}

type workspaceDescription struct {
	Name    string
	Package string
	Root    string
	East    bool `json:",omitempty"` // of the reference
	Run     *runDescription
	Data    map[string]string // dataset → its content, of a directory the names in it; "elsewhere, " and the hash where it is not here
	Events  map[string][]string
}

type runDescription struct {
	ID, State string
	Tasks     map[string]string // task → execution
	Summary   record.Summary
}

// importedDescription is a run that was made elsewhere.
type importedDescription struct {
	Workspace, ID, Status, Package string
	Tasks                          []string
	Events                         int
	Steps                          []string
}

type executionDescription struct {
	Key, ID, State, Started, Ended string
	Message                        string `json:",omitempty"`
	ExitCode                       int64  `json:",omitempty"`
	Output                         string `json:",omitempty"`
	Task                           string
	Attempt                        int64
	Stdout, Stderr                 string
	Rejection                      string   `json:",omitempty"`
	ImportedFrom                   string   `json:",omitempty"`
	Steps                          []string `json:",omitempty"`
}

const stamp = time.RFC3339Nano

func describe(t *testing.T, root string) description {
	t.Helper()
	ctx, r := t.Context(), open(t, root)
	var d description
	packages, err := r.Workspaces.Packages.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		d.Packages = append(d.Packages, p.String()+" "+p.Hash+describePackage(t, r, p))
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
	d.Imported = describeImported(t, r)
	d.Pruned, d.Pinned = describeKept(t, r)
	d.Settings = describeSettings(t, r)
	return d
}

// describePackage returns what is special about a package.
func describePackage(t *testing.T, r *repo.Repo, ref workspace.PackageRef) string {
	t.Helper()
	if east, err := r.Workspaces.Packages.IsEast(t.Context(), ref.Hash); err != nil || east {
		if err != nil {
			t.Errorf("package %s: %v", ref, err)
		}
		return " of the reference"
	}
	pkg, err := r.Workspaces.Packages.Load(t.Context(), ref.Hash)
	if err != nil {
		t.Errorf("package %s: %v", ref, err)
		return ""
	}
	var more string
	for _, in := range pkg.Inputs {
		if in.NoExport {
			more += ", export: false of " + in.Name
		}
	}
	return more
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
	if d.East, err = r.Workspaces.Packages.IsEast(ctx, state.PackageHash); err != nil {
		t.Fatal(err)
	}
	if d.East {
		describeEast(t, r, name, d.Data)
	} else {
		describeNode(t, r, state.RootHash, "", d.Data)
	}
	run, err := r.Workspaces.Runs.Run(ctx, name, "")
	switch {
	case errors.Is(err, runview.ErrNoRun):
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the reference's runs have none
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
		if e.Kind != record.LeafUnassigned {
			_, err := r.Objects.Stat(t.Context(), parseHash(t, e.Hash))
			if errors.Is(err, objectstore.ErrNotFound) {
				data[name] = "elsewhere, " + e.Hash
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
		}
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

// describeEast reads every dataset of a workspace whose package the reference made.
func describeEast(t *testing.T, r *repo.Repo, ws string, data map[string]string) {
	t.Helper()
	names, err := r.Workspaces.Datasets.Names(t.Context(), ws)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path, err := workspace.ParseDatasetPath(n.Name)
		if err != nil {
			t.Fatal(err)
		}
		d, err := r.Workspaces.Datasets.Dataset(t.Context(), ws, path)
		var nothing *workspace.UnassignedError
		switch {
		case errors.As(err, &nothing):
			data[n.Name] = "unassigned"
		case err != nil:
			t.Errorf("dataset %s: %v", n.Name, err)
		case d.Hash == "":
			data[n.Name] = "value null"
		default:
			data[n.Name] = fmt.Sprintf("%d bytes, %s", len(readHash(t, r, d.Hash)), d.Hash)
		}
	}
}

func describeTree(t *testing.T, r *repo.Repo, hash, prefix string, data map[string]string) {
	t.Helper()
	entries, err := tree.Decode(readHash(t, r, hash))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		data[prefix] = "empty directory"
	}
	for _, e := range entries {
		switch e.Kind {
		case tree.KindDir:
			describeTree(t, r, e.Hash.String(), prefix+e.Name+"/", data)
		case tree.KindLink:
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
	d := executionDescription{
		Key: e.Key.String(), ID: e.ExecutionID, State: e.State.String(), Started: e.StartedAt.Format(stamp), Ended: e.CompletedAt.Format(stamp),
		Message: e.Message, ExitCode: e.ExitCode, Output: e.OutputHash,
	}
	if e.Detail != nil {
		d.Task, d.Attempt = e.Detail.Task, e.Detail.Attempt
	}
	if m := e.Rejection; m != nil {
		d.Rejection = fmt.Sprintf("%v by %s at %s: %s", m.Rejected, m.By, m.At.Format(stamp), m.Reason)
	}
	if m := e.Metadata; m != nil {
		d.ImportedFrom = fmt.Sprintf("%s at %s", m.Origin.SourceRepo, m.Origin.ImportedAt.Format(stamp))
	}
	d.Steps = describeSteps(e.Provenance)
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

// describeSteps tells how something came here.
func describeSteps(p *record.Provenance) []string {
	if p == nil {
		return nil
	}
	var list []string
	for _, s := range p.Steps {
		list = append(list, fmt.Sprintf("exported by %s from %s with e3 %q as of %s, signed by %q %s, imported by %s at %s",
			s.By, s.Repository, s.Version, s.At.Format(stamp), s.Signer.Name, s.Signer.Key, s.ImportedBy, s.ImportedAt.Format(stamp)))
	}
	return list
}

// describeImported tells of the runs that were made elsewhere, also where there is no workspace of that name.
func describeImported(t *testing.T, r *repo.Repo) []importedDescription {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.Root, "dataflows", "*", "*.beast2~", "provenance.beast2"))
	if err != nil {
		t.Fatal(err)
	}
	var list []importedDescription
	for _, file := range files {
		run := filepath.Dir(file)
		ws, id := filepath.Base(filepath.Dir(run)), strings.TrimSuffix(filepath.Base(run), ".beast2~")
		report, err := r.Workspaces.Runs.Report(t.Context(), ws, id)
		if err != nil {
			t.Errorf("run %s of %s: %v", id, ws, err)
			continue
		}
		d := importedDescription{
			Workspace: ws, ID: report.RunID, Status: report.Status(), Package: report.PackageRef, Steps: describeSteps(report.Provenance),
		}
		for _, task := range report.Tasks {
			d.Tasks = append(d.Tasks, strings.TrimSpace(fmt.Sprintf("%s %s %s", task.Task, task.State, task.ExecutionID)))
		}
		for _, err := range events.Read(t.Context(), r.Records, ws, id) {
			if err != nil {
				t.Errorf("events of run %s of %s: %v", id, ws, err)
			}
			d.Events++
		}
		list = append(list, d)
	}
	return list
}

// describeKept tells what was taken out of the cache, and what must stay in it.
func describeKept(t *testing.T, r *repo.Repo) (pruned, pinned []string) {
	t.Helper()
	for p, err := range r.Executions.Tombstones(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		pruned = append(pruned, fmt.Sprintf("%s %s with output %q by %s at %s: %s",
			p.Key, p.ExecutionID, p.OutputHash, p.By, p.PrunedAt.Format(stamp), p.Reason))
	}
	for p, err := range r.Executions.Pins(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		pinned = append(pinned, fmt.Sprintf("%s %s by %s at %s: %s", p.Key, p.ExecutionID, p.By, p.At.Format(stamp), p.Note))
	}
	slices.Sort(pruned)
	slices.Sort(pinned)
	return pruned, pinned
}

func describeSettings(t *testing.T, r *repo.Repo) []string {
	t.Helper()
	s, err := settings.Get(t.Context(), r.Records)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	if s.RequireSigned {
		list = append(list, "only what a trusted key has signed comes in")
	}
	for _, k := range s.TrustedKeys {
		list = append(list, fmt.Sprintf("%s is %s, by %s at %s", k.Key, k.Name, k.AddedBy, k.AddedAt.Format(stamp)))
	}
	return list
}

func readHash(t *testing.T, r *repo.Repo, hash string) []byte {
	t.Helper()
	data, err := objectstore.ReadAll(t.Context(), r.Objects, parseHash(t, hash), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseHash(t *testing.T, hash string) objectstore.Hash {
	t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
