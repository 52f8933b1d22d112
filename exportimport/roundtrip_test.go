package exportimport_test

import (
	"slices"
	"strings"
	"testing"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
)

// A workspace that is imported into an empty repository starts with hits only, and its export is the same except for
// the exporter.
func TestRoundTrip(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	if run := a.start("prod"); run.State != record.RunCompleted {
		t.Fatalf("the run is %+v", run)
	}
	first, exported := a.export("prod", exportimport.ExportOptions{})
	if exported.Executions != 3 || exported.RunID == "" || len(exported.Notes) != 0 {
		t.Errorf("exported %+v", exported)
	}
	again, _ := a.export("prod", exportimport.ExportOptions{Workers: 1})
	sameBut(t, first, again)

	b := newSite(t, "bob@beta")
	res := b.importZip(first, exportimport.ImportOptions{NewWorkspace: true})
	if res.Taken() != 3 || res.From != "ann@alpha" || res.Workspace != "prod" || !res.RunAdded || !res.PackageAdded || len(res.Notes) != 0 {
		t.Errorf("imported %+v", res)
	}
	second, _ := b.export("prod", exportimport.ExportOptions{})
	sameBut(t, first, second, "provenance.beast2")

	run := b.start("prod")
	if b.ran.Load() != 0 || run.Summary.Cached != 3 || run.State != record.RunCompleted {
		t.Errorf("a start on the other side ran %d commands: %+v", b.ran.Load(), run.Summary)
	}
	if got := b.content("prod", "third"); !strings.HasPrefix(got, "nobody may see this") {
		t.Errorf("the output is %q", got)
	}
	for _, e := range b.all() {
		if e.Metadata == nil || e.Metadata.Origin.SourceRepo != "ann@alpha:"+a.results.Location || len(e.Provenance.Steps) != 1 || e.Provenance.Steps[0].ImportedBy != "bob@beta" {
			t.Errorf("execution %s comes from %+v", e.ExecutionID, e.Provenance)
		}
	}
	logged := slices.ContainsFunc(b.all(), func(e *executions.Execution) bool { return b.log(e, executions.Stdout) == "hello\n" })
	if !logged {
		t.Error("the log of the first task has not come along")
	}

	// A second import adds nothing.
	res = b.importZip(first, exportimport.ImportOptions{})
	if res.Taken() != 0 || res.Outcomes[executions.SkippedSuccess] != 3 || res.ObjectsAdded != 0 || res.PackageAdded {
		t.Errorf("imported again: %+v", res)
	}
}
