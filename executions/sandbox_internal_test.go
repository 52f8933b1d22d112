package executions

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A directory may get the same time stamp when it is made and when a file is written to it within one tick of the
// clock.
func TestSandboxInOneTick(t *testing.T) {
	dir := t.TempDir()
	pool := sandboxes{scratch: func() (string, error) { return dir, nil }}
	box, err := pool.acquire()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{box.home(), box.temp()} {
		if err := os.WriteFile(filepath.Join(d, "left"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for path, made := range map[string]*time.Time{box.home(): &box.homeTime, box.temp(): &box.tmpTime} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		*made = changeTime(info)
	}
	pool.release(box)
	again, err := pool.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer again.closeLogs()
	for _, d := range []string{again.home(), again.temp(), again.work.Name()} {
		if entries, err := os.ReadDir(d); err != nil || len(entries) > 0 {
			t.Errorf("%s holds %v, %v", d, entries, err)
		}
	}
}

// If a sandbox cannot be made, acquire returns an error.
func TestSandboxWithoutScratch(t *testing.T) {
	pool := sandboxes{scratch: func() (string, error) { return filepath.Join(t.TempDir(), "absent"), nil }}
	if box, err := pool.acquire(); err == nil {
		t.Errorf("got %+v", box)
	}
}

// A file may be staged where an earlier command had a folder.
func TestSandboxFileInPlaceOfFolder(t *testing.T) {
	dir := t.TempDir()
	pool := sandboxes{scratch: func() (string, error) { return dir, nil }}
	box, err := pool.acquire()
	if err != nil {
		t.Fatal(err)
	}
	defer box.drop()
	if err := box.mkdir(filepath.Join("in", "deep")); err != nil {
		t.Fatal(err)
	}
	pool.release(box)
	if len(pool.used) != 1 {
		t.Fatal("the sandbox is not kept")
	}
	if err := box.placeFile("in"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(box.work.Name(), "in"), nil, 0o644); err != nil {
		t.Error(err)
	}
	if err := box.clearSpare(); err != nil || len(box.spare) != 0 {
		t.Errorf("left are %v, %v", box.spare, err)
	}
}
