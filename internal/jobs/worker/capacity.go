package worker

import (
	"math"

	"e3/internal/format/record"
)

// capacity is what a worker has, and what the jobs that it holds take of it. The loop of the worker owns it.
//
// Cores are as in a run of one's own: a demand beyond all of them takes them all. A resource that the worker was not told about is
// taken as there once for whoever asks for most. But memory and resources that were stated are a promise: what asks for more
// is left to a worker that has it.
type capacity struct {
	cores  float64
	memory int64 // 0: no limit
	named  map[string]float64

	usedCores  float64
	usedMemory int64
	usedNamed  map[string]float64
	most       map[string]float64 // of a resource that was not stated: the greatest demand that is held
}

func newCapacity(o *Options) *capacity {
	return &capacity{
		cores: float64(max(o.Concurrency, 1)), memory: o.Memory, named: o.Capacities,
		usedNamed: map[string]float64{}, most: map[string]float64{},
	}
}

// slack forgives what sums of fractions of cores lack.
const slack = 1e-9

func (c *capacity) cpu(p *record.Policy) float64 {
	if p.CPU <= 0 {
		return math.Min(1, c.cores)
	}
	return math.Min(p.CPU, c.cores)
}

// fit says whether a job can be taken now.
type fit int

const (
	fitsNow    fit = iota
	noRoom         // cores or memory are taken: whatever else is taken keeps it waiting
	noResource     // a named resource is taken, or it asks for more than there is of something: others do it no harm
)

func (c *capacity) check(p *record.Policy) fit {
	if c.memory > 0 && p.Memory > c.memory {
		return noResource
	}
	for _, a := range p.Resources {
		have, stated := c.named[a.Name]
		if !stated {
			have = math.Max(a.Value, c.most[a.Name])
		}
		if c.usedNamed[a.Name]+a.Value > have+slack {
			return noResource
		}
	}
	if c.usedCores+c.cpu(p) > c.cores+slack || c.memory > 0 && c.usedMemory+p.Memory > c.memory {
		return noRoom
	}
	return fitsNow
}

// full tells whether there is no room for any job.
func (c *capacity) full() bool { return c.usedCores >= c.cores-slack }

func (c *capacity) take(p *record.Policy) {
	c.usedCores += c.cpu(p)
	c.usedMemory += p.Memory
	for _, a := range p.Resources {
		c.usedNamed[a.Name] += a.Value
		c.most[a.Name] = math.Max(c.most[a.Name], a.Value)
	}
}

func (c *capacity) give(p *record.Policy) {
	c.usedCores -= c.cpu(p)
	c.usedMemory -= p.Memory
	for _, a := range p.Resources {
		if c.usedNamed[a.Name] -= a.Value; c.usedNamed[a.Name] <= slack {
			delete(c.usedNamed, a.Name)
			delete(c.most, a.Name)
		}
	}
}
