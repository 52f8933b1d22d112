package dataflow

import (
	"context"
	"errors"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/objectstore"
)

// A scheduler drives one run. One goroutine owns its state. Each launched task has a goroutine of its own, which reads
// only what was settled before the launch.
//
//	Pending ─ready→ (looked up ─hit→ Cached) → (asked → (deferred ─approved→)) launched ─hit──────→ Cached
//	                  │  ├──success────→ Succeeded
//	                  │  ├──failure, attempts left → waits → launched
//	                  │  ├──failure of its batch → launched, alone
//	                  │  ├──suspended → deferred ─approved→ launched
//	                  │  └──failure────→ Failed → dependants Skipped
//	Pending, deferred ─run ends early──→ Abandoned
//	waits ───run ends early────────────→ Failed
//	deferred ─rejected─────────────────→ Failed
//	Cached, Succeeded ─output lost, or an input remade→ Pending
//	launched ─an input is lost─────────→ Pending, after its producer
//	launched ─asked about other inputs─→ asked, again
//
// In a graph that grows, gates and pending tasks are nodes as well (growth.go):
//
//	gate    ─its tasks have ended→ list read → Cached; its readers are ready, or the graph has grown
//	pending ─grown─→ a task, or gone
type scheduler struct {
	*reader
	exec Executor

	states []taskState
	ready  ready
	looks  *looks // nil: a task is looked up when it is launched
	budget *budget
	gate   *gate

	deferral deferral
	heals    heals
	growth   *growth

	running   int
	retrying  map[int32]*time.Timer
	done      chan turnEnd
	retry     chan int32
	stopping  bool // launch nothing more
	cancelled bool
	fatal     error

	failures []failure // final failures, in their order, without those of tasks that may fail
	mild     *verdicts // failures that may be tolerated; nil: not asked since the graph was made

	publisher publisher
}

// failure is a task's final failure.
type failure struct {
	task     int32
	text     string
	timedOut bool
}

// taskState is what the scheduler knows of a task beside its result.
type taskState struct {
	unselected bool  // the filter leaves it out
	unnamed    bool  // the filter does not name it, though it may select it: --force does not apply
	counted    bool  // an event has counted it among the tasks of the run
	uncertain  bool  // below a gate that is closed: it may turn out to be no task of the run
	announced  bool  // an event has announced it as ready, since its last reopening
	busy       bool  // it runs, is looked up, or waits for an approval
	upstream   int32 // number of direct dependencies that have not ended
	attempts   int64
	tried      *events.Event // how the last attempt ended, if another is to follow
	history    history
}

func newScheduler(ctx context.Context, g *Graph, objects objectstore.Store, exec Executor, opts *Options) *scheduler {
	s := &scheduler{
		reader: newReader(ctx, g, objects, unstored{Store: objects}, opts), exec: exec,
		states: make([]taskState, g.Len()), budget: newBudget(g, opts), retrying: map[int32]*time.Timer{},
		done: make(chan turnEnd), retry: make(chan int32),
		publisher: publisher{publish: opts.Publish, done: make(chan publication, 1)},
		deferral:  newDeferral(), heals: newHeals(),
	}
	s.growth = newGrowth(s, opts.Growth)
	s.marked = marked(g.Package)
	s.ready.batched = s.batched
	if l, ok := exec.(Lookup); ok && (opts.Lookups > 0 || batches(g)) || waits(g) {
		s.needLooks(l)
	}
	s.gate = newGate(ctx, s.budget)
	s.choose()
	return s
}

// needLooks makes the run look tasks up before it launches them. l may be nil.
func (s *scheduler) needLooks(l Lookup) {
	if s.looks == nil {
		s.looks = &looks{Lookup: l, most: max(s.opts.Lookups, 1), underWay: map[int32]int{}, missed: map[int32]*looked{}, items: map[string]int{}}
	}
}

// choose finds the tasks that the filter selects, and those that the baseline may answer.
func (s *scheduler) choose() {
	s.mild = nil
	for i := range s.states {
		s.states[i].unselected = s.g.IsGone(int32(i)) && !s.states[i].counted
	}
	if s.opts.Filter != "" {
		named, selected := s.g.Select(s.opts.Filter)
		for i := range s.states {
			s.states[i].unnamed, s.states[i].unselected = !named[i], !selected[i] && !s.states[i].counted
		}
	}
	if s.opts.Baseline != nil {
		s.proof = prove(s.g, s.opts.Baseline, s.opts.Inputs)
	}
}

func (s *scheduler) wants(i int32) bool  { return !s.states[i].unselected }
func (s *scheduler) forces(i int32) bool { return s.opts.Force && !s.states[i].unnamed }

func (s *scheduler) emit(e events.Event) {
	if s.opts.Emit == nil {
		return
	}
	if e.Type == events.TaskFailed && e.Data != nil {
		if i, ok := s.g.Find(e.Task); ok {
			e.Data.MayFail, e.Data.Tolerable = s.mayFail(i), s.tolerable(i)
		}
	}
	s.opts.Emit(e)
}

// mayFail tells whether a failure of the task does not fail the run.
func (s *scheduler) mayFail(i int32) bool {
	return s.g.Package.Tasks[i].Policy.MayFail && !s.opts.Strict
}

// run drives the graph to its end.
func (s *scheduler) run() error {
	s.begin()
	stop := s.ctx.Done()
	for {
		s.launch()
		s.ready.ahead.begin(s)
		s.growth.begin()
		if s.running == 0 && len(s.retrying) == 0 && s.looks.idle() && s.deferral.making == 0 && s.growth.idle() {
			if s.opts.NoWait && len(s.deferral.pending) > 0 {
				s.deferral.left = len(s.deferral.pending)
				s.stop()
			}
			if len(s.deferral.pending) == 0 {
				break
			}
		}
		select {
		case e := <-s.done:
			s.comeBack(e)
		case i := <-s.retry:
			delete(s.retrying, i)
			if !s.stopping && s.results[i].State == Pending {
				s.push(i)
			}
		case m := <-s.deferral.made:
			s.blockMade(m, s.deferral.isMade())
		case m := <-s.deferral.decided:
			s.blockDecided(m)
		case m := <-s.growth.done:
			s.growth.taken(m)
		case p := <-s.publisher.done:
			s.fail(s.publisher.finished(p))
		case <-s.publisher.due():
			s.publisher.start(s.ctx)
		case <-stop:
			stop, s.cancelled = nil, true
			s.stop()
		}
	}
	if s.ctx.Err() != nil { // the last task may have come back before the cancellation was seen
		s.cancelled = true
	}
	s.ready.ahead.close()
	s.gate.close()
	s.fail(s.closeBlocks())
	s.fail(s.publisher.wait())
	s.abandon()
	s.leaveOut()
	return s.fatal
}

// begin settles the tasks that the baseline proves, and finds the ready ones.
func (s *scheduler) begin() {
	if !s.join() {
		return
	}
	s.order()
	for i := range s.results {
		i := int32(i)
		if !s.wants(i) || s.results[i].State != Pending {
			continue
		}
		for _, d := range s.g.Dependencies(i) {
			if s.results[d].State == Pending {
				s.states[i].upstream++
			}
		}
		if s.states[i].upstream == 0 {
			s.markReady(i)
		}
	}
}

// join makes the selected tasks part of the run: it settles those that the baseline proves, and announces the others.
// more tells whether any task remains to be done.
func (s *scheduler) join() (more bool) {
	s.growth.doubt()
	todo := 0
	var proven []int32
	for i := range s.results {
		i := int32(i)
		switch t := &s.states[i]; {
		case !s.wants(i) || s.results[i].State != Pending || t.counted:
		case s.g.IsTask(i) && !t.uncertain && s.proven(i):
			s.results[i] = s.proof.result(i)
			proven = append(proven, i)
			t.counted = true
		case !s.g.IsTask(i) || t.uncertain:
			more = true
		default:
			t.counted = true
			todo++
		}
	}
	if len(proven) > events.Bulk && !s.opts.Baseline.Foreign {
		s.emit(events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: len(proven), As: s.opts.Baseline.RunID}})
	} else {
		for _, i := range proven {
			s.emit(events.Event{Type: events.TaskCached, Task: s.g.Name(i), Execution: s.results[i].ExecutionID,
				Data: &events.Data{As: s.opts.Baseline.RunID, Output: s.results[i].Output.String()}})
		}
	}
	if todo > 0 {
		s.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: todo}})
	}
	return more || todo > 0
}

// order ranks all tasks of the graph, and orders the ready ones anew.
func (s *scheduler) order() {
	own, _ := estimates(s.g, s.opts.Expected)
	rank := ranks(s.g, own)
	if s.ready.ahead == nil {
		s.ready.ahead = newAhead(s.ctx, s.objects, s.opts)
	}
	if s.ready.overtaken == nil {
		s.ready.overtaken = map[int32]int{}
	}
	s.ready.ranked(s.g, rank)
	if s.looks != nil {
		s.looks.queue.ranked(s.g, rank)
	}
}

// proven tells whether the baseline answers a task without a lookup.
func (s *scheduler) proven(i int32) bool {
	return s.proof != nil && !s.proof.dirty[i] && !s.dirtyByForce(i)
}

// dirtyByForce tells whether a proof is void because the task, or one upstream, is forced. Marks are left in dirty,
// so that the graph is walked once.
func (s *scheduler) dirtyByForce(i int32) bool {
	if !s.opts.Force {
		return false
	}
	if !s.proof.forced {
		s.proof.forced = true
		for _, j := range s.g.Order() {
			if s.wants(j) && s.forces(j) {
				s.proof.dirty[j] = true
			}
			for _, d := range s.g.Dependencies(j) {
				if s.proof.dirty[d] && (!s.g.IsGate(d) || s.g.IsGate(j)) {
					s.proof.dirty[j] = true
				}
			}
		}
	}
	return s.proof.dirty[i]
}

func (s *scheduler) markReady(i int32) {
	s.states[i].announced = true
	if s.g.IsGate(i) {
		s.growth.open(i)
		return
	}
	if s.g.IsPending(i) {
		s.growth.unmade(i)
		return
	}
	if d := tooFew(s.reader, i); d >= 0 {
		s.states[i].announced = false
		s.skip(i, s.culprit(d))
		return
	}
	s.growth.count(i)
	e := events.Event{Type: events.TaskMarkedReady, Task: s.g.Name(i)}
	if f := gatherFacts(s.reader, i, false); f != nil {
		e.Data = &events.Data{Gathered: f}
	}
	s.emit(e)
	lookable := (s.opts.Lookups > 0 || s.batched(i)) && s.looks != nil && s.looks.Lookup != nil && !s.forces(i) && s.states[i].history.after == ""
	if lookable || s.waits(i) { // a cached answer needs no approval
		s.lookLater(i)
	} else {
		s.ready.push(i)
	}
}

// launch starts ready tasks while the budget allows.
func (s *scheduler) launch() {
	s.look()
	for !s.stopping && !s.budget.full() && !s.looks.better(&s.ready) {
		i, ok := s.ready.pop(s.fits)
		if !ok {
			return
		}
		if s.results[i].State != Pending {
			continue
		}
		if s.states[i].upstream > 0 {
			s.hold(i)
			continue
		}
		s.launchAll(s.joinBatch(i))
	}
}

// cancels tells whether err comes from the cancellation of the run. Stores and files return the context's error,
// other code its cause.
func (s *scheduler) cancels(err error) bool {
	return s.ctx.Err() != nil && (errors.Is(err, context.Cause(s.ctx)) || errors.Is(err, s.ctx.Err()))
}

// notRetried is the failure text of a task that was still to be retried when its run ended.
const notRetried = "not tried again: the run is ending"

// settle records an answer and readies the tasks that waited for it.
func (s *scheduler) settle(i int32, r TaskResult) {
	s.results[i] = r
	s.publisher.add(Change{Task: s.g.Name(i), Leaf: leafOf(s.g, i, r.Output, r.Size)})
	s.wakeBelow(i)
	s.changed(i)
}

// wakeBelow readies the nodes whose last open dependency was node i.
func (s *scheduler) wakeBelow(i int32) {
	for _, d := range s.g.Dependents(i) {
		if !s.wants(d) {
			continue
		}
		if s.states[d].upstream--; s.states[d].upstream == 0 && s.results[d].State == Pending && !s.states[d].busy {
			s.wake(d)
		}
	}
}

// failed settles a failure and skips everything downstream.
func (s *scheduler) failed(i int32, text string) {
	s.results[i].State = Failed
	allowed := s.mayFail(i)
	if !allowed {
		s.failures = append(s.failures, failure{task: i, text: text})
	}
	s.skipBelow(i, i)
	if s.opts.FailFast && !allowed && !s.tolerable(i) {
		s.stop()
	}
}

// fail stops the run because of a fault that is no task's.
func (s *scheduler) fail(err error) {
	if err != nil && s.fatal == nil {
		s.fatal = err
		s.stop()
	}
}

// stop ends launching; running tasks come back.
func (s *scheduler) stop() {
	s.stopping = true
	s.gate.close()
	s.dropBlocks()
	s.ready.tasks, s.ready.items, s.growth.ready = nil, nil, nil
	if s.looks != nil {
		s.looks.queue.tasks = nil
	}
	for i, t := range s.retrying {
		if t.Stop() || s.ctx.Err() != nil {
			delete(s.retrying, i)
		}
	}
}

// abandon settles the tasks that were never launched. A task that waits for another attempt counts as failed, with
// the event of its last attempt.
func (s *scheduler) abandon() {
	for i := range s.results {
		if s.states[i].tried != nil && s.results[i].State == Pending {
			s.failed(int32(i), notRetried)
		}
	}
	n, uncounted := 0, 0
	for i := range s.results {
		i := int32(i)
		if s.results[i].State != Pending || !s.wants(i) || s.g.IsGate(i) {
			continue
		}
		s.results[i].State = Abandoned
		n++
		if !s.states[i].counted {
			uncounted++
		}
	}
	if uncounted > 0 {
		s.emit(events.Event{Type: events.TaskCreated, Data: &events.Data{Tasks: uncounted}})
	}
	if n > 0 {
		s.emit(events.Event{Type: events.TaskAbandoned, Data: &events.Data{Tasks: n}})
	}
}

// outcome returns the result of the run.
func (s *scheduler) outcome(err error) *Outcome {
	o := &Outcome{Graph: s.g, Tasks: s.results, TimedOut: len(s.failures) > 0 && s.failures[0].timedOut}
	for i := range s.results {
		i := int32(i)
		if !s.wants(i) || s.g.IsGate(i) {
			continue
		}
		o.Summary.Total++
		if s.results[i].Proven {
			o.Proven++
		}
		switch s.results[i].State {
		case Cached:
			o.Summary.Cached++
			o.Summary.Completed++
		case Succeeded:
			o.Summary.Completed++
		case Failed:
			o.Summary.Failed++
		default:
			o.Summary.Skipped++
		}
	}
	o.Evidence = s.evidence(err)
	switch {
	case err != nil:
		o.State, o.Error = record.RunFailed, err.Error()
	case s.cancelled && o.Summary.Completed < o.Summary.Total:
		o.State = record.RunCancelled
	case len(s.failures) > 0:
		o.State, o.Error = record.RunFailed, s.failures[0].text
	case s.deferral.left > 0: // nothing has gone wrong, and the next run goes on
		o.State, o.Waiting = record.RunCancelled, s.deferral.left
	case s.growth.unnamed():
		o.State, o.Error = record.RunFailed, "no task matches "+s.opts.Filter
	default:
		o.State = record.RunCompleted
	}
	if o.State == record.RunFailed && len(s.failures) > 0 {
		o.FailedTask = s.g.Name(s.failures[0].task)
	}
	return o
}
