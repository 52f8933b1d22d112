package exportimport_test

import (
	"slices"
	"strings"
	"testing"

	"e3/exportimport"
)

// A workspace that was deployed from a package of the reference has outputs, and no run: their executions go with it, and
// are a cache where it is imported.
func TestReferenceDeployed(t *testing.T) {
	s := newSite(t, "bob@beta")
	ref := s.importZip("testdata/reference/run1-all-executed.zip", exportimport.ImportOptions{}).Package
	s.must(s.repo.Workspaces.Create(s.ctx, "made"))
	s.must(s.repo.Workspaces.Deployer.Deploy(s.ctx, "made", ref))
	out, exported := s.export("made", exportimport.ExportOptions{})
	if exported.Executions != 4 || !slices.Equal(exported.Notes, []string{"the workspace has not been run"}) {
		t.Fatalf("exported %d executions, want 4; notes %q", exported.Executions, exported.Notes)
	}
	there := newSite(t, "cid@gamma")
	if res := there.importZip(out, exportimport.ImportOptions{NewWorkspace: true}); res.Taken() != 4 || len(res.Notes) != 0 {
		t.Errorf("imported %+v", res)
	}
	for _, e := range s.all() {
		answer, err := there.repo.Executions.Lookup(there.ctx, e.Key)
		there.must(err)
		if answer.Hit == nil || answer.Hit.Output.String() != e.OutputHash {
			t.Errorf("execution %s is no answer there: %+v", e.ExecutionID, answer)
		}
	}
	again, _ := there.export("made", exportimport.ExportOptions{})
	sameBut(t, out, again, "provenance.beast2")
}

// An output of the reference whose execution is not on record is told: such an export shows it, and holds no proof of it.
func TestReferenceWithoutExecutions(t *testing.T) {
	files := slices.DeleteFunc(unpack(t, "testdata/reference/run1-all-executed.zip"), func(f file) bool {
		return strings.HasPrefix(f.name, "executions/") || strings.HasPrefix(f.name, "dataflows/")
	})
	s := newSite(t, "bob@beta")
	ref := s.importZip(pack(t, files), exportimport.ImportOptions{}).Package
	s.must(s.repo.Workspaces.Create(s.ctx, "made"))
	s.must(s.repo.Workspaces.Deployer.Deploy(s.ctx, "made", ref))
	_, exported := s.export("made", exportimport.ExportOptions{})
	if exported.Executions != 0 {
		t.Errorf("exported %d executions", exported.Executions)
	}
	wantNote(t, "export", exported.Notes, "no result of tasks", "nothing on record has made")
}
