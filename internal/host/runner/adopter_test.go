//go:build linux

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

// orphaned starts a worker with the commands, and kills it once all of them run.
func orphaned(t *testing.T, commands ...workerCommand) (sockets string, supervisor process.ID) {
	t.Helper()
	sockets = filepath.Join(t.TempDir(), "s")
	for i := range commands {
		if commands[i].Dir == "" {
			commands[i].Dir = t.TempDir()
		}
		commands[i].Script = started + commands[i].Script
	}
	worker, _ := startWorker(t, workerConfig{Sockets: sockets, For: time.Hour, Commands: commands})
	for _, c := range commands {
		supervisor = familyMembers(t, c.Dir, "main", "supervisor")["supervisor"]
	}
	kill(t, worker)
	t.Cleanup(func() { // if the test has not adopted its commands
		if alive, _ := process.Alive(supervisor); alive {
			syscall.Kill(supervisor.PID, syscall.SIGKILL)
		}
	})
	return sockets, supervisor
}

func TestAdoptersRace(t *testing.T) {
	for range 5 {
		sockets, supervisor := orphaned(t, workerCommand{Identity: "a/1", Script: "sleep 1000"})
		var found atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			s := outliving(t, sockets, time.Hour)
			group.Go(func() {
				<-start
				orphans, err := s.Adopt(t.Context())
				if (len(orphans) > 0) != (err == nil) || err != nil && !errors.Is(err, runner.ErrAdopted) {
					t.Errorf("%d orphans, %v; want some, or ErrAdopted", len(orphans), err)
				}
				found.Add(int32(len(orphans)))
			})
		}
		close(start)
		group.Wait()
		if got := found.Load(); got != 1 {
			t.Errorf("%d adopters got it, want 1", got)
		}
		if alive, _ := process.Alive(supervisor); !alive {
			t.Error("the supervisor has ended")
		}
	}
}

// The commands of a process that is dying, dead by the kernel's answer and with its files still open, are found: the
// adopter waits for its end.
func TestAdoptFromDying(t *testing.T) {
	for _, name := range []string{"client", "adopter"} {
		t.Run(name, func(t *testing.T) {
			sockets, dir := filepath.Join(t.TempDir(), "s"), t.TempDir()
			config := workerConfig{Sockets: sockets, For: time.Hour, Dying: true}
			if name == "client" {
				config.Commands = []workerCommand{{Identity: "a/1", Script: started + "sleep 1000", Dir: dir}}
			} else {
				sockets, _ = orphaned(t, workerCommand{Identity: "a/1", Script: "sleep 1000", Dir: dir})
				config.Sockets, config.Adopt = sockets, true
			}
			worker, of := startWorker(t, config)
			if name == "client" {
				familyMembers(t, dir, "main", "supervisor")
			} else {
				var count int
				noted(t, of, "adopted", &count)
			}
			id, err := process.Lookup(worker.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			touch(t, of, "die")
			waitFor(t, "the worker is dying", func() bool {
				alive, known := process.Alive(id)
				return known && !alive
			})
			s := outliving(t, sockets, time.Hour)
			type found struct {
				orphans []*runner.Orphan
				err     error
			}
			result := make(chan found, 1)
			go func() {
				orphans, err := s.Adopt(t.Context())
				result <- found{orphans, err}
			}()
			select {
			case got := <-result:
				t.Fatalf("while it was dying: %d orphans, %v; want that this is waited for", len(got.orphans), got.err)
			case <-time.After(200 * time.Millisecond):
			}
			kill(t, worker)
			if got := <-result; len(got.orphans) != 1 || got.err != nil {
				t.Errorf("%d orphans, %v; want 1", len(got.orphans), got.err)
			}
		})
	}
}

// The commands of a dead adopter can be adopted again, also ended ones.
func TestAdopterKilled(t *testing.T) {
	running, ended := t.TempDir(), t.TempDir()
	sockets, supervisor := orphaned(t,
		workerCommand{Identity: "running", Script: untilGo + "exit 4", Dir: running},
		workerCommand{Identity: "ended", Script: untilGo + "exit 5", Dir: ended})
	for range 2 {
		adopter, dir := startWorker(t, workerConfig{Sockets: sockets, For: time.Hour, Adopt: true})
		var count int
		noted(t, dir, "adopted", &count)
		if count != 2 {
			t.Fatalf("%d adopted, want 2", count)
		}
		if orphans, err := outliving(t, sockets, time.Hour).Adopt(t.Context()); len(orphans) != 0 || !errors.Is(err, runner.ErrAdopted) {
			t.Errorf("while the adopter runs %d orphans, %v; want ErrAdopted", len(orphans), err)
		}
		touch(t, ended, "go")
		kill(t, adopter)
	}
	s := outliving(t, sockets, time.Hour)
	orphans := adopt(t, s)
	if again, err := s.Adopt(t.Context()); len(again) != 0 || err != nil {
		t.Errorf("the adopter adopts %d again, %v; want none", len(again), err)
	}
	touch(t, running, "go")
	for name, want := range map[string]int{"running": 4, "ended": 5} {
		if got, err := orphans[name].Wait(t.Context()); err != nil || got.ExitCode != want {
			t.Errorf("%s: %+v, %v; want exit code %d", name, got, err, want)
		}
		orphans[name].Release()
	}
	wantDead(t, map[string]process.ID{"supervisor": supervisor})
}

// Output is masked while there is no adopter, too.
func TestMaskAcrossAdoption(t *testing.T) {
	dir := t.TempDir()
	sockets, _ := orphaned(t, workerCommand{Identity: "a/1", Dir: dir, Mask: []string{"s3cret"}, Script: `
		echo "before s3cret"; ` + untilGo + `printf 's3c'; printf 'ret\n' >&2
		for ((i = 0; i < 3000; i++)); do echo "line $i s3cret and some more text to fill the pipe"; done; printf s3c`})
	touch(t, dir, "go")
	o := adopt(t, outliving(t, sockets, time.Hour))["a/1"]
	if got, err := o.Wait(t.Context()); err != nil || !got.Success() {
		t.Errorf("%+v, %v", got, err)
	}
	var want strings.Builder
	want.WriteString("before ***\n***\n")
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d *** and some more text to fill the pipe\n", i)
	}
	want.WriteString("s3c")
	if got, err := os.ReadFile(filepath.Join(dir, "out")); err != nil || string(got) != want.String() {
		t.Errorf("got %d bytes, %v; want %d", len(got), err, want.Len())
	}
}

// A run gives the same result whether the client or the supervisor masks.
func TestMaskInSupervisor(t *testing.T) {
	s := outliving(t, filepath.Join(t.TempDir(), "s"), time.Hour)
	spec := shell(t, `printf 'token=s3cr'; printf 'et\n'; echo "err s3cret" >&2; printf s3cr`, t.TempDir())
	spec.Mask = []string{"s3cret", ""}
	for _, identity := range []string{"", "a/1"} {
		spec.Identity = identity
		if got, want := output(t, s, spec), "token=***\nerr ***\ns3cr"; got != want {
			t.Errorf("identity %q: output %q, want %q", identity, got, want)
		}
	}
	readOnly, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	spec.Stdout = readOnly
	if result, err := s.Run(t.Context(), spec); !errors.Is(err, syscall.EBADF) || result.ExitCode != 0 {
		t.Errorf("%+v, %v; want the result and EBADF", result, err)
	}
	spec.Argv = []string{"./missing"}
	if _, err := s.Run(t.Context(), spec); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v, want ENOENT", err)
	}
}

func TestTimeoutAcrossAdoption(t *testing.T) {
	suite.Soon(t, 10*time.Second, func() time.Duration {
		sockets, _ := orphaned(t, workerCommand{Identity: "a/1", Timeout: 1500 * time.Millisecond,
			Script: `trap 'exit 9' TERM; sleep 1000 & wait`})
		o := adopt(t, outliving(t, sockets, time.Hour))["a/1"]
		got, err := o.Wait(t.Context())
		if err != nil || !got.TimedOut || got.Cancelled || got.ExitCode != 9 {
			t.Errorf("%+v, %v; want timed out, exit code 9", got, err)
		}
		took := got.Ended.Sub(got.Started)
		if took < 1500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		return took
	})
}

func TestStopOrphan(t *testing.T) {
	dir := t.TempDir()
	sockets, supervisor := orphaned(t,
		workerCommand{Identity: "waited for", Script: `trap 'exit 9' TERM; touch trapped; sleep 1000 & wait`, Dir: dir},
		workerCommand{Identity: "released", Script: family},
		workerCommand{Identity: "closed", Script: "sleep 1000"})
	waitFor(t, "the trap is set", func() bool { return exists(dir, "trapped") })
	s := outliving(t, sockets, time.Hour)
	orphans := adopt(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := orphans["waited for"].Wait(ctx); err != nil || !got.Cancelled || got.ExitCode != 9 {
		t.Errorf("%+v, %v; want cancelled, exit code 9", got, err)
	}
	orphans["released"].Release()
	wantDead(t, map[string]process.ID{"released": orphans["released"].Process})
	if _, err := orphans["released"].Wait(t.Context()); !isClosed(err) {
		t.Errorf("released: %v, want ErrClosed", err)
	}
	if alive, _ := process.Alive(orphans["closed"].Process); !alive {
		t.Error("releasing one has killed another")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantDead(t, map[string]process.ID{"supervisor": supervisor})
	if got, err := orphans["closed"].Wait(t.Context()); err != nil || !got.Cancelled || got.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v; want cancelled by SIGKILL", got, err)
	}
	if _, err := s.Adopt(t.Context()); !isClosed(err) {
		t.Errorf("Adopt after Close: %v, want ErrClosed", err)
	}
	if err := s.Extend(); !isClosed(err) {
		t.Errorf("Extend after Close: %v, want ErrClosed", err)
	}
}

func TestAdoptedSupervisorKilled(t *testing.T) {
	dir := t.TempDir()
	sockets, supervisor := orphaned(t, workerCommand{Identity: "a/1", Script: family, Dir: dir})
	members := familyMembers(t, dir, familyNames...)
	s := outliving(t, sockets, time.Hour)
	o := adopt(t, s)["a/1"]
	if err := syscall.Kill(supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Wait(t.Context()); !isLost(err) {
		t.Errorf("%v, want ErrSupervisorLost", err)
	}
	if err := syscall.Kill(members["unmarked"].PID, syscall.SIGKILL); err != nil {
		t.Error(err) // out of reach, as documented
	}
	wantDead(t, members)
	if names := socketsIn(t, sockets); len(names) != 1 {
		t.Errorf("sockets %v, want the dead one", names)
	}
	// The kernel closes the dead process's descriptors one by one, so its socket may listen a little longer.
	waitFor(t, "the dead socket is removed", func() bool {
		if orphans, err := s.Adopt(t.Context()); len(orphans) > 0 || err != nil {
			t.Errorf("%d orphans, %v; want none", len(orphans), err)
		}
		return len(socketsIn(t, sockets)) == 0
	})
}

func TestAdoptMany(t *testing.T) {
	const count = 60
	var commands []workerCommand
	for i := range count {
		commands = append(commands, workerCommand{Identity: fmt.Sprintf("job/%d", i), State: strings.Repeat("x", runner.MaxState),
			Script: fmt.Sprintf("%s echo %d; exit %d", strings.Replace(untilGo, "0.01", "0.2", 1), i, i), Dir: t.TempDir()})
	}
	sockets, supervisor := orphaned(t, commands...)
	orphans := adopt(t, outliving(t, sockets, time.Hour))
	if len(orphans) != count {
		t.Fatalf("%d orphans, want %d", len(orphans), count)
	}
	var group sync.WaitGroup
	for i, c := range commands {
		touch(t, c.Dir, "go")
		group.Go(func() {
			o := orphans[c.Identity]
			got, err := o.Wait(t.Context())
			if err != nil || got.ExitCode != i || len(o.State) != runner.MaxState {
				t.Errorf("%s: %+v, %v, %d bytes of state", c.Identity, got, err, len(o.State))
			}
			o.Release()
			if out, err := os.ReadFile(filepath.Join(c.Dir, "out")); err != nil || string(out) != fmt.Sprintln(i) {
				t.Errorf("%s: output %q, %v", c.Identity, out, err)
			}
		})
	}
	group.Wait()
	wantDead(t, map[string]process.ID{"supervisor": supervisor})
}

// dialRaw connects to the one socket in the folder.
func dialRaw(t *testing.T, sockets string) net.Conn {
	t.Helper()
	names := socketsIn(t, sockets)
	if len(names) != 1 {
		t.Fatalf("sockets %v, want one", names)
	}
	conn, err := net.Dial("unix", filepath.Join(sockets, names[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// kindHandover is the kind of the first frame to an adopter.
const kindHandover = 9

// A client that sends nonsense is disconnected, without other effects.
func TestHostileAdopter(t *testing.T) {
	sockets, supervisor := orphaned(t, workerCommand{Identity: "a/1", Script: untilGo + "exit 6"})
	for name, bytes := range map[string]string{
		"nothing":                "",
		"half a frame":           "\x09\x00\x00\x00\x02\x01",
		"length 0":               "\x00\x00\x00\x00\x01",
		"longest":                "\xff\xff\xff\xff\x01",
		"longer than a request":  "\x00\x10\x00\x00\x07",
		"a spawn request":        "\x05\x00\x00\x00\x01\x00\x00\x00\x00",
		"an unknown kind":        "\x01\x00\x00\x00\xff",
		"a reply":                "\x01\x00\x00\x00\x05",
		"short extension":        "\x02\x00\x00\x00\x06\x00",
		"extension for ever":     "\x11\x00\x00\x00\x06\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f",
		"extension to the past":  "\x11\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x80",
		"release of another":     "\x08\x00\x00\x00\x07\x03\x00\x00\x00b/1",
		"release without length": "\x05\x00\x00\x00\x07\xff\xff\xff\xff",
		"cancel of another":      "\x09\x00\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff",
		"garbage":                strings.Repeat("e3 ", 10000),
	} {
		t.Run(name, func(t *testing.T) {
			var conn net.Conn
			waitFor(t, "the supervisor takes an adopter", func() bool {
				conn = dialRaw(t, sockets)
				var head [5]byte
				_, err := io.ReadFull(conn, head[:])
				return err == nil && head[4] == kindHandover // the end of the previous adopter may not be noticed yet
			})
			if _, err := io.WriteString(conn, bytes); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				t.Error(err)
			}
			conn.Close()
		})
	}
	s := outliving(t, sockets, time.Hour)
	o := adopt(t, s)["a/1"]
	if alive, _ := process.Alive(o.Process); !alive {
		t.Error("the command is dead")
	}
	o.Release()
	wantDead(t, map[string]process.ID{"supervisor": supervisor, "command": o.Process})
}

// A listener in the folder that is not a supervisor causes an error, but delays no adopter.
func TestHostileSupervisor(t *testing.T) {
	sockets := t.TempDir()
	for i, bytes := range []string{"", "\x00\x00\x00\x00\x08", strings.Repeat("e3 ", 10000),
		"\x09\x00\x00\x00\x08\xff\xff\xff\xff\xff\xff\xff\xff"} {
		listener, err := net.Listen("unix", filepath.Join(sockets, fmt.Sprint("runs-", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				io.WriteString(conn, bytes)
				conn.Close()
			}
		}()
	}
	touch(t, sockets, "runs-no-socket")
	touch(t, sockets, "something else")
	if err := os.Symlink("/nowhere", filepath.Join(sockets, "runs-link")); err != nil {
		t.Fatal(err)
	}
	orphans, err := outliving(t, sockets, time.Hour).Adopt(t.Context())
	if len(orphans) > 0 || err != nil {
		t.Errorf("%d orphans, %v; want none", len(orphans), err)
	}

	silent, err := net.Listen("unix", filepath.Join(sockets, "runs-silent"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if orphans, err := outliving(t, sockets, time.Hour).Adopt(ctx); len(orphans) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%d orphans, %v; want the deadline's error", len(orphans), err)
	}
}

// strangerName is the argv[0] of a process that tries to adopt as another user.
const strangerName = "runner-test-stranger"

// strangerMain connects to a socket and succeeds if it receives nothing.
func strangerMain(socket string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	if text, err := io.ReadAll(conn); len(text) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		return fmt.Errorf("told %q, %v", text, err)
	}
	return nil
}

func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run as root to test what other users can do")
	}
	const nobody = 65534
	sockets, _ := orphaned(t, workerCommand{Identity: "a/1", Script: "sleep 1000"})
	if info, err := os.Stat(sockets); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder %v, %v; want mode 0700", info.Mode(), err)
	}
	// The folder excludes other users, and so does the supervisor.
	open, err := os.MkdirTemp("", "e3-runner-test-") // other users cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(open, "socket")
	if err := os.Link(filepath.Join(sockets, socketsIn(t, sockets)[0]), socket); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	stranger := &exec.Cmd{Path: "/proc/self/exe", Args: []string{strangerName, socket}, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}}
	if out, err := stranger.CombinedOutput(); err != nil {
		t.Errorf("another user: %v\n%s", err, out)
	}
	if orphans := adopt(t, outliving(t, sockets, time.Hour)); len(orphans) != 1 {
		t.Errorf("%d orphans, want 1", len(orphans))
	}

	foreign := t.TempDir()
	if err := os.Chown(foreign, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	s := outliving(t, foreign, time.Hour)
	if _, err := s.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("adopt from a foreign folder: %v", err)
	}
	if _, err := s.Run(t.Context(), shell(t, "true", t.TempDir())); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("run with a foreign folder: %v", err)
	}
}

func TestIdentity(t *testing.T) {
	s := outliving(t, filepath.Join(t.TempDir(), "s"), time.Hour)
	dir := t.TempDir()
	spec := shell(t, started+untilGo, dir)
	spec.Identity = "a/1"
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), spec)
		ended <- err
	}()
	familyMembers(t, dir, "main")
	_, err := s.Run(t.Context(), spec)
	if start, ok := errors.AsType[*runner.StartError](err); !ok || start.Op != runner.OpSpec || !strings.Contains(err.Error(), `"a/1" still runs`) {
		t.Errorf("the same identity again: %v", err)
	}
	touch(t, dir, "go")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A new attempt replaces an ended one that was not released.
	if got, err := s.Run(t.Context(), spec); err != nil || !got.Success() {
		t.Errorf("%+v, %v", got, err)
	}
	s.Release("a/1")
	s.Release("unknown")

	for name, change := range map[string]func(*runner.Spec){
		"identity": func(spec *runner.Spec) { spec.Identity = strings.Repeat("x", 1025) },
		"state":    func(spec *runner.Spec) { spec.State = make([]byte, runner.MaxState+1) },
		"marker":   func(spec *runner.Spec) { spec.Marker = "M=" + strings.Repeat("x", 1025) },
	} {
		spec := spec
		change(&spec)
		if _, err := s.Run(t.Context(), spec); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	// Without Outlive an identity has no effect.
	if got, err := newSupervisor(t).Run(t.Context(), spec); err != nil || !got.Success() {
		t.Errorf("without Outlive: %+v, %v", got, err)
	}
	for name, outlive := range map[string]runner.Outlive{
		"relative folder": {Dir: "s", For: time.Hour},
		"no time":         {Dir: "/s"},
		"too long":        {Dir: "/s", For: 31 * 24 * time.Hour},
	} {
		if _, err := runner.New(runner.Options{Outlive: &outlive}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// If a client never releases, the last thousand ends are kept.
func TestUncollected(t *testing.T) {
	dir := t.TempDir()
	worker, _ := startWorker(t, workerConfig{Sockets: filepath.Join(dir, "s"), For: time.Hour, Repeat: 1100,
		Commands: []workerCommand{{Identity: "job", Script: started + "exit 2", Dir: dir}}})
	noted(t, dir, "ending", new(ending))
	kill(t, worker)
	orphans := adopt(t, outliving(t, filepath.Join(dir, "s"), time.Hour))
	if len(orphans) != 1000 {
		t.Errorf("%d orphans, want 1000", len(orphans))
	}
	for i := 100; i < 1100; i++ {
		if orphans[fmt.Sprint("job", i)] == nil {
			t.Fatalf("the end of job %d is missing", i)
		}
	}
	// Close leaves nothing behind.
	closed := filepath.Join(dir, "closed")
	s := outliving(t, closed, time.Hour)
	spec := runner.Spec{Argv: []string{"/bin/true"}, Dir: dir, Identity: "a/1"}
	if _, err := s.Run(t.Context(), spec); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if names := socketsIn(t, closed); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}
