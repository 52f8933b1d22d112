//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/objectstore"
)

// patience is how long anything may take that should be over soon.
const patience = 3 * time.Minute

// nobody is the other user that tests become.
const nobody = 65534

// A project is a folder with a package file, the repository beside it, and a folder "state"
// outside of the repository where tasks may leave marks (E2E_STATE).
type project struct {
	t   testing.TB
	dir string
	env []string
	uid int // user of e3's processes; 0: the user of the tests

	enter    []string // the command by which e3 gets to a machine of its own; none: it runs on this one
	outside  string   // a folder in no clone, where starts of what another machine has deployed are called; "": there is none
	location string   // where the repository is, as this process reaches it; "": beside the package file
}

// newProject makes a project in a folder of its own, which all users can enter.
func newProject(t testing.TB, files map[string]string) *project {
	t.Helper()
	return newProjectBelow(t, "", files)
}

// inMemory is a folder on a file system in memory, where there is one: for tests that make many files and do not
// depend on what a disk does.
func inMemory() string {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(shm, &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Bavail*uint64(st.Bsize) < 1<<30 {
		return ""
	}
	return shm
}

// newProjectBelow makes a project in a folder of its own below another; "" is the one for temporary files.
func newProjectBelow(t testing.TB, parent string, files map[string]string) *project {
	t.Helper()
	dir, err := os.MkdirTemp(parent, "e3-project-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("E3_E2E_KEEP") != "" {
			t.Logf("kept %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return projectIn(t, dir, files)
}

// projectIn makes a project in a folder that exists.
func projectIn(t testing.TB, dir string, files map[string]string) *project {
	t.Helper()
	lookAtSources()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &project{t: t, dir: dir, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "state", "home"), "USER=tester",
		"E2E_STATE=" + filepath.Join(dir, "state"),
	}}
	if raceBuild {
		p.env = append(p.env, "GORACE=atexit_sleep_ms=0")
	}
	for _, dir := range []string{"state", "state/home"} { // of several users, in some tests
		if err := errors.Join(os.Mkdir(p.path(dir), 0o777), os.Chmod(p.path(dir), 0o777|os.ModeSticky)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

// as makes another user the owner of the project, as whom e3 runs from now on.
func (p *project) as(uid int) {
	p.t.Helper()
	err := filepath.WalkDir(p.dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.uid = uid
}

func (p *project) path(name string) string { return filepath.Join(p.dir, name) }

// repository is the root of the project's repository.
func (p *project) repository() string { return p.path(".e3") }

func (p *project) write(name, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *project) read(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// marks returns the lines that tasks appended to a file in the state folder.
func (p *project) marks(name string) []string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, "state", name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// A process is an e3 that runs, the leader of a process group of its own.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	stderr bytes.Buffer
	lines  chan string // of standard output; closed at its end
	ended  chan struct{}
	inner  bool // e3 is the child of what was started

	mu     sync.Mutex
	stdout []string
	err    error
	over   time.Time // when it had ended
}

// foreign tells whether the repository belongs to another user than e3 runs as.
func (p *project) foreign() bool {
	info, err := os.Stat(p.repository())
	if err != nil {
		return false
	}
	uid := p.uid
	if uid == 0 {
		uid = os.Geteuid()
	}
	return int(info.Sys().(*syscall.Stat_t).Uid) != uid
}

// spawn starts e3 in the project's folder. Another user names the repository, as it would not be used without that.
func (p *project) spawn(args ...string) *process {
	p.t.Helper()
	if p.foreign() {
		args = slices.Clone(args)
		for i := range args {
			if args[i] == "." {
				args[i] = p.repository()
			}
		}
	}
	from := *p
	if p.outside != "" && (args[0] == "start" || args[0] == "plan") && !slices.Contains(args, "-f") {
		from.dir, from.enter = p.outside, slices.Clone(p.enter)
		for i, word := range from.enter {
			if word == p.dir {
				from.enter[i] = p.outside
			}
		}
	}
	x := from.spawnCommand(slices.Concat(from.enter, []string{program}, args)...)
	x.inner = len(p.enter) > 0
	return x
}

// spawnCommand starts a command in the project's folder: e3, or what becomes it.
func (p *project) spawnCommand(args ...string) *process {
	p.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.uid)}
	}
	if p.foreign() {
		cmd.Env = append(slices.Clip(p.env), "E3_REPO="+p.repository())
	}
	x := &process{t: p.t, cmd: cmd, lines: make(chan string, 100_000), ended: make(chan struct{})}
	cmd.Stderr = &x.stderr
	cmd.WaitDelay = 2 * time.Second // a stray that holds the pipe must not hold the test
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	go x.collect(out)
	return x
}

func (x *process) collect(out io.Reader) {
	r := bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := r.ReadString('\n')
		if line != "" {
			x.mu.Lock()
			x.stdout = append(x.stdout, line)
			x.mu.Unlock()
			x.lines <- line
		}
		if err != nil {
			break
		}
	}
	close(x.lines)
	err := x.cmd.Wait()
	x.mu.Lock()
	x.err, x.over = err, time.Now()
	x.mu.Unlock()
	close(x.ended)
}

// pid is the process of e3 itself. Of one that is entered it is known once it is there.
func (x *process) pid() int {
	pid := x.cmd.Process.Pid
	for x.inner {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			break // it has ended
		}
		if child, err := strconv.Atoi(strings.TrimSpace(string(children))); err == nil {
			return child
		}
		select {
		case <-x.ended:
		case <-time.After(time.Millisecond):
		}
	}
	return pid
}

// kill ends e3, or its process group, at once, and waits until it is gone.
func (x *process) kill(group bool) {
	x.t.Helper()
	pid := x.pid()
	if group {
		pid = -x.cmd.Process.Pid
	}
	syscall.Kill(pid, syscall.SIGKILL) // it may be gone already
	x.wait()
}

// waitLine waits for a line of standard output with the text.
func (x *process) waitLine(text string) {
	x.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-x.lines:
			if !ok {
				<-x.ended
				x.t.Fatalf("e3 ended without saying %q:\n%s", text, x.result().text())
			}
			if strings.Contains(line, text) {
				return
			}
		case <-deadline:
			x.kill(false)
			x.t.Fatalf("e3 did not say %q in %v:\n%s", text, patience, x.result().text())
		}
	}
}

// wait returns how e3 ended.
func (x *process) wait() result {
	x.t.Helper()
	if !x.endsIn(patience) {
		x.t.Fatalf("e3 did not end in %v:\n%s", patience, x.result().text())
	}
	return x.result()
}

// endsIn waits for the end of e3, and makes one in time, which shows where it hangs.
func (x *process) endsIn(limit time.Duration) bool {
	select {
	case <-x.ended:
		return true
	case <-time.After(limit):
	}
	pid := x.pid()
	syscall.Kill(pid, syscall.SIGQUIT)
	select {
	case <-x.ended:
	case <-time.After(10 * time.Second):
		syscall.Kill(pid, syscall.SIGKILL)
		<-x.ended
	}
	return false
}

// A result is how an e3 ended and what it said.
type result struct {
	code           int // -1: by a signal
	stdout, stderr string
}

func (x *process) result() result {
	x.mu.Lock()
	defer x.mu.Unlock()
	return result{code: x.cmd.ProcessState.ExitCode(), stdout: strings.Join(x.stdout, ""), stderr: x.stderr.String()}
}

// text is the end of what e3 said, for the message of a test that failed.
func (r result) text() string { return "stdout:\n" + tail(r.stdout) + "stderr:\n" + tail(r.stderr) }

func tail(text string) string {
	lines := slices.Collect(strings.Lines(text))
	var b strings.Builder
	for _, line := range lines[max(0, len(lines)-12):] {
		if len(line) > 400 {
			line = line[:400] + "…\n"
		}
		b.WriteString("  " + line)
	}
	return b.String()
}

// printedEvent reads an event as commands print it: without the sum that it has in its log.
func printedEvent(line string) (*events.Event, error) {
	e := &events.Event{}
	if err := json.Unmarshal([]byte(line), e); err != nil {
		return e, err
	}
	if e.Seq < 1 || e.Type == "" {
		return e, errors.New("it is no event")
	}
	return e, nil
}

// events are those of a start with --json.
func (r result) events(t testing.TB) []events.Event {
	t.Helper()
	var list []events.Event
	for line := range strings.Lines(r.stdout) {
		if strings.HasPrefix(line, `{"exitCode"`) || strings.Contains(line, `"type":"error"`) {
			continue
		}
		e, err := printedEvent(line)
		if err != nil {
			t.Fatalf("event %q: %v", line, err)
		}
		list = append(list, *e)
	}
	return list
}

// fault is the message of the error that a start with --json ended with, "" without one.
func (r result) fault() string {
	for line := range strings.Lines(r.stdout) {
		var e struct{ Type, Message string }
		if json.Unmarshal([]byte(line), &e) == nil && e.Type == "error" {
			return e.Message
		}
	}
	return ""
}

// ran returns the names of the tasks that were executed, sorted, retries included.
func (r result) ran(t testing.TB) []string {
	var names []string
	for _, e := range r.events(t) {
		if e.Type == events.TaskStarted {
			names = append(names, e.Task)
		}
	}
	slices.Sort(names)
	return names
}

// e3 runs the program to its end.
func (p *project) e3(args ...string) result {
	p.t.Helper()
	return p.spawn(args...).wait()
}

// start runs "e3 start -f e3.yaml --json" with more arguments and expects an exit code.
func (p *project) start(want int, args ...string) result {
	p.t.Helper()
	r := p.e3(append([]string{"start", "-f", "e3.yaml", "--json"}, args...)...)
	if r.code != want {
		p.t.Fatalf("exit code %d, want %d\n%s", r.code, want, r.text())
	}
	return r
}

// getenv is the environment in which this process opens the repository: what it keeps of a shared one is its own.
func (p *project) getenv(name string) string {
	switch name {
	case repo.CacheDirVariable, repo.StateDirVariable:
		return p.path("looker")
	}
	return os.Getenv(name)
}

// open opens the repository for looking.
func (p *project) open() *repo.Repo {
	p.t.Helper()
	r, err := repo.Open(context.Background(), cmp.Or(p.location, p.repository()), repo.Options{Getenv: p.getenv})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close() })
	return r
}

// all returns every execution of the repository that can be read, oldest first.
func (p *project) all() []*executions.Execution {
	p.t.Helper()
	r := p.open()
	defer r.Close()
	ctx := context.Background()
	var list []*executions.Execution
	for task, err := range r.Executions.Tasks(ctx) {
		if err != nil {
			p.t.Fatal(err)
		}
		for inputs, err := range r.Executions.Inputs(ctx, task) {
			if err != nil {
				p.t.Fatal(err)
			}
			for e, err := range r.Executions.List(ctx, executions.Key{Task: task, Inputs: inputs}) {
				if errors.Is(err, executions.ErrMalformed) {
					continue
				}
				if err != nil {
					p.t.Fatal(err)
				}
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b *executions.Execution) int { return strings.Compare(a.ExecutionID, b.ExecutionID) })
	return list
}

// of returns the executions of the task of that name, oldest first.
func (p *project) of(task string) []*executions.Execution {
	p.t.Helper()
	var list []*executions.Execution
	for _, e := range p.all() {
		if e.Detail != nil && e.Detail.Task == task {
			list = append(list, e)
		}
	}
	return list
}

// only returns the one execution of a task.
func (p *project) only(task string) *executions.Execution {
	p.t.Helper()
	list := p.of(task)
	if len(list) != 1 {
		p.t.Fatalf("task %s has %d executions, want 1", task, len(list))
	}
	return list[0]
}

// log returns a log of an execution.
func (p *project) log(e *executions.Execution, stream executions.Stream) string {
	p.t.Helper()
	r := p.open()
	defer r.Close()
	f, err := r.Executions.OpenLog(context.Background(), e.Key, e.ExecutionID, stream, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// object returns the content of an object, checked against its name.
func (p *project) object(hash string) string {
	p.t.Helper()
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		p.t.Fatal(err)
	}
	r := p.open()
	defer r.Close()
	data, err := r.Objects.ReadAll(context.Background(), h, 1<<30)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// output is the content of the only execution of a task with one file as output.
func (p *project) output(task string) string {
	p.t.Helper()
	e := p.only(task)
	if e.State != record.Success {
		p.t.Fatalf("task %s: %v %s", task, e.State, e.Message)
	}
	return p.object(e.OutputHash)
}

// lastRun returns the record of a workspace's latest run.
func (p *project) lastRun(ws string) *record.Run {
	p.t.Helper()
	r := p.open()
	defer r.Close()
	run, err := r.Workspaces.Runs.Run(context.Background(), ws, "")
	if err != nil {
		p.t.Fatal(err)
	}
	return run
}

// needRoot skips a test that mounts file systems or becomes another user.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("run as root: this test mounts file systems or becomes another user")
	}
}
