//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fullZip has what fullGraph makes, some 2 MB, which compress to little.
func fullZip(t *testing.T) (from *project, zip string) {
	t.Helper()
	from = newProject(t, map[string]string{"e3.yaml": fullGraph, "a.txt": "first\n"})
	from.start(0)
	zip = from.path("out.zip")
	from.must("workspace", "export", ".", "full", zip)
	return from, zip
}

// fullDisks runs a round on small volumes with ever more space left, and with ones that fill up at some moment.
func fullDisks(t *testing.T, step int64, round func(t *testing.T, v *volume, what string, spawn func(p *project, args ...string) *process, free func()) (told bool)) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			v := newVolume(t, kind, "16")
			rnd := random(t)
			rounds := 24
			if testing.Short() {
				rounds = 6
			}
			told := 0
			for i := range rounds {
				fill := filler{t, filepath.Join(v.dir, "filler")}
				leave := int64(i) * int64(i) * step
				at := time.Duration(rnd.Int64N(int64(100 * time.Millisecond)))
				what := fmt.Sprintf("round %d, %d KiB left", i, leave>>10)
				if i%2 == 1 {
					what = fmt.Sprintf("round %d, full after %v", i, at)
				}
				spawn := func(p *project, args ...string) *process {
					if i%2 == 0 {
						fill.fill(leave)
						return p.spawn(args...)
					}
					x := p.spawn(args...)
					killPoint{delay: at}.at(x)
					fill.fill(0)
					return x
				}
				if round(t, v, what, spawn, fill.free) {
					told++
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			if told == 0 {
				t.Error("e3 never met the full disk")
			}
		})
	}
}

// TestFullDiskExport exports to a disk that is full: e3 says so, and leaves nothing there.
func TestFullDiskExport(t *testing.T) {
	needRoot(t)
	from, zip := fullZip(t)
	info, err := os.Stat(zip)
	if err != nil {
		t.Fatal(err)
	}
	want, err := wholeZip(zip)
	if err != nil {
		t.Fatal(err)
	}
	fullDisks(t, info.Size()/200, func(t *testing.T, v *volume, what string, spawn func(*project, ...string) *process, free func()) bool {
		out := filepath.Join(v.dir, "out.zip")
		r := spawn(from, "workspace", "export", ".", "full", out).wait()
		told := tellsFullDisk(t, what, r)
		if told {
			if _, err := os.Lstat(out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: it failed, and there is a zip: %v", what, err)
			}
		}
		noHidden(t, v.dir)
		free()
		from.must("workspace", "export", ".", "full", out, "--force")
		if got, err := wholeZip(out); err != nil || got != want {
			t.Errorf("%s: with space again: %v; the zip is another: %v", what, err, got != want)
		}
		if err := os.Remove(out); err != nil {
			t.Fatal(err)
		}
		return told
	})
}

// TestFullDiskImport imports into a repository on a disk that is full: e3 says so, what was there is as it was, nothing of
// the zip can be seen but whole executions, and with space again all of it comes in.
func TestFullDiskImport(t *testing.T) {
	needRoot(t)
	_, zip := fullZip(t)
	fullDisks(t, 6000, func(t *testing.T, v *volume, what string, spawn func(*project, ...string) *process, free func()) bool {
		p := v.project("project", map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"})
		p.start(0)
		before := rememberFinished(t, p.repository())
		r := spawn(p, "workspace", "import", ".", zip).wait()
		told := tellsFullDisk(t, what, r)
		free()
		if told {
			for _, path := range []string{"workspaces/full.beast2"} {
				if _, err := os.Lstat(filepath.Join(p.repository(), path)); err == nil {
					t.Errorf("%s: %s is there, though the import failed:\n%s", what, path, r.stderr)
				}
			}
		}
		p.verified(p.repository())
		checkBut(t, p.repository(), tolerated{killed: true})
		before.unchanged(t, p.repository())
		p.must("workspace", "import", ".", zip)
		p.verified(p.repository())
		check(t, p.repository())
		if ran := p.exits(0, "start", ".", "full", "--json").ran(t); len(ran) > 0 {
			t.Errorf("%s: a start ran %v", what, ran)
		}
		p.reads()
		if err := os.RemoveAll(p.dir); err != nil {
			t.Fatal(err)
		}
		return told
	})
}
