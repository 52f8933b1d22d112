package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"e3/dataflow/graph"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/packages"
	"e3/internal/parallel"
)

// event is an event of the Trace Event Format. Times are microseconds.
type event struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	TS    int64          `json:"ts"`
	Dur   *int64         `json:"dur,omitempty"` // of a complete event
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    int            `json:"id,omitempty"` // of a flow
	Bind  string         `json:"bp,omitempty"` // "e": a flow ends in the slice around it
	Scope string         `json:"s,omitempty"`  // of an instant: t, its thread
	Args  map[string]any `json:"args,omitempty"`
}

// The phases that are used.
const (
	complete  = "X"
	mark      = "i"
	counter   = "C"
	flowStart = "s"
	flowEnd   = "f"
	metadata  = "M"
)

// The process of the run, with its threads, and that of the waits.
const (
	runPID     = 1
	runTID     = 1
	instantTID = 2
	waitPID    = 1 << 20 // behind those of workers
)

// detail reads the records of the executions: workers and resources.
func (t *timeline) detail(ctx context.Context, x *executions.Store) error {
	return parallel.Each(ctx, len(t.attempts), func(ctx context.Context, i int) error {
		a := &t.attempts[i]
		if a.Key == (executions.Key{}) || a.ExecutionID == "" {
			return nil
		}
		e, err := x.Get(ctx, a.Key, a.ExecutionID)
		if err != nil && !errors.Is(err, executions.ErrNotFound) && !errors.Is(err, executions.ErrMalformed) {
			return err
		}
		if e == nil || e.Detail == nil {
			return nil
		}
		if a.detail = e.Detail; a.Worker == "" {
			a.Worker = e.Detail.Worker
		}
		return nil
	})
}

// dependencies finds the arrows. For each executed task, an arrow leads from the last successful attempt of each task
// that it reads to its own first attempt. If the package is gone, there are no arrows.
func (t *timeline) dependencies(ctx context.Context, known *packages.Registry) error {
	if t.pkg == "" {
		return nil
	}
	pkg, err := known.Load(ctx, t.pkg)
	if err != nil {
		return ctx.Err()
	}
	g, err := graph.New(pkg)
	if err != nil {
		return nil
	}
	first, made := map[string]int{}, map[string]int{}
	for i := range t.attempts {
		a := &t.attempts[i]
		if _, ok := first[a.Task]; !ok {
			first[a.Task] = i
		}
		if a.State == runview.TaskSuccess {
			made[a.Task] = i
		}
	}
	for i := range int32(g.Len()) {
		to, ok := first[g.Name(i)]
		if !ok {
			continue
		}
		for _, d := range g.Dependencies(i) {
			from, ok := made[g.Name(d)]
			if _, end := t.attempts[from].span(); !ok || micros(t.attempts[to].StartedAt) < end-1 {
				continue // no arrow leads back in time
			}
			if t.uncut++; len(t.flows) < maxFlows {
				t.flows = append(t.flows, flow{from, to})
			}
		}
	}
	return nil
}

func micros(at time.Time) int64 { return at.UnixMicro() }

// span returns the start and end of an attempt, which are at least one microsecond apart.
func (a *attempt) span() (from, to int64) {
	from = micros(a.StartedAt)
	return from, max(micros(a.EndedAt), from+1)
}

// workers gives each worker a process, and each attempt the first free lane of its worker.
func (t *timeline) workers() (names []string, lanes []int) {
	t.order = make([]int, len(t.attempts))
	for i := range t.order {
		t.order[i] = i
	}
	slices.SortStableFunc(t.order, func(i, j int) int { return t.attempts[i].StartedAt.Compare(t.attempts[j].StartedAt) })
	pids := map[string]int{}
	var free []*laneSet
	for _, i := range t.order {
		a := &t.attempts[i]
		worker := cmp.Or(a.Worker, t.self())
		pid, ok := pids[worker]
		if !ok {
			pid = len(names)
			pids[worker] = pid
			names, free = append(names, worker), append(free, &laneSet{})
		}
		from, to := a.span()
		a.pid, a.lane = runPID+1+pid, 1+free[pid].take(from, to)
	}
	for _, h := range free {
		lanes = append(lanes, h.n)
	}
	return names, lanes
}

// laneWaits gives each wait that is shown the first free lane, and returns the number of lanes.
func (t *timeline) laneWaits() int {
	slices.SortStableFunc(t.waits, func(a, b runview.Wait) int {
		return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(a.Task, b.Task))
	})
	t.waitLanes = make([]int, len(t.waits))
	free := &laneSet{}
	for i := range t.waits {
		if w := &t.waits[i]; shownWait(w) {
			t.waitLanes[i] = 1 + free.take(micros(w.Start), max(micros(w.End), micros(w.Start)+1))
		}
	}
	return free.n
}

// self is the worker of attempts that name none.
func (t *timeline) self() string {
	if p := t.process; p != nil && p.User != "" {
		return p.User + "@" + p.Host
	}
	return "worker"
}

// A timedEvent makes its event only when it is written, so that one of many thousands is in memory at a time.
type timedEvent struct {
	at   int64
	make func(n int) event
	n    int
}

// emit writes all events: first the metadata, then the rest in the order of time.
func (t *timeline) emit(d *document) {
	workers, lanes := t.workers()
	t.names(d, workers, lanes)
	list := []timedEvent{{micros(t.start), t.run, 0}}
	for i := range t.attempts {
		from, _ := t.attempts[i].span()
		list = append(list, timedEvent{from, t.attempt, i})
	}
	for i := range t.waits {
		if w := &t.waits[i]; shownWait(w) {
			list = append(list, timedEvent{micros(w.Start), t.wait, i})
		}
	}
	for i := range t.instants {
		list = append(list, timedEvent{micros(t.instants[i].at), t.instant, i})
	}
	for i, f := range t.flows {
		from, to := t.arrow(f)
		list = append(list, timedEvent{from, t.flowFrom, i}, timedEvent{to, t.flowTo, i})
	}
	list = append(list, counted("running", t.running())...)
	list = append(list, counted("ready", t.ready())...)
	slices.SortStableFunc(list, func(a, b timedEvent) int { return cmp.Compare(a.at, b.at) })
	for _, m := range list {
		e := m.make(m.n)
		e.TS = m.at
		d.event(&e)
	}
}

// run is the slice of the run.
func (t *timeline) run(int) event {
	end := micros(t.last)
	for i := range t.attempts {
		_, to := t.attempts[i].span()
		end = max(end, to)
	}
	dur := max(1, end-micros(t.start))
	return event{Name: "run " + t.report.WorkspaceName, Cat: "run", Phase: complete, Dur: &dur, PID: runPID, TID: runTID, Args: t.runArgs()}
}

// wait is the slice of a wait, in the lane that laneWaits has given it.
func (t *timeline) wait(i int) event {
	w := &t.waits[i]
	dur := max(1, micros(w.End)-micros(w.Start))
	name := "waits for " + w.For
	if w.Task != "" {
		name = w.Task + " " + name
	}
	return event{Name: name, Cat: "wait," + w.For, Phase: complete, Dur: &dur, PID: waitPID, TID: t.waitLanes[i], Args: about("task", w.Task, "for", w.For)}
}

// ready returns the changes of the number of tasks that wait for their turn, or for a worker.
func (t *timeline) ready() (steps []step) {
	for i := range t.waits {
		if w := &t.waits[i]; w.For == runview.WaitsTurn || w.For == runview.WaitsWorker {
			steps = append(steps, step{w.Start, 1}, step{w.End, -1})
		}
	}
	return steps
}

func (t *timeline) instant(i int) event {
	x := &t.instants[i]
	return event{Name: x.name, Cat: "task", Phase: mark, PID: runPID, TID: instantTID, Scope: "t", Args: x.args}
}

// names writes the metadata.
func (t *timeline) names(d *document, workers []string, lanes []int) {
	name := func(what, text string, pid, tid int) {
		d.event(&event{Name: what, Phase: metadata, PID: pid, TID: tid, Args: map[string]any{"name": text}})
	}
	order := func(what string, pid, tid, at int) {
		d.event(&event{Name: what, Phase: metadata, PID: pid, TID: tid, Args: map[string]any{"sort_index": at}})
	}
	name("process_name", "e3 run "+t.report.RunID, runPID, 0)
	order("process_sort_index", runPID, 0, 0)
	name("thread_name", "run", runPID, runTID)
	order("thread_sort_index", runPID, runTID, 0)
	name("thread_name", "cached, retried, skipped", runPID, instantTID)
	order("thread_sort_index", runPID, instantTID, 1)
	if waits := t.laneWaits(); waits > 0 {
		name("process_name", "waits", waitPID, 0)
		order("process_sort_index", waitPID, 0, 1)
		for lane := range waits {
			name("thread_name", fmt.Sprintf("lane %d", lane+1), waitPID, lane+1)
			order("thread_sort_index", waitPID, lane+1, lane)
		}
	}
	for i, worker := range workers {
		pid := runPID + 1 + i
		name("process_name", worker, pid, 0)
		order("process_sort_index", pid, 0, 2+i)
		for lane := range lanes[i] {
			name("thread_name", fmt.Sprintf("lane %d", lane+1), pid, lane+1)
			order("thread_sort_index", pid, lane+1, lane)
		}
	}
}

// attempt is the slice of an attempt.
func (t *timeline) attempt(i int) event {
	a := &t.attempts[i]
	from, to := a.span()
	dur := to - from
	args := about("task", a.Task, "execution", a.ExecutionID, "attempt", a.Number, "state", string(a.State),
		"reason", a.Reason, "message", a.Message)
	if a.Key != (executions.Key{}) {
		args["key"] = a.Key.String()
	}
	args["cached"] = false
	if a.Shared {
		args["shared"] = true
	}
	if a.Exited() {
		args["exitCode"] = a.ExitCode
	} else if a.State == runview.TaskSuccess {
		args["exitCode"] = 0
	}
	if a.waited >= 0 {
		args["waitedMs"] = a.waited.Milliseconds()
	}
	if a.detail != nil {
		addResources(args, a.detail)
	}
	return event{Name: a.Task, Cat: "attempt," + string(a.State), Phase: complete, Dur: &dur, PID: a.pid, TID: a.lane, Args: args}
}

// addResources adds the resources that a command used.
func addResources(args map[string]any, d *record.Detail) {
	args["userCpuMs"], args["systemCpuMs"] = d.UserCPU.Milliseconds(), d.SystemCPU.Milliseconds()
	for name, n := range map[string]int64{"peakRss": d.PeakRSS, "bytesIn": d.BytesIn, "bytesOut": d.BytesOut} {
		if n > 0 {
			args[name] = n
		}
	}
	if d.Signal != "" {
		args["signal"] = d.Signal
	}
}

// arrow returns the times at which an arrow leaves one slice and reaches the other. Each must lie within its slice.
func (t *timeline) arrow(f flow) (from, to int64) {
	_, end := t.attempts[f.from].span()
	start, _ := t.attempts[f.to].span()
	return end - 1, max(start, end-1)
}

func (t *timeline) flowFrom(i int) event {
	a := &t.attempts[t.flows[i].from]
	return event{Name: "reads", Cat: "dependency", Phase: flowStart, PID: a.pid, TID: a.lane, ID: i + 1}
}

func (t *timeline) flowTo(i int) event {
	a := &t.attempts[t.flows[i].to]
	return event{Name: "reads", Cat: "dependency", Phase: flowEnd, PID: a.pid, TID: a.lane, ID: i + 1, Bind: "e"}
}

// running returns the changes of the number of running commands.
func (t *timeline) running() []step {
	steps := make([]step, 0, 2*len(t.attempts))
	for i := range t.attempts {
		steps = append(steps, step{t.attempts[i].StartedAt, 1}, step{t.attempts[i].EndedAt, -1})
	}
	return steps
}

// counted turns steps into the values of a counter, one for each point in time.
func counted(name string, steps []step) []timedEvent {
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	var list []timedEvent
	value := func(n int) event {
		return event{Name: name, Cat: "run", Phase: counter, PID: runPID, Args: map[string]any{"tasks": n}}
	}
	n := 0
	for i, s := range steps {
		n += s.by
		if i+1 < len(steps) && micros(steps[i+1].at) == micros(s.at) {
			continue
		}
		list = append(list, timedEvent{micros(s.at), value, n})
	}
	return list
}
