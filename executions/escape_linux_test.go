package executions_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"e3/executions"
)

// A pidDir is a folder in which the commands of a test write their process ids.
type pidDir struct {
	t   *testing.T
	l   *lab
	dir string
	n   int
}

func newPidDir(t *testing.T) *pidDir { return &pidDir{t: t, l: newLab(t), dir: t.TempDir()} }

// run executes a script and returns its working directory.
func (d *pidDir) run(text string) (room string) {
	d.t.Helper()
	d.n++
	at := filepath.Join(d.dir, "at"+strconv.Itoa(d.n))
	d.l.run(d.t, script(fmt.Sprintf("pwd > %s; ls -A > out; %s", at, text)))
	return strings.TrimSpace(d.read(at))
}

func (d *pidDir) read(path string) string {
	d.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// pid reads a number that a command has written.
func (d *pidDir) pid(name string) int64 {
	d.t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(d.read(filepath.Join(d.dir, name))), 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// alive tells whether a process exists and is no zombie.
func alive(pid int64) bool {
	return exists(fmt.Sprintf("/proc/%d/stat", pid)) && !zombie(pid)
}

// escapee is a script that starts a process with its own session and an empty environment. The process runs begin,
// writes its id to the file pid, and never ends.
func (d *pidDir) escapee(begin string) string {
	file := filepath.Join(d.dir, "pid")
	return fmt.Sprintf(`setsid env -i /bin/bash -c '%s; exec >/dev/null 2>&1; echo $$ > %s.new; mv %s.new %s; while :; do echo bad >> out; /bin/sleep 0.001; done' & until test -e %s; do sleep 0.001; done`,
		begin, file, file, file, file)
}

// hold runs a command until release is called.
func (d *pidDir) hold() (release func()) {
	d.t.Helper()
	began, flag := filepath.Join(d.dir, "holds"), filepath.Join(d.dir, "flag")
	done := make(chan executions.Result, 1)
	req := d.l.request(script(fmt.Sprintf("touch %s; until test -e %s; do sleep 0.01; done; echo x > out", began, flag)))
	go func() {
		res, err := d.l.Do(d.t.Context(), req)
		if err != nil {
			d.t.Error(err)
		}
		done <- res
	}()
	await(d.t, "the command that lasts", func() bool { return exists(began) })
	return func() {
		touch(d.t, flag)
		<-done
	}
}

// A process that a command leaves behind is killed before the outputs are collected, whatever traces it has dropped.
func TestEscapeeDies(t *testing.T) {
	d := newPidDir(t)
	d.run(d.escapee("cd /"))
	if pid := d.pid("pid"); alive(pid) {
		t.Errorf("process %d is still alive", pid)
	}
}

// While other commands run, only a process that uses the ended command's folder is killed.
func TestEscapeeDiesBesideOthers(t *testing.T) {
	d := newPidDir(t)
	release := d.hold()
	defer release()
	d.run(d.escapee(":"))
	if pid := d.pid("pid"); alive(pid) {
		t.Errorf("process %d is still alive", pid)
	}
}

// A process that may belong to a running command lives on, but its sandbox is not reused. It is killed once no running
// command remains that may own it.
func TestEscapeeIsAlone(t *testing.T) {
	d := newPidDir(t)
	release := d.hold()
	room := d.run(d.escapee("exec 3>&- <&-; cd /"))
	pid := d.pid("pid")
	for i := range 20 {
		if at := d.run(fmt.Sprintf(": %d", i)); at == room {
			t.Fatalf("another command runs in %s, which process %d may have open", at, pid)
		}
	}
	release()
	d.run(": last")
	if alive(pid) {
		t.Errorf("process %d is still alive", pid)
	}
}

// A foreign process in a sandbox is not killed, and no other command runs in that sandbox.
func TestVisitor(t *testing.T) {
	for _, where := range []string{"works there", "has its folder open", "works in its home"} {
		t.Run(where, func(t *testing.T) {
			d := newPidDir(t)
			flag, at := filepath.Join(d.dir, "go"), filepath.Join(d.dir, "room")
			req := d.l.request(script(fmt.Sprintf(`echo "$PWD" > %s.new; mv %s.new %s; until test -e %s; do sleep 0.01; done; echo x > out`, at, at, at, flag)))
			done := make(chan error, 1)
			go func() {
				_, err := d.l.Do(t.Context(), req)
				done <- err
			}()
			await(t, "the command", func() bool { return exists(at) })
			room := strings.TrimSpace(d.read(at))
			visitor := exec.Command("sleep", "1000")
			switch where {
			case "works there":
				visitor.Dir = room
			case "has its folder open":
				f, err := os.Open(room)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				visitor.ExtraFiles = []*os.File{f}
			default:
				visitor.Dir = filepath.Join(filepath.Dir(room), "home")
			}
			if err := visitor.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				visitor.Process.Kill()
				visitor.Wait()
			}()
			touch(t, flag)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			for i := range 40 {
				if now := d.run(fmt.Sprintf(": %d", i)); now == room {
					t.Fatalf("command %d runs in %s, where process %d is", i, room, visitor.Process.Pid)
				}
			}
			if !alive(int64(visitor.Process.Pid)) {
				t.Error("the visitor was killed")
			}
		})
	}
}
