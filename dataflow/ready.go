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

// ready is the tasks whose inputs are known, best first: greater priority, then the
// longer expected path to the end of the graph, then declared order.
type ready struct {
	g     *Graph
	rank  []time.Duration
	tasks []int32
	// overtaken counts how many tasks have passed one that waits for room.
	overtaken map[int32]int
	// parked are tasks of which as many as may be are out at workers of their kind, by it. They are not among tasks, as there may be any
	// number of them before one that others wait for.
	parked map[kind]*ready
}

func (r *ready) Len() int { return len(r.tasks) }

func (r *ready) Less(a, b int) bool { return r.before(r.tasks[a], r.tasks[b]) }

// before tells whether a task is better than another one.
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

// push adds a task.
func (r *ready) push(i int32) { heap.Push(r, i) }

// lookahead is how many tasks may be passed over because they do not fit just now.
const lookahead = record.MostPassed

// fit says whether a task may be launched now.
type fit int

const (
	fitsNow    fit = iota
	noRoom         // cores or memory are taken: others that pass it keep it waiting
	noResource     // a named resource is taken: others do it no harm
	noWorker       // as many of its kind are out as may be
)

// kind is what tells which workers take a task: its queue, and the labels that it asks for.
type kind struct{ queue, labels string }

func kindOf(p *record.Policy) kind { return kind{p.Queue, strings.Join(p.Labels, ",")} }

// pop removes the best task that fits. Tasks that do not fit keep their place; when
// record.MostPassed others have passed one for which there is no room, nothing passes it any more,
// so that a large task gets its turn.
func (r *ready) pop(check func(int32) fit) (int32, bool) {
	var passed, kept []int32
	for _, p := range r.parked { // the best of each kind takes part again
		if len(p.tasks) > 0 && check(p.tasks[0]) == fitsNow {
			r.push(heap.Pop(p).(int32))
		}
	}
	defer func() {
		for _, i := range kept {
			r.push(i)
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

// park puts a task aside until another one of its kind comes back.
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

// estimates returns for each task how long it is expected to take, and whether that is from history. A task
// without counts as the average of those with one, and as a second where there is none.
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

// ranks returns for each task the expected time from its start to the end of the
// longest path below it.
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

// A budget is what launched tasks may claim together. Twice as many tasks are launched as
// commands may run, so that the next one's inputs are in place when a command ends;
// the gate lets only as many commands start as there are cores.
type budget struct {
	cpu      float64
	memory   int64
	limits   limits
	named    map[string]float64
	capacity map[string]float64

	most int          // how many tasks of a kind may be out, where they run elsewhere and nothing else is asked; 0: they run here
	out  map[kind]int // are
}

type limits struct {
	cpu    float64
	memory int64 // 0: none
}

// newBudget sets the limits. A named resource without a stated capacity has that of the
// greatest single demand: such tasks run one at a time, and none is stuck.
func newBudget(g *Graph, opts *Options) *budget {
	b := &budget{limits: limits{cpu: float64(opts.Concurrency), memory: opts.Memory}, most: opts.Outstanding, out: map[kind]int{}, named: map[string]float64{}, capacity: map[string]float64{}}
	for i := range g.Package.Tasks {
		for _, a := range g.Package.Tasks[i].Policy.Resources {
			c, stated := opts.Capacities[a.Name]
			if !stated {
				c = math.Max(b.capacity[a.Name], a.Value)
			}
			b.capacity[a.Name] = c
		}
	}
	return b
}

// demand is what a task claims, cut to what there is: a task that asks for more than
// the machine has runs alone rather than never.
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
		if b.out[kindOf(p)] >= b.most {
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

// full tells whether there is no core left for any task: no need to look for one that fits.
func (b *budget) full() bool {
	return b.most == 0 && b.cpu+1e-9 >= 2*b.limits.cpu
}

func (b *budget) claim(p *record.Policy, sign float64) {
	if b.most > 0 {
		b.out[kindOf(p)] += int(sign)
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

// A gate is where launched tasks wait for their turn to start a command, in order.
type gate struct {
	sem    *semaphore.Weighted // in thousandths of a core
	budget *budget
	open   context.Context // ends when nothing more may start
	close  context.CancelFunc
}

// errNotStarted is what a task gets that was launched but may not start.
var errNotStarted = errors.New("not started: the run is ending")

func newGate(ctx context.Context, b *budget) *gate {
	g := &gate{sem: semaphore.NewWeighted(int64(1000 * b.limits.cpu)), budget: b}
	g.open, g.close = context.WithCancel(ctx)
	return g
}

// admit waits for the cores that a task declares. It reads of the budget only what does not
// change. With closing, a failure lets nobody in any more: the failed command's own
// turn would go to the next before the scheduler hears of it.
func (g *gate) admit(p *record.Policy, closing bool) (release func(failed bool), err error) {
	n := g.budget.turn(p)
	if err := g.sem.Acquire(g.open, n); err != nil {
		return nil, errNotStarted
	}
	if g.open.Err() != nil { // it was free, but the run is ending
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
