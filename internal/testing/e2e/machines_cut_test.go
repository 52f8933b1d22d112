//go:build linux

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// slack is what everything but waiting for a lease may take on a busy machine.
const slack = 8 * time.Second

// crashed demands that the events of the first run of a workspace end as those of a run whose process died.
func (m *machine) crashed() {
	m.t.Helper()
	r := m.expect(0, "events", "team", "--ndjson")
	run, last := "", events.Event{}
	for line := range strings.Lines(r.stdout) {
		e, err := printedEvent(line)
		if err != nil {
			m.t.Fatal(err)
		}
		if run == "" {
			run = e.Run
		}
		if e.Run == run {
			last = *e
		}
	}
	if last.Type != events.RunFailed {
		m.t.Errorf("the events of the run that was cut off end with %s", last.Type)
	}
}

// takeOver starts what another machine holds whose lease runs out. On one machine the kernel says that the other
// process lives: a command that is too early finds it busy, and is repeated.
func (m *machine) takeOver(args ...string) *process {
	m.t.Helper()
	for deadline := time.Now().Add(teamLease + slack); ; {
		x := m.spawn(args...)
		if !m.w.proxied || x.wait().code != 11 || time.Now().After(deadline) {
			return x
		}
	}
}

// One machine is cut off in the middle of a run: the other one takes over after one lease. The first one waits for the
// store; when it comes back everything is done, and it ends.
func machineCutOff(t *testing.T) {
	w, a, b := team(t)
	x := a.atWork()
	b.let()
	cut := time.Now()
	a.cut()
	y := b.takeOver(append(teamStart[:len(teamStart):len(teamStart)], "team")...)

	r := y.wait()
	took := y.over.Sub(cut)
	if r.code != 0 {
		t.Fatalf("who takes over: exit code %d\n%s", r.code, r.text())
	} else if !w.proxied && !strings.Contains(r.stderr, "Waiting up to") {
		t.Errorf("it does not say what it waits for\n%s", r.text())
	}
	t.Logf("with a lease of %v: the other has taken over and is done after %v", teamLease, took)
	if limit := teamLease + slack; took > limit { // the workspace's lock and three claims cost one lease together
		t.Errorf("the other took %v, want at most %v", took, limit)
	}
	b.hasLast()
	b.crashed()

	select {
	case <-x.ended:
		t.Errorf("it has ended without the store\n%s", x.result().text())
	default:
	}
	a.plug()
	plugged := time.Now()
	if r := x.wait(); r.code != 11 || !strings.Contains(r.stderr, "the lease was lost") || !strings.Contains(r.stderr, "No answer from the store") {
		t.Errorf("exit code %d, want 11 and a word about the store and the lease\n%s", r.code, r.text())
	}
	if took, limit := x.over.Sub(plugged), teamLease+slack/2; took > limit {
		t.Errorf("it has ended %v after it could reach the store, want at most %v", took, limit)
	}
	noStrays(t, a.dir, 0)
	a.let()
	wantRan(t, a.start(0, "team"))
	a.hasLast()
	b.mended()
}

// The store does not answer for longer than a lease: the run waits for it and says so, its commands go on, and nothing
// is begun twice.
func machineOutage(t *testing.T) {
	w := newWorld(t, teamLease)
	a := w.machine("machine-a", map[string]string{"e3.yaml": teamGraph, "a.txt": "alpha\n"})
	x := a.atWork()
	a.cut()
	eventually(t, teamLease+slack, "the run says that it waits", func() string {
		if text := x.result().stderr; !strings.Contains(text, "No answer from the store") {
			return text
		}
		return ""
	})
	a.let() // the commands end while there is no store
	select {
	case <-time.After(outage(2 * teamLease)):
	case <-x.ended:
		t.Error("it has ended")
	}
	a.plug()
	r := x.wait()
	if r.code != 0 || !strings.Contains(r.stderr, "The store answers again") {
		t.Fatalf("exit code %d, want 0 and word of the store\n%s", r.code, r.text())
	}
	a.hasLast()
	log := a.expect(0, "events", "team", "--ndjson").stdout
	for _, typ := range []events.Type{events.RunStalled, events.RunResumed} {
		if n := strings.Count(log, `"type":"`+string(typ)+`"`); n != 1 {
			t.Errorf("%d events %s, want one", n, typ)
		}
	}
	wantRan(t, a.start(0, "team"))
	w.once(t, a)
	w.check(t, tolerated{})
}

// outage is how long a store does not answer; E3_E2E_OUTAGE makes it longer.
func outage(least time.Duration) time.Duration {
	d, _ := time.ParseDuration(os.Getenv("E3_E2E_OUTAGE"))
	return max(least, d)
}

// One that was cut off comes back before its lease is over: nothing was lost.
func machineCutOffShortly(t *testing.T) {
	w, a, b := teamWith(t, 2*teamLease)
	x := a.atWork()
	for range 2 {
		a.cut()
		select {
		case <-time.After(teamLease / 3):
		case <-x.ended:
		}
		a.plug()
		select {
		case <-time.After(teamLease * 2 / 3):
		case <-x.ended:
		}
	}
	a.let()
	if r := x.wait(); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.text())
	}
	b.let()
	wantRan(t, b.start(0, "team"))
	w.freed(t)
	w.once(t, a)
	w.check(t, tolerated{})
}

// e3 is killed: on its own machine that is known at once, elsewhere after one lease.
func machineKilled(where string) func(*testing.T) {
	return func(t *testing.T) {
		w, a, b := team(t)
		x := a.atWork()
		x.kill(false)
		noStrays(t, a.dir, 0)
		next, limit := a, slack
		if where == "elsewhere" {
			next, limit = b, teamLease+slack
		}
		next.let()
		began := time.Now()
		r := next.start(0, "team")
		took := time.Since(began)
		t.Logf("with a lease of %v the next start took %v", teamLease, took)
		waited := strings.Contains(r.stderr, "Waiting up to")
		if waits := where == "elsewhere" && !w.proxied; took > limit || waited != waits || waits && took < teamLease*9/10 {
			t.Errorf("the next start took %v, and waited for the lease: %v\n%s", took, waited, r.text())
		}
		wantRan(t, r, "last", "long[1]", "long[2]", "long[3]")
		next.hasLast()
		next.crashed()
		next.mended()
	}
}

// From another machine, a run whose process was killed is shown with its last sign of life, and cancel closes it.
func machineCancelsDead(t *testing.T) {
	w, a, b := team(t)
	x := a.atWork()
	x.kill(false)
	noStrays(t, a.dir, 0)
	if !w.proxied { // else it is known at once that the process is gone
		for _, args := range [][]string{{"status"}, {"run", "team"}, {"history", "team"}, {"plan", "team"}} {
			eventually(t, patience, "e3 "+args[0], func() string {
				if r := b.expect(0, args...); strings.Count(r.stdout, "s ago, longer than its lease of 3s") != 1 {
					return r.text()
				}
				return ""
			})
		}
		if r := b.expect(0, "status", "--json"); strings.Count(r.stdout, `"heard":"20`) != 2 {
			t.Errorf("status, when the lease is over:\n%s", r.text())
		}
		if r := b.expect(0, "cancel", "team"); !strings.Contains(r.stdout, "was left open by a process that is gone; it is closed now") {
			t.Errorf("cancel:\n%s", r.text())
		}
		if r := b.expect(0, "status"); !strings.Contains(r.stdout, "crashed") || strings.Contains(r.stdout, "Busy:") {
			t.Errorf("status, when the run is closed:\n%s", r.text())
		}
		b.crashed()
	}
	b.let()
	wantRan(t, b.start(0, "team"), "last", "long[1]", "long[2]", "long[3]")
	b.hasLast()
	b.mended()
}

// A machine loses its power.
func machineOff(t *testing.T) {
	if !apart() {
		t.Skip("run as root: machines need namespaces of their own to be switched off")
	}
	_, a, b := team(t)
	x := a.atWork()
	if err := syscall.Kill(a.first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.let()
	began := time.Now()
	b.start(0, "team")
	if took := time.Since(began); took > teamLease+slack {
		t.Errorf("the next start took %v", took)
	}
	<-x.ended
	b.hasLast()
	b.crashed()
	b.mended()
}

// mended demands that the repository is whole after others have lost their leases.
func (m *machine) mended() {
	m.t.Helper()
	m.verified()
	m.w.once(m.t, m)
	m.w.check(m.t, tolerated{fenced: true, collected: true})
}

// pausedGraph has many short tasks, so that something begins, ends or is published at any moment.
const pausedGraph = `
e3: 1
name: team
inputs:
  a: {file: a.txt}
tasks:
  part:
    in: [a]
    out: part.txt
    matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8]}
    run: 'echo "part $n"; sleep 0.$n; { cat "$a"; echo "$n"; } > "$out"'
  next:
    in: {from: "part[3]"}
    out: next.txt
    matrix: {n: [1, 2, 3, 4]}
    run: 'sleep 0.1; cat "$from" > "$out"; echo "next $n" >> "$out"'
  tree: {in: [a], out: tree/, run: 'mkdir -p "$out/deep"; for i in 1 2 3; do cat "$a" > "$out/deep/$i"; done'}
  last: {in: {parts: "part[*]", nexts: "next[*]", t: tree}, out: last.txt, run: 'cat "$parts"/* "$nexts"/* "$t"/deep/* > "$out"'}
`

func pausedLast() string {
	var b strings.Builder
	for n := 1; n <= 8; n++ {
		fmt.Fprintf(&b, "alpha\n%d\n", n)
	}
	for n := 1; n <= 4; n++ {
		fmt.Fprintf(&b, "alpha\n3\nnext %d\n", n)
	}
	return b.String() + strings.Repeat("alpha\n", 3)
}

// machinePaused: e3 is stopped for longer than its lease, at any moment, and wakes up after another one has taken
// over: it writes nothing more.
func machinePaused(at time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		if !apart() {
			t.Skip("run as root: on one machine the kernel says that a process that is stopped lives, and nobody takes over")
		}
		w := newWorld(t, teamLease)
		files := map[string]string{"e3.yaml": pausedGraph, "a.txt": "alpha\n"}
		a, b := w.machine("machine-a", files), w.machine("machine-b", files)
		b.expect(0, "workspace", "create", "team")
		b.expect(0, "workspace", "deploy", "team", "e3.yaml")
		args := []string{"start", "-f", "e3.yaml", "--json", "-j", "3", "team"}
		x := a.spawn(args...)
		killPoint{delay: at}.at(x)
		a.stop(x)
		began := time.Now()
		y := b.spawn(args...)
		if r := y.wait(); r.code != 0 {
			t.Errorf("who takes over: exit code %d\n%s", r.code, r.text())
		}
		took := time.Since(began)
		b.hasText("team.last", pausedLast())
		before := w.history(t)
		root := b.expect(0, "workspace", "status", "team", "--json").stdout

		a.wake(x)
		r := x.wait()
		t.Logf("stopped after %v; the other took %v; it says, with exit code %d: %s", at, took, r.code, strings.TrimSpace(r.stderr))
		switch r.code {
		case 11:
			if !strings.Contains(r.stderr, "lease was lost") && !strings.Contains(r.stderr, "is being") {
				t.Errorf("it does not say why it has ended\n%s", r.text())
			}
		case 0: // it had ended, or not begun
		default:
			t.Errorf("exit code %d\n%s", r.code, r.text())
		}
		noStrays(t, a.dir, x.cmd.Process.Pid)
		w.history(t).follows(t, before)
		if now := b.expect(0, "workspace", "status", "team", "--json").stdout; r.code == 11 && now != root {
			t.Errorf("the workspace was\n%s\nand is now\n%s", root, now)
		}
		b.hasText("team.last", pausedLast())
		wantRan(t, a.start(0, "team"))
		b.mended()
	}
}

// hasText demands what a dataset holds.
func (m *machine) hasText(dataset, want string) {
	m.t.Helper()
	if r := m.expect(0, "get", dataset); r.stdout != want {
		m.t.Errorf("%s: %s is\n%s\nwant\n%s", m.name, dataset, r.stdout, want)
	}
}

// A history is how each execution stands.
type history map[string]executions.Execution

// history reads all executions.
func (w *world) history(t testing.TB) history {
	t.Helper()
	p := &project{t: t, dir: t.TempDir(), location: w.location(w.dynamodb, w.s3)}
	h := history{}
	for _, e := range p.all() {
		h[e.Key.String()+" "+e.ExecutionID] = *e
	}
	return h
}

// follows demands that what had ended before is as it was, and that nothing is gone.
func (h history) follows(t testing.TB, before history) {
	t.Helper()
	for id, was := range before {
		is, ok := h[id]
		switch {
		case !ok:
			t.Errorf("the execution %s is gone; it was %v", id, was.State)
		case was.State == record.Running || was.State == is.State && was.OutputHash == is.OutputHash && was.Message == is.Message:
		default:
			t.Errorf("the execution %s was %v %s %q, and is %v %s %q", id, was.State, was.OutputHash, was.Message, is.State, is.OutputHash, is.Message)
		}
	}
}

// Commands that write are cut off at any moment: they end in time, with a word, and the same command does it
// afterwards.
var cutWritings = []cutWriting{
	{"set", func(m *machine) []string { return []string{"set", "team.a", "@" + m.path("b.txt")} }, []int{0}},
	{"deploy", func(m *machine) []string { return []string{"workspace", "deploy", "team", "other.yaml"} }, []int{0}},
	{"import", func(m *machine) []string { return []string{"workspace", "import", "team.zip", "copy"} }, []int{0, 2}},
	{"gc", func(*machine) []string { return []string{"gc"} }, nil}, // it would wait until nothing of the first one can arrive
}

// A cutWriting is a command that is cut off.
type cutWriting struct {
	name  string
	args  func(m *machine) []string
	again []int // exit codes of the same command afterwards; none: it is not tried
}

func (c *cutWriting) play(at time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		w, a, b := team(t)
		a.let()
		b.let()
		a.start(0, "team")
		a.write("b.txt", "beta\n")
		a.write("other.yaml", strings.Replace(teamGraph, "says this", "says that", 1))
		a.expect(0, "workspace", "export", "team", "team.zip")

		x := a.spawn(c.args(a)...)
		x.hasSession(w) // what has none yet is tried for two minutes
		killPoint{delay: at}.at(x)
		a.cut()
		cut := time.Now()
		if !x.endsIn(150 * time.Second) {
			t.Fatalf("e3 did not end\n%s", x.result().text())
		}
		r := x.result()
		took := time.Since(cut)
		t.Logf("exit code %d after %v: %s", r.code, took, strings.TrimSpace(r.stderr))
		if r.code != 0 && r.code != 11 && r.code != 1 {
			t.Errorf("exit code %d\n%s", r.code, r.text())
		}
		if r.code != 0 && r.stderr == "" {
			t.Errorf("exit code %d without a word", r.code)
		}
		b.expect(0, "start", "team")
		a.plug()
		if c.again != nil {
			if r := a.e3(c.args(a)...); !slices.Contains(c.again, r.code) {
				t.Errorf("the same command afterwards: exit code %d\n%s", r.code, r.text())
			}
		}
		if c.name == "set" {
			a.hasText("team.a", "beta\n")
		}
		a.expect(0, "start", "team")
		b.expect(0, "start", "team")
		b.mended()
	}
}

// hasSession waits until a process has a session, or has ended.
func (x *process) hasSession(w *world) {
	for {
		n := 0
		if err := w.scan(func(pk, _ string, _ []string) error {
			if pk == "LEASE/team/sessions" {
				n++
			}
			return nil
		}); err != nil || n > 0 {
			return
		}
		select {
		case <-x.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}
