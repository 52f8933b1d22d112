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
	return &place{t, room.Room{Base: base, Folder: folder}}
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

func TestMounts(t *testing.T) {
	p := newPlace(t)
	for name, content := range map[string]string{"k1/tree/a": "one", "k1/tree/deep/b": "two", "k2/tree/a": "three"} {
		path := filepath.Join(p.Base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"w1/room/work/plain", "w1/room/work/layered", "w1/upper", "w1/scratch"} {
		if err := os.Mkdir(filepath.Join(p.Base, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.Mounts = []room.Mount{
		{Source: p.Base + "/k1/tree", Target: room.Work + "/plain"},
		{Source: p.Base + "/k1/tree", Target: room.Work + "/layered", Upper: p.Base + "/w1/upper", Scratch: p.Base + "/w1/scratch"},
	}
	for script, want := range map[string]string{
		"cat plain/a layered/deep/b": "onetwo",
		"echo x >plain/a":            "(status 0x200)",
		"touch plain/new":            "(status 0x100)",
		"echo x >layered/a; rm -r layered/deep; mkdir layered/n; ls layered; cat layered/a": "a\nn\nx",
	} {
		got := p.sh("{ " + script + "; } 2>/dev/null")
		if got != want {
			t.Errorf("%s: printed %q, want %q", script, got, want)
		}
		for _, name := range []string{"upper", "scratch"} {
			_ = os.Chmod(p.Base+"/w1/scratch/work", 0o700) // the kernel makes it with mode 0
			if err := os.RemoveAll(p.Base + "/w1/" + name); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(p.Base+"/w1/"+name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	if text, err := os.ReadFile(p.Base + "/k1/tree/a"); string(text) != "one" || err != nil {
		t.Errorf("the source has %q, %v", text, err)
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
