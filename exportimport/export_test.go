package exportimport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

// Tests the entries of a zip and their order.
func TestLayout(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	run := s.start("prod")
	path, exported := s.export("prod", exportimport.ExportOptions{})
	names, content := entries(t, path)
	for i, n := range names {
		n = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(n, "H")
		n = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(n, "I")
		names[i] = regexp.MustCompile(`[0-9a-f]{2}/[0-9a-f]{62}`).ReplaceAllString(n, "O")
	}
	got := strings.Join(slices.Compact(names), "\n")
	want := strings.Join([]string{
		"objects/O",
		"executions/H/H/I/detail.beast2", "executions/H/H/I/output", "executions/H/H/I/status.beast2", "executions/H/H/I/stdout.txt",
		"executions/H/H/I/detail.beast2", "executions/H/H/I/output", "executions/H/H/I/status.beast2",
		"executions/H/H/I/detail.beast2", "executions/H/H/I/output", "executions/H/H/I/status.beast2",
		"dataflows/prod/I.beast2", "events/prod/I.ndjson", "packages/flow/1.0.0", "workspaces/prod.beast2", "provenance.beast2", "SHA256SUMS",
	}, "\n")
	sorted := func(s string) string { // which execution has the log depends on hashes
		lines := strings.Split(s, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	if sorted(got) != sorted(want) {
		t.Errorf("the zip holds\n%s\nwant\n%s", got, want)
	}
	raw, _ := entries(t, path)
	var objects, executions []string
	for _, n := range raw {
		switch {
		case strings.HasPrefix(n, "objects/"):
			objects = append(objects, n)
		case strings.HasPrefix(n, "executions/"):
			executions = append(executions, n)
		}
	}
	if !slices.IsSorted(objects) || !slices.IsSorted(executions) || len(objects) != exported.Objects {
		t.Errorf("entries are not in order, or not counted: %+v", exported)
	}
	for _, n := range objects {
		if h := objectstore.Sum([]byte(content[n])).String(); n != "objects/"+h[:2]+"/"+h[2:] {
			t.Errorf("%s holds object %s", n, h)
		}
	}
	e, err := record.DecodeExport([]byte(content["provenance.beast2"]))
	if err != nil || e.By != "ann@alpha" || e.Repository != s.results.Location || !e.At.Equal(run.CompletedAt.Truncate(1e6)) || e.Earlier != nil {
		t.Errorf("the provenance is %+v, %v; the run ended at %v", e, err, run.CompletedAt)
	}
}

// A set input makes another package with a marked version; the other side exports the same package again.
func TestDefaults(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	a.start("prod")
	a.set("prod", "text", "another text")
	a.start("prod")
	zip, exported := a.export("prod", exportimport.ExportOptions{})
	if !regexp.MustCompile(`^1\.0\.0\+[0-9a-f]{8}$`).MatchString(exported.Package.Version) {
		t.Errorf("the package is %s", exported.Package)
	}
	b := newSite(t, "bob@beta")
	res := b.importZip(zip, exportimport.ImportOptions{})
	b.must(b.repo.Workspaces.Create(b.ctx, "fresh"))
	b.must(b.repo.Workspaces.Deployer.Deploy(b.ctx, "fresh", res.Package))
	if run := b.start("fresh"); run.Summary.Cached != 3 || b.ran.Load() != 0 {
		t.Errorf("a start of the deployed package runs %d commands: %+v", b.ran.Load(), run.Summary)
	}
	_, again := b.export("fresh", exportimport.ExportOptions{})
	if again.Package != exported.Package {
		t.Errorf("exported again it is %s, was %s", again.Package, exported.Package)
	}
	b.set("fresh", "text", "some text")
	_, back := b.export("fresh", exportimport.ExportOptions{})
	if back.Package.Version == exported.Package.Version || strings.Count(back.Package.Version, "+") != 1 {
		t.Errorf("with the first text again it is %s", back.Package)
	}
}

// The zip has the executions of the run, whatever the present inputs are and however the executions are found.
func TestExecutionsOfTheRun(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	first := s.start("prod")
	ids := func(path string) []string {
		_, content := entries(t, path)
		var list []string
		for name := range content {
			if parts := strings.Split(name, "/"); parts[0] == "executions" && parts[4] == "status.beast2" {
				list = append(list, parts[3])
			}
		}
		slices.Sort(list)
		return list
	}
	var want []string
	for e := range first.Tasks.All() {
		want = append(want, e.ExecutionID)
	}
	slices.Sort(want)

	s.set("prod", "text", "not run yet")
	zip, _ := s.export("prod", exportimport.ExportOptions{})
	if got := ids(zip); !slices.Equal(got, want) {
		t.Errorf("after a set: %v, want %v", got, want)
	}
	// Without the node of the run's inputs there are no keys, so the executions are searched for.
	h, err := objectstore.ParseHash(first.InputSnapshot)
	s.must(err)
	s.must(s.repo.Objects.Delete(s.ctx, h))
	zip, exported := s.export("prod", exportimport.ExportOptions{})
	if got := ids(zip); !slices.Equal(got, want) {
		t.Errorf("without the run's inputs: %v, want %v", got, want)
	}
	if len(exported.Notes) != 0 {
		t.Errorf("notes: %q", exported.Notes)
	}
	// All of the history.
	s.start("prod")
	all, exported := s.export("prod", exportimport.ExportOptions{AllHistory: true})
	if got := ids(all); len(got) != 6 || exported.Executions != 6 {
		t.Errorf("the history has %v", got)
	}
	now, _ := s.export("prod", exportimport.ExportOptions{})
	if got := ids(now); len(got) != 3 || slices.Equal(got, want) {
		t.Errorf("the latest run has %v", got)
	}
}

// A failed run is exported like any other.
func TestFailedRun(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.deploy("prod", "e3: 1\nname: f\ntasks:\n  good: {out: a, run: \"cat $out.\"}\n  bad: {in: {g: good}, out: b, run: \"say oh no\\nfail\"}\n")
	if run := a.start("prod"); run.State != record.RunFailed {
		t.Fatalf("the run is %+v", run)
	}
	zip, exported := a.export("prod", exportimport.ExportOptions{})
	if exported.Executions != 2 {
		t.Errorf("exported %+v", exported)
	}
	b := newSite(t, "bob@beta")
	b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
	r, err := b.repo.Workspaces.Runs.Run(b.ctx, "prod", exported.RunID)
	if err != nil || r.State != record.RunFailed || r.FailedTask != "bad" {
		t.Errorf("the run is %+v, %v", r, err)
	}
	for _, e := range b.all() {
		if e.State == record.Failed && b.log(e, executions.Stdout) != "oh no\n" {
			t.Errorf("the log of the failure is %q", b.log(e, executions.Stdout))
		}
	}
	second, _ := b.export("prod", exportimport.ExportOptions{})
	sameBut(t, zip, second, "provenance.beast2")
}

// Marked content is not exported, but its hash is, so that hits stay hits.
func TestNoData(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	a.start("prod")
	zip, exported := a.export("prod", exportimport.ExportOptions{NoData: true})
	secret := objectstore.Sum([]byte("nobody may see this"))
	text := secret.String()
	if names, _ := entries(t, zip); slices.Contains(names, "objects/"+text[:2]+"/"+text[2:]) {
		t.Error("the content of the input is in the zip")
	}
	if !slices.ContainsFunc(exported.Notes, func(n string) bool { return strings.Contains(n, "secret") }) {
		t.Errorf("notes are %q", exported.Notes)
	}
	b := newSite(t, "bob@beta")
	res := b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
	if !slices.ContainsFunc(res.Notes, func(n string) bool { return strings.Contains(n, "secret") }) {
		t.Errorf("notes of the import are %q", res.Notes)
	}
	if run := b.start("prod"); run.Summary.Cached != 3 {
		t.Errorf("a start gives %+v", run.Summary)
	}
	c := newSite(t, "cid@gamma")
	c.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
	// If the content is missing, only an export without data is possible.
	plain, exported := c.export("prod", exportimport.ExportOptions{})
	if len(exported.Notes) != 1 {
		t.Errorf("notes of an export without the content: %q", exported.Notes)
	}
	sameBut(t, zip, plain, "provenance.beast2")
}

// The error names the missing or damaged part, and no temporary file is left.
func TestDamaged(t *testing.T) {
	object := func(s *site, h string) string {
		return filepath.Join(filepath.Join(s.repo.Root, "objects"), h[:2], h[2:])
	}
	for name, c := range map[string]struct {
		dataset string
		break_  func(path string) error
		want    string
	}{
		"gone":      {"text", os.Remove, "dataset prod.text"},
		"changed":   {"text", func(p string) error { return rewrite(p, []byte("same text")) }, "dataset prod.text"},
		"cut":       {"text", func(p string) error { return rewrite(p, []byte("some")) }, "dataset prod.text"},
		"empty":     {"text", func(p string) error { return rewrite(p, nil) }, "dataset prod.text"},
		"directory": {"images", func(p string) error { return rewrite(p, []byte("x")) }, "dataset prod.images"},
		"output":    {"third", os.Remove, "dataset prod.third"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "ann@alpha")
			s.pipeline("prod")
			s.start("prod")
			d, err := s.repo.Workspaces.Datasets.Dataset(s.ctx, "prod", workspace.DatasetPath{Name: c.dataset})
			s.must(err)
			s.must(c.break_(object(s, d.Hash)))
			dir := t.TempDir()
			path := filepath.Join(dir, "out.zip")
			_, err = s.results.ExportWorkspace(s.ctx, "prod", path, exportimport.ExportOptions{})
			var missing *exportimport.MissingError
			if !errors.As(err, &missing) || !strings.Contains(missing.What, c.want) {
				t.Errorf("got %v, want that of %s", err, c.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

func rewrite(path string, data []byte) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o444)
}

// An execution whose output is gone, in whole or in part, is left out with a note.
func TestOutputGone(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.start("prod")
	s.set("prod", "text", "another text")
	s.start("prod")
	// The first output of second is only in the history.
	var gone *executions.Execution
	for _, e := range s.all() {
		if e.Detail.Task == "second" {
			gone = e
			break
		}
	}
	h, err := objectstore.ParseHash(gone.OutputHash)
	s.must(err)
	made, err := tree.Lookup(s.ctx, s.repo.Objects, h, "made/below/one")
	s.must(err)
	s.must(s.repo.Objects.Delete(s.ctx, made.Hash))
	zip, exported := s.export("prod", exportimport.ExportOptions{AllHistory: true})
	// The output of first is the same object, so both executions are left out.
	if exported.Executions != 4 || len(exported.Notes) != 2 {
		t.Errorf("exported %+v", exported)
	}
	b := newSite(t, "bob@beta")
	b.importZip(zip, exportimport.ImportOptions{NewWorkspace: true})
	second, _ := b.export("prod", exportimport.ExportOptions{AllHistory: true})
	sameBut(t, zip, second, "provenance.beast2")
}

// An existing file is kept, unless Replace is set.
func TestFileExists(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.start("prod")
	path := filepath.Join(t.TempDir(), "out.zip")
	s.must(os.WriteFile(path, []byte("precious"), 0o644))
	if _, err := s.results.ExportWorkspace(s.ctx, "prod", path, exportimport.ExportOptions{}); !errors.Is(err, exportimport.ErrFileExists) {
		t.Errorf("got %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if _, err := s.results.ExportWorkspace(s.ctx, "prod", path, exportimport.ExportOptions{Replace: true}); err != nil {
		t.Error(err)
	}
	if names, _ := entries(t, path); len(names) == 0 {
		t.Error("the file was not replaced")
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	other := filepath.Join(filepath.Dir(path), "other.zip")
	if _, err := s.results.ExportWorkspace(ctx, "prod", other, exportimport.ExportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// The bytes do not depend on the number of cores, the time, or the clock's zone.
func TestSameBytes(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.write("images/large.bin", strings.Repeat("0123456789", 300_000))
	s.start("prod")
	var first []byte
	for _, workers := range []int{1, 2, 7} {
		zone := time.FixedZone(fmt.Sprint("here", workers), workers*3600)
		s.now = time.Now().Add(time.Duration(workers) * 1000 * time.Hour).In(zone)
		path, _ := s.export("prod", exportimport.ExportOptions{Workers: workers})
		data, err := os.ReadFile(path)
		s.must(err)
		if first == nil {
			first = data
		}
		if !bytes.Equal(first, data) {
			t.Errorf("with %d workers the zip differs", workers)
		}
	}
}

// During a run of the workspace, its latest ended run is exported, with a note.
func TestExportWhileRunning(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	done := s.start("prod")
	s.set("prod", "text", "another text")
	exported := make(chan *exportimport.Exported, 1)
	s.during = func() {
		if s.during = nil; len(exported) == 0 {
			_, e := s.export("prod", exportimport.ExportOptions{})
			exported <- e
		}
	}
	s.start("prod")
	e := <-exported
	if e.RunID != done.RunID || e.Executions != 3 || len(e.Notes) != 1 || !strings.Contains(e.Notes[0], "being made") {
		t.Errorf("exported %+v", e)
	}
}

func TestExportPackage(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	built, err := a.repo.Workspaces.Deployer.Build(a.ctx, filepath.Join(a.dir, "e3.yaml"), nil)
	a.must(err)
	ref := workspace.PackageRef{Name: "flow", Version: "1.0.0", Hash: built.Hash}
	a.must(a.repo.Workspaces.Packages.Add(a.ctx, ref))
	path := filepath.Join(t.TempDir(), "p.zip")
	exported, err := a.results.ExportPackage(a.ctx, ref, path, exportimport.ExportOptions{})
	a.must(err)
	if exported.Executions != 0 || exported.Package != ref {
		t.Errorf("exported %+v", exported)
	}
	b := newSite(t, "bob@beta")
	res := b.importZip(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "dev"})
	if !res.Exported.IsZero() || res.Workspace != "dev" {
		t.Errorf("imported %+v", res)
	}
	b.importZip(path, exportimport.ImportOptions{NewWorkspace: true, Workspace: "dev"}) // again
	if run := b.start("dev"); run.State != record.RunCompleted || b.ran.Load() != 3 {
		t.Errorf("a start runs %d commands: %+v", b.ran.Load(), run)
	}
	if _, err := b.tryImport(path, exportimport.ImportOptions{NewWorkspace: true}); err == nil {
		t.Error("a workspace without a name was made")
	}
}
