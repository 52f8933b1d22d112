//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
)

// faultsGraph has tasks that all workspaces share, and some that depend on what is set.
const faultsGraph = `
e3: 1
name: faults
inputs:
  a: {value: 1}
  x: {value: 0}
tasks:
  base: {in: [a], out: base.txt, run: 'echo "base $a"; echo "base $a" > "$out"'}
  part: {in: {from: base}, out: part.txt, matrix: {n: [1, 2, 3]}, run: 'sleep "0.0$n"; { cat "$from"; echo "part $n"; } > "$out"'}
  tree: {in: [a], out: tree/, run: 'mkdir -p "$out/d"; for i in 1 2 3; do echo "$a $i" > "$out/d/$i"; done'}
  own: {in: {from: base, x: x}, out: own.txt, run: 'sleep 0.1; { cat "$from"; echo "own $x"; } > "$out"'}
  all: {in: {parts: "part[*]", t: tree, o: own}, out: all.txt, run: 'cat "$parts"/* "$t"/d/* "$o" > "$out"'}
`

// faultsAll is what the last task of faultsGraph makes.
func faultsAll(a, x string) string {
	var b strings.Builder
	for n := 1; n <= 3; n++ {
		fmt.Fprintf(&b, "base %s\npart %d\n", a, n)
	}
	for n := 1; n <= 3; n++ {
		fmt.Fprintf(&b, "%s %d\n", a, n)
	}
	fmt.Fprintf(&b, "base %s\nown %s\n", a, x)
	return b.String()
}

// schedules says how many random schedules are played, and the seed of the first: $E3_TEST_SCHEDULES and $E3_TEST_SEED, else 67, 200 with the three tests that play them, so many in short
// tests and at most so many under the race detector, where each process takes five times as long.
func schedules(t *testing.T, short, raced int) (n int, seed uint64) {
	n, seed = 67, uint64(time.Now().UnixNano())
	if testing.Short() {
		n = short
	}
	if raceBuild {
		n = min(n, raced)
	}
	for name, set := range map[string]func(uint64){
		"E3_TEST_SCHEDULES": func(v uint64) { n = int(v) },
		"E3_TEST_SEED":      func(v uint64) { seed = v },
	} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 63)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			set(v)
		}
	}
	return n, seed
}

// TestFaultSchedules has several machines at work in one repository, each behind a bad network of its own, stopped, killed and cut off
// at random. E3_TEST_SCHEDULES is how many such schedules are played; E3_TEST_SEED repeats the first, and the others in their order.
func TestFaultSchedules(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	n, seed := schedules(t, 5, 15)
	var list []scenario
	for i := range n {
		seed := seed + uint64(i)
		list = append(list, scenario{fmt.Sprintf("seed_%d", seed), func(t *testing.T) { playSchedule(t, seed, badNetwork) }})
	}
	playAll(t, 6, list)
}

// TestRetryingProxy is TestFaultSchedules behind proxies that deliver one request of ten twice, lose one answer of twenty, and hold
// some requests back for longer than a lease.
func TestRetryingProxy(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	n, seed := schedules(t, 2, 2)
	if os.Getenv("E3_TEST_SCHEDULES") == "" {
		n = min(n, 2)
	}
	var list []scenario
	for i := range n {
		seed := seed + uint64(i)
		list = append(list, scenario{fmt.Sprintf("seed_%d", seed), func(t *testing.T) { playSchedule(t, seed, retryingProxy) }})
	}
	playAll(t, 3, list)
}

// A weather draws what befalls the requests of a machine.
type weather func(rnd *rand.Rand, lease time.Duration) []testserver.Rule

func badNetwork(rnd *rand.Rand, _ time.Duration) []testserver.Rule {
	return testserver.Weather(rnd, rnd.Float64()*0.25, 60*time.Millisecond)
}

func retryingProxy(rnd *rand.Rand, lease time.Duration) []testserver.Rule {
	return []testserver.Rule{
		{Fault: testserver.Double, Probability: 0.1},
		{Fault: testserver.DropAfter, Probability: 0.05},
		{Fault: testserver.DelayBefore, Probability: 0.005, Delay: lease + time.Duration(rnd.Int64N(int64(lease)))},
		{Fault: testserver.DelayAfter, Probability: 0.005, Delay: lease + time.Duration(rnd.Int64N(int64(lease)))},
	}
}

// A schedule is what several machines do at the same time.
type schedule struct {
	t        *testing.T
	w        *world
	weather  weather
	began    time.Time
	machines []*machine
	witness  *witness

	mu      sync.Mutex
	unique  int
	settled []setting
	trail   []string
}

// A setting is an attempt to set an input, or to unset it.
type setting struct {
	input      string // with its workspace
	value      string
	begin, end time.Duration // end is far away if it is not known whether it happened
}

const never = time.Duration(1<<63 - 1)

func playSchedule(t *testing.T, seed uint64, weather weather) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := &schedule{t: t, weather: weather, began: time.Now(), witness: newWitness(t)}
	s.w = newProxiedWorld(t, time.Duration(1000+rnd.IntN(1000))*time.Millisecond)
	files := map[string]string{"e3.yaml": faultsGraph}
	for i := range 2 + rnd.IntN(2) {
		s.machines = append(s.machines, s.w.machine("machine-"+string(rune('a'+i)), files))
	}
	first := s.machines[0]
	for _, ws := range s.workspaces() {
		first.calmly("workspace", "create", ws)
		first.calmly("workspace", "deploy", ws, "e3.yaml")
	}
	first.calmly("workspace", "export", "team", "seed.zip")
	for _, m := range s.machines[1:] {
		m.write("seed.zip", first.read("seed.zip"))
	}

	over := make(chan struct{})
	var watcher, actors sync.WaitGroup
	watcher.Go(func() { s.watch(over) })
	watcher.Go(func() { s.witness.follows(s.machines[1], "team", rand.New(rand.NewPCG(seed, 100)), over) })
	for i, m := range s.machines {
		a := &faultsActor{schedule: s, m: m, ws: s.workspaces()[1+i], rnd: rand.New(rand.NewPCG(seed, uint64(1+i)))}
		actors.Go(func() { a.work(4 + a.rnd.IntN(3)) })
	}
	actors.Wait()
	close(over)
	watcher.Wait()
	defer func() {
		if !t.Failed() {
			return
		}
		t.Logf("E3_TEST_SEED=%d E3_TEST_SCHEDULES=1; a lease is %v; what was done:\n  %s", seed, s.w.lease, strings.Join(s.trail, "\n  "))
	}()
	s.settle()
}

// workspaces are the one of all, and one for each machine.
func (s *schedule) workspaces() []string {
	list := []string{"team"}
	for i := range s.machines {
		list = append(list, "w"+strconv.Itoa(i))
	}
	return list
}

// watch looks at the history again and again: what has ended stays as it is.
func (s *schedule) watch(over <-chan struct{}) {
	before := history{}
	for {
		select {
		case <-over:
			return
		case <-time.After(400 * time.Millisecond):
		}
		now := s.w.history(s.t)
		for id, was := range before {
			if is, ok := now[id]; ok && was.State != record.Running && (is.State != was.State || is.OutputHash != was.OutputHash || is.Message != was.Message) {
				s.t.Errorf("the execution %s was %v %s %q, and is %v %s %q", id, was.State, was.OutputHash, was.Message, is.State, is.OutputHash, is.Message)
			}
		}
		before = now
	}
}

// A faultsActor works on one machine.
type faultsActor struct {
	*schedule
	m   *machine
	ws  string // its own
	rnd *rand.Rand
}

// work does so many things in bad weather.
func (a *faultsActor) work(n int) {
	for range n {
		for _, p := range a.m.proxies {
			p.Faults(a.rnd.Uint64(), a.weather(a.rnd, a.w.lease)...)
		}
		a.act()
	}
	for _, p := range a.m.proxies {
		p.Faults(0)
	}
}

func (a *faultsActor) act() {
	ws := a.ws
	if a.rnd.IntN(2) == 0 {
		ws = "team"
	}
	switch a.rnd.IntN(16) {
	case 0, 1, 2, 3, 4:
		a.run([]int{130}, "start", ws, "--json", "-j", "2", "--grace", "100ms")
	case 5, 6, 7:
		a.set(ws, []string{"a", "x"}[a.rnd.IntN(2)])
	case 8:
		a.unset(ws, "x")
	case 9:
		a.run([]int{130}, "start", "-f", "e3.yaml", a.ws, "--json", "-j", "2", "--grace", "100ms")
	case 10:
		a.run([]int{124}, "cancel", ws, "--timeout", "2s")
	case 11:
		a.run(none, "gc")
	case 12:
		a.run(none, "prune", "--keep-last", "1")
	case 13:
		a.run([]int{2}, "workspace", "import", "seed.zip", "copy"+strconv.Itoa(a.rnd.IntN(2)))
	case 14:
		os.Remove(a.m.path("out.zip"))
		a.run(none, "workspace", "export", ws, "out.zip")
	case 15:
		reads := [][]string{{"status", ws}, {"status"}, {"list", ws}, {"events", ws}, {"workspace", "list"}, {"run", ws}, {"logs", ws + ".base"}, {"get", ws + ".all"}}
		a.run([]int{1, 2}, reads[a.rnd.IntN(len(reads))]...)
	}
}

// set sets an input to a value that nothing else has.
func (a *faultsActor) set(ws, input string) {
	a.mu.Lock()
	a.unique++
	value := strconv.Itoa(100 + a.unique)
	a.mu.Unlock()
	a.setting(ws, input, value, "set", ws+"."+input, value)
}

func (a *faultsActor) unset(ws, input string) {
	a.setting(ws, input, "0", "unset", ws+"."+input)
}

func (a *faultsActor) setting(ws, input, value string, args ...string) {
	s := setting{input: ws + "." + input, value: value, begin: time.Since(a.began), end: never}
	if r := a.run(none, args...); r.code == 0 {
		s.end = time.Since(a.began)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = append(a.settled, s)
}

// bad are words that no fault of the network is a reason for.
var bad = regexp.MustCompile(`corrupt object|malformed|panic:|fatal error:|DATA RACE|goroutine `)

// run runs e3 to its end, while this and that happens to it. codes are the exit codes that are in order beside 0, 11 and,
// where the store could not be reached, 1.
func (a *faultsActor) run(codes []int, args ...string) result {
	began := time.Since(a.began)
	x := a.m.spawn(args...)
	fate := a.befall(x)
	ended := x.endsIn(90 * time.Second)
	r := x.result()
	if args[0] == "start" {
		a.witness.saw(r)
	}
	line := fmt.Sprintf("%6.3f-%6.3f %s: e3 %s: %d%s", began.Seconds(), time.Since(a.began).Seconds(), a.m.name, strings.Join(args, " "), r.code, fate)
	if r.code != 0 {
		lines := slices.Collect(strings.Lines(r.stderr))
		line += ": " + strings.TrimSpace(strings.Join(lines[max(0, len(lines)-1):], ""))
	}
	a.mu.Lock()
	a.trail = append(a.trail, line)
	a.mu.Unlock()
	killed := r.code == -1 || r.code == 137
	switch {
	case !ended:
		a.t.Errorf("it hangs: %s\n%s", line, r.stderr)
	case bad.MatchString(r.stderr), r.code == 12:
		a.t.Errorf("this can have no good reason: %s\n%s", line, r.text())
	case killed && strings.Contains(fate, "killed"), r.code == 0, r.code == 11, slices.Contains(codes, r.code):
	case r.code == 1 && unreachable.MatchString(r.stderr):
	case r.code == 1 && strings.Contains(r.stderr, refstore.ErrInDoubt.Error()): // nothing could tell any more
	default:
		a.t.Errorf("exit code %d: %s\n%s", r.code, line, r.text())
	}
	if r.code != 0 && !killed && r.stderr == "" {
		a.t.Errorf("exit code %d without a word: %s", r.code, line)
	}
	return r
}

// unreachable are the words with which e3 says that the store was at fault.
var unreachable = regexp.MustCompile(`gave up after|request send failed|StatusCode: 5|EOF|connection reset|try again`)

// befall may stop, kill or cut off e3 while it works, and tells what it did.
func (a *faultsActor) befall(x *process) string {
	killPoint{delay: time.Duration(a.rnd.Int64N(int64(400 * time.Millisecond)))}.at(x)
	lasts := time.Duration(a.rnd.Int64N(int64(2 * a.w.lease)))
	pause := func() {
		select {
		case <-time.After(lasts):
		case <-x.ended:
		}
	}
	switch a.rnd.IntN(8) {
	case 0:
		a.m.stop(x)
		pause()
		a.m.wake(x)
		return fmt.Sprintf(", stopped for %v", lasts)
	case 1:
		x.kill(false)
		return ", killed"
	case 2:
		a.m.cut()
		pause()
		a.m.plug()
		return fmt.Sprintf(", cut off for %v", lasts)
	}
	return ""
}

// settle demands, now that the weather is fine, that everything that succeeded is there, and that everything goes on.
func (s *schedule) settle() {
	t, m := s.t, s.machines[0]
	for _, ws := range s.workspaces() {
		s.witness.saw(m.calmly("start", ws, "--json", "-j", "3"))
		values := map[string]string{}
		for _, input := range []string{"a", "x"} {
			values[input] = strings.TrimSpace(m.calmly("get", ws+"."+input).stdout)
			s.wasSet(ws+"."+input, values[input])
		}
		m.hasText(ws+".all", faultsAll(values["a"], values["x"]))
		for _, m := range s.machines[:2] {
			wantRan(t, m.calmly("start", ws, "--json"))
		}
	}
	m.verified()
	s.onlyOneSuccess()
	looker := &project{t: t, dir: t.TempDir(), location: s.w.location(s.w.dynamodb, s.w.s3)}
	s.witness.accounts(looker.open(), m, looker.all())
	for _, m := range s.machines {
		noStrays(t, m.dir, 0)
	}
	s.w.check(t, tolerated{collected: true, pruning: true, killed: true, fenced: true})
}

// calmly runs e3 in fine weather until it succeeds: a machine that has too much to do may lose a short lease all the same.
func (m *machine) calmly(args ...string) result {
	m.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		r := m.e3(args...)
		if r.code == 0 {
			return r
		}
		if r.code != 11 || time.Now().After(deadline) {
			m.t.Fatalf("in fine weather, %s: e3 %s: exit code %d\n%s", m.name, strings.Join(args, " "), r.code, r.text())
		}
	}
}

// wasSet demands that an input has the value of a setting after which no other has certainly happened.
func (s *schedule) wasSet(input, value string) {
	initial := map[string]string{"a": "1", "x": "0"}[input[strings.LastIndex(input, ".")+1:]]
	list := append([]setting{{input: input, value: initial}}, s.settled...)
	list = slices.DeleteFunc(list, func(c setting) bool { return c.input != input })
	var may []string
	for _, c := range list {
		overwritten := slices.ContainsFunc(list, func(later setting) bool { return later.end != never && later.begin > c.end })
		if !overwritten {
			may = append(may, c.value)
		}
	}
	if !slices.Contains(may, value) {
		s.t.Errorf("%s is %s; by what was set it may be %s", input, value, strings.Join(may, ", "))
	}
}

// onlyOneSuccess demands that no key has two, but for the command of a process that was found dead and went on: its result
// is recorded under another execution, which names the one that was given up.
func (s *schedule) onlyOneSuccess() {
	n := map[executions.Key][]string{}
	all := s.w.history(s.t)
	for id, e := range all {
		if e.State != record.Success {
			continue
		}
		begun := ""
		if e.Detail != nil && e.Detail.Begun != "" {
			begun = e.Detail.Begun
			if was, ok := all[begun]; ok && was.State == record.Error && executions.Stale(was.Message) && was.Key == e.Key {
				continue
			}
			begun = ", begun as " + begun
		}
		n[e.Key] = append(n[e.Key], fmt.Sprintf("%s (%s to %s%s)", id, e.StartedAt.Format("05.000"), e.CompletedAt.Format("05.000"), begun))
	}
	for key, list := range n {
		if len(list) > 1 {
			s.t.Errorf("the key %s has %d successes: %v", key, len(list), list)
		}
	}
}
