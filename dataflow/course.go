package dataflow

import (
	"math"
	"time"
)

// A Standing is where a task of a run at work stands.
type Standing struct {
	Ended bool // or it has no part in the run
	Runs  bool // its command is at work
	Held  bool // it waits for a person: no time can be told for it, nor for what depends on it
	// Takes is how long its command still takes. A task that takes nothing ends as soon as its inputs are known.
	Takes time.Duration
}

// A Course is how a run is expected to go on. Its commands take their turns as the scheduler gives them.
type Course struct {
	Left time.Duration
	Next []Turn // the next commands, in the order of their turns: at most as many as were asked for
	// Blocked says what the tasks wait for whose inputs are known: WaitsCores, WaitsMemory, or a named resource.
	Blocked map[int32]string
}

// A Turn is the expected begin of a command.
type Turn struct {
	Task int32
	In   time.Duration
}

// The limits of a process for which its tasks wait.
const (
	WaitsCores  = "cores"
	WaitsMemory = "memory"
)

// Foresee returns the course of a run whose tasks stand like this, by their index in the graph. Of the options, only
// Concurrency, Memory and Capacities matter.
func Foresee(g *Graph, opts *Options, tasks []Standing, next int) Course {
	takes := func(i int32) time.Duration { return tasks[i].Takes }
	own := make([]time.Duration, g.Len())
	for i := range own {
		own[i] = takes(int32(i))
	}
	s := newSimulation(g, opts, ranks(g, own), takes)
	c := Course{Blocked: map[int32]string{}}
	var first []int32
	for i := range tasks {
		i := int32(i)
		t := &tasks[i]
		if t.Ended {
			s.waiting[i] = -1
			continue
		}
		for _, d := range g.Dependencies(i) {
			if !tasks[d].Ended {
				s.waiting[i]++
			}
		}
		switch {
		case t.Held:
			s.waiting[i] = math.MaxInt32
		case t.Runs:
			s.waiting[i] = 0
			s.budget.claim(&g.Package.Tasks[i].Policy, 1)
			s.start(i)
		case s.waiting[i] == 0:
			first = append(first, i)
		}
	}
	s.started = func(i int32, at time.Duration) {
		if len(c.Next) < next {
			c.Next = append(c.Next, Turn{i, at})
		}
	}
	for _, i := range first {
		s.reach(i)
	}
	s.admit()
	for _, i := range s.launched {
		c.Blocked[i] = WaitsCores
	}
	for _, i := range s.ready.tasks {
		c.Blocked[i] = s.budget.lacks(i, g)
	}
	c.Left = s.finish()
	return c
}

// lacks says what keeps a task from its turn.
func (b *budget) lacks(i int32, g *Graph) string {
	p := &g.Package.Tasks[i].Policy
	if b.fits(p) == noResource {
		for _, a := range p.Resources {
			if c := b.capacity[a.Name]; b.named[a.Name]+math.Min(a.Value, c) > c+1e-9 {
				return a.Name
			}
		}
	}
	if _, memory := b.demand(p); b.limits.memory > 0 && b.memory+memory > b.limits.memory {
		return WaitsMemory
	}
	return WaitsCores
}
