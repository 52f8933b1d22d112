package dataflow

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"e3/internal/format/record"
)

// ready is a queue of the tasks whose inputs are known, best first: by priority, then by the expected length of the
// path to the end of the graph, then in declared order.
type ready struct {
	g     *Graph
	rank  []time.Duration
	tasks []int32
	// overtaken counts for each task that waits for room how many others have passed it.
	overtaken map[int32]int
	// parked are the tasks, by kind, whose kind already has as many tasks out at workers as allowed. They are kept
	// apart, because any number of them may precede a task of another kind.
	parked  map[kind]*ready
	items   map[string]*ready // of tasks that run in batches, by the task's name; see represented
	first   map[string]bool   // names in items that have an item in tasks
	batched func(int32) bool  // nil: no task runs in batches
	ahead   *ahead            // fetches what the first tasks read; nil: they read it when they are launched
}

func (r *ready) Len() int { return len(r.tasks) }

func (r *ready) Less(a, b int) bool { return r.before(r.tasks[a], r.tasks[b]) }

// before tells whether task i precedes task j.
func (r *ready) before(i, j int32) bool {
	if p, q := r.g.Package.Tasks[i].Policy.Priority, r.g.Package.Tasks[j].Policy.Priority; p != q {
		return p > q
	}
	if r.rank[i] != r.rank[j] {
		return r.rank[i] > r.rank[j]
	}
	return i < j
}

func (r *ready) Swap(a, b int) { r.tasks[a], r.tasks[b] = r.tasks[b], r.tasks[a] }
func (r *ready) Push(x any)    { r.tasks = append(r.tasks, x.(int32)) }

func (r *ready) Pop() any {
	last := r.tasks[len(r.tasks)-1]
	r.tasks = r.tasks[:len(r.tasks)-1]
	return last
}

// ranked orders the queue anew, for a graph that has all nodes of the former graph.
func (r *ready) ranked(g *Graph, rank []time.Duration) {
	r.g, r.rank = g, rank
	heap.Init(r)
	for _, p := range r.parked {
		p.ranked(g, rank)
	}
	for _, p := range r.items {
		p.ranked(g, rank)
	}
}

// push adds a task.
func (r *ready) push(i int32) {
	if r.batched != nil && r.batched(i) {
		r.pushItem(i)
		return
	}
	heap.Push(r, i)
}

// lookahead is how many tasks that do not fit may be passed over.
const lookahead = record.MostPassed

// fit says whether a task may be launched now.
type fit int

const (
	fitsNow    fit = iota
	noRoom         // cores or memory are taken: passing this task delays it
	noResource     // a named resource is taken: passing this task does not delay it
	noWorker       // as many of its kind are out at workers as allowed
)

// kind decides which workers take a task: its queue, and the labels that it asks for.
type kind struct{ queue, labels string }

func kindOf(p *record.Policy) kind { return kind{p.Queue, strings.Join(p.Labels, ",")} }

// pop removes the best task that fits. Tasks that do not fit keep their place. Once record.MostPassed tasks have
// passed a task that waits for room, no further task passes it, so that a large task gets its turn.
func (r *ready) pop(check func(int32) fit) (int32, bool) {
	var passed, kept []int32
	r.represented()
	for _, p := range r.parked { // the best of each kind competes again
		if len(p.tasks) > 0 && check(p.tasks[0]) == fitsNow {
			heap.Push(r, heap.Pop(p))
		}
	}
	defer func() {
		for _, i := range kept {
			heap.Push(r, i)
		}
	}()
	for len(r.tasks) > 0 && len(kept) < lookahead {
		i := heap.Pop(r).(int32)
		switch check(i) {
		case fitsNow:
			for _, p := range passed {
				r.overtaken[p]++
			}
			delete(r.overtaken, i)
			if r.batched != nil && r.batched(i) {
				delete(r.first, base(r.g, i))
			}
			return i, true
		case noWorker:
			r.park(i)
			continue
		case noRoom:
			passed = append(passed, i)
		}
		kept = append(kept, i)
		if r.overtaken[i] >= record.MostPassed {
			break
		}
	}
	return 0, false
}

// park sets a task aside until another one of its kind comes back.
func (r *ready) park(i int32) {
	k := kindOf(&r.g.Package.Tasks[i].Policy)
	if r.parked == nil {
		r.parked = map[kind]*ready{}
	}
	if r.parked[k] == nil {
		r.parked[k] = &ready{g: r.g, rank: r.rank}
	}
	r.parked[k].push(i)
}

// estimates returns the expected duration of each task, and whether it comes from history. A task without history
// gets the average of the tasks with history, or a second if there are none.
func estimates(g *Graph, expected func(string) time.Duration) (own []time.Duration, known []bool) {
	own, known = make([]time.Duration, g.Len()), make([]bool, g.Len())
	var sum time.Duration
	n := 0
	for i := range own {
		if expected != nil {
			own[i] = expected(g.Name(int32(i)))
		}
		if own[i] > 0 {
			known[i] = true
			sum += own[i]
			n++
		}
	}
	average := time.Second
	if n > 0 {
		average = max(sum/time.Duration(n), 1)
	}
	for i := range own {
		if !known[i] {
			own[i] = average
		}
	}
	return own, known
}

// ranks returns for each task the expected time from its start to the end of the longest path below it.
func ranks(g *Graph, own []time.Duration) []time.Duration {
	rank := make([]time.Duration, g.Len())
	for _, i := range slices.Backward(g.Order()) {
		for _, d := range g.Dependents(i) {
			rank[i] = max(rank[i], rank[d])
		}
		rank[i] += own[i]
	}
	return rank
}

// A budget bounds what launched tasks claim together. Twice as many tasks are launched as commands may run, so that
// the inputs of the next one are staged when a command ends. The gate lets only as many commands start as there are
// cores.
type budget struct {
	cpu      float64
	memory   int64
	limits   limits
	named    map[string]float64
	capacity map[string]float64

	most        int          // tasks of a kind that may be out at workers, the only limit there; 0: they run here
	outstanding map[kind]int // tasks that are out
}

type limits struct {
	cpu    float64
	memory int64 // 0: none
}

// newBudget sets the limits. A named resource without a stated capacity gets the greatest single demand as its
// capacity. So such tasks run one at a time, and none is stuck.
func newBudget(g *Graph, opts *Options) *budget {
	b := &budget{
		limits: limits{cpu: float64(opts.Concurrency), memory: opts.Memory}, most: opts.Outstanding, outstanding: map[kind]int{},
		named: map[string]float64{}, capacity: map[string]float64{},
	}
	b.capacities(g, opts)
	return b
}

// capacities finds the capacities of named resources.
func (b *budget) capacities(g *Graph, opts *Options) {
	for i := range g.Package.Tasks {
		for _, a := range g.Package.Tasks[i].Policy.Resources {
			c, stated := opts.Capacities[a.Name]
			if !stated {
				c = math.Max(b.capacity[a.Name], a.Value)
			}
			b.capacity[a.Name] = c
		}
	}
}

// demand is a task's claim, cut to the capacity: a task that asks for more than the machine has runs alone.
func (b *budget) demand(p *record.Policy) (cpu float64, memory int64) {
	cpu, memory = p.CPU, p.Memory
	if cpu == 0 {
		cpu = 1
	}
	if b.limits.memory > 0 {
		memory = min(memory, b.limits.memory)
	}
	return math.Min(cpu, b.limits.cpu), memory
}

func (b *budget) fits(p *record.Policy) fit {
	if b.most > 0 {
		if b.outstanding[kindOf(p)] >= b.most {
			return noWorker
		}
		return fitsNow
	}
	cpu, memory := b.demand(p)
	for _, a := range p.Resources {
		if c := b.capacity[a.Name]; b.named[a.Name]+math.Min(a.Value, c) > c+1e-9 {
			return noResource
		}
	}
	if b.cpu+cpu > 2*b.limits.cpu+1e-9 || b.limits.memory > 0 && b.memory+memory > b.limits.memory {
		return noRoom
	}
	return fitsNow
}

// full tells whether no core is left for any task, so that no task fits.
func (b *budget) full() bool {
	return b.most == 0 && b.cpu+1e-9 >= 2*b.limits.cpu
}

func (b *budget) claim(p *record.Policy, sign float64) {
	if b.most > 0 {
		b.outstanding[kindOf(p)] += int(sign)
		return
	}
	cpu, memory := b.demand(p)
	b.cpu += sign * cpu
	b.memory += int64(sign) * memory
	for _, a := range p.Resources {
		b.named[a.Name] += sign * math.Min(a.Value, b.capacity[a.Name])
	}
}

// turn is how many thousandths of a core a command needs to start.
func (b *budget) turn(p *record.Policy) int64 {
	cpu, _ := b.demand(p)
	return max(int64(1000*cpu), 1)
}

// A gate admits the commands of launched tasks, in order.
type gate struct {
	sem    *semaphore.Weighted // in thousandths of a core
	budget *budget
	open   context.Context // ends when no command may start any more
	close  context.CancelFunc
}

// errNotStarted is the error of a launched task whose command may not start.
var errNotStarted = errors.New("not started: the run is ending")

func newGate(ctx context.Context, b *budget) *gate {
	g := &gate{sem: semaphore.NewWeighted(int64(1000 * b.limits.cpu)), budget: b}
	g.open, g.close = context.WithCancel(ctx)
	return g
}

// admit waits for the cores that a task declares. It reads only what does not change in the budget. With closing, a
// failure closes the gate at once: otherwise the next command would start before the scheduler hears of the failure.
func (g *gate) admit(p *record.Policy, closing bool) (release func(failed bool), err error) {
	n := g.budget.turn(p)
	if err := g.sem.Acquire(g.open, n); err != nil {
		return nil, errNotStarted
	}
	if g.open.Err() != nil { // cores were free, but the run is ending
		g.sem.Release(n)
		return nil, errNotStarted
	}
	return func(failed bool) {
		if failed && closing {
			g.close()
		}
		g.sem.Release(n)
	}, nil
}
