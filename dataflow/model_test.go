package dataflow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/objectstore"
)

// scenario is a graph with how each task behaves, drawn before the clock is faked.
type scenario struct {
	pkg      *record.Package
	good     map[string]int64 // first attempt that goes well; 0: none
	takes    map[string]time.Duration
	error    map[string]bool // its failures are errors
	known    map[string]bool // a hit, in a world that has run it
	other    map[string]other
	late     bool // cancellations find commands announced and not started
	cores    int
	memory   int64
	failFast bool
	force    bool
	filter   string
	cancel   time.Duration // 0: never
	lookups  int
	// What stops tasks, and what is lost.
	suspends    map[string]int               // how often the command suspends itself
	people      map[string]decision          // decisions by task
	lost        map[string]int               // how many workers are lost before one makes the first attempt
	reason      map[string]executions.Reason // of its errors
	outstanding int                          // 0: executions are made here

	losses bool            // what follows counts, and what a task reads must be there
	gone   map[string]bool // the output of the run before is gone
	spoilt map[string]int  // how many outputs that a task makes are damaged at once
	varies map[string]bool // its outputs differ
}

// decision is what a person does each time when asked about a task.
type decision struct {
	after   time.Duration
	rejects bool
}

// other is another run's answer, which an attempt finds; zero: none.
type other struct {
	attempt int64
	state   record.State
}

func (s scenario) String() string {
	var b strings.Builder
	for i := range s.pkg.Tasks {
		t := &s.pkg.Tasks[i]
		fmt.Fprintf(&b, "%s reads", t.Name)
		for _, w := range t.Wiring {
			fmt.Fprintf(&b, " %s", w.Name)
		}
		fmt.Fprintf(&b, "; good %d, takes %v, retries %d on %q, lost %d, approve %v; ", s.good[t.Name], s.takes[t.Name], t.Policy.Retries, t.Policy.RetryOn, t.Policy.Lost, t.Policy.Approve)
	}
	fmt.Fprintf(&b, "suspends %v people %v lost %v reasons %v outstanding %d; ", s.suspends, s.people, s.lost, s.reason, s.outstanding)
	fmt.Fprintf(&b, "losses %v gone %v spoilt %v varies %v; ", s.losses, s.gone, s.spoilt, s.varies)
	fmt.Fprintf(&b, "cores %d memory %d failfast %v force %v filter %q cancel %v late %v others %v lookups %d",
		s.cores, s.memory, s.failFast, s.force, s.filter, s.cancel, s.late, s.other, s.lookups)
	return b.String()
}

var scenarios = rapid.Custom(func(t *rapid.T) scenario {
	s := scenario{
		good: map[string]int64{}, takes: map[string]time.Duration{}, error: map[string]bool{},
		suspends: map[string]int{}, people: map[string]decision{}, lost: map[string]int{}, reason: map[string]executions.Reason{},
	}
	if rapid.Bool().Draw(t, "elsewhere") {
		s.outstanding = rapid.IntRange(1, 5).Draw(t, "outstanding")
	}
	n := rapid.IntRange(1, 9).Draw(t, "tasks")
	var lines []string
	for i := range n {
		line := fmt.Sprintf("t%d:", i)
		for d := range i {
			if rapid.IntRange(0, 2).Draw(t, "reads") == 0 {
				line += fmt.Sprintf(" t%d", d)
			}
		}
		lines = append(lines, line)
	}
	s.pkg = flow(rapid.Permutation(lines).Draw(t, "declared")...)
	for i := range s.pkg.Tasks {
		task := &s.pkg.Tasks[i]
		s.good[task.Name] = int64(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3, 0}).Draw(t, "good"))
		s.takes[task.Name] = time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second
		s.error[task.Name] = rapid.Bool().Draw(t, "error")
		task.Policy = record.Policy{
			Retries: int64(rapid.IntRange(0, 2).Draw(t, "retries")), Backoff: time.Duration(rapid.IntRange(0, 3).Draw(t, "backoff")) * time.Second,
			CPU: rapid.SampledFrom([]float64{0, 0.5, 1, 2, 9}).Draw(t, "cpu"), Memory: int64(rapid.IntRange(0, 6).Draw(t, "memory")),
			Priority: int64(rapid.IntRange(-1, 1).Draw(t, "priority")),
		}
		s.draw(t, task)
		if rapid.IntRange(0, 3).Draw(t, "gpu") == 0 {
			task.Policy.Resources = []record.Amount{{Name: "gpu", Value: 1}}
		}
	}
	s.cores = rapid.IntRange(1, 4).Draw(t, "cores")
	s.memory = int64(rapid.SampledFrom([]int{0, 4, 10}).Draw(t, "limit"))
	s.failFast = rapid.IntRange(0, 3).Draw(t, "failfast") == 0
	s.force = rapid.IntRange(0, 3).Draw(t, "force") == 0
	s.filter = rapid.SampledFrom([]string{"", "", "t0", "t1", "t?"}).Draw(t, "filter")
	if rapid.IntRange(0, 3).Draw(t, "cancelled") == 0 {
		s.cancel = time.Duration(rapid.IntRange(1, 60).Draw(t, "cancel")) * time.Second / 2
	}
	s.known, s.other = map[string]bool{}, map[string]other{}
	for i := range s.pkg.Tasks {
		name := s.pkg.Tasks[i].Name
		s.known[name] = rapid.IntRange(0, 3).Draw(t, "known") == 0
		if rapid.IntRange(0, 5).Draw(t, "other") == 0 {
			s.other[name] = other{int64(rapid.IntRange(1, 2).Draw(t, "of attempt")), rapid.SampledFrom([]record.State{record.Failed, record.Success}).Draw(t, "another's")}
		}
	}
	s.late = rapid.Bool().Draw(t, "late")
	if s.losses = rapid.IntRange(0, 2).Draw(t, "losses") == 0; s.losses {
		s.gone, s.spoilt, s.varies = map[string]bool{}, map[string]int{}, map[string]bool{}
		for i := range s.pkg.Tasks {
			name := s.pkg.Tasks[i].Name
			s.gone[name] = rapid.IntRange(0, 2).Draw(t, "gone") == 0
			s.varies[name] = rapid.IntRange(0, 3).Draw(t, "varies") == 0
			if rapid.IntRange(0, 9).Draw(t, "spoils") == 0 {
				s.spoilt[name] = rapid.IntRange(1, 2).Draw(t, "spoilt")
			}
		}
	}
	s.lookups = rapid.IntRange(0, 4).Draw(t, "lookups")
	return s
})

// draw draws what a person or a worker may do to a task.
func (s *scenario) draw(t *rapid.T, task *record.PackageTask) {
	p, name := &task.Policy, task.Name
	p.Suspend = suspendCode
	p.Approve = rapid.IntRange(0, 4).Draw(t, "approve") == 0
	if rapid.IntRange(0, 4).Draw(t, "suspend") == 0 {
		s.suspends[name] = rapid.IntRange(1, 2).Draw(t, "suspends")
	}
	s.people[name] = decision{time.Duration(rapid.IntRange(0, 40).Draw(t, "decides")) * time.Second, rapid.IntRange(0, 4).Draw(t, "rejects") == 0}
	if rapid.IntRange(0, 4).Draw(t, "loses") == 0 {
		s.lost[name] = rapid.IntRange(1, 5).Draw(t, "lost")
	}
	p.Lost = record.LostRetries(rapid.IntRange(-1, 2).Draw(t, "lost attempts"))
	p.RetryOn = rapid.SampledFrom([][]string{nil, nil, {"exit"}, {"3", "lost"}, {"4", "oom"}, {"signal", "timeout"}}).Draw(t, "on")
	p.OOM = record.Escalation{Factor: rapid.SampledFrom([]float64{0, 1.5, 3}).Draw(t, "factor"), Max: int64(rapid.IntRange(0, 9).Draw(t, "most"))}
	s.reason[name] = rapid.SampledFrom([]executions.Reason{executions.ReasonSignal, executions.ReasonOOM}).Draw(t, "reason")
}

// expected is what becomes of a task by what it does itself, if nothing ends the run early: whether it succeeds, and how many
// attempts were made.
func (s *scenario) expected(task *record.PackageTask) (good bool, attempts int64) {
	p, name := &task.Policy, task.Name
	person := s.people[name]
	if p.Approve && person.rejects {
		return false, 0
	}
	if s.outstanding > 0 {
		lost, most := int64(s.lost[name]), mostLost(p)
		if lost > most {
			return false, most + 1
		}
		attempts += lost
	}
	if n := int64(s.suspends[name]); n > 0 {
		if person.rejects {
			return false, attempts + 1
		}
		attempts += n
	}
	worth := len(p.RetryOn) == 0
	for _, on := range p.RetryOn {
		if s.error[name] {
			worth = worth || on == string(s.reason[name])
		} else {
			worth = worth || on == "exit" || on == "3"
		}
	}
	most := int64(1)
	if worth {
		most += p.Retries
	}
	if n := s.good[name]; n > 0 && n <= most {
		return true, attempts + n
	}
	return false, attempts + most
}

// mostLost is how many further attempts there are of a task whose worker was lost.
func mostLost(p *record.Policy) int64 {
	switch {
	case len(p.RetryOn) > 0 && !slices.Contains(p.RetryOn, "lost"), p.Lost < 0:
		return 0
	case p.Lost == 0:
		return 3
	}
	return int64(p.Lost)
}

// behaviour is how the attempts of the tasks go, one after the other.
func (s *scenario) behaviour() func(task string, attempt int64) behaviour {
	var mu sync.Mutex
	done := map[string]int64{} // attempts that were neither lost nor suspended
	suspended, lost := map[string]int{}, map[string]bool{}
	return func(task string, attempt int64) behaviour {
		mu.Lock()
		defer mu.Unlock()
		b := behaviour{takes: s.takes[task], late: s.late, silent: s.outstanding > 0 && len(task)%2 == 0}
		if o := s.other[task]; o.attempt == attempt {
			b.other = o.state
			return b
		}
		if s.outstanding > 0 && s.lost[task] > 0 && !lost[task] {
			lost[task] = true
			i := slices.IndexFunc(s.pkg.Tasks, func(t record.PackageTask) bool { return t.Name == task })
			if most := int(mostLost(&s.pkg.Tasks[i].Policy)); s.lost[task] > most {
				b.lost, b.error = most, executions.ReasonLost
				return b
			}
			b.lost = s.lost[task]
		}
		if suspended[task] < s.suspends[task] {
			suspended[task]++
			b.suspends = true
			return b
		}
		done[task]++
		if good := s.good[task]; good == 0 || done[task] < good {
			if b.fails = true; s.error[task] {
				b.fails, b.error = false, s.reason[task]
			}
		}
		return b
	}
}

// Whatever the graph, its tasks and its limits: the rules of a run hold.
func TestSchedulerModel(t *testing.T) {
	walked := map[eventstest.Edge]int{}
	untrodden := func() (edges []eventstest.Edge) {
		for _, e := range eventstest.Diagram() {
			before := e.From == eventstest.Ready && e.Type == events.TaskResumed
			if walked[e] == 0 && e.Type != events.TaskLeftOut && e.From != eventstest.Unnamed && !e.Closing() && !e.OfBatch() && !e.OfReplacedInput() && !before { // nothing is proven or approved before, no run dies, none has batches (TestBatchModel), no fan-in has a need (TestNeedProperty), and losses between attempts are too rare
				edges = append(edges, e)
			}
		}
		return edges
	}
	// Some ways are rare, one in some thousand scenarios: there are more runs until each has been gone.
	for range 2000 {
		rapid.Check(t, func(rt *rapid.T) {
			s := scenarios.Draw(rt, "scenario")
			var faults []string
			synctest.Test(t, func(t *testing.T) { faults = s.check(t, walked) })
			if len(faults) > 0 {
				rt.Fatalf("%v\n%s", s, strings.Join(faults, "\n"))
			}
		})
		if t.Failed() || len(untrodden()) == 0 {
			break
		}
	}
	for _, e := range untrodden() {
		t.Errorf("no run has gone this way: %v", e)
	}
}

// check runs the scenario and returns the rules that it breaks.
func (s scenario) check(t *testing.T, walked map[eventstest.Edge]int) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	g := graphOf(t, s.pkg)
	w, log := newWorld(), &emitted{}
	// What is known was found by an earlier run in which all went well.
	before := newPeople(t, func(approval.Block) decision { return decision{} })
	run(t.Context(), t, g, w, func(o *dataflow.Options) { o.Blocks = before })
	before.leave()
	for key, res := range w.cache {
		i := slices.IndexFunc(s.pkg.Tasks, func(p record.PackageTask) bool { return p.Task == key.Task.String() })
		if name := s.pkg.Tasks[i].Name; !s.known[name] {
			delete(w.cache, key)
		} else if s.gone[name] {
			w.objects.Delete(res.Output)
		}
	}
	if s.losses {
		s.lose(w)
	}
	w.ran, w.calls, w.requests = nil, nil, nil
	w.behave, w.workers = s.behaviour(), s.outstanding > 0
	asked := newPeople(t, func(b approval.Block) decision { return s.people[b.Task] })
	w.watch = func(live map[string]*record.Policy) {
		if text := s.overload(live); text != "" {
			fault("%s", text)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := time.Now()
	if s.cancel > 0 {
		time.AfterFunc(s.cancel, cancel)
	}
	out, err := s.start(ctx, g, w, func(o *dataflow.Options) {
		o.Concurrency, o.Memory, o.FailFast, o.Force, o.Filter, o.Emit = s.cores, s.memory, s.failFast, s.force, s.filter, log.emit
		o.Lookups, o.Outstanding, o.Blocks = s.lookups, s.outstanding, asked
	})
	asked.leave()
	var again *dataflow.LostAgainError
	if err != nil && !(s.losses && errors.As(err, &again)) {
		fault("the run fails: %v", err)
		return faults
	}
	if s.losses {
		for _, text := range s.consistent(t, g, w, out, log, walked) {
			fault("%s", text)
		}
		if text := asked.left(g, out); text != "" {
			fault("%s", text)
		}
		return faults
	}
	early := s.failFast && out.Summary.Failed > 0 || s.cancel > 0 && time.Since(began) >= s.cancel

	selected, named := make([]bool, g.Len()), make([]bool, g.Len())
	for i := range selected {
		selected[i], named[i] = true, true
	}
	if s.filter != "" {
		named, selected = g.Select(s.filter)
	}
	ended := map[string]time.Time{}
	for _, st := range w.ran {
		ended[st.task] = st.end
	}
	var sum record.Summary
	for i := range out.Tasks {
		name, state := g.Name(int32(i)), out.Tasks[i].State
		attempts := int64(0)
		for _, st := range w.ran {
			if st.task != name {
				continue
			}
			attempts++
			for _, d := range g.Dependencies(int32(i)) {
				if end, ran := ended[g.Name(d)]; ran && end.After(st.start) {
					fault("%s runs before %s, which it reads, has ended", name, g.Name(d))
				}
			}
			if s.cancel > 0 && st.start.Sub(began) > s.cancel {
				fault("%s starts %v after the run was called off", name, st.start.Sub(began)-s.cancel)
			}
		}
		if !selected[i] {
			if state != dataflow.Pending || attempts > 0 {
				fault("%s is not selected and %s after %d attempts", name, stateNames[state], attempts)
			}
			continue
		}
		var upFailed, upOpen bool
		for _, d := range g.Dependencies(int32(i)) {
			switch out.Tasks[d].State {
			case dataflow.Failed, dataflow.Skipped:
				upFailed = true
			case dataflow.Abandoned:
				upOpen = true
			}
		}
		forced := s.force && named[i]
		good, want := s.expected(&s.pkg.Tasks[i])
		alone := s.other[name].state == 0 // nothing but what it does itself matters
		sum.Total++
		switch state {
		case dataflow.Cached:
			sum.Completed++
			sum.Cached++
			if alone && (forced || !s.known[name] || attempts > 0) {
				fault("%s is cached; forced %v, known %v, %d attempts", name, forced, s.known[name], attempts)
			}
		case dataflow.Succeeded:
			sum.Completed++
			if alone && (!good || attempts != want) {
				fault("%s succeeded in attempt %d; it should: %v, in attempt %d", name, attempts, good, want)
			}
			if s.known[name] && !forced {
				fault("%s ran though it was known", name)
			}
		case dataflow.Failed:
			sum.Failed++
			if alone && !early && (good || attempts != want) {
				fault("%s failed after %d attempts; it should: %v, after %d", name, attempts, !good, want)
			}
		case dataflow.Skipped:
			sum.Skipped++
			if !upFailed || attempts > 0 {
				fault("%s is skipped; something upstream failed: %v; %d attempts", name, upFailed, attempts)
			}
		case dataflow.Abandoned:
			sum.Skipped++
			if !early || attempts > 0 && s.suspends[name] == 0 && s.outstanding == 0 { // a worker may go on with it
				fault("%s is abandoned; the run ended early: %v; %d attempts", name, early, attempts)
			}
		default:
			fault("%s is left %s", name, stateNames[state])
		}
		if (upFailed || upOpen) && (state == dataflow.Cached || state == dataflow.Succeeded || state == dataflow.Failed) {
			fault("%s is %s without what it reads", name, stateNames[state])
		}
		if upFailed && state != dataflow.Skipped {
			fault("%s is %s though something upstream failed", name, stateNames[state])
		}
		if states[state] != log.state(name) {
			fault("%s is %s; its events are %v", name, stateNames[state], log.of(name))
		}
	}
	if text := asked.left(g, out); text != "" {
		fault("%s", text)
	}
	if err := log.walk(out, walked); err != nil {
		fault("%v", err)
	}
	if sum != out.Summary {
		fault("summary is %+v, want %+v", out.Summary, sum)
	}
	switch {
	case out.State == record.RunCancelled && s.cancel == 0, out.State == record.RunCompleted && sum.Completed != sum.Total,
		out.State == record.RunFailed && (sum.Failed == 0 || out.FailedTask == "" || out.Error == ""), out.State == record.RunRunning:
		fault("the run is %v, %q, %q with %+v", out.State, out.FailedTask, out.Error, sum)
	}
	return faults
}

// lose makes a world of one that forgets.
func (s scenario) lose(w *world) {
	w.store(s.pkg)
	left := maps.Clone(s.spoilt)
	w.reads = true
	w.spoil = func(task string) bool {
		left[task]--
		return left[task] >= 0
	}
	w.vary = func(task objectstore.Hash) bool {
		return slices.ContainsFunc(s.pkg.Tasks, func(p record.PackageTask) bool { return p.Task == task.String() && s.varies[p.Name] })
	}
}

// start is a run that may end in an error.
func (s scenario) start(ctx context.Context, g *dataflow.Graph, w *world, change func(*dataflow.Options)) (*dataflow.Outcome, error) {
	opts := dataflow.Options{RunID: "r", Workspace: "ws", Inputs: oneInput, Concurrency: 2}
	change(&opts)
	return dataflow.Run(ctx, g, w.objects, w, opts)
}

// consistent holds a run that met losses to what remains of the rules: the log fits the diagram and the outcome, and what has come to a good end
// stands for what a lookup of now finds, where all upstream of it has.
func (s scenario) consistent(t *testing.T, g *dataflow.Graph, w *world, out *dataflow.Outcome, log *emitted, walked map[eventstest.Edge]int) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if err := log.walk(out, walked); err != nil {
		fault("%v", err)
	}
	for i := range out.Tasks {
		r := &out.Tasks[i]
		name, good := g.Name(int32(i)), r.State == dataflow.Cached || r.State == dataflow.Succeeded
		if want, got := states[r.State], log.state(name); want != got && r.State != dataflow.Pending {
			fault("%s is %s; its events are %v", name, stateNames[r.State], log.of(name))
		}
		if !good || r.ExecutionID == "other" || out.State != record.RunCompleted {
			continue
		}
		inputs, known, err := dataflow.Reads(t.Context(), g, w.objects, oneInput, int32(i), func(d int32) (dataflow.Produced, bool) {
			up := &out.Tasks[d]
			return dataflow.Produced{Output: up.Output, Size: up.Size}, up.State == dataflow.Cached || up.State == dataflow.Succeeded
		})
		if err != nil || !known {
			fault("%s has come to a good end without what it reads: %v", name, err)
			continue
		}
		if now := w.cache[executions.NewKey(g.Hashes[i], inputs)]; now.Output != r.Output {
			fault("%s has left %s, and what answers it now %s", name, r.Output, now.Output)
		}
	}
	return faults
}

// overload says which limit the commands that run together exceed.
func (s scenario) overload(live map[string]*record.Policy) string {
	if s.outstanding > 0 {
		if len(live) > s.outstanding {
			return fmt.Sprintf("%d executions are out, and %d may be", len(live), s.outstanding)
		}
		return ""
	}
	var cpu, gpu float64
	var memory int64
	for _, p := range live {
		c := p.CPU
		if c == 0 {
			c = 1
		}
		cpu += min(c, float64(s.cores))
		memory += min(p.Memory, s.memory)
		for _, a := range p.Resources {
			gpu += a.Value
		}
	}
	switch {
	case cpu > float64(s.cores)+1e-9:
		return fmt.Sprintf("%d commands take %v cores of %d", len(live), cpu, s.cores)
	case s.memory > 0 && memory > s.memory:
		return fmt.Sprintf("%d commands take %d bytes of %d", len(live), memory, s.memory)
	case gpu > 1:
		return fmt.Sprintf("%v GPUs of 1 are taken", gpu)
	}
	return ""
}

// states are those that the events of tasks lead to. One that was abandoned had no word of its own.
var states = map[dataflow.State]eventstest.State{
	dataflow.Cached: eventstest.Cached, dataflow.Succeeded: eventstest.Success, dataflow.Failed: eventstest.Failed, dataflow.Skipped: eventstest.Skipped,
	dataflow.Abandoned: eventstest.Abandoned,
}

// state is where the last event of a task leaves it.
func (e *emitted) state(task string) eventstest.State {
	list := e.of(task)
	if len(list) == 0 {
		return eventstest.Abandoned
	}
	return map[events.Type]eventstest.State{
		events.TaskClaimed: eventstest.Abandoned, events.TaskStarted: eventstest.Abandoned, events.TaskOrphaned: eventstest.Abandoned, events.TaskAdopted: eventstest.Abandoned, events.TaskMarkedReady: eventstest.Abandoned, events.TaskDeferred: eventstest.Abandoned, events.TaskResumed: eventstest.Abandoned, events.TaskReopened: eventstest.Abandoned, events.TaskCached: eventstest.Cached, events.TaskCompleted: eventstest.Success,
		events.TaskFailed: eventstest.Failed, events.TaskRetryScheduled: eventstest.Failed, events.TaskSkipped: eventstest.Skipped,
	}[list[len(list)-1]]
}

// walk holds the events of a run to the diagram, between a beginning and the end that the outcome calls for.
func (e *emitted) walk(out *dataflow.Outcome, walked map[eventstest.Edge]int) error {
	sum := events.Summary(out.Summary)
	end := map[record.RunState]events.Type{record.RunCompleted: events.RunCompleted, record.RunFailed: events.RunFailed, record.RunCancelled: events.RunCancelled}[out.State]
	list := append([]events.Event{{Type: events.RunStarted}}, e.list...)
	list = append(list, events.Event{Type: end, Data: &events.Data{Summary: &sum}})
	m := eventstest.Machine{Walked: func(e eventstest.Edge, _ int) { walked[e]++ }}
	for i := range list {
		list[i].Seq, list[i].Run = int64(i+1), "r"
		if err := m.Next(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
