package exportimport_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/refstore"
)

// A run record, or a file beside it, that a loss of power has torn is repaired by the next import; a readable one is
// not changed.
func TestTornRun(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	a.start("prod")
	zip, exported := a.export("prod", exportimport.ExportOptions{})
	b := newSite(t, "bob@beta")
	b.importZip(zip, exportimport.ImportOptions{})
	root := filepath.Join(b.dir, ".e3", "dataflows", "prod")
	whole := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "~sum") { // a torn sum is ignored
			return err
		}
		data, err := os.ReadFile(path)
		whole[path] = string(data)
		return err
	})
	if err != nil || len(whole) != 2 {
		t.Fatalf("the run's files are %d, %v; want its record and its provenance", len(whole), err)
	}
	for path := range whole {
		for _, left := range []int64{0, 20} {
			if err := os.Chmod(path, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, left); err != nil {
				t.Fatal(err)
			}
			if res := b.importZip(zip, exportimport.ImportOptions{}); !res.RunAdded {
				t.Errorf("%s with %d bytes: nothing was added", path, left)
			}
			if run, err := b.repo.Workspaces.Runs.Run(b.ctx, "prod", exported.RunID); err != nil || run.State != record.RunCompleted {
				t.Errorf("%s with %d bytes: %+v, %v", path, left, run, err)
			}
			if res := b.importZip(zip, exportimport.ImportOptions{}); res.RunAdded {
				t.Errorf("%s with %d bytes: a run that is there was added", path, left)
			}
		}
	}
}

// Events and logs that a loss of power has torn are repaired by the next import, whatever size they have.
func TestTornStreams(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	a.start("prod")
	zip, _ := a.export("prod", exportimport.ExportOptions{})
	b := newSite(t, "bob@beta")
	b.importZip(zip, exportimport.ImportOptions{})
	tried := 0
	for _, folder := range []string{"events", "executions"} {
		err := filepath.WalkDir(filepath.Join(b.dir, ".e3", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || folder == "executions" && !strings.HasPrefix(d.Name(), "std") {
				return err
			}
			whole, err := os.ReadFile(path)
			if err != nil || len(whole) == 0 {
				return err
			}
			zeros := make([]byte, len(whole))
			half := append([]byte(nil), whole...)
			clear(half[:len(half)/2])
			for i, spoiled := range [][]byte{nil, whole[:len(whole)/2], zeros, half} {
				if err := os.Chmod(path, 0o644); err != nil {
					return err
				}
				if err := os.WriteFile(path, spoiled, 0o644); err != nil {
					return err
				}
				tried++
				res := b.importZip(zip, exportimport.ImportOptions{})
				if got, err := os.ReadFile(path); err != nil || string(got) != string(whole) {
					t.Errorf("%s, spoiled in way %d: %d of %d bytes, %v", path, i, len(got), len(whole), err)
				}
				if got, want := res.Outcomes[executions.Overwritten], map[bool]int{true: 1}[folder == "executions"]; got != want {
					t.Errorf("%s, spoiled in way %d: %d were overwritten, want %d", path, i, got, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if tried < 8 {
		t.Errorf("%d streams were spoiled, want those of two files at least", tried)
	}
	if res := b.importZip(zip, exportimport.ImportOptions{}); res.Taken() != 0 {
		t.Errorf("what is whole was taken: %+v", res)
	}
}

// fullDisk is a record store that fails every write of an execution.
type fullDisk struct{ executions.Records }

func (f *fullDisk) Put(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	if !strings.HasPrefix(r.Key.Partition, "EXECUTION/") {
		return f.Records.Put(ctx, r)
	}
	return refstore.Absent, &fs.PathError{Op: "write", Path: r.Key.Sort, Err: syscall.ENOSPC}
}

// An import returns the first failure, not the cancellation of its other parts.
func TestImportSaysWhatFailed(t *testing.T) {
	a := newSite(t, "ann@alpha")
	a.pipeline("prod")
	for _, text := range []string{"one", "two", "three"} {
		a.set("prod", "text", text)
		a.start("prod")
	}
	zip, _ := a.export("prod", exportimport.ExportOptions{AllHistory: true})
	b := newSite(t, "bob@beta")
	whole := b.results.Curator
	store := executions.NewStore(&fullDisk{b.repo.Records}, b.repo.Objects)
	b.results.Curator = executions.NewCurator(store, b.repo.Records, time.Now)
	_, err := b.tryImport(zip, exportimport.ImportOptions{})
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the disk is full, and no more", err)
	}
	if list, err := b.repo.Workspaces.Packages.List(b.ctx); err != nil || len(list) > 0 {
		t.Errorf("registered are %v, %v", list, err)
	}
	b.results.Curator = whole
	b.importZip(zip, exportimport.ImportOptions{})
}
