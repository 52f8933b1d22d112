//go:build linux

package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"e3/internal/repo"
	"e3/internal/testing/suite"
)

// TestGroup has two users of one group work in one repository that was made for that, each under an umask of their
// own: each can go on with what the other has left, and other users get no further than was said.
func TestGroup(t *testing.T) {
	suite.Thorough(t)
	needRoot(t)
	for _, c := range []struct {
		shared, ann, bob string // how it is made, and the umasks
		file, object     fs.FileMode
	}{
		{"--shared", "077", "022", 0o660, 0o440},
		{"--shared=group", "022", "077", 0o660, 0o440},
		{"--shared=world", "027", "002", 0o664, 0o444},
	} {
		t.Run(c.shared+" "+c.ann+" "+c.bob, func(t *testing.T) { twoOfAGroup(t, c.shared, c.ann, c.bob, c.file, c.object) })
	}
}

func twoOfAGroup(t *testing.T, shared, umaskOfAnn, umaskOfBob string, file, object fs.FileMode) {
	const group, ann, bob = 60100, 60101, 60102
	p := newProject(t, map[string]string{"a.txt": "alpha\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, run: 'echo "one says this"; head -c 100000 /dev/zero | tr "\0" "x"; cp "$a" "$out"'}
  slow: {in: [a], out: slow.txt, pass_env: [E2E_STATE], run: 'echo "slow says this"; stat -c %a . "$HOME" "$TMPDIR"; rm -f "$E2E_STATE/slow"; touch "$E2E_STATE/slow"; sleep 0.4; mkdir d; cp "$a" d; cp d/a.txt "$out"'}
`})
	for name, mode := range map[string]fs.FileMode{".": 0o775 | fs.ModeSetgid, "a.txt": 0o664, "e3.yaml": 0o664, "state": 0o777 | fs.ModeSticky} {
		if err := errors.Join(os.Lchown(p.path(name), ann, group), os.Chmod(p.path(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	cache := t.TempDir() // not in what belongs to one of them
	if err := errors.Join(os.Chmod(filepath.Dir(cache), 0o755), os.Chmod(cache, 0o777|fs.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	umasks := map[int]string{ann: umaskOfAnn, bob: umaskOfBob}
	command := func(uid int, args ...string) *exec.Cmd {
		umask := umasks[uid]
		cmd := exec.Command("sh", append([]string{"-c", `umask "$0" && exec "$@"`, umask, program}, args...)...)
		cmd.Dir, cmd.Env = p.dir, append(slices.Clip(p.env), "XDG_CONFIG_HOME="+p.path("state/"+strconv.Itoa(uid)), repo.CacheDirVariable+"="+filepath.Join(cache, strconv.Itoa(uid)))
		// Each has a group of their own, as is usual, and is a member of the other.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{group}}}
		return cmd
	}
	e3 := func(uid int, args ...string) string {
		t.Helper()
		out, err := command(uid, args...).CombinedOutput()
		if err != nil {
			t.Errorf("user %d: e3 %s: %v\n%s", uid, strings.Join(args, " "), err, tail(string(out)))
		}
		return string(out)
	}
	e3(ann, "init", shared)
	e3(bob, "settings", "--user", "--unset", "safe-repository", ".")
	if out, err := command(bob, "list", ".").CombinedOutput(); err == nil || !strings.Contains(string(out), "belongs to another user") {
		t.Errorf("bob uses what ann has put into a folder above: %v\n%s", err, out)
	}
	e3(bob, "settings", "--user", "safe-repository", ".")
	for i, uid := range []int{ann, bob, ann, bob} {
		e3(uid, "start", "-f", "e3.yaml")
		if got := e3(uid, "logs", ".", "read.one"); !strings.Contains(got, "one says this\n") {
			t.Errorf("user %d: the log of one is %.100q", uid, got)
		}
		if got := e3(uid, "logs", ".", "read.slow"); !strings.Contains(got, "slow says this\n700\n700\n700\n") {
			t.Errorf("user %d: the log of slow is %.100q", uid, got)
		}
		e3(uid, "status", ".", "read")
		e3(uid, "start", ".", "read", "--force")
		e3(uid, "gc", ".")
		p.write("a.txt", strings.Repeat("alpha\n", i+2))
	}
	// One goes on after the death of the other, and works for the other.
	killed, mark := command(ann, "start", ".", "read", "--force"), p.path("state/slow")
	os.Remove(mark)
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "slow runs", func() string {
		if _, err := os.Lstat(mark); err != nil {
			return err.Error()
		}
		return ""
	})
	killed.Process.Kill()
	killed.Wait()
	left, _ := filepath.Glob(p.path(".e3/tmp/session-*.lock"))
	if len(left) != 1 {
		t.Fatalf("left are the sessions %q, want one", left)
	}
	if err := os.WriteFile(left[0], []byte("this-host another-boot"), 0); err != nil { // as if the power had gone
		t.Fatal(err)
	}
	e3(bob, "start", ".", "read", "--force")
	if text, err := os.ReadFile(left[0]); err != nil || strings.Contains(string(text), "another-boot") {
		t.Errorf("what the power took is mended with each start: the other's session says %q, %v", text, err)
	}
	worker := command(bob, "worker", ".", "--idle", "3s")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	e3(ann, "start", ".", "read", "--force", "--workers")
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
	e3(ann, "gc", ".")
	e3(bob, "verify", ".")
	e3(ann, "events", ".", "read")
	check(t, p.repository())

	wantModes(t, p.repository(), file, object, group)
	// Both at once, in folders that are made meanwhile.
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			uid := []int{ann, bob}[i%2]
			p := strconv.Itoa(i)
			e3(uid, "workspace", "create", ".", "w"+p)
			e3(uid, "workspace", "remove", ".", "w"+p)
		})
	}
	all.Wait()
	e3(bob, "prune", ".", "--keep-last", "1")
	e3(ann, "workspace", "export", ".", "read", "state/read.zip")
	if err := os.Chmod(p.path("state/read.zip"), 0o644); err != nil {
		t.Fatal(err)
	}
	e3(bob, "workspace", "import", ".", "state/read.zip", "other")
	e3(ann, "gc", ".")
	wantModes(t, p.repository(), file, object, group)
}

// wantModes walks an idle repository. In one that goes by the umask, it skips the folders that init has made.
func wantModes(t *testing.T, root string, file, object fs.FileMode, group uint32) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, mode, rel := info.Sys().(*syscall.Stat_t), info.Mode(), strings.TrimPrefix(path, root)
		want := file
		switch {
		case d.IsDir() && group != 0:
			want = fs.ModeDir | fs.ModeSetgid | file | 0o110 | file&4>>2
			if slices.Contains([]string{"/tmp", "/locks", "/locks/records", "/locks/named"}, rel) {
				want |= fs.ModeSticky
			}
		case d.IsDir():
			want = fs.ModeDir | 0o700
		case strings.HasPrefix(rel, "/locks/") && !strings.HasPrefix(rel, "/locks/leases/") && !strings.HasSuffix(rel, ".holder"), strings.HasPrefix(rel, "/objects/lock-"):
			want = file &^ 0o004 // writers alone lock
		case strings.HasPrefix(rel, "/objects/"):
			want = object
		case mode == file&^0o222 && (strings.HasSuffix(rel, ".txt") || strings.HasSuffix(rel, ".ndjson")): // a log that has ended
			want = mode
		}
		if mode != want {
			t.Errorf("%s is %v, want %v", rel, mode, want)
		}
		if group != 0 && st.Gid != group && (object == 0o440 || !strings.HasPrefix(rel, "/objects/") || strings.HasPrefix(rel, "/objects/lock-")) {
			t.Errorf("%s is of group %d, want %d", rel, st.Gid, group)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPrivate walks a repository after all kinds of commands, each under the umask 0: only its user has access
// anywhere.
func TestPrivate(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "alpha\n", "d/b.txt": "beta\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
  d: {dir: d}
tasks:
  one: {in: [a], out: one.txt, run: 'echo "one says this"; head -c 300000 /dev/zero > "$out"'}
  dir: {in: [d], out: {x: {dir: x}}, run: 'mkdir -p "$x"; cp "$d"/* "$x"'}
  long: {out: o, run: 'echo begins; sleep 0.4; touch "$out"'}
  bad: {run: 'echo no >&2; exit 3', out: o}
  killed: {in: [a], pass_env: [E2E_STATE], out: o, run: 'touch "$E2E_STATE/up"; if [ -e "$E2E_STATE/wait" ]; then sleep 1000; fi; touch "$out"'}
`})
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", `umask 0 && exec "$@"`, "-", program}, args...)...)
		cmd.Dir, cmd.Env = p.dir, p.env
		return cmd
	}
	e3 := func(fails bool, args ...string) {
		t.Helper()
		if out, err := command(args...).CombinedOutput(); (err != nil) != fails {
			t.Errorf("e3 %s: %v\n%s", strings.Join(args, " "), err, tail(string(out)))
		}
	}
	if err := os.MkdirAll(p.path(".e3/objects"), 0o755); err != nil { // what an init that was cut off has left
		t.Fatal(err)
	}
	e3(true, "start", "-f", "e3.yaml") // which makes the repository; bad fails
	wantModes(t, p.repository(), 0o600, 0o400, 0)
	p.write("state/wait", "")
	killed := command("start", ".", "read", "--force")
	os.Remove(p.path("state/up"))
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the task runs", func() string {
		if _, err := os.Lstat(p.path("state/up")); err != nil {
			return err.Error()
		}
		return ""
	})
	killed.Process.Kill()
	killed.Wait()
	os.Remove(p.path("state/wait"))
	e3(true, "start", ".", "read", "--force")
	worker := command("worker", ".", "--idle", "3s")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	e3(true, "start", ".", "read", "--force", "--workers")
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker: %v", err)
	}
	for _, args := range [][]string{
		{"package", "build", ".", "e3.yaml"}, {"workspace", "export", ".", "read", "read.zip"}, {"workspace", "import", ".", "read.zip", "other"},
		{"set", ".", "other.a", "@d/b.txt"}, {"pin", "add", ".", "read.dir"}, {"settings", ".", "events-retention", "5d"},
		{"prune", ".", "--keep-last", "1"}, {"gc", "."}, {"verify", "."}, {"workspace", "remove", ".", "other"}, {"gc", "."},
	} {
		e3(false, args...)
	}
	wantModes(t, p.repository(), 0o600, 0o400, 0)
	check(t, p.repository())
}

// TestClosed has a user stand where another's private repository is in a folder above: that is said, and nothing is
// made in its place.
func TestClosed(t *testing.T) {
	needRoot(t)
	const ann, bob = 60101, 60102
	p := newProject(t, map[string]string{"e3.yaml": "e3: 1\nname: read\ntasks: {one: {out: o, run: 'touch \"$out\"'}}\n"})
	if err := os.Chmod(p.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	e3 := func(uid uint32, args ...string) (string, int) {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = p.dir, append(slices.Clip(p.env), "XDG_CONFIG_HOME="+p.path("config"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := e3(ann, "start", "-f", "e3.yaml"); code != 0 {
		t.Fatalf("ann: %d\n%s", code, out)
	}
	for _, args := range [][]string{{"list", "."}, {"list"}, {"list", p.repository()}, {"start", "-f", "e3.yaml"}, {"start", "-f", "e3.yaml", ".", "prod"}} {
		if out, code := e3(bob, args...); code != 10 || !strings.Contains(out, "belongs to another user: only user 60101 gets into") {
			t.Errorf("bob: e3 %s: exit code %d, want 10 and whose it is\n%s", strings.Join(args, " "), code, out)
		}
	}
	if out, code := e3(bob, "init"); code == 0 || !strings.Contains(out, "permission denied") {
		t.Errorf("bob: e3 init: exit code %d, want a refusal\n%s", code, out)
	}
	if out, code := e3(ann, "start", ".", "read"); code != 0 {
		t.Errorf("ann: %d\n%s", code, out)
	}
}
