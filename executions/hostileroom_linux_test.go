//go:build amd64 || arm64

package executions_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
	"e3/objectstore"
)

// A private is a folder of the user that no command may give away: it has a key wherever an output could be looked for.
type private struct {
	dir  string
	key  []byte
	info map[string]fs.FileInfo
}

func newPrivate(t *testing.T) *private {
	t.Helper()
	p := &private{dir: filepath.Join(t.TempDir(), "private"), key: make([]byte, 64), info: map[string]fs.FileInfo{}}
	rand.Read(p.key)
	for _, name := range []string{"key", "sub/key", "stdout", "begun", "taken", "work/key", "work/sub/key", "room/work/key", "home/key", "tmp/key"} {
		path := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, p.key, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		p.info[path] = info
	}
	t.Cleanup(func() { unmount(t, filepath.Dir(filepath.Dir(p.dir))) })
	return p
}

// unmount takes away what a failed test has left mounted below a folder, in which the tests of this one lie.
func unmount(t *testing.T, dir string) {
	list, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], dir+"/") {
			t.Errorf("%s is still mounted", fields[4])
			_ = unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}

// check finds what was read, moved or removed.
func (p *private) check(t *testing.T, l *lab, after string) {
	t.Helper()
	for path, was := range p.info {
		text, err := os.ReadFile(path)
		info, err2 := os.Lstat(path)
		if err != nil || err2 != nil || !bytes.Equal(text, p.key) {
			t.Fatalf("after %s the private %s holds %q: %v, %v", after, path, text, err, err2)
		}
		if !os.SameFile(info, was) || info.Mode() != was.Mode() || !info.ModTime().Equal(was.ModTime()) || info.Sys().(*syscall.Stat_t).Nlink != 1 {
			t.Fatalf("after %s the private %s is another file: %v", after, path, info)
		}
	}
	if missing, err := l.objects.Missing(t.Context(), []objectstore.Hash{objectstore.Sum(p.key)}); err != nil || len(missing) != 1 {
		t.Fatalf("after %s the private key is an object: %v, %v", after, missing, err)
	}
}

func output(path string, kind record.Kind) record.Output {
	return record.Output{Entries: []record.OutputEntry{{Name: "out", Path: path, Kind: kind}}}
}

// TestNothingPrivateLeaves: what a command puts in the place of its folders leads neither e3 nor a visitor elsewhere. $S is a
// folder of the user, and $W the working directory.
func TestNothingPrivateLeaves(t *testing.T) {
	t.Run("this user", testNothingPrivateLeaves)
	if os.Getuid() == 0 {
		t.Run("ordinary user", func(t *testing.T) { asOrdinaryUser(t, "TestNothingPrivateLeaves") })
	}
}

func testNothingPrivateLeaves(t *testing.T) {
	const replaced, link, mounted, fine = "found another working directory", "found a symbolic link", "found something that is mounted there", ""
	large := bytes.Repeat([]byte("large "), 1<<18)
	for _, c := range []struct {
		name   string
		out    record.Output
		run    string
		open   bool // its room
		layers bool
		root   bool   // only root can do that
		want   string // in the message of an error; fine: a success
	}{
		{name: "a file", out: output("key", record.KindFile), run: `cd $W/.. && mv work w2 && ln -s $S work`, want: replaced},
		{name: "a file, in the open", out: output("key", record.KindFile), run: `cd $W/.. && mv work w2 && ln -s $S work`, open: true, want: replaced},
		{name: "a folder", out: output("sub", record.KindDir), run: `cd $W/.. && mv work w2 && ln -s $S work`, want: replaced},
		{name: "a file below a folder", out: output("sub/key", record.KindFile), run: `cd $W/.. && mv work w2 && ln -s $S work`, want: replaced},
		{name: "another folder", out: output("key", record.KindFile), run: `cd $W/.. && mv work w2 && mkdir -m 700 work && echo x > work/key`, want: replaced},
		{name: "nothing", out: output("key", record.KindFile), run: `cd $W/.. && mv work w2`, want: replaced},
		{name: "removed", out: output("key", record.KindFile), run: `cd $W/.. && rm -rf work && ln -s $S work`, want: replaced},
		{name: "with a large input", out: output("key", record.KindFile), run: `cd $W/.. && mv work w2 && ln -s $S work`, layers: true, want: replaced},
		{name: "removed, with a large input", out: output("sub", record.KindDir), run: `cd $W/.. && rm -rf work && ln -s $S work`, layers: true, want: replaced},
		{name: "the room, in the open", out: output("key", record.KindFile), run: `cd $W/../.. && mv room r2 && ln -s $S room`, open: true, want: replaced},
		{name: "the sandbox, in the open", out: output("key", record.KindFile), run: `cd $W/../../.. && b=$(basename $(dirname $(dirname $W))) && mv $b x$b && ln -s $S $b`, open: true, want: replaced},
		{name: "the output", out: output("key", record.KindFile), run: `ln -s $S/key key`, want: link},
		{name: "the output folder", out: output("sub", record.KindDir), run: `rmdir sub; ln -s $S/sub sub`, want: link},
		{name: "the folder of the output", out: output("sub/key", record.KindFile), run: `rmdir sub; ln -s $S/sub sub`, want: link},
		{name: "a link in an output", out: output("made", record.KindDir), run: `ln -s $S made/up`, want: "cannot be kept"},
		{name: "home and tmp", out: output("key", record.KindFile), run: `echo x > key; cd $W/..; mv home h2; mv tmp t2; ln -s $S home; ln -s $S tmp`, want: fine},
		{name: "home and tmp, in the open", out: output("key", record.KindFile), run: `echo x > key; cd $W/..; mv home h2; mv tmp t2; ln -s $S home; ln -s $S tmp`, open: true, want: fine},
		{name: "logs, in the open", out: output("key", record.KindFile), run: `echo x > key; echo said; cd $W/../..; rm stdout begun; ln -s $S/stdout stdout; ln -s $S/begun begun; ln -s $S/taken taken`, open: true, want: fine},
		{name: "inputs", out: output("key", record.KindFile), run: `echo x > key; rm small; ln -s $S/key small; mkdir -p a/b; ln -s $S a/b/c`, want: fine},
		{name: "folders of inputs", out: output("key", record.KindFile), run: `echo x > key; rm -r deep; ln -s $S deep`, want: fine},
		{name: "a mounted output", out: output("key", record.KindFile), run: `touch key; mount --bind $S/key key`, open: true, root: true, want: mounted},
		{name: "a mounted output folder", out: output("sub", record.KindDir), run: `mount --bind $S/sub sub`, open: true, root: true, want: mounted},
		{name: "a mount around the output", out: output("sub/key", record.KindFile), run: `mount --bind $S/sub sub`, open: true, root: true, want: mounted},
		{name: "a mount in the output", out: output("made", record.KindDir), run: `mkdir made/in; mount --bind $S made/in`, open: true, root: true, want: "is mounted there"},
		{name: "a mount over the working directory", out: output("key", record.KindFile), run: `mount --bind $S $W`, open: true, root: true, want: replaced},
		{name: "the working directory, mounted over itself", out: output("key", record.KindFile), run: `mount --bind $W $W`, open: true, root: true, want: replaced},
		{name: "a mount over the room", out: output("key", record.KindFile), run: `mount --bind $S $W/..`, open: true, root: true, want: replaced},
		{name: "mounts everywhere else", out: output("key", record.KindFile), run: `echo x > key; mkdir m; mount --bind $S m; mount -t tmpfs none m/sub; mount --bind $S/key small; mount --bind $S deep; ` +
			`cd $W/..; for d in home tmp; do mount --bind $S $d; mount --bind $S $d; done; cd ..; touch stdout; mount --bind $S/key stdout`, open: true, root: true, want: fine},
		{name: "folders mounted over themselves", out: output("key", record.KindFile), run: `echo x > key; mount --bind deep deep; cd $W/..; mount --bind home home; mount --bind tmp tmp`, open: true, root: true, want: fine},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.root && exec.Command("unshare", "-m", "true").Run() != nil {
				t.Skip("this user cannot mount: run the tests as root, or where user namespaces are allowed")
			}
			p := newPrivate(t)
			kept := remains.In(t.TempDir())
			l := newLab(t, func(o *executions.Options) { o.Kept = kept })
			put := func(b []byte) objectstore.Hash {
				h, err := objectstore.PutBytes(t.Context(), l.objects, b)
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			task := &record.Task{
				Shell: "S=" + p.dir + "; W=$PWD; " + c.run, Output: c.out, Room: record.Room{Closed: !c.open},
				Inputs: []record.Input{{Name: "small", Kind: record.KindFile, Path: "small"}, {Name: "key", Kind: record.KindFile, Path: "deep/in/key"}},
			}
			inputs := []objectstore.Hash{put([]byte("small")), put([]byte("deep"))}
			if c.layers {
				task.Inputs = append(task.Inputs, record.Input{Name: "large", Kind: record.KindFile, Path: "large"})
				inputs = append(inputs, put(large))
			}
			for i := range 3 { // the sandboxes that it leaves serve further commands
				task.Env = []record.EnvVar{{Name: "AGAIN", Value: fmt.Sprint(i)}}
				req := l.request(task, inputs...)
				res := l.do(t, req)
				p.check(t, l, "the command")
				if c.want == fine {
					if res.State != record.Success {
						t.Fatalf("it ended in %v: %s", res.State, res.Message)
					}
				} else if res.State != record.Error || res.Reason != executions.ReasonOutput || !strings.Contains(res.Message, c.want) {
					t.Fatalf("it ended in %v (%s): %q, want %q", res.State, res.Reason, res.Message, c.want)
				}
				if f := kept.Find(res.ExecutionID); f != nil {
					visit(t, l, req, f)
					p.check(t, l, "a visit")
				} else if c.want == link {
					t.Error("its folder is not kept")
				}
				harmless := *task
				harmless.Shell, harmless.Output = "ls -AR > out", output("out", record.KindFile)
				if res := l.do(t, l.request(&harmless, inputs...)); res.State != record.Success {
					t.Fatalf("the next command ended in %v: %s", res.State, res.Message)
				}
				p.check(t, l, "the next command")
			}
			kept.Clear("ws")
			l.Clear()()
			if err := l.Rest(); err != nil {
				t.Error(err)
			}
			p.check(t, l, "all")
			if err := l.records.Close(); err != nil {
				t.Error(err)
			}
			p.check(t, l, "the end")
			if left, err := filepath.Glob(filepath.Join(l.dir, "tmp", "session-*", "*")); err != nil || len(left) > 0 {
				t.Errorf("left are %q, %v", left, err)
			}
		})
	}
}

// visit enters a kept folder, as the command was, and in the open.
func visit(t *testing.T, l *lab, req *executions.Request, f *remains.Folder) {
	t.Helper()
	v, err := l.VisitKept(t.Context(), req, f)
	if err == nil {
		err = v.WriteScript("#!/bin/sh\n")
	}
	if err == nil {
		err = v.Open(t.Context())
	}
	if err == nil {
		err = v.Leave()
	}
	if err != nil {
		t.Error(err)
	}
}

// A kept folder in which a visitor has replaced the working directory is not entered again.
func TestKeptWithoutItsFolder(t *testing.T) {
	p, kept := newPrivate(t), remains.In(t.TempDir())
	l := newLab(t, func(o *executions.Options) { o.Kept = kept })
	req := l.request(script("exit 1"))
	res := l.do(t, req)
	f := kept.Find(res.ExecutionID)
	if f == nil {
		t.Fatal("it is not kept")
	}
	if err := os.Rename(f.Work(), f.Work()+"2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.dir, f.Work()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.VisitKept(t.Context(), req, f); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("got %v", err)
	}
	kept.Clear("ws")
	p.check(t, l, "the removal")
}

// asOrdinaryUser runs a test of this package once more, as a user without rights.
func asOrdinaryUser(t *testing.T, test string) {
	t.Helper()
	const uid = 54321
	base, err := os.MkdirTemp("", "e3-executions")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	binary := filepath.Join(base, "executions.test") // the test's own lies in a folder that only root enters
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(binary, text, 0o755)
	}
	if err == nil {
		err = os.Chown(base, uid, uid)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-test.run=^"+test+"$", "-test.v", fmt.Sprintf("-test.short=%t", testing.Short()))
	cmd.Dir = base
	cmd.Env = append(os.Environ(), "TMPDIR="+base, "HOME="+base)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+test+"/this_user") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A worker that finishes the execution of a dead one finds the working directory that the command got, or none.
func TestAdoptedWithoutItsFolder(t *testing.T) {
	for name, before := range map[string]bool{"replaced before": true, "replaced afterwards": false} {
		t.Run(name, func(t *testing.T) {
			p := newPrivate(t)
			swap := `cd ..; mv work w2; ln -s ` + p.dir + ` work; touch $F/swapped; `
			text := swap + untilGo
			if !before {
				text = untilGo + swap
			}
			e := beginWork(t, &order{Announce: time.Millisecond}, text)
			e.running(t, "begun\n")
			e.kill(t)
			if err := os.Symlink(filepath.Join(p.dir, "key"), filepath.Join(p.dir, "out")); err != nil {
				t.Fatal(err)
			}
			began := make(chan struct{})
			e.req.Started = func(string, time.Time) { close(began) }
			adopted := e.adopt(t.Context(), e.orphan(t))
			if !before {
				select {
				case <-began:
				case o := <-adopted:
					t.Fatalf("it was not adopted: %+v, %v", o.res, o.err)
				}
			}
			touch(t, e.file("go"))
			o := <-adopted
			want := "found another working directory"
			if before {
				want = "another folder in the place of its working directory"
			}
			if o.err != nil || o.res.State != record.Error || !strings.Contains(o.res.Message, want) {
				t.Errorf("got %+v, %v", o.res, o.err)
			}
			p.check(t, e.lab, "the adoption")
		})
	}
}
