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

// A den is a folder in which the commands of a test leave their process ids.
type den struct {
	t   *testing.T
	l   *lab
	dir string
	n   int
}

func newDen(t *testing.T) *den { return &den{t: t, l: newLab(t), dir: t.TempDir()} }

// run executes a script that says where it runs, and returns that.
func (d *den) run(text string) (room string) {
	d.t.Helper()
	d.n++
	at := filepath.Join(d.dir, "at"+strconv.Itoa(d.n))
	d.l.run(d.t, script(fmt.Sprintf("pwd > %s; ls -A > out; %s", at, text)))
	return strings.TrimSpace(d.read(at))
}

func (d *den) read(path string) string {
	d.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatal(err)
	}
	return string(text)
}

// pid reads a number that a command has written.
func (d *den) pid(name string) int64 {
	d.t.Helper()
	n, err := strconv.ParseInt(strings.TrimSpace(d.read(filepath.Join(d.dir, name))), 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// alive tells whether a process is there and no zombie.
func alive(pid int64) bool {
	return exists(fmt.Sprintf("/proc/%d/stat", pid)) && !zombie(pid)
}

// escapee is a script that leaves a process with a session of its own and an empty environment, which writes its number to the file pid and
// would go on for ever; begin is what it does first.
func (d *den) escapee(begin string) string {
	file := filepath.Join(d.dir, "pid")
	return fmt.Sprintf(`setsid env -i /bin/bash -c '%s; exec >/dev/null 2>&1; echo $$ > %s.new; mv %s.new %s; while :; do echo bad >> out; /bin/sleep 0.001; done' & until test -e %s; do sleep 0.001; done`,
		begin, file, file, file, file)
}

// hold has a command run until release is called.
func (d *den) hold() (release func()) {
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

// A process that a command leaves behind is dead when the command's outputs are looked at, whatever it has dropped.
func TestEscapeeDies(t *testing.T) {
	d := newDen(t)
	d.run(d.escapee("cd /"))
	if pid := d.pid("pid"); alive(pid) {
		t.Errorf("process %d lives on", pid)
	}
}

// So it is while other commands run, if anything of it is in the command's folder: what is another's lives.
func TestEscapeeDiesBesideOthers(t *testing.T) {
	d := newDen(t)
	release := d.hold()
	defer release()
	d.run(d.escapee(":"))
	if pid := d.pid("pid"); alive(pid) {
		t.Errorf("process %d lives on", pid)
	}
}

// One that cannot be told from what a running command has started lives on, but not where others run; it dies when none is left that it could be of.
func TestEscapeeIsAlone(t *testing.T) {
	d := newDen(t)
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
		t.Errorf("process %d lives on", pid)
	}
}

// A foreign process in a sandbox is left alone, and so is the sandbox; no other command runs there.
func TestVisitor(t *testing.T) {
	for _, where := range []string{"works there", "has its folder open", "works in its home"} {
		t.Run(where, func(t *testing.T) {
			d := newDen(t)
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
