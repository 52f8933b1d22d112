// Package eventstest holds the state machine of a run's events (doc/design.md §14), for tests of code that emits or
// folds them.
package eventstest

import (
	"fmt"
	"maps"
	"slices"

	"e3/internal/events"
)

// State is the state of a task by the log of a run (doc/design.md §14).
type State string

// The states of a task. Unnamed is the state of a task without an event.
const (
	Unnamed   State = "(none)"
	Pending   State = "pending"
	Ready     State = "ready"
	Claimed   State = "claimed"
	Running   State = "running"
	Deferred  State = "deferred"
	Retrying  State = "retrying"
	Success   State = "success"
	Cached    State = "cached"
	Failed    State = "failed"
	Skipped   State = "skipped"
	Abandoned State = "abandoned"
)

// An Edge is a step of a task from one state to another. With a bulk event many tasks take it at once.
type Edge struct {
	From State
	Type events.Type
	To   State
	Bulk bool
}

func (e Edge) String() string {
	bulk := ""
	if e.Bulk {
		bulk = " (bulk)"
	}
	return fmt.Sprintf("%s ─%s%s→ %s", e.From, e.Type, bulk, e.To)
}

// diagram is the state machine of a task: every step that a log may show.
var diagram = []Edge{
	{From: Unnamed, Type: events.TaskCached, To: Cached},
	{From: Unnamed, Type: events.TaskCached, To: Cached, Bulk: true},
	{From: Unnamed, Type: events.TaskCreated, To: Pending, Bulk: true},
	{From: Pending, Type: events.TaskMarkedReady, To: Ready},
	{From: Pending, Type: events.TaskSkipped, To: Skipped},
	{From: Pending, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
	{From: Ready, Type: events.TaskCached, To: Cached},
	{From: Ready, Type: events.TaskClaimed, To: Claimed},
	{From: Ready, Type: events.TaskStarted, To: Running},
	{From: Ready, Type: events.TaskDeferred, To: Deferred},
	{From: Ready, Type: events.TaskResumed, To: Ready},
	{From: Ready, Type: events.TaskFailed, To: Failed},
	{From: Ready, Type: events.TaskReopened, To: Pending},
	{From: Ready, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
	{From: Claimed, Type: events.TaskClaimed, To: Claimed},
	{From: Claimed, Type: events.TaskReleased, To: Ready},
	{From: Claimed, Type: events.TaskStarted, To: Running},
	{From: Claimed, Type: events.TaskFailed, To: Failed},
	{From: Running, Type: events.TaskCompleted, To: Success},
	{From: Running, Type: events.TaskFailed, To: Failed},
	{From: Running, Type: events.TaskDeferred, To: Deferred},
	{From: Running, Type: events.TaskOrphaned, To: Running},
	{From: Claimed, Type: events.TaskOrphaned, To: Claimed},
	{From: Running, Type: events.TaskAdopted, To: Running},
	{From: Claimed, Type: events.TaskAdopted, To: Claimed},
	{From: Running, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
	{From: Claimed, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
	{From: Cached, Type: events.TaskReopened, To: Pending},
	{From: Success, Type: events.TaskReopened, To: Pending},
	{From: Deferred, Type: events.TaskResumed, To: Ready},
	{From: Deferred, Type: events.TaskFailed, To: Failed},
	{From: Deferred, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
	{From: Failed, Type: events.TaskRetryScheduled, To: Retrying},
	batchRetry,
	{From: Failed, Type: events.TaskLeftOut, To: Failed},
	{From: Retrying, Type: events.TaskClaimed, To: Claimed},
	{From: Retrying, Type: events.TaskStarted, To: Running},
	{From: Retrying, Type: events.TaskCached, To: Cached},
	inputReplaced,
	{From: Retrying, Type: events.TaskFailed, To: Failed},
	{From: Retrying, Type: events.TaskAbandoned, To: Abandoned, Bulk: true},
}

// batchRetry is the step of an item after the failure of its batch: its own attempts are still to come.
var batchRetry = Edge{From: Failed, Type: events.TaskRetryScheduled, To: Ready}

// inputReplaced is the step of a task that was to be tried again, while an input of it was lost and came out different
// when it was made again: the task needs another approval. It is rare.
var inputReplaced = Edge{From: Retrying, Type: events.TaskDeferred, To: Deferred}

// OfReplacedInput tells whether only a task takes this step whose input was lost and replaced before a retry.
func (e Edge) OfReplacedInput() bool { return e == inputReplaced }

// OfBatch tells whether only an item of a batch takes this step.
func (e Edge) OfBatch() bool { return e == batchRetry }

// Closing tells whether only a process that closes a dead run takes this step.
func (e Edge) Closing() bool {
	return e.Type == events.TaskAbandoned && (e.From == Running || e.From == Claimed || e.From == Retrying)
}

// Diagram returns every step that the log of a run may show.
func Diagram() []Edge { return slices.Clone(diagram) }

// A Machine checks the log of one run against the diagram, event by event. Its memory is proportional to the names in
// the log. The zero value is ready for the first event.
type Machine struct {
	// Walked is called for every step, with the number of tasks that took it. It may be nil.
	Walked func(e Edge, tasks int)

	seq     int64
	run     string
	ended   events.Type
	tasks   map[string]*machineTask
	pending int // announced tasks that no event has named yet
	shared  int // cached tasks that no event has named yet
	counts  map[State]int
}

type machineTask struct {
	state     State
	attempt   int64  // number of the running, last or next attempt
	execution string // of that attempt, once it is claimed or has started
	block     string // the block that defers the task
	spared    bool   // its failure does not fail the run
	batch     bool   // its last failure was the failure of its batch
}

// Next takes the next event. After an error the machine must not be used.
func (m *Machine) Next(e *events.Event) error {
	if err := m.next(e); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

func (m *Machine) next(e *events.Event) error {
	m.seq++
	switch {
	case e.Seq != m.seq:
		return fmt.Errorf("its number is not %d", m.seq)
	case m.ended != "":
		return fmt.Errorf("it follows the end of the run, %s", m.ended)
	case (m.seq == 1) != (e.Type == events.RunStarted):
		return fmt.Errorf("a log begins with %s, and has it once", events.RunStarted)
	case m.seq > 1 && e.Run != m.run:
		return fmt.Errorf("it is of run %q, not %q", e.Run, m.run)
	}
	d := e.Facts()
	switch e.Type {
	case events.RunStarted:
		m.run, m.tasks, m.counts = e.Run, map[string]*machineTask{}, map[State]int{}
		return nil
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		m.ended = e.Type
		if d.Reason != events.ReasonCrashed {
			m.endRetries()
		}
		return m.end(e, d)
	case events.RunStalled, events.RunResumed, events.GraphGrown:
		return nil
	case events.TaskCreated, events.TaskAbandoned:
		if e.Task != "" || d.Tasks < 1 {
			return fmt.Errorf("it is of many tasks; it names %q and stands for %d", e.Task, d.Tasks)
		}
		return m.many(e.Type, d.Tasks, d.Reason == events.ReasonCrashed)
	case events.TaskCached:
		if e.Task == "" {
			if d.Tasks < 1 || d.As == "" {
				return fmt.Errorf("it stands for %d tasks of run %q", d.Tasks, d.As)
			}
			m.shared += d.Tasks
			m.walk(Edge{Unnamed, events.TaskCached, Cached, true}, d.Tasks)
			return nil
		}
	}
	return m.one(e, d)
}

// unfinished are the states of tasks that have not ended.
var unfinished = []State{Pending, Ready, Claimed, Running, Deferred, Retrying}

// many moves tasks that the event does not name.
func (m *Machine) many(typ events.Type, n int, crashed bool) error {
	if typ == events.TaskCreated {
		m.pending += n
		m.walk(Edge{Unnamed, events.TaskCreated, Pending, true}, n)
		return nil
	}
	// The event does not name the tasks: it is about all tasks that never started, had another attempt due, or whose
	// execution goes on.
	total := 0
	if !crashed {
		m.endRetries()
	}
	for _, from := range unfinished {
		total += m.counts[from]
	}
	if n != total {
		return fmt.Errorf("%d tasks are abandoned, and %d have not come to an end: %v", n, total, m.counts)
	}
	for _, t := range m.tasks {
		if slices.Contains(unfinished, t.state) {
			t.state = Abandoned
		}
	}
	for _, from := range unfinished {
		m.walk(Edge{from, typ, Abandoned, true}, m.counts[from])
	}
	m.pending = 0
	return nil
}

// endRetries moves the tasks that wait for another attempt when a run is ending: they have failed like their last
// attempt.
func (m *Machine) endRetries() {
	m.counts[Failed] += m.counts[Retrying]
	m.counts[Retrying] = 0
	for _, t := range m.tasks {
		if t.state == Retrying {
			t.state = Failed
		}
	}
}

// one moves the task that the event names.
func (m *Machine) one(e *events.Event, d *events.Data) error {
	if e.Task == "" {
		return fmt.Errorf("it names no task")
	}
	t := m.tasks[e.Task]
	if t == nil {
		t = &machineTask{state: Unnamed}
		switch {
		case proven(e, d):
		case e.Type == events.TaskReopened && m.shared > 0:
			t.state = Cached
			m.shared--
		case m.pending == 0:
			return fmt.Errorf("%q is none of the tasks that were announced", e.Task)
		default:
			t.state = Pending
			m.pending--
		}
		m.tasks[e.Task] = t
	}
	i := slices.IndexFunc(diagram, func(x Edge) bool {
		return x.From == t.state && x.Type == e.Type && !x.Bulk && (x.Type != events.TaskRetryScheduled || (x == batchRetry) == t.batch)
	})
	if i < 0 {
		return fmt.Errorf("%q is %s, from where it does not lead on", e.Task, t.state)
	}
	if err := t.attempted(e, d); err != nil {
		return fmt.Errorf("%q: %w", e.Task, err)
	}
	t.state = diagram[i].To
	m.walk(diagram[i], 1)
	return nil
}

// proven reports whether an event is about tasks that were answered before any task was announced.
func proven(e *events.Event, d *events.Data) bool { return e.Type == events.TaskCached && d.As != "" }

// attempted checks that attempts count from 1 and end as they began, and that only deferred tasks are resumed.
func (t *machineTask) attempted(e *events.Event, d *events.Data) error {
	switch e.Type {
	case events.TaskRetryScheduled:
		if d.Attempt != t.attempt+1 {
			return fmt.Errorf("attempt %d is scheduled after attempt %d", d.Attempt, t.attempt)
		}
		t.attempt, t.execution = d.Attempt, ""
		return nil
	case events.TaskClaimed, events.TaskStarted:
		if t.attempt = max(t.attempt, 1); d.Attempt != t.attempt {
			return fmt.Errorf("attempt %d begins where attempt %d is due", d.Attempt, t.attempt)
		}
		if e.Type == events.TaskStarted && t.state == Claimed && e.Execution != t.execution {
			return fmt.Errorf("execution %q begins, and %q is claimed", e.Execution, t.execution)
		}
		t.execution = e.Execution
		return nil
	case events.TaskReopened:
		if t.state == Success { // the next attempt is a new execution
			t.attempt, t.execution = t.attempt+1, ""
		}
		return nil
	case events.TaskResumed:
		if t.state == Deferred && d.Block != t.block {
			return fmt.Errorf("block %q is approved, and it waits for %q", d.Block, t.block)
		}
		if t.attempt = max(t.attempt, 1); t.execution != "" { // a command that suspended itself has ended
			t.attempt, t.execution = t.attempt+1, ""
		}
		return nil
	}
	if t.state == Running || t.state == Claimed {
		if e.Execution != t.execution || e.Type == events.TaskFailed && d.Attempt != t.attempt {
			return fmt.Errorf("execution %q of attempt %d ends; running is %q of attempt %d", e.Execution, d.Attempt, t.execution, t.attempt)
		}
	}
	switch e.Type {
	case events.TaskLeftOut:
		t.spared = true
	case events.TaskFailed:
		t.spared, t.batch = d.MayFail, d.Reason == "batch"
		t.attempt = max(t.attempt, 1) // it could not start, or belongs to another run
	case events.TaskDeferred:
		if d.Block == "" {
			return fmt.Errorf("it names no block")
		}
		t.block = d.Block
	}
	return nil
}

// walk moves n tasks along a step.
func (m *Machine) walk(e Edge, n int) {
	if n == 0 {
		return
	}
	if e.From != Unnamed {
		m.counts[e.From] -= n
	}
	m.counts[e.To] += n
	if m.Walked != nil {
		m.Walked(e, n)
	}
}

// end checks that every task has ended, and that the run's end agrees.
func (m *Machine) end(e *events.Event, d *events.Data) error {
	for _, s := range unfinished {
		if n := m.counts[s]; n != 0 {
			return fmt.Errorf("%d tasks are %s still%s", n, s, m.some(s))
		}
	}
	sum := m.Summary()
	if d.Summary != nil && *d.Summary != sum {
		return fmt.Errorf("its summary is %+v, and the tasks are %+v", *d.Summary, sum)
	}
	if all := sum.Completed == sum.Total; e.Type == events.RunCompleted && !all && !m.spared() || e.Type == events.RunCancelled && all {
		return fmt.Errorf("%d of %d tasks are completed", sum.Completed, sum.Total)
	}
	return nil
}

// spared reports whether tasks have failed, and no failure fails the run.
func (m *Machine) spared() bool {
	for _, t := range m.tasks {
		if t.state == Failed && !t.spared {
			return false
		}
	}
	return m.counts[Failed] > 0
}

// some returns the name of a task in a state.
func (m *Machine) some(s State) string {
	for _, name := range slices.Sorted(maps.Keys(m.tasks)) {
		if m.tasks[name].state == s {
			return fmt.Sprintf(", as %q", name)
		}
	}
	return ""
}

// Summary counts the states.
func (m *Machine) Summary() events.Summary {
	s := events.Summary{
		Cached: int64(m.counts[Cached]), Failed: int64(m.counts[Failed]), Skipped: int64(m.counts[Skipped] + m.counts[Abandoned]),
	}
	s.Completed = s.Cached + int64(m.counts[Success])
	for _, n := range m.counts {
		s.Total += int64(n)
	}
	return s
}

// Ended returns the type of the run's end, "" before it.
func (m *Machine) Ended() events.Type { return m.ended }
