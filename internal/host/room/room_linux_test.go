//go:build amd64 || arm64

package room_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"e3/internal/host/beneath"
	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// slots makes the rooms of all tests, on a thread that never ends.
var (
	slots   room.Slots
	starter = make(chan func())
)

func TestMain(m *testing.M) {
	if attempt := attempts[filepath.Base(os.Args[0])]; attempt != nil {
		attempt()
		return
	}
	go func() {
		runtime.LockOSThread()
		for f := range starter {
			f()
		}
	}()
	os.Exit(m.Run())
}

// onStarter calls f on that thread.
func onStarter(f func()) {
	done := make(chan struct{})
	starter <- func() {
		defer close(done)
		f()
	}
	<-done
}

// A place is a folder for rooms.
type place struct {
	t testing.TB
	room.Room
	each func() // before each command of a benchmark
}

func newPlace(t testing.TB) *place {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(base, "w1", "room")
	for _, name := range []string{"work", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &place{t: t, Room: room.Room{Base: base, Folder: folder}}
}

// run runs a command in a room and returns what it prints.
func (p *place) run(argv ...string) (string, room.Result, error) {
	p.t.Helper()
	out, err := os.CreateTemp(p.t.TempDir(), "out")
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		p.t.Fatal(err)
	}
	defer null.Close()
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + room.Home, "TMPDIR=" + room.Temp, "LANG=C.UTF-8"}
	var result room.Result
	onStarter(func() {
		result, err = finish(slots.Start(&p.Room, &room.Spec{
			Paths: room.Candidates(argv[0], env), Argv: argv, Env: env, Dir: room.Work,
			Files: [3]int{int(null.Fd()), int(out.Fd()), int(out.Fd())},
		}))
	})
	text, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		p.t.Fatal(readErr)
	}
	return string(text), result, err
}

// finish waits for the end of a command.
func finish(p *room.Process, err error) (room.Result, error) {
	if err != nil {
		return room.Result{}, err
	}
	fds := []unix.PollFd{{Fd: int32(p.End), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			break
		}
	}
	defer slots.Reap()
	return p.Finish()
}

func (p *place) sh(script string) string {
	p.t.Helper()
	text, result, err := p.run("sh", "-c", script)
	if err != nil {
		p.t.Fatal(err)
	}
	if result.Status != 0 {
		text += fmt.Sprintf("(status %#x)", int(result.Status))
	}
	return strings.TrimSuffix(text, "\n")
}

func TestCommand(t *testing.T) {
	p := newPlace(t)
	for script, want := range map[string]string{
		"pwd":                               room.Work,
		"echo $HOME $TMPDIR":                room.Home + " " + room.Temp,
		"echo x >/tmp/x; cat /e3/tmp/x":     "x",
		"echo x >$HOME/x; ls /e3/home":      "x",
		"ls -A /dev/shm /dev/pts":           "/dev/pts:\nptmx\n\n/dev/shm:",
		"ls /proc/self/fd | head -3":        "0\n1\n2",
		"hostname":                          "e3",
		"id -u":                             fmt.Sprint(os.Getuid()),
		"echo $$":                           "2",
		"cat /etc/hostname":                 "e3",
		"head -c 4 /dev/zero | od -An -tx1": " 00 00 00 00",
		"exit 3":                            "(status 0x300)",
		"kill -SEGV $$":                     "(status 0xb)",
		"kill -TERM $$":                     "(status 0xf)",
		"umask":                             "0022",
		"trap 'echo term; exit 4' TERM; kill -TERM 1; sleep 60 & wait": "term\n(status 0x400)",
	} {
		if got := p.sh(script); got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
	}
}

func TestNoSuchCommand(t *testing.T) {
	p := newPlace(t)
	_, _, err := p.run("no-such-program")
	var e *room.Error
	if !errors.As(err, &e) || e.Step != room.StepExec || e.Err != unix.ENOENT || errors.Is(err, room.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
	if err := os.WriteFile(filepath.Join(p.Folder, "work", "text"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.run("./text"); !errors.As(err, &e) || e.Step != room.StepExec || e.Err != unix.EACCES {
		t.Errorf("the error is %v", err)
	}
	if got := p.sh("echo on"); got != "on" {
		t.Errorf("the slot's next command printed %q", got)
	}
}

// TestLower: a command finds the files of folders below its own, may do with them what it likes, and changes none.
func TestLower(t *testing.T) {
	p := newPlace(t)
	for name, content := range map[string]string{"k1,a/work/a": "one", "k1,a/work/deep/b": "two", "k2:b/work/a": "three", "k2:b/work/c": "four"} {
		path := filepath.Join(p.Base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.Lower, p.Scratch = []string{p.Base + "/k1,a", p.Base + "/k2:b"}, p.Base+"/w1/scratch"
	work := filepath.Join(p.Folder, "work")
	for script, want := range map[string]string{
		"cat a c deep/b; stat -c %h a; ls":                                                   "onefourtwo1\na\nc\ndeep",
		"echo x >>a; mv a c; cat c; rm c; ls":                                                "onex\ndeep",
		"rm -r deep; mkdir deep; ls deep; touch deep/n; ls deep; ln c d; ls":                 "n\na\nc\nd\ndeep",
		"sed -i s/o/0/ a; cat a; chmod 600 c; stat -c %a c":                                  "0ne600",
		"mv deep/b .; mv b $HOME/b; mv $HOME/b a; cat a; ls":                                 "twoa\nc\ndeep",
		"gzip a; gunzip a.gz; cat a; python3 -c 'open(\"a\", \"r+b\").write(b\"0\")'; cat a": "one0ne",
		"for f in a c deep/b; do [ -w $f ] || echo $f; done":                                 "",
	} {
		if err := os.Mkdir(p.Scratch, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := p.sh("{ " + script + "; } 2>&1"); got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
		for _, path := range []string{p.Scratch, work} {
			if err := beneath.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(work, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"k1,a/work/a": "one", "k1,a/work/deep/b": "two", "k2:b/work/a": "three", "k2:b/work/c": "four"} {
		if text, err := os.ReadFile(filepath.Join(p.Base, path)); string(text) != want || err != nil {
			t.Errorf("%s has %q, %v", path, text, err)
		}
	}
}

// TestUnmark: a folder that was above others is above another one as if it were new.
func TestUnmark(t *testing.T) {
	p := newPlace(t)
	for _, name := range []string{"k1/work/deep/a", "k2/work/deep/b"} {
		path := filepath.Join(p.Base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.Scratch = p.Base + "/w1/scratch"
	look := func(lower, script, want string) {
		t.Helper()
		p.Lower = []string{p.Base + "/" + lower}
		if err := os.Mkdir(p.Scratch, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := p.sh(script); got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
		if err := beneath.RemoveAll(p.Scratch); err != nil {
			t.Fatal(err)
		}
	}
	look("k1", "rm -r deep; mkdir deep; touch deep/new; rm deep/new; ls -A deep", "")
	in, err := beneath.Open(p.Folder)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if !room.Hides(in, "work/deep") {
		t.Error("the command's own folder is not marked as one")
	}
	for _, rel := range []string{".", "work", "work/deep"} {
		if err := room.Unmark(in, rel); err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(p.Folder, rel)
		if n, err := unix.Llistxattr(folder, nil); n > 0 || err != nil {
			t.Errorf("%s has attributes, %v", folder, err)
		}
	}
	look("k2", "ls -A deep; rm deep/b", "b")
	if !room.Gone(in, "work/deep/b") || room.Gone(in, "work/deep") {
		t.Error("the removed file is not marked as such, or its folder is")
	}
}

// TestSettings: a room has this machine's settings of programs, and no command changes them.
func TestSettings(t *testing.T) {
	p := newPlace(t)
	for _, path := range []string{"/etc/timezone", "/etc/ld.so.conf", "/etc/ld.so.cache", "/etc/locale.alias", "/etc/magic", "/etc/mime.types",
		"/etc/services", "/etc/localtime", "/etc/os-release", "/etc/fonts/fonts.conf", "/etc/vim/vimrc"} {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%v: not compared", err)
			continue
		}
		if got, want := p.sh("sha256sum < "+path), fmt.Sprintf("%x  -", sha256.Sum256(content)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := p.sh("head -c 1 /etc/mtab | wc -c"); got != "1" {
		t.Errorf("/etc/mtab has %s bytes", got)
	}
	if got := p.sh("for f in $(find /etc -type f); do (echo >>$f) 2>/dev/null && echo $f; done; rm -f /etc/services 2>/dev/null; [ -e /etc/services ] || echo gone"); got != "" {
		t.Errorf("settings can be changed: %s", got)
	}
}
