package dataflow

import (
	"container/heap"
	"slices"
	"time"
)

func forecast(g *Graph, tasks []TaskPlan, opts *Options) Forecast {
	var f Forecast
	f.Expected, f.Known = estimates(g, opts.Expected)
	f.History = slices.Contains(f.Known, true)
	for i := range tasks {
		if !g.IsTask(int32(i)) { // it takes no time, and its future tasks are not known
			f.Expected[i] = 0
			continue
		}
		if s := tasks[i].Step; (s == StepRun || s == StepWait) && !f.Known[i] {
			f.Unknown++
		}
	}
	critical(&f, g, tasks)
	rank := ranks(g, f.Expected)
	f.Least = makespan(g, tasks, opts, rank, func(i int32) time.Duration {
		if tasks[i].Step == StepRun {
			return f.Expected[i]
		}
		return 0
	})
	f.Most = f.Least
	if slices.ContainsFunc(tasks, func(t TaskPlan) bool { return t.Step == StepWait && !t.Twin }) {
		f.Most = makespan(g, tasks, opts, rank, func(i int32) time.Duration { return longest(&f, tasks, i) })
	}
	return f
}

// longest is how long a task takes at most.
func longest(f *Forecast, tasks []TaskPlan, i int32) time.Duration {
	if t := &tasks[i]; t.Step == StepRun || t.Step == StepWait && !t.Twin {
		return f.Expected[i]
	}
	return 0
}

func critical(f *Forecast, g *Graph, tasks []TaskPlan) {
	length := make([]time.Duration, g.Len())
	before := make([]int32, g.Len())
	last := int32(-1)
	for _, i := range g.Order() {
		before[i] = -1
		cost := longest(f, tasks, i)
		if cost == 0 {
			continue
		}
		for _, d := range g.Dependencies(i) {
			if length[d] > length[i] {
				length[i], before[i] = length[d], d
			}
		}
		if length[i] += cost; length[i] > f.CriticalTime {
			f.CriticalTime, last = length[i], i
		}
	}
	for ; last >= 0; last = before[last] {
		f.Critical = append(f.Critical, last)
	}
	slices.Reverse(f.Critical)
}

// A simulation is a run whose commands take as long as expected. Tasks are launched and admitted as by the scheduler
// and its gate. A task without cost is settled at once.
type simulation struct {
	g        *Graph
	cost     func(int32) time.Duration
	waiting  []int32 // -1: the task has no part in the run
	twins    map[int32][]int32
	ready    ready
	budget   *budget
	launched []int32 // in the order of their turns
	cores    int64   // free cores, in thousandths
	running  ends
	now      time.Duration
	started  func(i int32, at time.Duration) // nil: nobody asks
}

// makespan returns how long a run of the plan takes.
func makespan(g *Graph, tasks []TaskPlan, opts *Options, rank []time.Duration, cost func(int32) time.Duration) time.Duration {
	s := newSimulation(g, opts, rank, cost)
	var first []int32
	for i := range tasks {
		t := &tasks[i]
		if t.Step != StepRun && t.Step != StepWait {
			s.waiting[i] = -1
			continue
		}
		if s.waiting[i] = int32(len(t.Waits)); t.Twin {
			s.twins[t.Waits[0]] = append(s.twins[t.Waits[0]], int32(i))
		}
		if s.waiting[i] == 0 {
			first = append(first, int32(i))
		}
	}
	for _, i := range first {
		s.reach(i)
	}
	s.admit()
	return s.finish()
}

func newSimulation(g *Graph, opts *Options, rank []time.Duration, cost func(int32) time.Duration) *simulation {
	limited := *opts
	limited.Concurrency, limited.Outstanding = max(1, opts.Concurrency), 0
	return &simulation{
		g: g, cost: cost, waiting: make([]int32, g.Len()), twins: map[int32][]int32{},
		ready: ready{g: g, rank: rank, overtaken: map[int32]int{}}, budget: newBudget(g, &limited), cores: int64(1000 * limited.Concurrency),
	}
}

// finish goes on until no command is at work, and returns the time.
func (s *simulation) finish() time.Duration {
	for len(s.running) > 0 {
		e := heap.Pop(&s.running).(end)
		s.now = e.at
		policy := &s.g.Package.Tasks[e.task].Policy
		s.cores += s.budget.turn(policy)
		s.budget.claim(policy, -1)
		s.settle(e.task)
		s.admit()
	}
	return s.now
}

// reach makes a task ready, or settles it if it has no cost.
func (s *simulation) reach(i int32) {
	if s.cost(i) == 0 {
		s.settle(i)
		return
	}
	s.ready.push(i)
}

// settle ends a task.
func (s *simulation) settle(i int32) {
	stack := []int32{i}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, list := range [][]int32{s.g.Dependents(i), s.twins[i]} {
			for _, d := range list {
				if s.waiting[d] <= 0 {
					continue
				}
				if s.waiting[d]--; s.waiting[d] > 0 {
					continue
				}
				if s.cost(d) == 0 {
					stack = append(stack, d)
				} else {
					s.ready.push(d)
				}
			}
		}
	}
}

// admit launches the tasks that fit, and starts commands in that order while cores are free.
func (s *simulation) admit() {
	for !s.budget.full() {
		i, ok := s.ready.pop(func(i int32) fit { return s.budget.fits(&s.g.Package.Tasks[i].Policy) })
		if !ok {
			break
		}
		s.budget.claim(&s.g.Package.Tasks[i].Policy, 1)
		s.launched = append(s.launched, i)
	}
	for len(s.launched) > 0 {
		i := s.launched[0]
		n := s.budget.turn(&s.g.Package.Tasks[i].Policy)
		if n > s.cores {
			return
		}
		s.launched = s.launched[1:]
		s.start(i)
	}
}

// start starts a command, of which the budget has the claim.
func (s *simulation) start(i int32) {
	s.cores -= s.budget.turn(&s.g.Package.Tasks[i].Policy)
	heap.Push(&s.running, end{at: s.now + s.cost(i), task: i})
	if s.started != nil {
		s.started(i, s.now)
	}
}

// end is the end of a command.
type end struct {
	at   time.Duration
	task int32
}

// ends is a heap of the running commands, the next to end first.
type ends []end

func (e ends) Len() int { return len(e) }

func (e ends) Less(a, b int) bool {
	return e[a].at < e[b].at || e[a].at == e[b].at && e[a].task < e[b].task
}

func (e ends) Swap(a, b int) { e[a], e[b] = e[b], e[a] }
func (e *ends) Push(x any)   { *e = append(*e, x.(end)) }

func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
