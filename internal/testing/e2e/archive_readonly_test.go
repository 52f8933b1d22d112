//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/repo"
)

// TestReadOnlyArchives has a repository that cannot be written: what only looks works, an export too; what would write says
// what it needs.
func TestReadOnlyArchives(t *testing.T) {
	needRoot(t)
	files := map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"}
	out, err := os.MkdirTemp("", "e3-out-*")
	if err == nil {
		err = os.Chmod(out, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(out) })
	looks := func(t *testing.T, p *project, name string) {
		t.Helper()
		zip := filepath.Join(out, name+".zip")
		for _, tt := range []struct {
			args []string
			want string // on stdout
		}{
			{[]string{"workspace", "export", ".", "read", zip}, "Executions: 1"},
			{[]string{"verify", "."}, "no faults"},
			{[]string{"verify", ".", "--repair"}, "no faults"},
			{[]string{"gc", ".", "--dry-run"}, "Would remove"},
			{[]string{"prune", ".", "--keep-last", "1", "--dry-run"}, "Nothing to prune"},
			{[]string{"run", ".", "read"}, "completed"},
			{[]string{"logs", ".", "read.one"}, "one says this"},
			{[]string{"get", ".", "read.one"}, "alpha"},
			{[]string{"get", ".", "read.one", "-o", filepath.Join(out, name)}, ""},
			{[]string{"list", ".", "read"}, "one"},
			{[]string{"status", "."}, "all current"},
			{[]string{"plan", ".", "read"}, "Nothing to run"},
			{[]string{"plan", ".", "read", "--force"}, "to run"},
			{[]string{"plan", "-f", "e3.yaml", ".", "other"}, "hit"},
			{[]string{"package", "import", ".", zip, "--dry-run"}, "Would import"},
			{[]string{"settings", "."}, "require-signed"},
			{[]string{"key", "list", "."}, ""},
			{[]string{"pin", "list", "."}, ""},
		} {
			if r := p.exits(0, tt.args...); !strings.Contains(r.stdout, tt.want) {
				t.Errorf("%v: want %q\n%s", tt.args, tt.want, r.text())
			}
		}
		if _, err := wholeZip(zip); err != nil {
			t.Error(err)
		}
		p.uid = 0 // where the readers cannot write
		fresh := newProject(t, nil)
		fresh.must("init")
		fresh.must("workspace", "import", ".", zip)
		if ran := fresh.exits(0, "start", ".", "read", "--json").ran(t); len(ran) > 0 {
			t.Errorf("after an import of what a reader exported, %v ran", ran)
		}
	}
	starts := func(t *testing.T, p *project, name string) {
		t.Helper()
		cache := filepath.Join(out, name+"-cache")
		if err := os.Mkdir(cache, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(cache, 0o777); err != nil {
			t.Fatal(err)
		}
		p.env = append(p.env, repo.CacheDirVariable+"="+cache)
		hit := p.exits(0, "start", ".", "read", "--json")
		if ran := hit.ran(t); len(ran) > 0 || !strings.Contains(hit.stderr, "you may not write there") {
			t.Errorf("a reader's start ran %v\n%s", ran, hit.text())
		}
		if ran := p.exits(0, "start", ".", "read", "--force", "--json").ran(t); len(ran) != 1 {
			t.Errorf("a reader's forced start ran %v", ran)
		}
		if r := p.exits(0, "status", "."); !strings.Contains(r.stdout, "1 execution on this machine alone, in "+cache) {
			t.Errorf("status:\n%s", r.text())
		}
	}
	refused := func(t *testing.T, p *project, zip, want string) {
		t.Helper()
		for _, args := range [][]string{
			{"gc", "."}, {"package", "import", ".", zip}, {"workspace", "import", ".", zip, "more"}, {"pin", "add", ".", "read.one"},
			{"settings", ".", "require-signed", "true"}, {"reject", ".", "read.one@0"}, {"verify", ".", "--rerun", "read.one"},
		} {
			r := p.e3(args...)
			if r.code != 1 || !strings.Contains(r.stderr, want) || !strings.Contains(r.stderr, "cannot be written") && !strings.Contains(r.stderr, "may not read or write") {
				t.Errorf("%v: exit code %d, want 1 and %q\n%s", args, r.code, want, r.text())
			}
		}
	}
	t.Run("mount", func(t *testing.T) {
		v := newVolume(t, "tmpfs", "16")
		p := v.project("project", files)
		p.start(0)
		v.remount("ro")
		starts(t, p, "mount")
		looks(t, p, "mount")
		refused(t, p, filepath.Join(out, "mount.zip"), "read-only file system")
		v.remount("rw")
		p.start(0)
		check(t, p.repository())
	})
	t.Run("another_user", func(t *testing.T) {
		p := newProject(t, files)
		p.must("init", "--shared=world")
		p.start(0)
		before := contents(t, p.repository())
		p.uid = nobody // the project stays root's
		starts(t, p, "user")
		looks(t, p, "user")
		p.uid = nobody
		refused(t, p, filepath.Join(out, "user.zip"), "permission denied")
		if r := p.e3("workspace", "export", ".", "read", "here.zip"); r.code != 1 || !strings.Contains(r.stderr, "permission denied") {
			t.Errorf("into a folder of somebody else: exit code %d\n%s", r.code, r.text())
		}
		if d := difference(contents(t, p.repository()), before); d != "" {
			t.Errorf("the repository was changed:\n  %s", d)
		}
		p.uid = 0
		p.start(0)
		check(t, p.repository())
	})
}
