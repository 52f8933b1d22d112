//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/testing/testserver"
)

// scheduleGraph has what workers and their run may be in the middle of. Each command leaves a mark.
const scheduleGraph = `
e3: 1
name: w
inputs:
  a: {value: 1}
tasks:
  base: {in: [a], out: base.txt, pass_env: [E2E_STATE], run: 'BEGINS base; echo "base $a" > "$out"; ENDS'}
  part: {in: {from: base}, out: part.txt, matrix: {n: [1, 2, 3, 4]}, pass_env: [E2E_STATE], run: 'BEGINS part$n; echo "part $n"; sleep "0.$n"; { cat "$from"; echo "part $n"; } > "$out"; ENDS'}
  flaky:
    in: [a]
    out: flaky.txt
    pass_env: [E2E_STATE]
    retries: {max: 3, backoff: 50ms}
    run: 'BEGINS flaky; if mkdir "$E2E_STATE/flaky$a" 2>/dev/null; then exit 3; fi; echo "flaky $a" > "$out"; ENDS'
  slow: {in: {from: base}, out: slow.txt, pass_env: [E2E_STATE], run: 'BEGINS slow; echo slow begins; sleep 1; echo slow ends; { cat "$from"; echo slow; } > "$out"; ENDS'}
  tree: {in: [a], out: tree/, pass_env: [E2E_STATE], run: 'BEGINS tree; mkdir -p "$out/d"; for i in 1 2 3; do echo "$a $i" > "$out/d/$i"; done; ENDS'}
  all: {in: {parts: "part[*]", t: tree, f: flaky, s: slow%s}, out: all.txt, pass_env: [E2E_STATE], run: 'BEGINS all; cat "$parts"/* "$t"/d/* "$f" "$s" > "$out"; ENDS'}
`

// askedTask waits for approval.
const askedTask = `  asked: {in: [a], out: asked.txt, approve: true, pass_env: [E2E_STATE], run: 'BEGINS asked; echo asked > "$out"; ENDS'}
`

// marking replaces BEGINS <name> and ENDS in a graph with what leaves the marks of a command.
func marking(graph string) string {
	graph = beginsMark.ReplaceAllString(graph, `echo "$1 $$E3_EXECUTION" >> "$$E2E_STATE/ran"; echo "+ $$E3_EXECUTION $$HOSTNAME" >> "$$E2E_STATE/order"`)
	return strings.ReplaceAll(graph, "ENDS", `echo "- $E3_EXECUTION" >> "$E2E_STATE/order"`)
}

var beginsMark = regexp.MustCompile(`BEGINS ([a-z]+(?:\$n)?)`)

// scheduleAll is what the last task of scheduleGraph makes.
func scheduleAll(a string) string {
	var b strings.Builder
	for n := 1; n <= 4; n++ {
		fmt.Fprintf(&b, "base %s\npart %d\n", a, n)
	}
	for n := 1; n <= 3; n++ {
		fmt.Fprintf(&b, "%s %d\n", a, n)
	}
	fmt.Fprintf(&b, "flaky %s\nbase %s\nslow\n", a, a)
	return b.String()
}

// TestWorkerSchedules has runs with workers on several machines, which are killed, stopped, cut off and told to end at random, and have clocks that are
// up to ten minutes apart, while the network is bad and a person cancels and retries. E3_TEST_SCHEDULES is how many such schedules are played; E3_TEST_SEED repeats the first, and the
// others in their order. They are by turns on a folder, on DynamoDB, and on PostgreSQL with a folder of objects.
func TestWorkerSchedules(t *testing.T) {
	t.Parallel()
	n, seed := schedules(t, 3, 12) // one on each
	if !apart() {
		t.Log("not as root: all machines are this one, whose kernel says who is alive; leases run out only where the network is cut")
	}
	var list []scenario
	for i := range n {
		seed := seed + uint64(i)
		kind := fleetKinds[seed%uint64(len(fleetKinds))]
		list = append(list, scenario{fmt.Sprintf("%s_seed_%d", kind, seed), func(t *testing.T) { playWorkers(t, kind, seed) }})
	}
	playAll(t, 8, list)
}

// mostApart is by how much the clock of a machine may be wrong.
const mostApart = 5 * time.Minute

// A workersSchedule is what befalls the machines of a fleet.
type workersSchedule struct {
	t     *testing.T
	f     *fleet
	began time.Time
	over  chan struct{} // closed when there are no more faults

	witness *witness

	mu     sync.Mutex
	trail  []string
	killed map[string]bool // machines of which a supervisor was killed
}

func playWorkers(t *testing.T, kind string, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	asks := rnd.IntN(5) == 0
	graph := fmt.Sprintf(scheduleGraph, "")
	if asks {
		graph += askedTask
	}
	s := &workersSchedule{t: t, began: time.Now(), over: make(chan struct{}), witness: newWitness(t), killed: map[string]bool{}}
	s.f = newFleet(t, kind, time.Duration(1500+rnd.IntN(1000))*time.Millisecond, 2, map[string]string{"e3.yaml": marking(graph)})
	defer func() {
		if t.Failed() {
			t.Logf("E3_TEST_SEED=%d E3_TEST_SCHEDULES=1; a lease is %v; what was done:\n  %s\nmarks:\n%s", seed, s.f.lease, strings.Join(s.trail, "\n  "), strings.Join(s.f.ran(), "\n"))
		}
	}()
	first := s.f.machines[0]
	first.calmly("workspace", "create", "w")
	first.calmly("workspace", "deploy", "w", "e3.yaml")

	var beside, schedulers sync.WaitGroup
	if rnd.IntN(3) > 0 {
		for _, m := range s.f.machines {
			m.ahead = time.Duration(rnd.Int64N(int64(2*mostApart))) - mostApart
			s.note("the clock of %s is ahead by %v", m.name, m.ahead)
		}
		s.witness.skewed = true
	}
	for i := range 2 + rnd.IntN(2) {
		a := &workersActor{workersSchedule: s, m: s.f.machines[i%2], rnd: rand.New(rand.NewPCG(seed, uint64(10+i)))}
		beside.Go(a.works)
	}
	sched := &workersActor{workersSchedule: s, rnd: rand.New(rand.NewPCG(seed, 2))}
	schedulers.Go(sched.starts)
	if rnd.IntN(2) == 0 {
		person := &workersActor{workersSchedule: s, rnd: rand.New(rand.NewPCG(seed, 5))}
		beside.Go(person.interferes)
	}
	weather := &workersActor{workersSchedule: s, rnd: rand.New(rand.NewPCG(seed, 3))}
	beside.Go(weather.weathers)
	beside.Go(s.watch)
	beside.Go(func() { s.witness.follows(s.f.machines[1], "w", rand.New(rand.NewPCG(seed, 4)), s.over) })
	if asks {
		beside.Go(s.approves)
	}
	schedulers.Wait()
	close(s.over)
	beside.Wait()
	s.settle(asks)
}

// note puts something on the trail.
func (s *workersSchedule) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trail = append(s.trail, fmt.Sprintf("%6.3f %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...)))
}

// sleep returns false if the faults are over before.
func (s *workersSchedule) sleep(d time.Duration, ended <-chan struct{}) bool {
	select {
	case <-time.After(d):
	case <-ended:
	case <-s.over:
		return false
	}
	return true
}

// watch looks at the history again and again: what has ended stays as it is.
func (s *workersSchedule) watch() {
	before := history{}
	for s.sleep(500*time.Millisecond, nil) {
		now := s.f.executions()
		for id, was := range before {
			if is, ok := now[id]; was.State != record.Running && (!ok || is.State != was.State || is.OutputHash != was.OutputHash || is.Message != was.Message) {
				s.t.Errorf("the execution %s was %v %s %q, and is %v %s %q", id, was.State, was.OutputHash, was.Message, is.State, is.OutputHash, is.Message)
			}
		}
		before = now
	}
}

// approves approves what waits.
func (s *workersSchedule) approves() {
	for s.sleep(700*time.Millisecond, nil) {
		if r := s.f.machines[0].e3("approve", "w.asked"); r.code == 0 {
			s.note("approved")
		}
	}
}

// A workersActor does something of its own.
type workersActor struct {
	*workersSchedule
	m   *machine
	rnd *rand.Rand
}

// interferes is a person who cancels runs and jobs, and queues failures again, on any machine.
func (a *workersActor) interferes() {
	for a.sleep(300*time.Millisecond+a.upTo(2*time.Second), nil) {
		m := a.f.machines[a.rnd.IntN(len(a.f.machines))]
		what := [][]string{
			{"cancel", "w", "--timeout", "20s"}, {"cancel", "w", "--no-wait"},
			{"queue", "cancel", "w.slow"}, {"queue", "cancel", "w.part[2]"}, {"queue", "cancel", "--all"},
			{"queue", "retry", "--all"}, {"queue", "retry", "--all"}, {"queue", "retry", "w.flaky"},
		}[a.rnd.IntN(8)]
		r := m.e3(what...)
		a.note("%s: %s: exit code %d: %s", m.name, strings.Join(what, " "), r.code, lastLine(r.stderr))
		if bad.MatchString(r.stderr) {
			a.t.Errorf("%s: %q: this can have no good reason: exit code %d\n%s", m.name, what, r.code, r.text())
		}
	}
}

func (a *workersActor) upTo(d time.Duration) time.Duration {
	return time.Duration(a.rnd.Int64N(int64(d)))
}

// weathers makes the networks bad, anew each moment.
func (a *workersActor) weathers() {
	if a.f.kind == "fs" {
		return
	}
	for a.sleep(700*time.Millisecond, nil) {
		if a.rnd.IntN(20) == 0 {
			lasts := a.upTo(3 * a.f.lease)
			a.note("nothing reaches the store for %v", lasts)
			for _, m := range a.f.machines {
				m.cut()
			}
			a.sleep(lasts, nil)
			for _, m := range a.f.machines {
				m.plug()
			}
			a.note("the store is there again")
		}
		most := a.rnd.Float64() * 0.2
		a.f.weather(a.rnd.Uint64, func() []testserver.Rule { return testserver.Weather(a.rnd, most, 60*time.Millisecond) })
	}
	a.f.fine()
}

// works has a worker at work on a machine, until the faults are over.
func (a *workersActor) works() {
	for {
		var x *process
		if a.m.ahead != 0 {
			x = a.m.skewed(a.m.ahead, "worker")
		} else {
			x = a.m.spawn("worker", "--json", "--grace", "200ms", "-j", "2")
		}
		a.note("%s: worker %d begins", a.m.name, x.cmd.Process.Pid)
		more := a.befall(x, "worker", []string{"kill", "kill", "kill_all", "stop", "stop", "cut", "term", "nothing", "nothing"}[a.rnd.IntN(9)], 3*time.Second)
		if more && a.rnd.IntN(2) == 0 {
			<-a.eitherOver(x)
		}
		defer a.leaves(x) // or another begins beside it
		if !more || !a.sleep(a.upTo(time.Second), nil) {
			return
		}
	}
}

// leaves tells a worker to end, and waits for that.
func (a *workersActor) leaves(x *process) {
	syscall.Kill(x.pid(), syscall.SIGTERM)
	a.ends(x, "worker")
}

// befall lets something happen to a process, and returns false if the faults are over.
func (a *workersActor) befall(x *process, what, fate string, within time.Duration) bool {
	more := a.sleep(a.upTo(within), x.ended)
	lasts := a.f.lease/4 + a.upTo(2*a.f.lease)
	if !more {
		return false
	}
	name := fmt.Sprintf("%s: %s %d", a.m.name, what, x.cmd.Process.Pid)
	switch fate {
	case "kill":
		a.note("%s is killed", name)
		syscall.Kill(x.pid(), syscall.SIGKILL)
	case "kill_all":
		a.note("%s is killed, and its supervisor", name)
		a.mu.Lock()
		a.killed[a.m.name] = true
		a.mu.Unlock()
		x.killAll()
	case "stop":
		a.note("%s is stopped for %v", name, lasts)
		a.m.stop(x)
		more = a.sleep(lasts, x.ended)
		a.m.wake(x)
		a.note("%s wakes up", name)
		return more && a.sleep(a.upTo(within), x.ended) && a.term(x, name)
	case "cut":
		if a.f.kind == "fs" {
			break
		}
		a.note("%s is cut off for %v", a.m.name, lasts)
		a.m.cut()
		more = a.sleep(lasts, x.ended)
		a.m.plug()
		return more && a.sleep(a.upTo(within), x.ended) && a.term(x, name)
	case "term":
		return a.term(x, name)
	case "nothing":
		if what == "start" {
			break // it has its time
		}
		<-a.eitherOver(x)
		return a.sleep(0, nil)
	}
	return more
}

// killAll kills e3 and its supervisor.
func (x *process) killAll() {
	pid := x.pid()
	supervisor := supervisorOf(pid)
	syscall.Kill(pid, syscall.SIGKILL)
	if supervisor > 0 {
		syscall.Kill(supervisor, syscall.SIGKILL)
	}
}

// supervisorOf is the process that supervises the commands of another, which is perhaps on a machine of its own; 0 if there is none.
func supervisorOf(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	known := strings.Fields(line) // the last as the machine numbers it
	namespace, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		command, _ := os.ReadFile(dir + "/cmdline")
		text := strings.TrimRight(strings.ReplaceAll(string(command), "\x00", " "), " ")
		if len(known) == 0 || !strings.HasPrefix(text, "e3-supervisor ") || !strings.HasSuffix(text, " for "+known[len(known)-1]) {
			continue
		}
		if there, _ := os.Readlink(dir + "/ns/pid"); there == namespace {
			n, _ := strconv.Atoi(filepath.Base(dir))
			return n
		}
	}
	return 0
}

// term tells a worker to end; a start is left alone.
func (a *workersActor) term(x *process, name string) bool {
	if strings.Contains(name, "worker") {
		a.note("%s is told to end", name)
		syscall.Kill(x.pid(), syscall.SIGTERM)
	}
	return true
}

// eitherOver is closed when a process has ended, or the faults.
func (a *workersActor) eitherOver(x *process) <-chan struct{} {
	c := make(chan struct{})
	go func() {
		defer close(c)
		select {
		case <-x.ended:
		case <-a.over:
		}
	}()
	return c
}

// ends waits for the end of a process, and looks at how it ended.
func (a *workersActor) ends(x *process, what string) result {
	stands := ""
	select {
	case <-x.ended:
	case <-time.After(80 * time.Second):
		stands = "\n" + a.m.e3("queue", "list", "--json").stdout + a.m.e3("queue", "--json").stdout
	}
	ended := x.endsIn(10 * time.Second)
	r := x.result()
	a.note("%s: %s %d has ended with exit code %d: %s", a.m.name, what, x.cmd.Process.Pid, r.code, lastLine(r.stderr))
	switch {
	case !ended:
		a.t.Errorf("%s: a %s hangs\n%s%s", a.m.name, what, r.stderr, stands)
	case bad.MatchString(r.stderr), r.code == 12:
		a.t.Errorf("%s: %s: this can have no good reason: exit code %d\n%s", a.m.name, what, r.code, r.text())
	case r.code == 2:
		a.t.Errorf("%s: %s: exit code 2\n%s", a.m.name, what, r.text())
	}
	return r
}

func lastLine(text string) string {
	lines := slices.Collect(strings.Lines(text))
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-1):], ""))
}

// starts starts the workspace a few times, each time on some machine.
func (a *workersActor) starts() {
	value := 1
	for range 1 + a.rnd.IntN(3) {
		a.m = a.f.machines[a.rnd.IntN(len(a.f.machines))]
		var x *process
		if a.m.ahead != 0 {
			x = a.m.skewed(a.m.ahead, "start", "w")
		} else {
			x = a.m.spawn("start", "w", "--json", "--workers", "--grace", "200ms")
		}
		a.note("%s: start %d begins", a.m.name, x.cmd.Process.Pid)
		a.befall(x, "start", []string{"kill", "kill", "stop", "cut", "nothing"}[a.rnd.IntN(5)], 2500*time.Millisecond)
		r := a.ends(x, "start")
		a.witness.saw(r)
		if r.code == 0 || a.rnd.IntN(4) == 0 {
			value++
			set := a.m.e3("set", "w.a", strconv.Itoa(value))
			a.note("%s: set w.a %d: exit code %d", a.m.name, value, set.code)
		}
	}
}

// settle demands, now that all is well, that a run succeeds, and that nothing was done twice that counts.
func (s *workersSchedule) settle(asks bool) {
	t, f := s.t, s.f
	t.Helper()
	f.fine()
	if t.Failed() {
		return
	}
	var workers []*process
	for _, m := range f.machines {
		workers = append(workers, m.worker("-j", "4"))
	}
	s.note("fine weather")
	m := f.machines[0]
	s.over = make(chan struct{})
	var beside sync.WaitGroup
	if asks {
		beside.Go(s.approves)
	}
	r := m.e3("start", "w", "--json", "--workers")
	for deadline := time.Now().Add(patience); r.code == 11 && time.Now().Before(deadline); {
		r = m.e3("start", "w", "--json", "--workers")
	}
	close(s.over)
	beside.Wait()
	s.witness.saw(r)
	if r.code != 0 {
		f.explain(r)
	}
	s.note("done")
	a := strings.TrimSpace(m.calmly("get", "w.a").stdout)
	m.hasText("w.all", scheduleAll(a))
	wantRan(t, m.calmly("start", "w", "--json", "--workers"))
	m.idle(patience)
	for i, x := range workers {
		f.machines[i].drain(x)
	}
	f.gone()
	f.whole(tolerated{collected: true, killed: true, fenced: true})
	f.onlyOneSuccess()
	s.executedOnce()
	all := f.looker().all()
	f.ranOnce(all, func(host string) bool { return s.killed[host] })
	s.witness.accounts(f.looker().open(), m, all)
	f.collects(m)
	m.hasText("w.all", scheduleAll(a))
	wantRan(t, m.calmly("start", "w", "--json"))
}

// explain fails the test, with what the tasks said that failed.
func (f *fleet) explain(r result) {
	f.t.Helper()
	said := ""
	for _, e := range r.events(f.t) {
		if e.Type == events.TaskFailed {
			logs := f.machines[0].e3("logs", "w."+e.Task, "--stderr")
			said += fmt.Sprintf("%s of %s: %+v\n%s%s\n", e.Execution, e.Task, *e.Data, logs.stdout, logs.stderr)
		}
	}
	f.t.Fatalf("in fine weather: exit code %d\n%s\n%s", r.code, r.text(), said)
}

// collects collects garbage. It is known of these servers that nothing of a dead worker's arrives any more.
func (f *fleet) collects(m *machine) {
	f.t.Helper()
	if f.kind == "fs" {
		m.calmly("gc")
		return
	}
	m.calmly("gc", m.reaches+"&settle=1s")
}

// executedOnce demands that what is on record as a success was a command that ran: its mark is there, once.
func (s *workersSchedule) executedOnce() {
	n := map[string]int{}
	for _, mark := range s.f.ran() {
		_, id, _ := strings.Cut(mark, " ")
		n[id]++
	}
	for _, e := range s.f.executions() {
		id := e.ExecutionID
		if e.Detail != nil && e.Detail.Begun != "" { // given up while it ran, and finished under the next id
			id = e.Detail.Begun
		}
		if e.State == record.Success && n[id] != 1 {
			s.t.Errorf("the execution %s of %s has succeeded, and its command has run %d times", e.ExecutionID, taskOf(&e), n[id])
		}
	}
}

func taskOf(e *executions.Execution) string {
	if e.Detail == nil {
		return ""
	}
	return e.Detail.Task
}
