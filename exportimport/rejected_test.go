package exportimport_test

import (
	"strings"
	"testing"
	"time"

	"e3/exportimport"
	"e3/internal/format/record"
)

// An imported rejection does not change an execution that exists here, but both sides get a note.
func TestRejectionIsToldOf(t *testing.T) {
	here, there := newSite(t, "ann@alpha"), newSite(t, "bob@beta")
	here.pipeline("prod")
	here.start("prod")
	path, _ := here.export("prod", exportimport.ExportOptions{})
	there.importZip(path, exportimport.ImportOptions{NewWorkspace: true})

	var id string
	for _, e := range here.all() {
		if e.State == record.Success {
			id = e.ExecutionID
			r := record.Rejection{Rejected: true, By: "ann@alpha", At: time.Now(), Reason: "wrong units"}
			if _, err := here.results.Curator.Reject(here.ctx, e.Key, e.ExecutionID, &r); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if id == "" {
		t.Fatal("there is no success")
	}
	again, exported := here.export("prod", exportimport.ExportOptions{})
	wantNote(t, "export", exported.Notes, id)
	foreseen := there.importZip(again, exportimport.ImportOptions{DryRun: true})
	wantNote(t, "dry run", foreseen.Notes, id, "ann@alpha", "wrong units", "e3 reject")
	imported := there.importZip(again, exportimport.ImportOptions{})
	wantNote(t, "import", imported.Notes, id, "ann@alpha", "wrong units", "e3 reject")

	fresh := newSite(t, "cy@gamma")
	if notes := fresh.importZip(again, exportimport.ImportOptions{}).Notes; len(notes) > 0 {
		t.Errorf("where the rejection comes in there is nothing to tell; got %q", notes)
	}
}

// wantNote fails unless one of the notes has all the words.
func wantNote(t *testing.T, what string, notes []string, words ...string) {
	t.Helper()
next:
	for _, note := range notes {
		for _, word := range words {
			if !strings.Contains(note, word) {
				continue next
			}
		}
		return
	}
	t.Errorf("%s: no note has %q: %q", what, words, notes)
}
