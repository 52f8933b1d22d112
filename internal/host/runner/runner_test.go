//go:build linux

package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
	"e3/internal/testing/suite"
)

func isLost(err error) bool   { return errors.Is(err, runner.ErrSupervisorLost) }
func isClosed(err error) bool { return errors.Is(err, runner.ErrClosed) }

func newSupervisor(t testing.TB) *runner.Supervisor {
	t.Helper()
	s, err := runner.New(runner.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// shell is a bash script with its own marker.
func shell(t testing.TB, script, dir string) runner.Spec {
	marker := "E3_EXECUTION=" + t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
	return runner.Spec{
		Argv:   []string{"bash", "-c", script},
		Dir:    dir,
		Env:    []string{"PATH=" + os.Getenv("PATH"), marker},
		Marker: marker,
	}
}

// output runs a spec that must succeed and returns its stdout and stderr.
func output(t testing.TB, s *runner.Supervisor, spec runner.Spec) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	spec.Stdout, spec.Stderr = file, file
	result, err := s.Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !result.Success() {
		t.Fatalf("%q ended with %+v\n%s", spec.Argv, result, text)
	}
	return string(text)
}

func TestEnd(t *testing.T) {
	s := newSupervisor(t)
	for _, test := range []struct {
		name, script string
		exit         int
		signal       syscall.Signal
	}{
		{"success", "true", 0, 0},
		{"exit code", "exit 7", 7, 0},
		{"largest exit code", "exit 255", 255, 0},
		{"terminated", "kill -TERM $$", -1, syscall.SIGTERM},
		{"killed", "kill -KILL $$", -1, syscall.SIGKILL},
		{"segmentation fault", "ulimit -c 0; kill -SEGV $$", -1, syscall.SIGSEGV},
		{"closes its descriptors", "exec 0<&- 1>&- 2>&-; true", 0, 0},
		{"kills its own group", "kill -KILL 0", -1, syscall.SIGKILL},
		{"writes to foreign descriptors", "for fd in {3..40}; do echo x >&$fd; done 2>&-; exit 0", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := time.Now()
			got, err := s.Run(t.Context(), shell(t, test.script, t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			if got.ExitCode != test.exit || got.Signal != test.signal || got.TimedOut || got.Cancelled {
				t.Errorf("got %+v, want exit code %d, signal %d", got, test.exit, test.signal)
			}
			if got.PID <= 1 || got.Started.Before(before) || got.Ended.Before(got.Started) || time.Now().Before(got.Ended) {
				t.Errorf("got pid %d, started %v, ended %v; the run began at %v", got.PID, got.Started, got.Ended, before)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	s := newSupervisor(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := runner.Spec{
		Argv: []string{"env"},
		Dir:  dir,
		Env:  []string{"PATH=/nowhere:" + os.Getenv("PATH"), "EMPTY=", "B=two words", "A=1", "no equals sign"},
	}
	if got, want := output(t, s, spec), strings.Join(spec.Env, "\n")+"\n"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
	spec.Argv = []string{"pwd", "-P"}
	if got, want := output(t, s, spec), dir+"\n"; got != want {
		t.Errorf("working directory %q, want %q", got, want)
	}
	spec.Argv = []string{"printf", "<%s>", "", "a b", "\xff", "é\n"}
	if got, want := output(t, s, spec), "<><a b><\xff><é\n>"; got != want {
		t.Errorf("arguments %q, want %q", got, want)
	}
}

func TestOutputFiles(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	create := func(name string) *os.File {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	spec := shell(t, "echo out; echo err >&2", dir)
	spec.Stdout, spec.Stderr = create("out"), create("err")
	onlyErr := spec
	onlyErr.Stdout, onlyErr.Stderr = nil, create("only")
	for _, spec := range []runner.Spec{spec, onlyErr} {
		if result, err := s.Run(t.Context(), spec); err != nil || !result.Success() {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	for name, want := range map[string]string{"out": "out\n", "err": "err\n", "only": "err\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestUsage(t *testing.T) {
	s := newSupervisor(t)
	got, err := s.Run(t.Context(), shell(t, `
		x=$(head -c 64000000 /dev/zero | tr '\0' x)
		for ((i = 0; i < 200000; i++)); do :; done`, t.TempDir()))
	if err != nil || !got.Success() {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.UserCPU < 20*time.Millisecond || got.UserCPU > 5*time.Minute {
		t.Errorf("user CPU %v", got.UserCPU)
	}
	if got.SystemCPU <= 0 || got.SystemCPU > 5*time.Minute {
		t.Errorf("system CPU %v", got.SystemCPU)
	}
	if got.PeakRSS < 64_000_000 || got.PeakRSS > 4<<30 {
		t.Errorf("peak RSS %d bytes, want more than the 64 MB that it holds", got.PeakRSS)
	}
}

func TestTimeout(t *testing.T) {
	s := newSupervisor(t)
	for _, test := range []struct {
		name, script string
		grace        time.Duration
		exit         int
		signal       syscall.Signal
	}{
		{"ends on TERM", "exec sleep 1000", time.Hour, -1, syscall.SIGTERM},
		{"cleans up on TERM", `trap 'kill %1; exit 9' TERM; sleep 1000 & wait`, time.Hour, 9, 0},
		{"ends well on TERM", `trap 'exit 0' TERM; sleep 1000 & wait`, time.Hour, 0, 0},
		{"ignores TERM", `trap '' TERM; sleep 1000; sleep 1000`, 50 * time.Millisecond, -1, syscall.SIGKILL},
		{"stopped", `kill -STOP $$; sleep 1000`, time.Hour, -1, syscall.SIGTERM},
		{"no grace", `trap 'exit 9' TERM; sleep 1000 & wait`, -1, -1, syscall.SIGKILL},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			spec := shell(t, test.script, t.TempDir())
			spec.Timeout, spec.Grace = 300*time.Millisecond, test.grace
			got, err := s.Run(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if !got.TimedOut || got.Cancelled || got.ExitCode != test.exit || got.Signal != test.signal {
				t.Errorf("got %+v, want timed out, exit code %d, signal %d", got, test.exit, test.signal)
			}
			if took := got.Ended.Sub(got.Started); took < spec.Timeout+max(0, test.grace)%time.Hour {
				t.Errorf("ended after %v, before its time was up", took)
			}
			if got.Success() {
				t.Error("counts as success")
			}
		})
	}
	t.Run("not reached", func(t *testing.T) {
		spec := shell(t, "exit 4", t.TempDir())
		spec.Timeout = time.Hour
		if got, err := s.Run(t.Context(), spec); err != nil || got.TimedOut || got.ExitCode != 4 {
			t.Errorf("%+v, %v; want exit code 4", got, err)
		}
	})
}

func TestCancel(t *testing.T) {
	s := newSupervisor(t)
	t.Run("while running", func(t *testing.T) {
		for name, want := range map[string]syscall.Signal{"exec sleep 1000": syscall.SIGTERM, "trap '' TERM; sleep 1000; sleep 1000": syscall.SIGKILL} {
			dir := t.TempDir()
			ctx, cancel := context.WithCancel(t.Context())
			spec := shell(t, "echo $$ > ready; "+name, dir)
			spec.Grace = 50 * time.Millisecond
			spec.Timeout = time.Hour
			go func() {
				defer cancel()
				waitFor(t, "the command runs", func() bool {
					_, err := os.Stat(filepath.Join(dir, "ready"))
					return err == nil
				})
			}()
			got, err := s.Run(ctx, spec)
			if err != nil {
				t.Fatal(err)
			}
			// TERM may still end the shell before the trap is set.
			if !got.Cancelled || got.TimedOut || got.Signal != want && got.Signal != syscall.SIGTERM {
				t.Errorf("%s: got %+v, want cancelled by %v", name, got, want)
			}
		}
	})
	t.Run("before the start", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the user said so")
		cancel(cause)
		dir := t.TempDir()
		_, err := s.Run(ctx, shell(t, "touch ran", dir))
		if !errors.Is(err, cause) {
			t.Errorf("error = %v, want the cause", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the command ran: %v", err)
		}
	})
}

func TestCannotStart(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	write := func(name, content string, mode fs.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", "text", 0o644)
	write("text", "not a program", 0o755)
	write("noloader", "#!/no/such/interpreter\n", 0o755)
	path := "PATH=" + dir + ":" + os.Getenv("PATH")
	huge := strings.Repeat("x", 9<<20)
	for _, test := range []struct {
		name, op string
		spec     runner.Spec
		errno    syscall.Errno
		says     string
	}{
		{"not in PATH", runner.OpLookup, runner.Spec{Argv: []string{"no-such-command"}, Dir: dir, Env: []string{path}}, syscall.ENOENT, "not found in PATH"},
		{"no PATH", runner.OpLookup, runner.Spec{Argv: []string{"true"}, Dir: dir}, syscall.ENOENT, "no PATH"},
		{"not executable in PATH", runner.OpLookup, runner.Spec{Argv: []string{"plain"}, Dir: dir, Env: []string{path}}, syscall.EACCES, "chmod +x"},
		{"missing file", runner.OpExec, runner.Spec{Argv: []string{"./missing"}, Dir: dir}, syscall.ENOENT, "no such file"},
		{"not executable", runner.OpExec, runner.Spec{Argv: []string{"./plain"}, Dir: dir}, syscall.EACCES, "chmod +x"},
		{"directory", runner.OpExec, runner.Spec{Argv: []string{"/"}, Dir: dir}, syscall.EACCES, "is a directory"},
		{"no program", runner.OpExec, runner.Spec{Argv: []string{"./text"}, Dir: dir}, syscall.ENOEXEC, "#! line"},
		{"no interpreter", runner.OpExec, runner.Spec{Argv: []string{"./noloader"}, Dir: dir}, syscall.ENOENT, "interpreter"},
		{"bad dir", runner.OpChdir, runner.Spec{Argv: []string{"/bin/sh"}, Dir: dir + "/missing"}, syscall.ENOENT, "working directory"},
		{"dir is a file", runner.OpChdir, runner.Spec{Argv: []string{"/bin/sh"}, Dir: dir + "/plain"}, syscall.ENOTDIR, "working directory"},
		{"argument too long", runner.OpExec, runner.Spec{Argv: []string{"/bin/sh", strings.Repeat("x", 200<<10)}, Dir: dir}, syscall.E2BIG, "too long"},
		{"arguments far too long", runner.OpExec, runner.Spec{Argv: []string{"/bin/sh", huge}, Dir: dir}, syscall.E2BIG, "too long"},
		{"empty command", runner.OpSpec, runner.Spec{Dir: dir}, syscall.EINVAL, "empty"},
		{"relative dir", runner.OpSpec, runner.Spec{Argv: []string{"/bin/sh"}, Dir: "."}, syscall.EINVAL, "not absolute"},
		{"NUL in argument", runner.OpSpec, runner.Spec{Argv: []string{"/bin/sh", "a\x00b"}, Dir: dir}, syscall.EINVAL, "argument 1"},
		{"NUL in environment", runner.OpSpec, runner.Spec{Argv: []string{"/bin/sh"}, Dir: dir, Env: []string{"A=b\x00c"}}, syscall.EINVAL, `"A"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			announced := false
			test.spec.OnStart = func(process.ID) { announced = true }
			_, err := s.Run(t.Context(), test.spec)
			start, ok := errors.AsType[*runner.StartError](err)
			if !ok {
				t.Fatalf("error = %v, want a StartError", err)
			}
			if start.Op != test.op || !errors.Is(err, test.errno) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("op %q, error %q (%v); want op %q, %v, and %q in the text", start.Op, err, start.Err, test.op, test.errno, test.says)
			}
			if announced {
				t.Error("OnStart was called")
			}
		})
	}
}

func TestLargeArguments(t *testing.T) {
	s := newSupervisor(t)
	argv := []string{"/bin/sh", "-c", "printf %s \"$*\" | cksum", "sh"}
	want := bytes.NewBuffer(nil)
	for i := range 20 { // 1.2 MB; one argument holds at most 128 KiB
		arg := strings.Repeat(string(rune('a'+i)), 60_000)
		argv = append(argv, arg)
		fmt.Fprint(want, arg, " ")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "want"), want.Bytes()[:want.Len()-1], 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	got := output(t, s, runner.Spec{Argv: argv, Dir: dir, Env: env})
	if want := output(t, s, runner.Spec{Argv: []string{"sh", "-c", "cksum < want"}, Dir: dir, Env: env}); got != want {
		t.Errorf("checksum of the arguments %q, want %q", got, want)
	}
}

// Processes that the command left in its group, or that left the group with the marker, are gone when Run returns.
func TestChildrenDieWithCommand(t *testing.T) {
	suite.Soon(t, 10*time.Second, func() time.Duration {
		s := newSupervisor(t)
		dir := t.TempDir()
		script := strings.Replace(family, "wait\n\tsleep 1000", "until [[ -e seen ]]; do sleep 0.01; done", 1)
		var result runner.Result
		var err error
		var command sync.WaitGroup
		command.Go(func() { result, err = s.Run(t.Context(), shell(t, script, dir)) })
		members := familyMembers(t, dir, familyNames...)
		if err := os.WriteFile(filepath.Join(dir, "seen"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		command.Wait()
		if err != nil || !result.Success() {
			t.Fatalf("%+v, %v", result, err)
		}
		for _, name := range []string{"background", "session", "twice", "main"} {
			if alive, known := process.Alive(members[name]); alive || !known {
				t.Errorf("%s: alive = %v, known = %v; want false, true", name, alive, known)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if alive, known := process.Alive(members["unmarked"]); alive || !known {
			t.Errorf("after Close unmarked: alive = %v, known = %v; want false, true", alive, known)
		}
		return result.Ended.Sub(result.Started)
	})
}

func TestOnStart(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	var got process.ID
	spec := shell(t, "echo $$ > pid; until [[ -e go ]]; do sleep 0.01; done", dir)
	for _, after := range []time.Duration{0, 30 * time.Millisecond} {
		if err := os.RemoveAll(filepath.Join(dir, "go")); err != nil {
			t.Fatal(err)
		}
		spec.OnStartAfter = after
		spec.OnStart = func(p process.ID) {
			got = p
			if alive, known := process.Alive(p); !alive || !known {
				t.Errorf("alive = %v, %v", alive, known)
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Error(err)
			}
		}
		result, err := s.Run(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		self, err := process.Self()
		if err != nil {
			t.Fatal(err)
		}
		if got.PID != result.PID || got.StartTime < self.StartTime || got.BootID != self.BootID || got.Host != self.Host || got.PIDNamespace != self.PIDNamespace {
			t.Errorf("after %v: OnStart got %+v; result %+v; self %+v", after, got, result, self)
		}
		if result.Ended.Sub(result.Started) < after {
			t.Errorf("announced too early")
		}
		if alive, known := process.Alive(got); alive || !known {
			t.Errorf("after the end: alive = %v, known = %v", alive, known)
		}
	}
}

func TestConcurrent(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			for j := range 5 {
				file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.%d", i, j)))
				if err != nil {
					t.Error(err)
					return
				}
				spec := shell(t, fmt.Sprintf("echo %d.%d; exit %d", i, j, i), dir)
				spec.Stdout = file
				result, err := s.Run(t.Context(), spec)
				file.Close()
				if err != nil || result.ExitCode != i {
					t.Errorf("%+v, %v; want exit code %d", result, err, i)
				}
				if got, err := os.ReadFile(file.Name()); err != nil || string(got) != fmt.Sprintf("%d.%d\n", i, j) {
					t.Errorf("output %q, %v", got, err)
				}
			}
		})
	}
	group.Wait()
}

// Commands that end at once are neither lost nor confused.
func TestFastExits(t *testing.T) {
	s := newSupervisor(t)
	total := 5000
	if testing.Short() {
		total = 500
	}
	dir := t.TempDir()
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			argv := []string{"/bin/true"}
			if worker%2 == 1 {
				argv = []string{"/bin/false"}
			}
			for range total / 10 {
				result, err := s.Run(t.Context(), runner.Spec{Argv: argv, Dir: dir})
				if err != nil || result.ExitCode != worker%2 {
					t.Errorf("%s: %+v, %v", argv[0], result, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestMask(t *testing.T) {
	s := newSupervisor(t)
	spec := shell(t, `printf 'token=s3cr'; printf 'et\n'; echo "err s3cret" >&2; printf s3cr`, t.TempDir())
	spec.Mask = []string{"s3cret", ""}
	if got, want := output(t, s, spec), "token=***\nerr ***\ns3cr"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}

	// An escaped process that keeps the pipe open does not delay the result.
	dir := t.TempDir()
	spec = shell(t, `
		setsid env -i /bin/sh -c 'echo $$ > escaped; echo s3cret; exec /bin/sleep 1000' &
		until [[ -s escaped ]]; do sleep 0.01; done; sleep 0.2; echo done`, dir)
	spec.Mask = []string{"s3cret"}
	if got, want := output(t, s, spec), "***\ndone\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}

	// Output that is larger than a pipe arrives whole.
	spec = shell(t, `for ((i = 0; i < 3000; i++)); do echo "line $i s3cret and some more text to fill the pipe"; done`, dir)
	spec.Mask = []string{"s3cret"}
	var want strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&want, "line %d *** and some more text to fill the pipe\n", i)
	}
	if got := output(t, s, spec); got != want.String() {
		t.Errorf("got %d bytes, want %d", len(got), want.Len())
	}

	// A destination that fails does not block the command, and its error is returned.
	readOnly, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	spec.Stdout = readOnly
	if result, err := s.Run(t.Context(), spec); !errors.Is(err, syscall.EBADF) || result.ExitCode != 0 {
		t.Errorf("%+v, %v; want the result and EBADF", result, err)
	}
}
