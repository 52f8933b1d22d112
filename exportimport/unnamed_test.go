package exportimport_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"e3/exportimport"
	"e3/internal/host/atomicfile"
)

// Where the system supports it, an export has no name while it is written, so that a kill leaves nothing.
func TestExportIsNotSeen(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.start("prod")
	dir := t.TempDir()
	f, err := atomicfile.CreateUnnamed(dir, 0o600)
	if err != nil || !atomicfile.CanLinkOpen() {
		t.Skipf("files without a name need Linux and a file system that has them (this is %s): %v", runtime.GOOS, err)
	}
	f.Close()
	for _, replace := range []bool{false, true} {
		looked := make(chan struct{}, 1)
		seen := make(chan []os.DirEntry, 1)
		path := filepath.Join(dir, "out.zip")
		_, err := s.results.ExportWorkspace(s.ctx, "prod", path, exportimport.ExportOptions{Replace: replace, Progress: func(int64, int64) {
			select {
			case looked <- struct{}{}:
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Error(err)
				}
				seen <- entries
			default:
			}
		}})
		s.must(err)
		if got, want := len(<-seen), map[bool]int{true: 1}[replace]; got != want {
			t.Errorf("replace %v: %d files are seen meanwhile, want %d", replace, got, want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("replace %v: left are %v, %v", replace, left, err)
		}
	}
}

// Another process may write the file during the export: it is kept.
func TestExportLosesTheRace(t *testing.T) {
	s := newSite(t, "ann@alpha")
	s.pipeline("prod")
	s.start("prod")
	path := filepath.Join(t.TempDir(), "out.zip")
	_, err := s.results.ExportWorkspace(s.ctx, "prod", path, exportimport.ExportOptions{Workers: 1, Progress: func(int64, int64) {
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Error(err)
		}
	}})
	if !errors.Is(err, exportimport.ErrFileExists) {
		t.Errorf("got %v, want ErrFileExists", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}
