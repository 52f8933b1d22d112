//go:build linux

package e2e

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestGroup has two users of one group work in one repository, in a folder of the group's: its files and folders have the modes that the
// umask gives, as those of git have, so each can go on with what the other has left.
func TestGroup(t *testing.T) {
	needRoot(t)
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
	for name, mode := range map[string]fs.FileMode{".": 0o775 | fs.ModeSetgid, "a.txt": 0o664, "e3.yaml": 0o664, "state": 0o777} {
		if err := errors.Join(os.Lchown(p.path(name), ann, group), os.Chmod(p.path(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	command := func(uid int, umask string, args ...string) *exec.Cmd {
		cmd := exec.Command("sh", append([]string{"-c", `umask "$0" && exec "$@"`, umask, program}, args...)...)
		cmd.Dir, cmd.Env = p.dir, p.env
		// Each has a group of their own, as is usual, and is a member of the other.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{group}}}
		return cmd
	}
	e3 := func(uid int, umask string, args ...string) string {
		t.Helper()
		out, err := command(uid, umask, args...).CombinedOutput()
		if err != nil {
			t.Errorf("user %d: e3 %s: %v\n%s", uid, strings.Join(args, " "), err, tail(string(out)))
		}
		return string(out)
	}
	for _, umask := range []string{"002", "007"} {
		e3(ann, umask, "init")
		for i, uid := range []int{ann, bob, ann, bob} {
			e3(uid, umask, "start", "-f", "e3.yaml")
			if got := e3(uid, umask, "logs", ".", "read.one"); !strings.Contains(got, "one says this\n") {
				t.Errorf("user %d: the log of one is %.100q", uid, got)
			}
			if got := e3(uid, umask, "logs", ".", "read.slow"); !strings.Contains(got, "slow says this\n700\n700\n700\n") {
				t.Errorf("user %d: the log of slow is %.100q", uid, got)
			}
			e3(uid, umask, "status", ".", "read")
			e3(uid, umask, "start", ".", "read", "--force")
			e3(uid, umask, "gc", ".")
			p.write("a.txt", strings.Repeat("alpha\n", i+2))
		}
		// One goes on after the death of the other, and works for the other.
		killed, mark := command(ann, umask, "start", ".", "read", "--force"), p.path("state/slow")
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
		e3(bob, umask, "start", ".", "read", "--force")
		if text, err := os.ReadFile(left[0]); err != nil || strings.Contains(string(text), "another-boot") {
			t.Errorf("umask %s: what the power took is mended with each start: the other's session says %q, %v", umask, text, err)
		}
		worker := command(bob, umask, "worker", ".", "--idle", "3s")
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		e3(ann, umask, "start", ".", "read", "--force", "--workers")
		if err := worker.Wait(); err != nil {
			t.Errorf("umask %s: the worker: %v", umask, err)
		}
		e3(ann, umask, "gc", ".")
		e3(bob, umask, "verify", ".")
		e3(ann, umask, "events", ".", "read")
		check(t, p.repository())

		open := fs.FileMode(0o664)
		if umask == "007" {
			open = 0o660
		}
		err := filepath.WalkDir(p.repository(), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			st, mode, rel := info.Sys().(*syscall.Stat_t), info.Mode(), strings.TrimPrefix(path, p.repository())
			want := open
			switch {
			case d.IsDir():
				want = fs.ModeDir | fs.ModeSetgid | open | 0o110 | open&4>>2
			case strings.HasPrefix(rel, "/objects/"):
				want = 0o444
			case strings.HasSuffix(rel, ".txt") && mode == open&^0o222: // a log that has ended
				want = mode
			}
			if mode != want {
				t.Errorf("umask %s: %s is %v, want %v", umask, rel, mode, want)
			}
			if st.Gid != group && !strings.HasPrefix(rel, "/objects/") {
				t.Errorf("umask %s: %s is of group %d, want %d", umask, rel, st.Gid, group)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(p.repository()); err != nil {
			t.Fatal(err)
		}
	}
}
