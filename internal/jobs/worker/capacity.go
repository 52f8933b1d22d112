package worker

import (
	"math"

	"e3/internal/format/record"
)

// capacity is a worker's resources, and the part that its jobs use. The worker's loop owns it.
//
// Cores work as in a local run: a greater demand than all of them takes all. A resource without a stated amount
// suffices for the greatest single demand. But stated memory and resources are limits: a job that needs more is left to
// another worker.
type capacity struct {
	cores  float64
	memory int64 // 0: no limit
	named  map[string]float64

	usedCores  float64
	usedMemory int64
	usedNamed  map[string]float64
	most       map[string]float64 // greatest held demand for a resource without a stated amount
}

func newCapacity(o *Options) *capacity {
	return &capacity{
		cores: float64(max(o.Concurrency, 1)), memory: o.Memory, named: o.Capacities,
		usedNamed: map[string]float64{}, most: map[string]float64{},
	}
}

// slack allows for rounding in sums of fractional cores.
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
	noRoom         // cores or memory are in use: any other job that is taken delays it
	noResource     // a named resource is in use, or a demand exceeds the worker: other jobs do not delay it
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
