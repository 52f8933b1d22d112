//go:build linux

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/testing/suite"
)

// flowGraph has what events tell of: a matrix, retries, a task that fails when it is told to, and one that depends on it.
const flowGraph = `
e3: 1
name: flow
inputs:
  a: {file: a.txt}
tasks:
  part: {in: [a], out: part.txt, matrix: {n: [1, 2, 3, 4]}, run: 'sleep 0.0$n; cat "$a" > "$out"; echo "$n" >> "$out"'}
  flaky:
    in: [a]
    out: flaky.txt
    pass_env: [E2E_STATE]
    retries: {max: 2, backoff: 10ms}
    run: 'sum=$(cksum < "$a"); if mkdir "$E2E_STATE/${sum%% *}" 2>/dev/null; then exit 3; fi; cp "$a" "$out"'
  moody: {in: [a], out: moody.txt, run: 'sleep 0.1; if grep bad "$a" >&2; then exit 4; fi; cp "$a" "$out"'}
  slow: {in: {parts: "part[*]"}, out: slow.txt, run: 'sleep 0.15; cat "$parts"/* > "$out"'}
  last: {in: [slow, moody, flaky], out: last.txt, run: 'cat "$slow" "$moody" "$flaky" > "$out"'}
`

// A follower is an "e3 events -f" that takes note of when each line came.
type follower struct {
	*process
	name  string
	began time.Time
	ended sync.WaitGroup

	mu    sync.Mutex
	lines []string
	late  time.Duration // at most, of a line, from the time that it tells or else from when the follower began
}

// follow starts "e3 events . flow -f --ndjson" with more arguments.
func (p *project) follow(name string, args ...string) *follower {
	p.t.Helper()
	return p.followThrough(nil, name, args...)
}

// followThrough is follow by way of another command.
func (p *project) followThrough(through []string, name string, args ...string) *follower {
	p.t.Helper()
	f := &follower{name: name, began: time.Now(), process: p.spawnCommand(slices.Concat(through, []string{program, "events", ".", "flow", "-f", "--ndjson"}, args)...)}
	f.ended.Go(func() {
		for line := range f.process.lines {
			if strings.HasPrefix(line, `{"type":"error"`) || strings.Contains(line, `"type":"run.recorded"`) { // how it was ended; of the journal
				continue
			}
			line = eventCursor.ReplaceAllString(line, "}")
			f.mu.Lock()
			f.lines = append(f.lines, line)
			if e, err := printedEvent(line); err == nil {
				f.late = max(f.late, min(time.Since(e.Time), time.Since(f.began)))
			}
			f.mu.Unlock()
		}
	})
	return f
}

func (f *follower) got() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

// sees demands that the follower has, or has soon, these lines and no others.
func (f *follower) sees(t *testing.T, want []string) {
	t.Helper()
	eventually(t, patience, f.name+" has all lines", func() string {
		if n := len(f.got()); n < len(want) {
			return fmt.Sprintf("it has %d of %d", n, len(want))
		}
		return ""
	})
	f.wants(t, want)
}

func (f *follower) wants(t *testing.T, want []string) {
	t.Helper()
	got := f.got()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: %d lines, want %d; at line %d\ngot  %s\nwant %s", f.name, len(got), len(want), i+1, at(got, i), at(want, i))
			return
		}
	}
}

func at(list []string, i int) string {
	if i >= len(list) {
		return "nothing\n"
	}
	return list[i]
}

// interrupt ends the follower as Ctrl-C does.
func (f *follower) interrupt(t *testing.T) {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r := f.wait()
	f.ended.Wait()
	if r.code != 130 || strings.Contains(r.stderr, "events of run") {
		t.Errorf("%s: exit code %d, want 130\n%s", f.name, r.code, r.text())
	}
}

// logs returns the events of a workspace as they lie in the repository, but without their sums: its runs in order but for some, and the lines of each.
func (p *project) logs(ws string, but ...string) (runs []string, lines map[string][]string) {
	p.t.Helper()
	files, err := filepath.Glob(filepath.Join(p.repository(), "events", ws, "*.ndjson"))
	if err != nil {
		p.t.Fatal(err)
	}
	lines = map[string][]string{}
	for _, file := range files {
		run := strings.TrimSuffix(filepath.Base(file), ".ndjson")
		if slices.Contains(but, run) {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			p.t.Fatal(err)
		}
		runs = append(runs, run)
		lines[run] = slices.Collect(strings.Lines(eventSum.ReplaceAllString(string(data), "}\n")))
	}
	return runs, lines
}

// since are the lines of all runs from one on.
func since(runs []string, lines map[string][]string, first string) (all []string) {
	for _, run := range runs {
		if run >= first {
			all = append(all, lines[run]...)
		}
	}
	return all
}

func (p *project) logOf(ws, run string) string {
	return filepath.Join(p.repository(), "events", ws, run+".ndjson")
}

// withoutNotification are the arguments before those of a program that is to run where the kernel grants no inotify
// instance; nil where the limit cannot be set.
func withoutNotification() []string {
	args := []string{"unshare", "--user", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"`, "sh"}
	if exec.Command(args[0], append(args[1:], "true")...).Run() != nil {
		return nil
	}
	return args
}

// notified tells whether a process has an inotify instance.
func notified(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, file := range files {
		if to, _ := os.Readlink(file); strings.Contains(to, "inotify") {
			return true
		}
	}
	return false
}

// killedRun kills a start of the quick graph once its events are written, which makes it the n-th run of ws.
func (p *project) killedRun(ws string, n int, command ...string) {
	p.t.Helper()
	p.write("e3.yaml", strings.Replace(quickGraph, "run: '", "run: 'sleep 30; ", 1))
	x := p.spawn(command...)
	x.waitLine("task.started")
	eventually(p.t, patience, "the events are written", func() string {
		if runs, lines := p.logs(ws); len(runs) < n || len(lines[runs[n-1]]) < 4 {
			return "they are not"
		}
		return ""
	})
	x.kill(true)
	noStrays(p.t, p.dir, x.cmd.Process.Pid)
	p.write("e3.yaml", quickGraph)
}

// TestFollowers has many followers, some of them without file notification, beside runs that complete, fail, are cancelled and
// are killed, with torn lines left behind: each gets every line of the logs once, in order and soon.
func TestFollowers(t *testing.T) {
	suite.Thorough(t)
	const soon = 2 * time.Second
	rnd := random(t)
	p := newProject(t, map[string]string{"e3.yaml": flowGraph, "a.txt": "alpha 0\n"})
	p.start(0)
	runs, _ := p.logs("flow")
	first := runs[0]

	all := p.follow("from the beginning", "--since", "1h")
	latest := p.follow("from the latest run")
	numbered := p.follow("from a number on", "--since", "1h", "--from", "4")
	stopped := p.follow("stopped for a while", "--since", "1h")
	everybody := []*follower{all, latest, numbered, stopped}
	var polling []*follower
	if without := withoutNotification(); without != nil {
		polling = []*follower{p.followThrough(without, "polling from the beginning", "--since", "1h"), p.followThrough(without, "polling from the latest run")}
		everybody = append(everybody, polling...)
	}

	// Each of a run's own followers has its lines from some number on.
	type ownRun struct {
		*follower
		run    string
		from   int
		killed bool
	}
	var own []ownRun
	var middle *follower
	joined := ""
	rounds := 20
	if raceBuild {
		rounds = 13
	}
	for i := range rounds {
		switch i % 5 {
		case 0, 1, 3:
			p.write("a.txt", fmt.Sprintf("alpha %d\n", i+1))
		case 2:
			p.write("a.txt", fmt.Sprintf("bad alpha %d\n", i+1))
		} // 4: nothing has changed, unless the one before was stopped
		switch i {
		case 5:
			if err := syscall.Kill(stopped.cmd.Process.Pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		case 11:
			if err := syscall.Kill(stopped.cmd.Process.Pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := p.logs("flow")
		x := p.spawn("start", ".", "flow", "--json", "-j", "3")
		run := ""
		eventually(t, patience, "the run has a log", func() string {
			now, _ := p.logs("flow")
			if len(now) > len(before) {
				run = now[len(now)-1]
				return ""
			}
			return "it has none"
		})
		if i == 7 {
			joined, middle = run, p.follow("from the middle on")
			everybody = append(everybody, middle)
		}
		if i%3 == 0 {
			own = append(own, ownRun{p.follow("of one run", "--run", run, "--from", fmt.Sprint(1+i/3)), run, 1 + i/3, false})
		}
		delay := time.Duration(rnd.Int64N(int64(350 * time.Millisecond)))
		how := rnd.IntN(8)
		switch {
		case how < 4:
			select {
			case <-time.After(delay):
			case <-x.ended:
			}
			select {
			case <-x.ended:
				how = 9
			default:
			}
			x.kill(how%2 == 0)
			noStrays(t, p.dir, x.cmd.Process.Pid)
			_, lines := p.logs("flow")
			if how == 9 || len(lines[run]) > 0 && strings.Contains(lines[run][len(lines[run])-1], `"type":"run.`) {
				break // it was through already, or has not come further than its start
			}
			line := fmt.Sprintf(`{"seq":%d,"time":"2026-11-20T15:04:05.000Z","run":"%s","workspace":"flow","type":"task.st`, len(lines[run])+1, run)
			if err := appendTo(p.logOf("flow", run), []byte(line[:rnd.IntN(len(line))])); err != nil {
				t.Fatal(err)
			}
		case how < 6:
			select {
			case <-time.After(delay):
			case <-x.ended:
			}
			if r := p.e3("cancel", ".", "flow", "--json"); r.code != 0 {
				t.Errorf("cancel: exit code %d\n%s", r.code, r.text())
			}
		}
		r := x.wait()
		if i%3 == 0 {
			own[len(own)-1].killed = r.code < 0
		}
		t.Logf("run %d: exit code %d", i, r.code)
		if r.code >= 0 {
			_, lines := p.logs("flow")
			f := follower{name: "start --json"}
			for line := range strings.Lines(r.stdout) {
				if !strings.HasPrefix(line, `{"type":"error"`) {
					f.lines = append(f.lines, eventCursor.ReplaceAllString(line, "}"))
				}
			}
			f.wants(t, lines[run])
		}
	}
	p.write("a.txt", "the end\n")
	p.start(0) // which closes the last one
	for _, o := range own {
		o.wait()
		o.ended.Wait()
	}

	runs, lines := p.logs("flow")
	seen := map[*follower][]string{all: since(runs, lines, first), stopped: since(runs, lines, first), latest: since(runs, lines, first), middle: since(runs, lines, joined)}
	for _, f := range polling {
		seen[f] = since(runs, lines, first)
	}
	for _, run := range runs {
		for _, line := range lines[run] {
			if e, err := printedEvent(line); err != nil || e.Seq >= 4 {
				seen[numbered] = append(seen[numbered], line)
			}
		}
	}
	for _, f := range everybody {
		f.sees(t, seen[f])
		if f != stopped && f != middle && f.late > soon {
			t.Errorf("%s: a line came %v after it was written", f.name, f.late)
		}
		if slices.Contains(polling, f) == notified(f.cmd.Process.Pid) {
			t.Errorf("%s: that it is notified is %v", f.name, !slices.Contains(polling, f))
		}
		t.Logf("%s: %d lines, at most %v late", f.name, len(f.got()), f.late)
	}
	for _, f := range everybody {
		f.interrupt(t)
		f.wants(t, seen[f])
	}
	for _, o := range own {
		want := lines[o.run][min(o.from-1, len(lines[o.run])):]
		if got := len(o.got()); o.killed && got < len(want) { // it ended with the process
			want = want[:got]
		}
		o.wants(t, want)
	}
	check(t, p.repository())
	if polling == nil {
		t.Run("without_notification", func(t *testing.T) {
			t.Skip("needs unshare (util-linux) and user namespaces: followers that poll were left out")
		})
	}
}

// asked are the commands that read the events of the workspace, with the exit codes that they may have.
func asked(run string) map[string][]string {
	return map[string][]string{
		"events":      {"events", ".", "flow"},
		"ndjson":      {"events", ".", "flow", "--ndjson"},
		"json":        {"events", ".", "flow", "--json"},
		"of a task":   {"events", ".", "flow.slow"},
		"last":        {"events", ".", "flow", "-n", "3"},
		"of all":      {"events", "--since", "1h", "--failed"},
		"of the run":  {"events", ".", "flow", "--run", run},
		"history":     {"history", ".", "flow"},
		"of task":     {"history", ".", "flow.slow"},
		"deep":        {"history", ".", "flow.slow", "--deep"},
		"run":         {"run", ".", "flow", "--run", run},
		"report":      {"run", ".", "flow", "--run", run, "--json"},
		"why":         {"why", ".", "flow.slow"},
		"status":      {"status", ".", "flow"},
		"clean (dry)": {"events", "clean", ".", "--older-than", "1ms", "--dry-run"},
	}
}

// askAll asks all of that, and demands that every answer is whole: none crashes, hangs or takes much memory.
func (p *project) askAll(t *testing.T, run string) map[string]result {
	t.Helper()
	answers := map[string]result{}
	for name, args := range asked(run) {
		answers[name] = p.ask(t, name, args...)
	}
	return answers
}

func (p *project) ask(t *testing.T, name string, args ...string) result {
	t.Helper()
	x := p.spawn(args...)
	peak := peakMemory(x)
	r := x.wait()
	if r.code != 0 && r.code != 1 && r.code != 2 && r.code != 12 || strings.Contains(r.stderr, "goroutine ") {
		t.Errorf("%s: exit code %d\n%s", name, r.code, r.text())
	}
	if r.code != 0 && !strings.Contains(r.stdout+r.stderr, "events") && !strings.Contains(r.stdout+r.stderr, "run") {
		t.Errorf("%s: exit code %d without a clear word\n%s", name, r.code, r.text())
	}
	if !raceBuild && peak > 64<<20 {
		t.Errorf("%s took %d MiB", name, peak>>20)
	}
	return r
}

// quickGraph has a task that is run by each start whose input has changed.
const quickGraph = `
e3: 1
name: flow
inputs:
  a: {file: a.txt}
tasks:
  slow: {in: [a], out: slow.txt, run: 'cp "$a" "$out"'}
`

// odd says that what is there is no file: it is left alone, and a start that would have to write says so.
const odd = "earlier latest killed"

// damages are what may become of a log that holds lines, by hands, disks or a loss of power.
var damages = []struct {
	name string
	do   func(p *project, path string, lines []string) error
	stay string // of which logs a start does not cut it off: those of runs that have ended, and what cannot be seen to be wrong
}{
	{"cut_within_a_line", func(_ *project, path string, lines []string) error {
		return os.Truncate(path, int64(len(strings.Join(lines, ""))-30))
	}, ""},
	{"empty", func(_ *project, path string, _ []string) error { return os.Truncate(path, 0) }, "latest"},
	{"zeros_after_the_end", func(_ *project, path string, lines []string) error {
		return os.Truncate(path, int64(len(strings.Join(lines, "")))+4096)
	}, ""},
	{"zeros_for_the_end", func(_ *project, path string, lines []string) error {
		size := int64(len(strings.Join(lines, "")))
		return errors.Join(os.Truncate(path, size-300), os.Truncate(path, size))
	}, ""},
	{"zeros_for_all", func(_ *project, path string, lines []string) error {
		return errors.Join(os.Truncate(path, 0), os.Truncate(path, int64(len(strings.Join(lines, "")))))
	}, "latest"},
	{"much_of_nothing", func(_ *project, path string, _ []string) error { return os.Truncate(path, 256<<20) }, ""},
	{"garbage_in_the_middle", func(_ *project, path string, lines []string) error {
		return os.WriteFile(path, []byte(strings.Join(slices.Insert(slices.Clone(lines), 2, "\x1b[2J what? \x00\xff\n"), "")), 0o644)
	}, "latest"},
	{"garbage_after_the_end", func(_ *project, path string, _ []string) error { return appendTo(path, []byte("{\"seq\":}\n")) }, ""},
	{"an_event_after_the_end", func(_ *project, path string, lines []string) error {
		return appendTo(path, []byte(strings.Replace(lines[2], `"seq":3`, fmt.Sprintf(`"seq":%d`, len(lines)+1), 1)))
	}, "killed"},
	{"a_line_twice", func(_ *project, path string, lines []string) error {
		return os.WriteFile(path, []byte(strings.Join(slices.Insert(slices.Clone(lines), 2, lines[1]), "")), 0o644)
	}, "latest"},
	{"a_long_line", func(_ *project, path string, lines []string) error {
		long := strings.Replace(lines[2], `"seq"`, `"x":"`+strings.Repeat("x", 5<<20)+`","seq"`, 1)
		return os.WriteFile(path, []byte(strings.Join(slices.Insert(slices.Clone(lines), 2, long), "")), 0o644)
	}, "latest"},
	{"a_long_torn_line", func(_ *project, path string, _ []string) error {
		return appendTo(path, []byte(`{"seq":100,"time":"`+strings.Repeat("x", 5<<20)))
	}, ""},
	{"another's_log", func(_ *project, path string, lines []string) error {
		return os.WriteFile(path, []byte(strings.ReplaceAll(strings.Join(lines, ""), "01", "02")), 0o644)
	}, "latest killed"},
	{"a_symlink", func(p *project, path string, lines []string) error {
		p.write("outside.ndjson", strings.ReplaceAll(strings.Join(lines, ""), "flow", "secret"))
		return errors.Join(os.Remove(path), os.Symlink(p.path("outside.ndjson"), path))
	}, odd},
	{"a_pipe", func(_ *project, path string, _ []string) error {
		return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644))
	}, odd},
	{"a_folder", func(_ *project, path string, _ []string) error {
		return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
	}, odd},
}

// TestDamagedLogs damages the logs of a run that has ended, of the latest one, or of one that was killed, and asks and starts.
func TestDamagedLogs(t *testing.T) {
	for i, damage := range damages {
		for j, which := range []string{"earlier", "latest", "killed"} {
			if which == "earlier" && damage.stay == "" {
				continue // as the latest
			}
			if turn := i % 3; (raceBuild || testing.Short()) && j != turn && !(turn == 0 && damage.stay == "" && j == 1) {
				continue // one for each damage is enough, by turns; the long suite takes all
			}
			t.Run(damage.name+"/"+which, func(t *testing.T) {
				t.Parallel()
				p := newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": quickGraph, "a.txt": "alpha\n"})
				p.start(0)
				p.write("a.txt", "beta\n")
				p.start(0)
				if which == "killed" {
					p.killedRun("flow", 3, "start", ".", "flow", "--json")
				}
				runs, lines := p.logs("flow")
				run := runs[len(runs)-1]
				if which == "earlier" {
					run = runs[0]
				}
				path := p.logOf("flow", run)
				if err := damage.do(p, path, lines[run]); err != nil {
					t.Fatal(err)
				}
				known := slices.Concat(slices.Collect(maps.Values(lines))...)
				began := time.Now()
				of := p.follow("the run", "--run", run)
				for name, r := range p.askAll(t, run) {
					if strings.Contains(r.stdout+r.stderr, "secret") || strings.Contains(r.stdout+r.stderr, "\x1b[2J") {
						t.Errorf("%s tells what it must not\n%s", name, r.text())
					}
					for line := range strings.Lines(eventCursor.ReplaceAllString(r.stdout, "}")) {
						if name == "ndjson" && !strings.Contains(line, `"type":"run.recorded"`) && damage.stay == "latest" && !slices.Contains(known, line) {
							t.Errorf("%s tells what did not happen: %s", name, line)
						}
					}
				}
				r := of.wait()
				want := []int{0}
				if damage.stay == odd {
					want = []int{2, 12} // of no run that there is, or of what is in its place
				}
				if !slices.Contains(want, r.code) || strings.Contains(r.stdout, "secret") {
					t.Errorf("-f --run: exit code %d, want one of %v\n%s", r.code, want, r.text())
				}
				if took := time.Since(began); took > 30*time.Second {
					t.Errorf("the answers took %v", took)
				}
				f := p.follow("all", "--since", "1h")
				p.write("a.txt", "gamma\n")
				r = p.e3("start", ".", "flow", "--json")
				stays := which == "earlier" || strings.Contains(damage.stay, which)
				if damage.stay == odd && which != "earlier" {
					if r.code != 12 || !strings.Contains(r.fault(), path+": it is a link; e3 makes none here") && !strings.Contains(r.fault(), path+": not a regular file, so e3 has not put it there") {
						t.Errorf("start: exit code %d, want 12 and a word about what is no file\n%s", r.code, r.text())
					}
				} else {
					if r.code != 0 {
						t.Errorf("start: exit code %d, want 0\n%s", r.code, r.text())
					}
					now, lines := p.logs("flow", run)
					eventually(t, patience, "the follower has the new run", func() string {
						got := f.got()
						for _, line := range lines[now[len(now)-1]] {
							if !slices.Contains(got, line) {
								return "it has not " + line
							}
						}
						return ""
					})
				}
				f.cmd.Process.Kill()
				f.process.wait()
				if text, err := os.ReadFile(p.path("outside.ndjson")); err == nil && string(text) != strings.ReplaceAll(strings.Join(lines[run], ""), "flow", "secret") {
					t.Error("what lies outside was written")
				}
				if stays { // beside it nothing is wrong
					if err := os.RemoveAll(path); err != nil {
						t.Fatal(err)
					}
				}
				checkBut(t, p.repository(), tolerated{killed: stays})
			})
		}
	}
}

// manyEvents writes the events of a run of many tasks, without a process, and returns how many there are.
func manyEvents(t *testing.T, path, ws, run string, end bool) int {
	t.Helper()
	tasks := 333_333
	if raceBuild {
		tasks /= 10
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewWriterSize(file, 1<<20)
	seq, now := int64(0), time.Now().Add(-time.Hour)
	var line []byte
	emit := func(typ events.Type, task string, d *events.Data) {
		seq++
		e := events.Event{Seq: seq, Time: now.Add(time.Duration(seq) * time.Millisecond), Run: run, Workspace: ws, Type: typ, Task: task, Data: d}
		if d != nil && d.Key != "" {
			e.Execution = run
		}
		if line, err = events.AppendLine(line[:0], &e); err == nil {
			_, err = out.Write(line)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	key := strings.Repeat("0123456789abcdef", 4) + "/" + strings.Repeat("fedcba9876543210", 4)
	emit(events.RunStarted, "", &events.Data{Package: "gone@1.0.0", Process: &events.Process{PID: 1, User: "ann", Host: "lab"}})
	emit(events.TaskCreated, "", &events.Data{Tasks: tasks})
	failed := int64(0)
	for i := range tasks {
		name := fmt.Sprintf("train[%d]", i)
		emit(events.TaskMarkedReady, name, nil)
		emit(events.TaskStarted, name, &events.Data{Key: key, Attempt: 1})
		if i%1000 == 7 {
			failed++
			emit(events.TaskFailed, name, &events.Data{Key: key, Attempt: 1, ExitCode: 3, Message: `it said "no"`})
		} else {
			emit(events.TaskCompleted, name, &events.Data{Key: key, Attempt: 1, Duration: 12, Output: key[:64]})
		}
	}
	if end {
		emit(events.RunFailed, "", &events.Data{Summary: &events.Summary{Total: int64(tasks), Completed: int64(tasks) - failed, Failed: failed}})
	}
	if err := errors.Join(out.Flush(), file.Close()); err != nil {
		t.Fatal(err)
	}
	return int(seq)
}

// TestMillionEvents asks about a run with a million events.
func TestMillionEvents(t *testing.T) {
	suite.Thorough(t)
	p := newProjectBelow(t, inMemory(), nil)
	if r := p.e3("init"); r.code != 0 {
		t.Fatalf("init: exit code %d\n%s", r.code, r.text())
	}
	const run = "01a1fc71-2e1f-7549-9674-647653579136"
	n := manyEvents(t, p.logOf("gone", run), "gone", run, true)
	ask := func(name string, lines int, args ...string) {
		t.Helper()
		began := time.Now()
		x := p.spawn(append([]string{"events", ".", "gone", "--ndjson"}, args...)...)
		peak := peakMemory(x)
		took := time.Since(began)
		r := x.wait()
		t.Logf("%s: %v, %d MiB", name, took.Round(time.Millisecond), peak>>20)
		if got := strings.Count(r.stdout, "\n"); r.code != 0 || got != lines {
			t.Errorf("%s: exit code %d, %d lines, want %d\n%s", name, r.code, got, lines, r.text())
		}
		if took > 5*time.Second { // a fraction of a second where nothing else is at work
			t.Errorf("%s took %v", name, took)
		}
		if !raceBuild && peak > 64<<20 {
			t.Errorf("%s took %d MiB", name, peak>>20)
		}
	}
	ask("a task", 3, "--task", "train[12345]")
	ask("a pattern", 30, "--task", "*[1234?]")
	ask("the last failures", 10, "--failed", "-n", "10")
	ask("by type", 1, "--type", "run.started")
	ask("an execution of none", 0, "--execution", "ffff")
	ask("from a number on", 10, "--run", run, "--from", fmt.Sprint(n-9))
	ask("followed from a number on", 10, "-f", "--run", run, "--from", fmt.Sprint(n-9))
	ask("followed, the last", 10, "-f", "--run", run, "-n", "10")

	began := time.Now()
	x := p.spawn("events", ".", "gone", "-f", "--ndjson", "--since", "2h", "--from", fmt.Sprint(n-9))
	x.waitLine(fmt.Sprintf(`"seq":%d,`, n))
	t.Logf("a follower is there after %v", time.Since(began).Round(time.Millisecond))
	x.cmd.Process.Kill()
	x.wait()
}

// TestRetention keeps few events: those of earlier runs go, by a start only once two searches have found them too old, and never those of a run that is shown or has
// not ended; a follower does not mind, and what needs the events says that they are gone.
func TestRetention(t *testing.T) {
	p := newProject(t, map[string]string{"e3.yaml": quickGraph, "a.txt": "alpha 0\n"})
	p.start(0)
	p.start(0, "other")
	if r := p.e3("settings", ".", "events-retention", "1ms"); r.code != 0 {
		t.Fatalf("settings: exit code %d\n%s", r.code, r.text())
	}
	stamp := filepath.Join(p.repository(), "index", "state", "events-cleaned.rec")
	yesterday := func() {
		t.Helper()
		if err := os.WriteFile(stamp, []byte(time.Now().Add(-25*time.Hour).UTC().Format(time.RFC3339)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wantRuns := func(when string, ws string, want ...string) {
		t.Helper()
		if got, _ := p.logs(ws); !slices.Equal(got, want) {
			t.Fatalf("%s: %s has the events of %q, want %q", when, ws, got, want)
		}
	}
	f := p.follow("a follower", "--since", "1h")
	for i := range 3 {
		p.write("a.txt", fmt.Sprintf("alpha %d\n", i+1))
		p.start(0)
	}
	runs, lines := p.logs("flow")
	others, _ := p.logs("other")
	if len(runs) != 4 {
		t.Fatalf("there are events of the runs %q within a day, want four", runs)
	}
	all := since(runs, lines, "")
	f.sees(t, all)

	// A run that is killed has not ended: its events are needed.
	p.killedRun("third", 1, "start", "-f", "e3.yaml", "--json", "third")
	killed, _ := p.logs("third")

	yesterday()
	r := p.e3("events", "clean", ".", "--older-than", "1ms", "--dry-run", "--json")
	if !strings.Contains(r.stdout, `"dryRun":true`) || strings.Count(r.stdout, `"run":`) != 3 {
		t.Errorf("what would be removed is said to be\n%s", r.text())
	}
	wantRuns("after a dry run", "flow", runs...)
	wantRan(t, p.start(0))
	if got, _ := p.logs("flow"); len(got) != len(runs)+1 {
		t.Errorf("the next day's start left the events of %q, but none were too old at the search before", got)
	}
	if r := p.e3("events", "clean", ".", "--older-than", "1ms"); r.code != 0 {
		t.Fatalf("events clean: exit code %d\n%s", r.code, r.text())
	}
	now, after := p.logs("flow")
	wantRuns("after the next day's start", "flow", now[len(now)-1])
	wantRuns("after the next day's start", "other", others...)
	wantRuns("after the next day's start", "third", killed...)
	all = append(all, after[now[0]]...)
	f.sees(t, all)
	checkBut(t, p.repository(), tolerated{killed: true})
	p.start(0)
	second, after := p.logs("flow")
	if len(second) != 2 {
		t.Errorf("a second start of the day left the events of %q", second)
	}
	f.sees(t, append(all, after[second[1]]...))
	f.interrupt(t)

	// What is gone is said to be.
	gone := runs[0]
	for _, args := range [][]string{{"run", ".", "flow", "--run", gone}, {"events", ".", "flow", "--run", gone}, {"events", ".", "flow", "-f", "--run", gone}} {
		if r := p.e3(args...); r.code != 2 || !strings.Contains(r.stderr, "there is no run") || !strings.Contains(r.stderr, second[1][:13]) {
			t.Errorf("%v: exit code %d, want 2 and which runs there are\n%s", args, r.code, r.text())
		}
	}
	if r := p.e3("history", ".", "flow.slow", "--deep", "--json"); r.code != 0 || strings.Count(r.stdout, `"success"`) < 4 {
		t.Errorf("history --deep: exit code %d, want all four executions\n%s", r.code, r.text())
	}
	for _, args := range [][]string{{"history", ".", "flow.slow"}, {"history", ".", "flow"}, {"why", ".", "flow.slow"}, {"run", ".", "flow"}, {"status", ".", "flow"}} {
		if r := p.e3(args...); r.code != 0 {
			t.Errorf("%v: exit code %d\n%s", args, r.code, r.text())
		}
	}

	// Many clean up at the same time.
	yesterday()
	var many []*process
	for _, ws := range []string{"flow", "other", "third"} {
		many = append(many, p.spawn("start", ".", ws, "--json"), p.spawn("events", "clean", ".", "--older-than", "1ms"))
	}
	for _, x := range many {
		if r := x.wait(); r.code != 0 || r.stderr != "" {
			t.Errorf("exit code %d\n%s", r.code, r.text())
		}
	}
	if r := p.e3("events", "clean", ".", "--older-than", "1ms"); r.code != 0 {
		t.Errorf("clean: exit code %d\n%s", r.code, r.text())
	}
	for _, ws := range []string{"flow", "other", "third"} {
		if left, _ := p.logs(ws); len(left) != 1 || left[0] != p.lastRun(ws).RunID {
			t.Errorf("%s has the events of %q, want those of the run that is shown", ws, left)
		}
	}
	check(t, p.repository())
}

// eventSum is the sum of a line, which only the repository has.
var eventSum = regexp.MustCompile(`(?m),"sum":"[0-9a-f]{8}"}\n`)

// eventCursor is the place of a printed event, which its log does not have.
var eventCursor = regexp.MustCompile(`,"cursor":"[^"]*"}`)
