//go:build linux

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/repo"
)

// Two members of a group, and a user who is no member.
const (
	group = 60200 + iota
	ann
	bob
	eve
)

// newGroupProject makes a project that belongs to ann and to the group, and returns what makes a command that one of the three
// runs in it. Each has a cache and settings of their own.
func newGroupProject(t *testing.T, files map[string]string) (p *project, as func(uid int, name string, args ...string) *exec.Cmd) {
	t.Helper()
	needRoot(t)
	p = newProject(t, files)
	caches := t.TempDir() // in nothing that another user can rename
	if err := errors.Join(os.Chmod(filepath.Dir(caches), 0o755), os.Chmod(caches, 0o777|fs.ModeSticky)); err != nil {
		t.Fatal(err)
	}
	modes := map[string]fs.FileMode{".": 0o775 | fs.ModeSetgid, "state": 0o777}
	for name := range files {
		modes[name] = 0o664
	}
	for name, mode := range modes {
		if err := errors.Join(os.Lchown(p.path(name), ann, group), os.Chmod(p.path(name), mode)); err != nil {
			t.Fatal(err)
		}
	}
	return p, func(uid int, name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		own := filepath.Join(caches, strconv.Itoa(uid))
		cmd.Dir, cmd.Env = p.dir, append(slices.Clip(p.env), "XDG_CONFIG_HOME="+own+"/config", repo.CacheDirVariable+"="+own)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		if uid != eve {
			cmd.SysProcAttr.Credential.Groups = []uint32{group}
		}
		return cmd
	}
}

// colleagueScript exchanges random entries of a repository for links to a folder, pipes and files, and puts them back, until it
// is killed. Its user is a member of the repository's group.
const colleagueScript = `
RANDOM=$2
cd "$1" || exit 1
while :; do
  list=(* */* */*/* */*/*/*)
  at=${list[RANDOM % ${#list[@]}]}
  case $at in format.*) continue ;; esac
  mv -T "$at" "$at.aside" 2>/dev/null || continue
  case $((RANDOM % 6)) in
  0) mkfifo "$at" ;;
  1) : > "$at" ;;
  2) ln -s /nowhere "$at" ;;
  *) ln -s "$3" "$at" ;;
  esac 2>/dev/null
  sleep 0.0$((RANDOM % 9))
  rm -rf "$at" 2>/dev/null
  mv -T "$at.aside" "$at" 2>/dev/null
done
`

// TestHostileColleague has a member of the group exchange what lies in a repository for links to another's home while that one
// works: nothing there is read, moved or removed.
func TestHostileColleague(t *testing.T) {
	p, as := newGroupProject(t, map[string]string{"a.txt": "alpha\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, run: 'echo log; cp "$a" "$out"'}
  two: {in: {x: one}, out: tree/, run: 'for i in 1 2 3; do cp "$x" "$out/$i"; done'}
`})
	home, secret := filepath.Join(t.TempDir(), "home"), "what only ann may read\n"
	for _, rel := range []string{".", "a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"} {
		dir := filepath.Join(home, rel)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "f"), []byte(secret), 0o644), os.Chown(dir, ann, ann), os.Chown(filepath.Join(dir, "f"), ann, ann)); err != nil {
			t.Fatal(err)
		}
	}
	for above := filepath.Dir(home); len(above) > len(os.TempDir()); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	canaries := func() string {
		var b strings.Builder
		filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
			info, _ := os.Lstat(path)
			fmt.Fprintln(&b, path, err)
			if info != nil && !info.IsDir() {
				text, _ := os.ReadFile(path)
				fmt.Fprintf(&b, "%v %s %s", info.Mode(), info.ModTime(), text)
			}
			return nil
		})
		return b.String()
	}
	for _, args := range [][]string{{"init", "--shared"}, {"start", "-f", "e3.yaml"}} {
		if out, err := as(ann, program, args...).CombinedOutput(); err != nil {
			t.Fatalf("e3 %q: %v\n%s", args, err, out)
		}
	}
	before := canaries()
	rnd := random(t)
	colleague := as(bob, "bash", "-c", colleagueScript, "-", p.repository(), strconv.Itoa(int(rnd.Int32N(30000))), home)
	if err := colleague.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		syscall.Kill(-colleague.Process.Pid, syscall.SIGKILL)
		colleague.Wait()
	}()
	rounds := 2000
	if testing.Short() {
		rounds = 40
	}
	codes := map[int]int{}
	commands := [][]string{{"start", ".", "read", "--force"}, {"gc", "."}, {"verify", ".", "--repair"}, {"prune", ".", "--keep-last", "1"}, {"start", "-f", "e3.yaml"}, {"status", ".", "read"}}
	for range rounds {
		args := commands[rnd.IntN(len(commands))]
		cmd := as(ann, program, args...)
		stuck := time.AfterFunc(patience, func() { cmd.Process.Signal(syscall.SIGQUIT) })
		out, _ := cmd.CombinedOutput()
		if !stuck.Stop() {
			t.Fatalf("e3 %q does not end\n%s", args, tail(string(out)))
		}
		codes[cmd.ProcessState.ExitCode()]++
		if now := canaries(); now != before {
			t.Fatalf("e3 %q has changed what lies outside\n%s\nwas\n%s\nis\n%s", args, tail(string(out)), before, now)
		}
		if strings.Contains(string(out), "panic:") {
			t.Fatalf("e3 %q\n%s", args, out)
		}
	}
	sum := sha256.Sum256([]byte(secret))
	name := hex.EncodeToString(sum[:])
	if _, err := os.Lstat(filepath.Join(p.repository(), "objects", name[:2], name[2:])); err == nil {
		t.Error("the secret is an object")
	}
	if codes[0] == 0 || codes[12] == 0 {
		t.Errorf("exit codes %v: the test has shown nothing", codes)
	}
	t.Logf("exit codes %v", codes)
}
