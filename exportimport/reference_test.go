package exportimport_test

import (
	"path/filepath"
	"strings"
	"testing"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/workspace"
)

// Zips of the reference are imported: package, run and executions with their logs, and the datasets of the workspace.
func TestReferenceZips(t *testing.T) {
	files, err := filepath.Glob("testdata/reference/*.zip")
	if err != nil || len(files) != 4 {
		t.Fatalf("zips of the reference: %v, %v", files, err)
	}
	want := map[string]struct {
		pkg        string
		executions int
		state      record.RunState
		objects    int
	}{
		"golden-1.0.0.package-export.zip": {"golden@1.0.0", 0, 0, 20},
		"golden-1.0.0.sdk.zip":            {"golden@1.0.0", 0, 0, 20},
		"run1-all-executed.zip":           {"golden@1.0.0-0e4166a6", 4, record.RunCompleted, 21},
		"run2-failed-forced.zip":          {"golden@1.0.0-af752bc6", 3, record.RunFailed, 21},
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "bob@beta")
			w := want[name]
			plan := s.importZip(file, exportimport.ImportOptions{DryRun: true})
			if plan.Outcomes[executions.Added] != w.executions || plan.ObjectsAdded != w.objects || len(s.all()) != 0 {
				t.Errorf("a dry run: %+v", plan)
			}
			res := s.importZip(file, exportimport.ImportOptions{NewWorkspace: true, Workspace: "golden"})
			if res.Package.String() != w.pkg || res.Taken() != w.executions || len(res.Notes) != 0 ||
				res.Source != "a zip without provenance:"+name {
				t.Errorf("imported %+v", res)
			}
			if ref, err := s.repo.Workspaces.Packages.Find(s.ctx, "golden", strings.TrimPrefix(w.pkg, "golden@")); err != nil || ref != res.Package {
				t.Errorf("the package is %v, %v", ref, err)
			}
			for _, e := range s.all() {
				if e.Provenance == nil || e.Provenance.Steps[0].Repository != name {
					t.Errorf("execution %s comes from %+v", e.ExecutionID, e.Provenance)
				}
			}
			if w.executions == 0 {
				return
			}
			run, err := s.repo.Workspaces.Runs.Run(s.ctx, "golden", res.RunID)
			if err != nil || run.State != w.state || run.WorkspaceName != "golden" {
				t.Errorf("the run is %+v, %v", run, err)
			}
			// The next export is the same except for parts that differ by design.
			out, exported := s.export("golden", exportimport.ExportOptions{})
			if exported.Executions != w.executions {
				t.Errorf("exported again: %+v", exported)
			}
			other := newSite(t, "cid@gamma")
			other.importZip(out, exportimport.ImportOptions{NewWorkspace: true})
			again, _ := other.export("golden", exportimport.ExportOptions{})
			sameBut(t, out, again, "provenance.beast2")
			for _, e := range other.all() {
				if len(e.Provenance.Steps) != 2 || e.Provenance.Steps[0].Repository != name || e.Provenance.Steps[1].By != "bob@beta" {
					t.Errorf("execution %s has come by %+v", e.ExecutionID, e.Provenance.Steps)
				}
			}
		})
	}
}

// The reference's tasks hold East code: a start says so.
func TestReferenceCannotRun(t *testing.T) {
	s := newSite(t, "bob@beta")
	s.importZip("testdata/reference/run1-all-executed.zip", exportimport.ImportOptions{NewWorkspace: true, Workspace: "golden"})
	_, err := s.repo.Workspaces.Runner.Start(s.ctx, "golden", workspace.StartOptions{Executor: s.executor, Concurrency: 1})
	if err == nil || !strings.Contains(err.Error(), "East") {
		t.Errorf("a start ends with %v", err)
	}
	if d, err := s.repo.Workspaces.Datasets.Names(s.ctx, "golden"); err != nil || len(d) == 0 {
		t.Errorf("its datasets are %v, %v", d, err)
	}
}
