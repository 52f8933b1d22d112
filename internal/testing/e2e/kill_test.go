//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// killGraph has what a run can be in the middle of: retries, concurrency, a matrix and its
// fan-in, several outputs, a directory, logs of both kinds, a child left behind, and tasks
// that live long enough to be put on record while they run. Each execution leaves a mark.
const killGraph = `
e3: 1
name: kill
inputs:
  a: {file: a.txt}
  b: {file: b.txt}
  lib: {glob: "lib/*.txt"}
tasks:
  prepare: {in: [a, lib], out: prepared.txt, pass_env: [E2E_STATE], run: 'echo prepare >> "$E2E_STATE/ran"; cat "$a" "$lib"/* > "$out"'}
  part:
    in: {from: prepare}
    out: part.txt
    matrix: {n: [1, 2, 3, 4]}
    pass_env: [E2E_STATE]
    run: 'echo "part$n" >> "$E2E_STATE/ran"; echo "part $n"; sleep 0.0$n; cat "$from" > "$out"; echo "$n" >> "$out"'
  flaky:
    in: [b]
    out: flaky.txt
    pass_env: [E2E_STATE]
    retries: {max: 2, backoff: 10ms}
    run: 'echo flaky >> "$E2E_STATE/ran"; echo trying >&2; sum=$(cksum < "$b"); if mkdir "$E2E_STATE/${sum%% *}" 2>/dev/null; then exit 3; fi; cp "$b" "$out"'
  twin:
    in: {from: prepare}
    out: {left: left.txt, right: right.txt}
    pass_env: [E2E_STATE]
    run: 'echo twin >> "$E2E_STATE/ran"; wc -c < "$from" > "$left"; cksum < "$from" > "$right"'
  tree:
    in: [a]
    out: tree/
    pass_env: [E2E_STATE]
    run: 'echo tree >> "$E2E_STATE/ran"; mkdir -p "$out/deep"; for i in {1..20}; do cat "$a" > "$out/deep/$i"; echo "$i" >> "$out/deep/$i"; done'
  slow:
    in: [b]
    out: slow.txt
    pass_env: [E2E_STATE]
    run: 'echo slow >> "$E2E_STATE/ran"; echo "slow begins"; echo "slow warns" >&2; sleep 0.3; echo "slow ends"; cp "$b" "$out"'
  litter:
    in: [a]
    out: litter.txt
    pass_env: [E2E_STATE]
    run: 'echo litter >> "$E2E_STATE/ran"; (setsid sleep 4711 >/dev/null 2>&1 &); nohup sleep 4711 >/dev/null 2>&1 & sleep 0.25; cp "$a" "$out"'
  gather:
    in: {parts: "part[*]", t: tree}
    out: gathered.txt
    pass_env: [E2E_STATE]
    run: 'echo gather >> "$E2E_STATE/ran"; cat "$parts"/* "$t"/deep/* > "$out"'
  report:
    in: {g: gather, f: flaky, l: twin.left, s: slow, x: litter}
    out: report.txt
    pass_env: [E2E_STATE]
    run: 'echo report >> "$E2E_STATE/ran"; cat "$g" "$f" "$l" "$s" "$x" > "$out"'
`

func killProject(t testing.TB) *project {
	return newProject(t, map[string]string{
		"e3.yaml": killGraph, "a.txt": "alpha\n", "b.txt": "beta\n", "lib/one.txt": "one\n", "lib/two.txt": "two\n",
	})
}

var killArgs = []string{"start", "-f", "e3.yaml", "--json", "-j", "3"}

// A killPoint is a moment to kill e3 at, and how.
type killPoint struct {
	round string        // what is run: first, changed or unchanged
	line  int           // after so many lines of --json, 0: from the start
	delay time.Duration // so much later
	group bool          // the whole process group
}

func (k killPoint) String() string {
	s := fmt.Sprintf("%s_run_line_%d_plus_%v", k.round, k.line, k.delay.Round(10*time.Microsecond))
	if k.group {
		s += "_group"
	}
	return s
}

// TestKillAnywhere kills e3 at many moments of a run, and looks at what is left of it and at
// the next start.
func TestKillAnywhere(t *testing.T) {
	points := killPoints(t)
	for i, k := range points {
		t.Run(fmt.Sprintf("%03d_%v", i, k), func(t *testing.T) {
			t.Parallel()
			k.try(t)
		})
	}
}

// killCount is how many moments a test kills at.
func killCount(t *testing.T) int {
	n := 200
	if testing.Short() {
		n = 20
	}
	if s := os.Getenv("E3_E2E_KILLS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("E3_E2E_KILLS: %v", err)
		}
	}
	return n
}

func killPoints(t *testing.T) []killPoint {
	n := killCount(t)
	rnd := random(t)

	// What an uninterrupted run takes, and how many lines it writes.
	type measure struct {
		took  time.Duration
		lines int
	}
	measured := map[string]measure{}
	p := killProject(t)
	for _, round := range []string{"first", "changed", "unchanged"} {
		if round == "changed" {
			p.write("a.txt", "alpha, edited\n")
		}
		began := time.Now()
		r := p.e3(killArgs...)
		if r.code != 0 {
			t.Fatalf("%s run without a kill: exit code %d\n%s", round, r.code, r.text())
		}
		measured[round] = measure{time.Since(began), strings.Count(r.stdout, "\n")}
	}
	check(t, p.repository())
	t.Logf("uninterrupted: %v", measured)

	var points []killPoint
	for i := range n {
		// Mostly first runs; every eighth has something to lose, every eighth nothing to do.
		k := killPoint{round: "first", group: i%2 == 1}
		switch i % 8 {
		case 2, 5:
			k.round = "changed"
		case 7:
			k.round = "unchanged"
		}
		m := measured[k.round]
		if i%3 == 0 {
			k.line, k.delay = 1+rnd.IntN(m.lines), time.Duration(rnd.Int64N(int64(3*time.Millisecond)))
		} else {
			k.delay = time.Duration(rnd.Int64N(int64(m.took)))
		}
		points = append(points, k)
	}
	return points
}

// random is the source of a test's choices; what it printed repeats them.
func random(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("E3_E2E_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("E3_E2E_SEED: %v", err)
		}
	}
	t.Logf("E3_E2E_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// at waits for the moment, or for the end of the process before it.
func (k killPoint) at(x *process) {
	for range k.line {
		if _, ok := <-x.lines; !ok {
			return
		}
	}
	select {
	case <-time.After(k.delay):
	case <-x.ended:
	}
}

func (k killPoint) try(t *testing.T) {
	p := killProject(t)
	if k.round != "first" {
		if r := p.e3(killArgs...); r.code != 0 {
			t.Fatalf("first run: exit code %d\n%s", r.code, r.text())
		}
	}
	if k.round == "changed" {
		p.write("b.txt", "beta, edited\n")
	}
	x := p.spawn(killArgs...)
	k.at(x)
	x.kill(k.group)
	noStrays(t, p.dir, x.cmd.Process.Pid)

	root := p.repository()
	var before finished
	var running []*executions.Execution
	var logs []string
	if _, err := os.Stat(filepath.Join(root, "format.json")); err == nil {
		before = rememberFinished(t, root)
		for _, e := range p.all() {
			if e.State == record.Running {
				running = append(running, e)
				logs = append(logs, p.log(e, executions.Stdout))
			}
		}
	}
	answered, marks := before.successes(t), len(p.marks("ran"))

	next := p.e3(killArgs...)
	if next.code != 0 {
		t.Fatalf("the next start: exit code %d\n%s\nthe killed one said:\n%s", next.code, next.text(), x.result().text())
	}
	noStrays(t, p.dir, 0)
	check(t, root)
	before.unchanged(t, root)
	for _, e := range p.all() {
		key := e.Key.String()
		if rel := "executions/" + key + "/" + e.ExecutionID; answered[key] && before[rel] == nil {
			t.Errorf("task %s had an answer and ran again as %s", e.Detail.Task, e.ExecutionID)
		}
	}
	if started, marked := len(next.ran(t)), len(p.marks("ran"))-marks; started != marked {
		t.Errorf("the next start says that it ran %d commands, and %d have run", started, marked)
	}
	for i, dead := range running {
		k.buried(t, p, dead, logs[i])
	}
	if got := p.object(p.finalOutput()); got != expectedReport(p) {
		t.Errorf("the report is\n%s\nwant\n%s", got, expectedReport(p))
	}
}

// buried demands that an execution that was running when e3 was killed is an error now, with all that it had printed: the log
// that was on record then, and what followed until its supervisor ended it.
func (k killPoint) buried(t *testing.T, p *project, dead *executions.Execution, log string) {
	for _, e := range p.of(dead.Detail.Task) {
		if e.ExecutionID != dead.ExecutionID {
			continue
		}
		want := fmt.Sprintf("Process %d no longer running (stale execution)", dead.PID)
		if e.State != record.Error || e.Message != want {
			t.Errorf("the execution of %s that was killed is %v %q, want error %q", e.Detail.Task, e.State, e.Message, want)
		}
		if now := p.log(e, executions.Stdout); !strings.HasPrefix(now, log) {
			t.Errorf("its log is %q, was %q, want no less", now, log)
		}
		return
	}
	t.Errorf("the execution %s of %s that was killed is gone", dead.ExecutionID, dead.Detail.Task)
}

// finalOutput is the hash of the report in the workspace's latest run.
func (p *project) finalOutput() string {
	p.t.Helper()
	run := p.lastRun("kill")
	if run.State != record.RunCompleted {
		p.t.Fatalf("the latest run is %v", run.State)
	}
	for t := range run.Tasks.All() {
		if t.Task != "report" {
			continue
		}
		for _, e := range p.of("report") {
			if e.ExecutionID == t.ExecutionID {
				return e.OutputHash
			}
		}
	}
	p.t.Fatal("the latest run has no execution of report")
	return ""
}

// expectedReport computes the report without e3.
func expectedReport(p *project) string {
	a, b := p.read("a.txt"), p.read("b.txt")
	prepared := a + p.read("lib/one.txt") + p.read("lib/two.txt")
	var s strings.Builder
	for n := 1; n <= 4; n++ {
		fmt.Fprintf(&s, "%s%d\n", prepared, n)
	}
	var names []string
	for i := 1; i <= 20; i++ {
		names = append(names, strconv.Itoa(i))
	}
	slices.Sort(names) // as the shell does
	for _, name := range names {
		s.WriteString(a + name + "\n")
	}
	fmt.Fprintf(&s, "%s%d\n%s%s", b, len(prepared), b, a)
	return s.String()
}

// TestSupervisorKilled kills the process that runs the tasks: e3 lives, records what ran as an error, goes on with what does not need it,
// says so and fails; the next start goes on.
func TestSupervisorKilled(t *testing.T) {
	p := killProject(t)
	x := p.spawn(killArgs...)
	x.waitLine(`"task":"slow"`)
	eventually(t, patience, "the supervisor", func() string {
		for _, s := range strays(p.dir, x.cmd.Process.Pid) {
			if strings.Contains(s, "supervises") {
				pid, _, _ := strings.Cut(s, " ")
				n, _ := strconv.Atoi(pid)
				if proc, err := os.FindProcess(n); err == nil && proc.Kill() == nil {
					return ""
				}
			}
		}
		return "is not there"
	})
	r := x.wait()
	noStrays(t, p.dir, x.cmd.Process.Pid)
	if r.code != 1 || !strings.Contains(r.stdout, "the supervisor process ended") {
		t.Errorf("exit code %d, want 1 and a word about the supervisor\n%s", r.code, r.text())
	}
	ended := map[string]bool{}
	for task := range p.lastRun("kill").Tasks.All() {
		ended[task.ExecutionID] = true
	}
	for _, e := range r.events(t) {
		if e.Type == "task.started" && e.Data.Attempt == 1 && e.Task != "flaky" && !ended[e.Execution] {
			t.Errorf("the run's record lacks execution %s of %s", e.Execution, e.Task)
		}
	}
	for _, e := range p.all() {
		if e.State == record.Running {
			t.Errorf("execution %s of %s is on record as running", e.ExecutionID, e.Detail.Task)
		}
	}
	p.start(0)
	check(t, p.repository())
}
