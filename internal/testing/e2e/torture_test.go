//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A torture is one repository and many actors that work in it at the same time, each by running e3. All can be
// stopped.
type torture struct {
	t       *testing.T
	p       *project
	foreign []foreignZip
	stopped sync.RWMutex // held for reading by each action
	end     time.Time

	mu        sync.Mutex
	counts    map[string]map[int]int // command → exit code → times; -1: killed
	frozen    int
	collected int64 // objects that collections have removed
	bytes     int64
	broken    bool // something was wrong: all stop
}

// lost are the words with which e3 says that an object is missing, or that it is at its wits' end.
var lost = regexp.MustCompile(`object not found|missing object|corrupt object|malformed object|is not there|cannot be (found or )?read|panic:|fatal error:|DATA RACE`)

// An actor is one of the users of the repository.
type actor struct {
	*torture
	name  string
	rnd   *rand.Rand
	gone  bool // the last command was killed
	kills int

	trail []string // the last commands, for the message when something goes wrong
}

func (a *actor) over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken || time.Now().After(a.end)
}

func (a *actor) failf(format string, args ...any) {
	a.mu.Lock()
	a.broken = true
	a.mu.Unlock()
	a.t.Errorf("%s: %s\nafter\n  %s", a.name, fmt.Sprintf(format, args...), strings.Join(a.trail, "\n  "))
}

// run runs e3 once. It may be killed at any moment if kill is set, and it may stand still for a while. codes are the
// exit codes that are in order beside 0; to be busy always is.
func (a *actor) run(kill bool, codes []int, args ...string) result {
	x := a.p.spawn(args...)
	a.gone = false
	if a.rnd.IntN(4) == 0 { // what another does meanwhile takes as long as ten of them
		a.standStill(x)
	}
	if kill && a.rnd.IntN(6) == 0 {
		killPoint{delay: time.Duration(a.rnd.Int64N(int64(150 * time.Millisecond)))}.at(x)
		x.kill(a.rnd.IntN(2) == 0)
		if a.gone = x.result().code == -1; a.gone {
			a.kills++
		}
	}
	r := x.wait()
	a.trail = append(a.trail[max(0, len(a.trail)-24):], fmt.Sprintf("%d: e3 %s", r.code, strings.Join(args, " ")))
	command := args[0]
	if len(args) > 1 && slices.Contains([]string{"workspace", "package", "pin"}, command) {
		command += " " + args[1]
	}
	a.mu.Lock()
	if a.counts[command] == nil {
		a.counts[command] = map[int]int{}
	}
	a.counts[command][r.code]++
	a.mu.Unlock()
	switch {
	case a.gone:
	case r.code == 12 || lost.MatchString(r.stderr) || lost.MatchString(r.fault()):
		a.failf("something is lost: e3 %q: exit code %d\n%s", args, r.code, r.text())
	case r.code != 0 && !busy(r) && !slices.Contains(codes, r.code):
		a.failf("e3 %q: exit code %d\n%s", args, r.code, r.text())
	}
	return r
}

// busy reports whether another actor was in the way, so that the command must be tried again.
func busy(r result) bool {
	return r.code == 11 || r.code == 1 && strings.Contains(r.stderr, "was pruned while it was exported; try again")
}

// standStill has a process not run for a while, at some moment.
func (a *actor) standStill(x *process) {
	killPoint{delay: time.Duration(a.rnd.Int64N(int64(40 * time.Millisecond)))}.at(x)
	if syscall.Kill(x.cmd.Process.Pid, syscall.SIGSTOP) != nil {
		return
	}
	select {
	case <-time.After(time.Duration(50+a.rnd.IntN(250)) * time.Millisecond):
	case <-x.ended:
	}
	syscall.Kill(x.cmd.Process.Pid, syscall.SIGCONT)
	a.mu.Lock()
	a.frozen++
	a.mu.Unlock()
}

// must runs e3, again for as long as it was killed or another actor was in the way, and expects one of the exit codes.
func (a *actor) must(codes []int, args ...string) result {
	for {
		r := a.run(!a.over(), codes, args...)
		if !a.gone && !busy(r) || a.isBroken() {
			return r
		}
	}
}

func (a *actor) isBroken() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.broken
}

// Exit codes that are in order beside 0.
var (
	none     []int
	mistaken = []int{2}    // what it names may not be there
	failing  = []int{1}    // a task may fail
	anyRun   = []int{1, 2} // both
)

// repeat has an actor do things until the end. A thing is done between two stops.
func (tt *torture) repeat(wg *sync.WaitGroup, name string, rnd *rand.Rand, act func(a *actor)) {
	a := &actor{torture: tt, name: name, rnd: rand.New(rand.NewPCG(rnd.Uint64(), rnd.Uint64()))}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for !a.over() {
			func() {
				a.stopped.RLock()
				defer a.stopped.RUnlock()
				act(a)
			}()
		}
	}()
}

// TestTorture has many at work in one repository, with garbage being collected all the time: nothing that anybody
// needs may be lost, and garbage must go. E3_E2E_TORTURE is how long it lasts.
func TestTorture(t *testing.T) {
	lasts := 30 * time.Second
	if testing.Short() {
		lasts = 5 * time.Second
	}
	if s := os.Getenv("E3_E2E_TORTURE"); s != "" {
		var err error
		if lasts, err = time.ParseDuration(s); err != nil {
			t.Fatalf("E3_E2E_TORTURE: %v", err)
		}
	}
	rnd := random(t)
	tt := newTorture(t)
	tt.end = time.Now().Add(lasts)
	var wg sync.WaitGroup
	var owners []*owner
	for i := range 4 {
		o := newOwner(tt, fmt.Sprintf("w%d", i))
		owners = append(owners, o)
		tt.repeat(&wg, o.ws, rnd, o.act)
	}
	for _, who := range []struct {
		name string
		act  func(*actor)
	}{
		{"collector", collect}, {"meddler", meddle}, {"pruner", prune}, {"importer", importSome}, {"exporter", exportSome}, {"reader", read},
	} {
		tt.repeat(&wg, who.name, rnd, who.act)
	}
	tt.watch(lasts)
	wg.Wait()
	if t.Failed() {
		return
	}
	tt.verified("at the end")
	tt.garbage()
	for _, o := range owners { // each goes on from where it stopped
		a := &actor{torture: tt, name: o.ws, rnd: rnd}
		o.settle(a)
	}
	tt.p.must("gc", ".")
	tt.verified("after all")
	tt.report()
}

func newTorture(t *testing.T) *torture {
	tt := &torture{t: t, p: newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": holdGraph, "old.txt": "old\n"}), counts: map[string]map[int]int{}}
	tt.p.must("init")
	tt.p.must("workspace", "create", ".", "hold")
	tt.p.must("workspace", "deploy", ".", "hold", "e3.yaml")
	tt.foreign = newForeignZips(t)
	return tt
}

// watch stops all actors from time to time and checks the repository.
func (tt *torture) watch(lasts time.Duration) {
	every := max(lasts/6, 4*time.Second)
	next := time.NewTicker(every)
	defer next.Stop()
	for {
		<-next.C
		tt.mu.Lock()
		over := tt.broken || time.Now().Add(every/2).After(tt.end)
		tt.mu.Unlock()
		if over {
			return
		}
		tt.stopped.Lock()
		tt.verified("at a stop")
		tt.stopped.Unlock()
	}
}

// verified checks the repository while no actor runs.
func (tt *torture) verified(when string) {
	tt.t.Helper()
	noStrays(tt.t, tt.p.dir, 0)
	r := tt.p.e3("verify", ".", "--json")
	var report struct{ Faults []json.RawMessage }
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || len(report.Faults) > 0 {
		tt.broken = true
		tt.t.Fatalf("%s: e3 verify: exit code %d\n%s", when, r.code, r.text())
	}
	c := &checker{root: tt.p.repository(), tolerated: tolerated{collected: true, pruning: true, killed: true}}
	if err := c.run(); err != nil {
		tt.broken = true
		tt.t.Fatalf("%s: %v", when, err)
	}
}

// report tells what was done.
func (tt *torture) report() {
	var lines []string
	total := 0
	for command, codes := range tt.counts {
		var parts []string
		n := 0
		for _, code := range slices.Sorted(maps.Keys(codes)) {
			parts = append(parts, fmt.Sprintf("%d× %s", codes[code], map[bool]string{true: "killed", false: fmt.Sprint(code)}[code == -1]))
			n += codes[code]
		}
		total += n
		lines = append(lines, fmt.Sprintf("  %-18s %5d: %s", command, n, strings.Join(parts, ", ")))
	}
	slices.Sort(lines)
	tt.t.Logf("%d commands, %d of them stood still for a while; %d objects (%d bytes) were collected\n%s",
		total, tt.frozen, tt.collected, tt.bytes, strings.Join(lines, "\n"))
}

// collect removes garbage.
func collect(a *actor) {
	r := a.run(true, none, "gc", ".", "--json")
	if a.gone || r.code != 0 {
		return
	}
	a.countCollected(r)
}

func (tt *torture) countCollected(r result) {
	var report struct {
		Removed struct{ Objects, Bytes int64 }
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		tt.t.Errorf("gc --json: %v", err)
	}
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.collected += report.Removed.Objects
	tt.bytes += report.Removed.Bytes
}

// meddle changes what others look at: values, rejections, pins.
func meddle(a *actor) {
	ws := fmt.Sprintf("w%d", a.rnd.IntN(4))
	switch a.rnd.IntN(6) {
	case 0, 1, 2:
		a.run(true, mistaken, "set", ".", ws+".noise", fmt.Sprint(a.rnd.IntN(12)))
	case 3:
		if id := a.someExecution(); id != "" {
			a.run(true, anyRun, "reject", ".", id, "--reason", "torture")
		}
	case 4:
		if id := a.someExecution(); id != "" {
			a.run(true, anyRun, "reject", ".", id, "--undo")
		}
	case 5:
		if id := a.someExecution(); id != "" {
			a.run(true, anyRun, "pin", []string{"add", "remove"}[a.rnd.IntN(2)], ".", id)
		}
	}
}

// someExecution is the id of an execution that is on record at the moment.
func (a *actor) someExecution() string {
	dir := filepath.Join(a.p.repository(), "executions")
	for range 3 {
		list, _ := os.ReadDir(dir)
		if len(list) == 0 {
			return ""
		}
		dir = filepath.Join(dir, list[a.rnd.IntN(len(list))].Name())
	}
	return filepath.Base(dir)
}

// prune takes executions out.
func prune(a *actor) {
	args := []string{"prune", "."}
	if a.rnd.IntN(2) == 0 {
		args = append(args, "--older-than", []string{"1s", "3s", "10s", "1h"}[a.rnd.IntN(4)])
	}
	if a.rnd.IntN(2) == 0 {
		args = append(args, "--keep-last", fmt.Sprint(1+a.rnd.IntN(3)))
	}
	if a.rnd.IntN(3) == 0 || len(args) == 2 {
		args = append(args, "--max-size", []string{"1B", "20KB", "500KB"}[a.rnd.IntN(3)])
	}
	if a.rnd.IntN(2) == 0 {
		args = append(args, "--no-gc")
	}
	if a.rnd.IntN(8) == 0 {
		args = append(args, "--dry-run")
	}
	a.run(true, none, args...)
	<-time.After(time.Duration(a.rnd.IntN(500)) * time.Millisecond) // or else nothing lasts long enough to be a hit
}

// read asks what can be asked.
func read(a *actor) {
	ws := fmt.Sprintf("w%d", a.rnd.IntN(4))
	switch a.rnd.IntN(10) {
	case 0:
		a.run(false, mistaken, "status", ".", ws)
	case 1:
		a.run(false, none, "status", ".")
	case 2:
		a.run(false, anyRun, "list", ".", ws)
	case 3:
		a.run(false, anyRun, "run", ".", ws)
	case 4:
		a.run(false, anyRun, "logs", ".", ws+".noisy")
	case 5:
		a.run(false, none, "package", "list", ".")
	case 6:
		a.run(false, none, "workspace", "list", ".")
	case 7:
		a.run(false, none, "verify", ".")
	case 8:
		a.run(false, anyRun, "get", ".", ws+".noisy")
	case 9:
		a.run(false, none, "gc", ".", "--dry-run")
	}
}
