//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// fullGraph writes some 2 MB: outputs, trees, logs.
const fullGraph = `
e3: 1
name: full
inputs:
  a: {file: a.txt}
tasks:
  first: {in: [a], out: first.bin, run: 'cat "$a" > "$out"; head -c 300000 /dev/zero >> "$out"; echo first'}
  tree: {in: [a], out: tree/, run: 'for i in {1..20}; do { cat "$a"; echo "$i"; head -c 20000 /dev/zero; } > "$out/$i"; done'}
  noisy: {in: [a], out: noisy.txt, run: 'cat "$a"; head -c 200000 /dev/zero | tr "\0" "x"; sleep 0.25; cp "$a" "$out"'}
  part: {in: {f: first}, out: part.bin, matrix: {n: [1, 2, 3, 4]}, run: 'sleep 0.03; cat "$f" > "$out"; echo "$n" >> "$out"'}
  all: {in: {p: "part[*]", t: tree, x: noisy}, out: all.txt, run: 'cat "$p"/* "$t"/* "$x" | cksum > "$out"'}
`

// A filler takes all the space of a volume but what is to be left.
type filler struct {
	t    testing.TB
	path string
}

func (f filler) fill(leave int64) {
	f.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(f.path), &st); err != nil {
		f.t.Fatal(err)
	}
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, syscall.ENOSPC) {
		return // it is full already
	}
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 4096)
	for free := int64(st.Bavail)*st.Bsize - leave; leave == 0 || free > 0; free -= int64(len(block)) {
		if _, err := file.Write(block); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				f.t.Fatal(err)
			}
			return
		}
	}
}

func (f filler) free() {
	f.t.Helper()
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
}

// TestFullDisk fills the disk before and during runs: e3 says so, nothing is damaged, and the
// next start goes on where there is space again.
func TestFullDisk(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			v := newVolume(t, kind, "16")
			rnd := random(t)
			rounds := 20
			if testing.Short() {
				rounds = 4
			}
			told := 0
			for i := range rounds {
				// By turns: little space from the start, for each kind of write to meet the end
				// of it, and a disk that fills up during the run.
				var what string
				p := v.project("project", map[string]string{"e3.yaml": fullGraph, "a.txt": "first\n"})
				if i%4 >= 2 { // a repository with a history
					p.start(0)
					p.write("a.txt", "second\n")
				}
				fill := filler{t, filepath.Join(v.dir, "filler")}
				var x *process
				if i%2 == 0 {
					leave := int64(i) * int64(i) * 4096
					what = fmt.Sprintf("round %d, %d KiB left", i, leave>>10)
					fill.fill(leave)
					x = p.spawn("start", "-f", "e3.yaml", "--json")
				} else {
					at := time.Duration(rnd.Int64N(int64(500 * time.Millisecond)))
					what = fmt.Sprintf("round %d, full after %v", i, at)
					x = p.spawn("start", "-f", "e3.yaml", "--json")
					killPoint{delay: at}.at(x)
					fill.fill(0)
				}
				r := x.wait()
				if tellsFullDisk(t, what, r) {
					told++
				}
				noStrays(t, p.dir, x.cmd.Process.Pid)
				fill.free()
				before := finished{}
				if _, err := os.Stat(p.path(".e3/format.json")); err == nil {
					before = rememberFinished(t, p.repository())
				}
				if next := p.e3("start", "-f", "e3.yaml", "--json"); next.code != 0 {
					t.Fatalf("%s: with space again: exit code %d\n%s\nbefore:\n%s", what, next.code, next.text(), r.text())
				}
				check(t, p.repository())
				before.unchanged(t, p.repository())
				if err := os.RemoveAll(p.dir); err != nil {
					t.Fatal(err)
				}
			}
			if told == 0 {
				t.Error("e3 never met the full disk")
			}
		})
	}
}

// TestFullDiskIsRead has a repository on a disk without any space. Results, logs, reasons and an export to another disk can be
// had all the same.
func TestFullDiskIsRead(t *testing.T) {
	v := newVolume(t, "tmpfs", "8")
	out := t.TempDir()
	p := v.project("project", map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"})
	p.start(0)
	p.write("a.txt", "beta\n")
	p.start(0)
	filler{t, filepath.Join(v.dir, "filler")}.fill(0)
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"get", ".", "read.one"}, "beta"},
		{[]string{"get", ".", "read.one", "-o", filepath.Join(out, "one.txt")}, ""},
		{[]string{"get", ".", "read", "-o", filepath.Join(out, "results")}, "1 written"},
		{[]string{"logs", ".", "read.one"}, "one says this"},
		{[]string{"why", ".", "read.one"}, "is current"},
		{[]string{"history", ".", "read"}, "completed"},
		{[]string{"workspace", "export", ".", "read", filepath.Join(out, "read.zip")}, "Exported workspace read"},
	} {
		if r := p.e3(c.args...); r.code != 0 || !strings.Contains(r.stdout, c.says) {
			t.Errorf("e3 %s: exit code %d, want 0 and %q\n%s", strings.Join(c.args, " "), r.code, c.says, r.text())
		}
	}
}

// TestFullDiskIsCleaned has a repository on a disk without a free byte: the commands that free space need none first.
func TestFullDiskIsCleaned(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			v := newVolume(t, kind, "16")
			p := v.project("project", map[string]string{"e3.yaml": fullGraph, "a.txt": "first\n"})
			for _, text := range []string{"first\n", "second\n", "third\n"} {
				p.write("a.txt", text)
				p.start(0)
			}
			fill := filler{t, filepath.Join(v.dir, "filler")}
			works := func(args ...string) {
				t.Helper()
				fill.fill(0)
				before := v.free()
				if r := p.e3(args...); r.code != 0 {
					t.Errorf("e3 %s: exit code %d, want 0\n%s", strings.Join(args, " "), r.code, r.text())
				}
				if now := v.free(); args[0] != "prune" && now <= before {
					t.Errorf("e3 %s: %d bytes are free, %d before", strings.Join(args, " "), now, before)
				}
			}
			works("prune", ".", "--keep-last", "2", "--no-gc")
			works("gc", ".")
			works("prune", ".", "--keep-last", "1")
			check(t, p.repository())
			fill.free()
			p.write("a.txt", "fourth\n")
			p.start(0)
		})
	}
}

// TestFullDiskIsSwept has a disk without a free byte, full of what a killed start has left. The next start removes that before it
// needs room, also where it has a workspace to make first.
func TestFullDiskIsSwept(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		for name, args := range map[string][]string{"start": {"start", ".", "read"}, "start -f": {"start", "-f", "other.yaml"}, "remove": {"workspace", "remove", ".", "read"}} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				v := newVolume(t, kind, "16")
				p := v.project("project", map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"})
				p.env = append(p.env, "E3_CACHE_DIR="+filepath.Join(v.dir, "cache"))
				p.start(0)
				p.write("other.yaml", strings.Replace(readGraph, "name: read", "name: other", 1))
				p.write("big.yaml", "e3: 1\nname: big\ntasks:\n  big: {out: big.bin, run: 'head -c 4M /dev/zero > big.bin; sleep 600'}\n")
				before := v.free()
				x := p.spawn("start", "-f", "big.yaml")
				eventually(t, patience, "the command has written", func() string {
					if n := before - v.free(); n < 4<<20 {
						return fmt.Sprint(n, " bytes are written")
					}
					return ""
				})
				supervisor := x.supervisor()
				x.kill(false)
				eventually(t, patience, "the supervisor ends", func() string {
					if syscall.Kill(supervisor, 0) == nil {
						return "it is there"
					}
					return ""
				})
				fill := filler{t, filepath.Join(v.dir, "filler")}
				fill.fill(0)
				if r := p.e3(args...); r.code != 0 {
					t.Fatalf("e3 %s on a disk full of remains: exit code %d, want 0\n%s", strings.Join(args, " "), r.code, r.text())
				}
				if n := v.free(); n < 3<<20 && args[0] == "start" {
					t.Errorf("%d bytes are free after a start, want the %d of the killed command", n, 4<<20)
				}
				p.start(0, "-f", "e3.yaml", "--force")
				fill.free()
				p.write("big.yaml", strings.Replace(p.read("big.yaml"), "sleep 600", "true", 1))
				p.start(0, "-f", "big.yaml") // closes the killed run
				check(t, p.repository())
			})
		}
	}
}

// free is the number of bytes that can be written to the volume.
func (v *volume) free() int64 {
	v.t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(v.dir, &st); err != nil {
		v.t.Fatal(err)
	}
	return int64(st.Bavail) * st.Bsize
}

// tellsFullDisk checks what e3 says on a full disk, and tells whether it met it.
func tellsFullDisk(t *testing.T, what string, r result) bool {
	t.Helper()
	if r.code == 0 {
		return false
	}
	if r.code != 1 {
		t.Errorf("%s: exit code %d, want 1\n%s", what, r.code, r.text())
	}
	// A command that met it itself has failed by its own account.
	said := strings.ToLower(r.stdout + r.stderr)
	if r.fault() == "" && strings.Contains(said, `"type":"run.failed"`) {
		return true
	}
	if !strings.Contains(said, "no space left on device") || !strings.Contains(said, "the disk is full") {
		t.Errorf("%s: e3 does not name the disk:\n%s", what, r.text())
	}
	return true
}

const readGraph = `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, run: 'echo "one says this"; cp "$a" "$out"'}
`

// TestLeftoversOfAnotherUser has remains of a dead process that cannot be removed: they are
// another user's, and no reason not to start.
func TestLeftoversOfAnotherUser(t *testing.T) {
	needRoot(t)
	p := newProject(t, map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"})
	p.as(nobody)
	p.start(0)
	left := p.path(".e3/tmp/session-1-00000000/w1")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	p.write(".e3/tmp/session-1-00000000/w1/file", "")
	p.start(0)
	p.uid = 0
	p.start(0) // their owner removes them
	check(t, p.repository())
}

// reads demands that everything in a repository can be read.
func (p *project) reads() {
	p.t.Helper()
	ctx := context.Background()
	r := p.open()
	defer r.Close()
	if s, err := r.Workspaces.State(ctx, "read"); err != nil || !s.Deployed {
		p.t.Errorf("state: %+v, %v", s, err)
	}
	if busy, err := r.Workspaces.Busy(ctx, "read"); err != nil || busy != nil {
		p.t.Errorf("busy: %v, %v", busy, err)
	}
	run, err := r.Workspaces.Runs.Run(ctx, "read", "")
	if err != nil || run.State != record.RunCompleted {
		p.t.Errorf("run: %+v, %v", run, err)
	}
	if got := p.log(p.only("one"), executions.Stdout); got != "one says this\n" {
		p.t.Errorf("log: %q", got)
	}
	if got := p.output("one"); got != "alpha\n" {
		p.t.Errorf("output: %q", got)
	}
}

// TestReadOnly has a repository that cannot be written: it can be read, and a start keeps what it runs on this machine, or
// says that it cannot.
func TestReadOnly(t *testing.T) {
	files := map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"}
	starts := func(t *testing.T, p *project, code int, want string) {
		t.Helper()
		for _, args := range [][]string{
			{"start", "-f", "e3.yaml"}, {"start", ".e3", "read"}, {"start", ".e3", "read", "--force"},
		} {
			r := p.e3(args...)
			if r.code != code || !strings.Contains(r.stderr, want) {
				t.Errorf("%v: exit code %d, want %d and %q\n%s", args, r.code, code, want, r.text())
			}
		}
	}
	t.Run("mount", func(t *testing.T) {
		v := newVolume(t, "tmpfs", "16")
		p := v.project("project", files)
		p.start(0)
		v.remount("ro")
		p.reads()
		p.env = append(p.env, "E3_CACHE_DIR="+t.TempDir())
		starts(t, p, 0, "kept on this machine alone")
		p.reads()
		v.remount("rw")
		p.start(0)
		check(t, p.repository())
	})
	t.Run("another_user", func(t *testing.T) {
		needRoot(t)
		p := newProject(t, files)
		p.must("init", "--shared=world")
		p.start(0)
		p.uid = nobody                                                             // the project stays root's
		p.env = append(p.env, "E3_CACHE_DIR="+filepath.Join(t.TempDir(), "cache")) // root's
		starts(t, p, 1, "keep on this machine what is made: mkdir")
		p.uid = 0
		p.reads()
		p.start(0)
		check(t, p.repository())
	})
	t.Run("another_user_first", func(t *testing.T) {
		needRoot(t)
		p := newProject(t, files)
		p.uid = nobody
		r := p.e3("start", "-f", "e3.yaml")
		if r.code != 1 || !strings.Contains(r.stderr, "permission denied") {
			t.Errorf("exit code %d, want 1\n%s", r.code, r.text())
		}
		if _, err := os.Stat(p.repository()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something was made: %v", err)
		}
	})
}
