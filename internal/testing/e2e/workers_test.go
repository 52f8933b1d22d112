//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// fleetLease is that of scenarios: long enough for a busy machine to renew.
const fleetLease = 3 * time.Second

// fleetGraph has a task that prints its process, and ends at a sign, between two that end at once.
const fleetGraph = `
e3: 1
name: w
inputs:
  a: {value: alpha}
tasks:
  first: {in: [a], out: first.txt, pass_env: [E2E_STATE], run: 'echo "first $E3_EXECUTION" >> "$E2E_STATE/ran"; echo "$a" > "$out"'}
  long:
    in: {from: first}
    out: long.txt
    pass_env: [E2E_STATE]
    run: |
      echo "$$" >> "$E2E_STATE/pids"
      echo "long begins"
      echo "long $E3_EXECUTION" >> "$E2E_STATE/ran"
      until [ -e "$E2E_STATE/go" ]; do sleep 0.05; done
      echo "long ends"
      echo "ended $E3_EXECUTION" >> "$E2E_STATE/ran"
      { cat "$from"; echo long; } > "$out"
  last: {in: [long], out: last.txt, pass_env: [E2E_STATE], run: 'echo "last $E3_EXECUTION" >> "$E2E_STATE/ran"; { cat "$long"; echo last; } > "$out"'}
`

// killedGraph is fleetGraph, where the task in the middle does not go on without its worker.
var killedGraph = strings.Replace(fleetGraph, "out: long.txt\n", "out: long.txt\n    on_lost: kill\n", 1)

const fleetLast = "alpha\nlong\nlast\n"

var fleetStart = []string{"start", "-f", "e3.yaml", "--json", "--workers", "--grace", "300ms"}

// TestWorkers plays failures of workers and of the runs that wait for them. Scenarios wait most of the time, so many
// are played at once.
func TestWorkers(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	var list []scenario
	for _, kind := range fleetKinds {
		for _, s := range []struct {
			name  string
			play  func(*testing.T, *fleet)
			graph string
		}{
			{"all_gone", workersAllGone, killedGraph},
			{"adopted_here", workerAdopted, fleetGraph},
			{"lost_elsewhere", workerLost, killedGraph},
			{"stopped_past_its_lease", workerStopped, fleetGraph},
			{"scheduler_killed", schedulerKilled(false), fleetGraph},
			{"scheduler_killed_early", schedulerKilled(true), fleetGraph},
			{"scheduler_killed_jobs_queued", schedulerKilledQueued, fleetGraph},
			{"cancelled_elsewhere", runCancelledElsewhere, fleetGraph},
			{"drained", workerDrained, fleetGraph},
			{"beside_a_plain_start", besidePlainStart, fleetGraph},
			{"nobody_works", nobodyWorks, fleetGraph},
			{"outlives", outlives, fleetGraph},
		} {
			list = append(list, scenario{kind + "_" + s.name, func(t *testing.T) {
				s.play(t, newFleet(t, kind, fleetLease, 2, map[string]string{"e3.yaml": s.graph}))
			}})
		}
	}
	list = append(list, scenario{"frozen_outlives", func(t *testing.T) {
		v := newVolume(t, "ext4", "64")
		f := newFleetIn(t, newProject(t, nil), v.dir, "fs", fleetLease, 2, map[string]string{"e3.yaml": fleetGraph})
		f.volume = v
		outlives(t, f)
	}})
	for _, when := range []string{"before it knows", "once it knows", "once its lease is over", "before it begins"} {
		list = append(list, scenario{"dynamo_without_a_store_" + strings.ReplaceAll(when, " ", "_"), func(t *testing.T) {
			endsWithoutStore(t, newFleet(t, "dynamo", fleetLease, 1, map[string]string{"e3.yaml": fleetGraph}), when)
		}})
	}
	for _, ends := range []string{"meanwhile", "later"} {
		list = append(list, scenario{"dynamo_store_lost_ends_" + ends, func(t *testing.T) {
			storeLost(t, newFleet(t, "dynamo", fleetLease, 2, map[string]string{"e3.yaml": fleetGraph}), ends)
		}})
	}
	playAll(t, 6, list)
}

// atLong begins a run, and waits until its long task is at work.
func (f *fleet) atLong(m *machine, args ...string) *process {
	f.t.Helper()
	x := m.spawn(append(fleetStart[:len(fleetStart):len(fleetStart)], args...)...)
	f.begins("long", 1)
	return x
}

// commands are the processes of the long task, as their machine numbers them.
func (f *fleet) commands() []string {
	data, _ := os.ReadFile(f.state + "/pids")
	return strings.Fields(string(data))
}

// done demands that a run has succeeded, and that it made what it had to.
func (f *fleet) done(m *machine, x *process) result {
	f.t.Helper()
	r := x.wait()
	if r.code != 0 {
		f.t.Fatalf("exit code %d\n%s\nmarks:\n%s", r.code, r.text(), f.sortedMarks())
	}
	m.hasText("w.last", fleetLast)
	return r
}

// over demands that nothing is left when workers have been told to end, that the repository is whole, and that nothing
// is done again.
func (f *fleet) over(m *machine, workers ...*process) {
	f.t.Helper()
	m.idle(patience)
	for _, w := range workers {
		m.drain(w)
	}
	f.gone()
	wantRan(f.t, m.start(0))
	f.whole(tolerated{fenced: true, killed: true, collected: true})
}

// types are the events of a start about a task, in order.
func (r result) types(t testing.TB, task string) (list []events.Type) {
	for _, e := range r.events(t) {
		if e.Task == task {
			list = append(list, e.Type)
		}
	}
	return list
}

// A worker is killed. One that begins on the same machine goes on with its command: that is the same process, and what
// it said is in its log once.
func workerAdopted(t *testing.T, f *fleet) {
	a := f.machines[0]
	w := a.worker()
	x := f.atLong(a)
	w.kill(false)
	next := a.worker()
	next.waitLine(`"type":"job.adopted"`)
	f.let()
	f.done(a, x)
	if n, pids := f.begun("long"), f.commands(); n != 1 || len(pids) != 1 {
		t.Errorf("the command was begun %d times, as the processes %v; want once\n%s", n, pids, f.sortedMarks())
	}
	e := f.looker().only("long")
	if got := f.looker().log(e, executions.Stdout); got != "long begins\nlong ends\n" {
		t.Errorf("its log is %q", got)
	}
	f.over(a, next)
	f.onlyOneSuccess()
}

// A worker is killed, and there is none on its machine. Its command, which says so, is killed within a lease, and begun
// again elsewhere.
func workerLost(t *testing.T, f *fleet) {
	needElsewhere(t)
	a, b := f.machines[0], f.machines[1]
	w := a.worker()
	x := f.atLong(a)
	f.announced()
	other := b.worker()
	_, first, _ := strings.Cut(f.mark("long"), " ")
	killed := time.Now()
	w.kill(false)
	eventually(t, fleetLease+slack, "the end of what a lost worker ran", func() string { return f.straysOf(first) })
	ended := time.Since(killed)
	f.begins("long", 2)
	again := time.Since(killed)
	t.Logf("with a lease of %v the command had ended after %v, and was begun elsewhere after %v", fleetLease, ended, again)
	if limit := 3*fleetLease + slack; again > limit {
		t.Errorf("it was begun again after %v, want at most %v", again, limit)
	}
	x.waitLine(`"type":"task.retry_scheduled"`)
	f.let()
	r := f.done(b, x)
	if got := r.types(t, "long"); !hasAll(got, events.TaskStarted, events.TaskRetryScheduled, events.TaskCompleted) {
		t.Errorf("the events of the task are %v; that it was lost is to be among them\n%s", got, r.stdout)
	}
	wantStates(t, f.looker().of("long"), record.Error, record.Success)
	f.over(b, other)
	f.onlyOneSuccess()
}

// mark is the first that a task left.
func (f *fleet) mark(task string) string {
	for _, mark := range f.ran() {
		if name, _, _ := strings.Cut(mark, " "); name == task {
			return mark
		}
	}
	return ""
}

// straysOf are the processes of an execution.
func (f *fleet) straysOf(execution string) string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ")
		if strings.Contains(string(environ), "E3_EXECUTION="+execution) {
			left = append(left, filepath.Base(dir))
		}
	}
	return strings.Join(left, " ")
}

func hasAll(list []events.Type, want ...events.Type) bool {
	for _, w := range want {
		found := false
		for _, is := range list {
			found = found || is == w
		}
		if !found {
			return false
		}
	}
	return true
}

// A worker is stopped for longer than its lease. Its supervisor kills its command; the job is done elsewhere; when it
// wakes up it says that it has lost the lease, writes nothing, and works on.
func workerStopped(t *testing.T, f *fleet) {
	needElsewhere(t)
	a, b := f.machines[0], f.machines[1]
	w := a.worker()
	x := f.atLong(a)
	f.announced()
	other := b.worker()
	a.stop(w)
	f.begins("long", 2)
	f.let()
	f.done(b, x)
	before := f.executions()
	b.drain(other)
	a.wake(w)
	w.waitLine(`"type":"worker.lost"`)
	w.waitLine(`"type":"worker.ready"`)
	f.executions().follows(t, before)

	// Only this worker continues.
	began := f.begun("last")
	r := b.e3("start", "w", "--json", "--workers", "--force", "--filter", "last")
	if r.code != 0 || f.begun("last") != began+1 {
		t.Errorf("a worker that lost its lease: exit code %d, want it to stop\n%s", r.code, r.text())
	}
	f.over(a, w)
}

// A worker without a task ends soon after one signal, whatever it waits for, although its store is gone.
func endsWithoutStore(t *testing.T, f *fleet, when string) {
	a := f.machines[0]
	var w *process
	if when == "before it begins" {
		a.cut()
		w = a.spawn("worker", "--json")
		time.Sleep(time.Second)
	} else {
		w = a.worker()
		a.cut()
	}
	switch when {
	case "once it knows":
		w.waitLine(`"type":"worker.stalled"`)
	case "once its lease is over":
		w.quietly(t, 4*fleetLease, "", func() bool { return false })
	}
	syscall.Kill(w.pid(), syscall.SIGTERM)
	if !w.endsIn(8 * time.Second) {
		t.Errorf("it goes on\n%s", w.result().text())
	}
	a.plug()
}

// executions is the history of all.
func (f *fleet) executions() history {
	h := history{}
	for _, e := range f.looker().all() {
		h[e.Key.String()+" "+e.ExecutionID] = *e
	}
	return h
}

// A worker cannot reach the store for longer than a lease: its command goes on. When the store is there again, the same
// worker, or one that it begins anew because others found it dead, records the end. Nothing is begun twice.
func storeLost(t *testing.T, f *fleet, ends string) {
	a, b := f.machines[0], f.machines[1]
	w := a.worker()
	x := f.atLong(b)
	a.cut()
	w.waitLine(`"type":"worker.stalled"`)
	w.quietly(t, outage(2*fleetLease), "the command ends", func() bool { return len(strays(a.dir, 0)) == 0 })
	if ends == "meanwhile" {
		f.let()
	}
	a.plug()
	f.let()
	f.done(b, x)
	if n := f.begun("long"); n != 1 {
		t.Errorf("the command was begun %d times, want once", n)
	}
	f.over(a, w)
	f.onlyOneSuccess()
}

// A command survives an outage of the store that all machines have, a restart of its worker and a restart of its run,
// and is begun once. A folder whose file system can be frozen takes no write meanwhile, as behind a network that is down; of others
// nothing is cut off.
func outlives(t *testing.T, f *fleet) {
	a, b := f.machines[0], f.machines[1]
	w := a.worker()
	x := f.atLong(b)
	begun := time.Now()
	f.announced()
	if f.kind != "fs" || f.volume != nil {
		f.cut()
		w.waitLine(`"type":"worker.stalled"`)
		f.quietFor(w, outage(2*fleetLease))
		f.plug()
		w.waitLine(`"type":"worker.resumed"`)
	}
	w.kill(false)
	f.quietFor(x, 2*fleetLease) // the lease of the dead worker is over
	w = a.worker()
	x.kill(false)
	x = b.spawn(fleetStart...)
	x.waitLine(`"type":"run.started"`)
	f.quietFor(x, max(fleetLease, commandLength()-time.Since(begun)))
	t.Logf("the command lasted for %v", time.Since(begun).Round(time.Second))
	f.let()
	f.done(b, x)
	if n := f.begun("long"); n != 1 {
		t.Errorf("the command was begun %d times, want once", n)
	}
	f.over(a, w)
	f.onlyOneSuccess()
}

// commandLength is how long the command that outlives everything lasts at least; E3_E2E_COMMAND makes it longer.
func commandLength() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("E3_E2E_COMMAND"))
	return d
}

// quietFor demands for a while that the long command is not begun again.
func (f *fleet) quietFor(x *process, d time.Duration) {
	f.t.Helper()
	x.quietly(f.t, d, "another begins", func() bool { return f.begun("long") != 1 })
}

// The scheduler is killed while a worker is in the middle of a task. The next run waits for what runs, and has it as a
// hit; or, if the execution was not on record yet, waits for the dead run's job.
func schedulerKilled(early bool) func(*testing.T, *fleet) {
	return func(t *testing.T, f *fleet) {
		a := f.machines[0]
		w := a.worker()
		x := f.atLong(a)
		if !early {
			f.announced()
		}
		x.kill(false)
		next := a.spawn(fleetStart...)
		next.waitLine(`"type":"run.started"`)
		w.quietly(t, time.Second, "another begins", func() bool { return f.begun("long") > 1 })
		f.let()
		r := f.done(a, next)
		if !early {
			wantRan(t, r, "last")
		}
		if n := f.begun("long"); n != 1 {
			t.Errorf("the command was begun %d times, want once", n)
		}
		wantStates(t, f.looker().of("long"), record.Success)
		f.over(a, w)
		f.onlyOneSuccess()
	}
}

// announced waits until the execution of the long task is on record.
func (f *fleet) announced() {
	f.t.Helper()
	p := f.looker()
	eventually(f.t, patience, "the execution of the long task", func() string {
		if len(p.of("long")) == 0 {
			return "it is not on record"
		}
		return ""
	})
}

// quietly demands that something does not happen for a while.
func (x *process) quietly(t testing.TB, d time.Duration, what string, happens func() bool) {
	t.Helper()
	deadline := time.After(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if happens() {
				t.Errorf("%s", what)
				return
			}
		case <-x.ended:
			t.Errorf("e3 has ended\n%s", x.result().text())
			return
		case <-deadline:
			return
		}
	}
}

// queuedGraph has more tasks than a worker of one core takes.
const queuedGraph = `
e3: 1
name: w
inputs:
  a: {value: alpha}
tasks:
  first: {in: [a], out: first.txt, run: 'echo "$a" > "$out"'}
  part:
    in: {from: first}
    out: part.txt
    matrix: {n: [1, 2, 3, 4]}
    pass_env: [E2E_STATE]
    run: |
      echo "part $E3_EXECUTION" >> "$E2E_STATE/ran"
      echo "long $E3_EXECUTION" >> "$E2E_STATE/ran"
      until [ -e "$E2E_STATE/go" ]; do sleep 0.05; done
      cat "$from" > "$out"
  last: {in: {parts: "part[*]"}, out: last.txt, run: 'cat "$parts"/* > "$out"'}
`

// The scheduler is killed while most of its tasks wait for a worker. The next run makes jobs of its own of these, and
// waits for the one that runs: each is done once.
func schedulerKilledQueued(t *testing.T, f *fleet) {
	a := f.machines[0]
	a.write("e3.yaml", queuedGraph)
	w := a.worker("-j", "1")
	x := f.atLong(a)
	eventually(t, patience, "three that wait", func() string {
		for _, q := range a.queues() {
			if q.Ready == 3 && len(q.Running) == 1 {
				return ""
			}
		}
		return fmt.Sprintf("%+v", a.queues())
	})
	x.kill(false)
	next := a.spawn(fleetStart...)
	eventually(t, patience, "three that wait for the next run, and one that the last has left", func() string {
		var list struct {
			Jobs []struct{ Run, Status string }
		}
		said := a.expect(0, "queue", "list", "--json").stdout
		if err := json.Unmarshal([]byte(said), &list); err != nil {
			return err.Error()
		}
		n := map[string]int{} // jobs of a status and run
		for _, j := range list.Jobs {
			n[j.Status+j.Run]++
			n[j.Run]++
		}
		if len(n) == 4 && len(list.Jobs) == 4 && n["running"+list.Jobs[0].Run] == 1 && n[list.Jobs[0].Run] == 1 {
			return ""
		}
		return said
	})
	f.let()
	if r := next.wait(); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	a.hasText("w.last", strings.Repeat("alpha\n", 4))
	a.idle(patience)
	if n := f.begun("part"); n != 4 {
		t.Errorf("four tasks were begun %d times\n%s", n, f.sortedMarks())
	}
	f.over(a, w)
	f.onlyOneSuccess()
}

// A run is cancelled from another machine: the worker's command ends, and nothing waits any more.
func runCancelledElsewhere(t *testing.T, f *fleet) {
	a, b := f.machines[0], f.machines[1]
	w := a.worker()
	x := f.atLong(a)
	if got := cancelStatus(t, b.e3("cancel", "w", "--reason", "wrong input", "--json")); got != "cancelled" {
		t.Errorf("it is said to be %s", got)
	}
	cancelled(t, x.wait(), "wrong input")
	w.waitLine(`"type":"job.ended"`) // first
	b.idle(patience)
	f.gone()
	wantStates(t, f.looker().of("long"), record.Error)
	f.let()
	f.done(a, a.spawn(fleetStart...))
	f.over(a, w)
}

// A worker is told to end: it finishes what it runs and takes nothing more; another does the rest.
func workerDrained(t *testing.T, f *fleet) {
	a := f.machines[0]
	w := a.worker()
	x := f.atLong(a)
	syscall.Kill(w.pid(), syscall.SIGTERM)
	w.waitLine(`"type":"worker.draining"`)
	f.let()
	if r := w.wait(); r.code != 0 {
		t.Errorf("exit code %d\n%s", r.code, r.text())
	}
	if f.begun("long") != 1 || f.begun("last") != 0 {
		t.Errorf("it was to finish one task and take no other:\n%s", f.sortedMarks())
	}
	next := a.worker()
	f.done(a, x)
	f.over(a, next)
	f.onlyOneSuccess()
}

// Another workspace with the same tasks is started beside, in its own process: each task is done once.
func besidePlainStart(t *testing.T, f *fleet) {
	a := f.machines[0]
	w := a.worker()
	x := f.atLong(a)
	y := a.spawn("start", "-f", "e3.yaml", "--json", "other")
	y.waitLine(`"type":"task.cached"`) // the first
	y.quietly(t, time.Second, "another begins", func() bool { return f.begun("long") > 1 })
	f.let()
	f.done(a, x)
	r := y.wait()
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	for _, task := range []string{"first", "long", "last"} {
		if n := f.begun(task); n != 1 {
			t.Errorf("%s was begun %d times, want once", task, n)
		}
	}
	a.hasText("other.last", fleetLast)
	f.over(a, w)
	f.onlyOneSuccess()
}

// There is no worker. A start says what to type; Ctrl-C ends it, and leaves nothing that waits. What it says does it.
func nobodyWorks(t *testing.T, f *fleet) {
	a := f.machines[0]
	x := a.spawn("start", "-f", "e3.yaml", "--workers")
	eventually(t, patience, "a word about workers", func() string {
		if n := f.waiting(a); n == 0 {
			return "nothing waits"
		}
		return ""
	})
	x.quietly(t, 6*time.Second, "", func() bool { return false }) // it is said after five
	syscall.Kill(x.pid(), syscall.SIGINT)
	r := x.wait()
	if r.code != 130 || !strings.Contains(r.stderr, "No worker takes the tasks of queue default; start one with: e3 worker ") {
		t.Errorf("exit code %d, want 130 and what to type\n%s", r.code, r.text())
	}
	if n := f.waiting(a); n > 0 {
		t.Errorf("%d jobs wait whose runs are gone, want none", n)
	}
	f.let()
	w := a.worker()
	f.done(a, a.spawn(fleetStart...))
	f.over(a, w)
	f.onlyOneSuccess()
}

// waiting is how many jobs wait.
func (f *fleet) waiting(m *machine) (n int) {
	f.t.Helper()
	for _, q := range m.queues() {
		n += q.Ready + q.Delayed
	}
	return n
}

// All workers are gone in the middle of a task, and the scheduler with them. A plain start does not wait for them for
// ever.
func workersAllGone(t *testing.T, f *fleet) {
	a := f.machines[0]
	w := a.worker()
	x := f.atLong(a)
	f.announced()
	x.kill(false)
	w.kill(true)
	f.gone()
	f.let()
	y := a.spawn("start", "-f", "e3.yaml", "--json")
	if !y.endsIn(2 * time.Minute) {
		t.Fatalf("a plain start waits for a job whose workers are all gone\n%s", y.result().text())
	}
	f.done(a, y)
	next := a.worker()
	f.over(a, next)
}
