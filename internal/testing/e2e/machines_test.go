//go:build linux

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// teamLease is long enough for a busy machine to renew, and short enough to wait for.
const teamLease = 3 * time.Second

// teamGraph has tasks that end at a sign, which is given on the machine that they run on, and say the time meanwhile.
const teamGraph = `
e3: 1
name: team
inputs:
  a: {file: a.txt}
  fails: {value: no}
tasks:
  first: {in: [a], out: f.txt, pass_env: [E2E_STATE], run: 'echo first >> "$E2E_STATE/ran"; echo "first says this"; cat "$a" > "$out"; echo first >> "$out"'}
  tree: {in: [a], out: tree/, pass_env: [E2E_STATE], run: 'echo tree >> "$E2E_STATE/ran"; mkdir -p "$out/deep"; for i in 1 2 3; do cat "$a" > "$out/deep/$i"; echo "$i" >> "$out/deep/$i"; done'}
  long:
    in: {from: first, fails: fails, t: tree}
    out: long.txt
    matrix: {n: [1, 2, 3]}
    pass_env: [E2E_STATE]
    run: |
      echo "long$n" >> "$E2E_STATE/ran"
      while ! [ -e "$E2E_STATE/go" ]; do echo "$EPOCHREALTIME"; sleep 0.1; done
      echo over
      if [ "$fails" = yes ]; then exit 3; fi
      { cat "$from"; echo "$n"; } > "$out"
  last: {in: {parts: "long[*]", t: tree}, out: last.txt, pass_env: [E2E_STATE], run: 'echo last >> "$E2E_STATE/ran"; cat "$parts"/* "$t"/deep/* > "$out"'}
`

// teamLast is what the last task of teamGraph makes.
const teamLast = "alpha\nfirst\n1\nalpha\nfirst\n2\nalpha\nfirst\n3\nalpha\n1\nalpha\n2\nalpha\n3\n"

var teamStart = []string{"start", "-f", "e3.yaml", "--json", "-j", "4", "--grace", "300ms"}

// TestTwoMachines has two machines share a repository. Most of the time they wait: so many scenarios are played at a
// time.
func TestTwoMachines(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	if !apart() {
		t.Log("not as root: machines are processes of one machine, behind proxies of their own; how long it takes until another machine's process is taken for dead is not tested")
	}
	scenarios := []scenario{
		{"share", machinesShare},
		{"single_flight", machinesSingleFlight("no", 0, record.Success)},
		{"single_failure", machinesSingleFlight("yes", 1, record.Failed)},
		{"watch", machinesWatch},
		{"cut_off", machineCutOff},
		{"cut_off_shortly", machineCutOffShortly},
		{"outage", machineOutage},
		{"found_dead", machineFoundDead(false)},
		{"given_up", machineFoundDead(true)},
		{"killed_here", machineKilled("here")},
		{"killed_elsewhere", machineKilled("elsewhere")},
		{"cancelled_when_dead", machineCancelsDead},
		{"off", machineOff},
	}
	rnd := random(t)
	pauses := 6
	if testing.Short() {
		pauses = 2
	}
	for i := range pauses {
		at := time.Duration(rnd.Int64N(int64(2200 * time.Millisecond)))
		scenarios = append(scenarios, scenario{fmt.Sprintf("paused_%d_%v", i, at.Round(time.Millisecond)), machinePaused(at)})
	}
	for _, c := range cutWritings {
		at := time.Duration(rnd.Int64N(int64(40 * time.Millisecond)))
		scenarios = append(scenarios, scenario{fmt.Sprintf("cut_off_%s_%v", c.name, at.Round(time.Millisecond)), c.play(at)})
	}
	playAll(t, 6, scenarios)
}

// A scenario is what is played on machines of its own.
type scenario struct {
	name string
	play func(*testing.T)
}

// playAll plays scenarios, so many at a time.
func playAll(t *testing.T, width int, scenarios []scenario) {
	next := make(chan scenario)
	var g sync.WaitGroup
	for range width {
		g.Go(func() {
			for s := range next {
				t.Run(s.name, s.play)
			}
		})
	}
	for _, s := range scenarios {
		next <- s
	}
	close(next)
	g.Wait()
}

// team is two machines with the same project.
func team(t *testing.T) (w *world, a, b *machine) {
	t.Helper()
	return teamWith(t, teamLease)
}

// teamWith is team with another lease.
func teamWith(t *testing.T, lease time.Duration) (w *world, a, b *machine) {
	t.Helper()
	w = newWorld(t, lease)
	files := map[string]string{"e3.yaml": teamGraph, "a.txt": "alpha\n"}
	return w, w.machine("machine-a", files), w.machine("machine-b", files)
}

// expect runs e3 and demands an exit code.
func (m *machine) expect(want int, args ...string) result {
	m.t.Helper()
	r := m.e3(args...)
	if r.code != want {
		m.t.Fatalf("%s: e3 %s: exit code %d, want %d\n%s", m.name, strings.Join(args, " "), r.code, want, r.text())
	}
	return r
}

// let gives the sign.
func (m *machine) let() { m.write("state/go", "") }

// atWork starts the workspace, or does so with other arguments, and waits until all its long tasks run.
func (m *machine) atWork(args ...string) *process {
	m.t.Helper()
	x := m.spawn(append(teamStart[:len(teamStart):len(teamStart)], args...)...)
	m.running()
	return x
}

func (m *machine) running() {
	m.t.Helper()
	eventually(m.t, patience, "the long tasks", func() string {
		n := 0
		for _, mark := range m.marks("ran") {
			if strings.HasPrefix(mark, "long") {
				n++
			}
		}
		if n >= 3 {
			return ""
		}
		return fmt.Sprintf("%d of 3 are at work", n)
	})
}

// hasLast demands what the last task has made.
func (m *machine) hasLast() {
	m.t.Helper()
	if r := m.expect(0, "get", "team.last"); r.stdout != teamLast {
		m.t.Errorf("%s: the last task has made\n%s\nwant\n%s", m.name, r.stdout, teamLast)
	}
}

// once demands that each key has one success, and that nothing seems to run.
func (w *world) once(t testing.TB, m *machine) {
	t.Helper()
	n := map[executions.Key]int{}
	for _, e := range m.all() {
		switch e.State {
		case record.Success:
			if n[e.Key]++; n[e.Key] > 1 {
				t.Errorf("task %s has succeeded more than once", e.Detail.Task)
			}
		case record.Running:
			t.Errorf("the execution %s of %s seems to run", e.ExecutionID, e.Detail.Task)
		}
	}
}

// One runs, the other gets hits; bytes come from the store.
func machinesShare(t *testing.T) {
	w, a, b := team(t)
	a.let()
	b.let()
	wantRan(t, a.start(0, "-j", "4"), "first", "last", "long[1]", "long[2]", "long[3]", "tree")
	for _, ws := range []string{"team", "other"} {
		wantRan(t, b.start(0, ws))
	}
	for range 2 { // also without the copies of the first time
		b.hasLast()
		if r := b.expect(0, "logs", "team.first"); r.stdout != "first says this\n" {
			t.Errorf("the log of the other machine is %q", r.stdout)
		}
		b.expect(0, "get", "team.tree", "-o", b.path("tree"), "--force")
		if got := b.read("tree/deep/2"); got != "alpha\n2\n" {
			t.Errorf("the other machine's tree/deep/2 is %q", got)
		}
		if err := os.RemoveAll(b.path("cache")); err != nil {
			t.Fatal(err)
		}
	}
	// What one changes, the other sees: only what depends on it runs again.
	a.expect(0, "set", "other.a", "@"+a.path("e3.yaml"))
	if r := b.expect(0, "get", "other.a"); r.stdout != teamGraph {
		t.Errorf("what was set on one machine is on the other\n%s", r.stdout)
	}
	wantRan(t, b.start(0, "team"))
	wantRan(t, b.start(0, "other"), "first", "last", "long[1]", "long[2]", "long[3]", "tree")
	w.freed(t)
	b.verified()
	w.once(t, a)
	w.check(t, tolerated{})
}

// A task is executed once, by the first process; the other takes its result.
func machinesSingleFlight(fails string, code int, state record.State) func(*testing.T) {
	return func(t *testing.T) {
		w, a, b := team(t)
		for _, m := range []*machine{a, b} {
			m.write("e3.yaml", strings.Replace(teamGraph, "{value: no}", "{value: '"+fails+"'}", 1))
		}
		one, two := a.spawn(append(teamStart, "one")...), b.spawn(append(teamStart, "two")...)
		marks := func() []string { return append(a.marks("ran"), b.marks("ran")...) }
		eventually(t, patience, "the long tasks", func() string {
			if n := strings.Count(strings.Join(marks(), " "), "long"); n < 3 {
				return fmt.Sprintf("%d of 3 are at work", n)
			}
			return ""
		})
		// The second process has had the time to take a claim that is not respected.
		select {
		case <-time.After(teamLease / 2):
		case <-one.ended:
		case <-two.ended:
		}
		a.let()
		b.let()
		for _, x := range []*process{one, two} {
			if r := x.wait(); r.code != code {
				t.Errorf("exit code %d, want %d\n%s", r.code, code, r.text())
			}
		}
		ran := map[string]int{}
		for _, mark := range marks() {
			if ran[mark]++; ran[mark] > 1 {
				t.Errorf("%s has run more than once: %v", mark, marks())
			}
		}
		for i := range 3 {
			wantStates(t, a.of(fmt.Sprintf("long[%d]", i+1)), state)
		}
		w.freed(t)
		w.check(t, tolerated{})
	}
}

// The second process is told which process runs, where and since when; reads the logs and events as they are written;
// and can stop it.
func machinesWatch(t *testing.T) {
	w, a, b := team(t)
	began := time.Now()
	x := a.atWork()
	r := b.e3("start", "-f", "e3.yaml", "team")
	took := time.Since(began)
	if r.code != 11 || !strings.Contains(r.stderr, "workspace team is being run by process") || !strings.Contains(r.stderr, " start -f e3.yaml") || !strings.Contains(r.stderr, " since "+began.Format("2006-01-02 15:")) {
		t.Errorf("exit code %d, want 11 and the running process with its start\n%s", r.code, r.text())
	}
	if host, err := os.Hostname(); err == nil && (!w.proxied && !strings.Contains(r.stderr, " on machine-a (") || w.proxied && !strings.Contains(r.stderr, " on "+host+" (")) {
		t.Errorf("it does not say on which machine\n%s", r.stderr)
	}
	t.Logf("busy after %v: %s", took, strings.TrimSpace(r.stderr))
	if r := b.expect(0, "status", "team"); !strings.Contains(r.stdout, "being run") {
		t.Errorf("status does not say that it is being run:\n%s", r.stdout)
	}

	logs, follow := b.spawn("logs", "team.long[1]", "-f"), b.spawn("events", "team", "-f", "--ndjson")
	late := delays(t, logs, 30, func(line string) (time.Time, bool) {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		return time.UnixMicro(int64(seconds * 1e6)), err == nil
	})
	t.Logf("a line of the log is read on the other machine after %v at most", late)
	if late > 5*time.Second {
		t.Errorf("a line of the log is read on the other machine after %v; 5 s are promised", late)
	}
	a.let()
	late = delays(t, follow, 1, func(line string) (time.Time, bool) {
		e, err := printedEvent(line)
		return e.Time, err == nil && e.Type == events.RunCompleted
	})
	t.Logf("the last event is read on the other machine after %v", late)
	if late > 5*time.Second {
		t.Errorf("the last event is read on the other machine after %v", late)
	}
	follow.kill(true)
	if r := logs.wait(); r.code != 0 || !strings.HasSuffix(r.stdout, "over\n") {
		t.Errorf("following the log ends with exit code %d\n%s", r.code, r.text())
	}
	if r := x.wait(); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.text())
	}
	if got := b.expect(0, "logs", "team.long[1]").stdout; got != logs.result().stdout {
		t.Errorf("what was followed is %d bytes, the log is %d", len(logs.result().stdout), len(got))
	}

	if err := os.Remove(a.path("state/go")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a.path("state/ran")); err != nil {
		t.Fatal(err)
	}
	x = a.atWork("--force")
	began = time.Now()
	if got := cancelStatus(t, b.e3("cancel", "team", "--reason", "wrong input", "--json")); got != "cancelled" {
		t.Errorf("it is said to be %s", got)
	}
	t.Logf("a cancel from the other machine took %v", time.Since(began))
	cancelled(t, x.wait(), "wrong input")
	noStrays(t, a.dir, 0)
	w.freed(t)
	w.check(t, tolerated{})
}

// delays returns by how much the latest of n lines that say a time was late.
func delays(t *testing.T, x *process, n int, at func(line string) (time.Time, bool)) time.Duration {
	t.Helper()
	var most time.Duration
	deadline := time.After(patience)
	for first := true; n > 0; {
		select {
		case line, ok := <-x.lines:
			if !ok {
				<-x.ended
				t.Fatalf("e3 ended early\n%s", x.result().text())
			}
			if then, ok := at(line); ok {
				late := time.Since(then)
				if n--; !first || n == 0 { // what was there before is old
					most = max(most, late)
				}
				first = false
			}
		case <-deadline:
			t.Fatalf("not in %v\n%s", patience, strings.Join(x.soFar(), ""))
		}
	}
	return most
}

// soFar is what e3 has said to standard output.
func (x *process) soFar() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.stdout...)
}
