package worker

import (
	"testing"

	"e3/internal/format/record"
)

func TestCapacity(t *testing.T) {
	gpu := func(n float64) record.Policy {
		return record.Policy{Resources: []record.Amount{{Name: "gpu", Value: n}}}
	}
	disk := func(n float64) record.Policy {
		return record.Policy{Resources: []record.Amount{{Name: "disk", Value: n}}}
	}
	for _, tt := range []struct {
		name string
		held []record.Policy
		ask  record.Policy
		want fit
	}{
		{"nothing is held", nil, record.Policy{}, fitsNow},
		{"a core is one by default", []record.Policy{{}, {}, {}}, record.Policy{}, fitsNow},
		{"all cores are held", []record.Policy{{}, {CPU: 3}}, record.Policy{CPU: 0.1}, noRoom},
		{"parts of cores", []record.Policy{{CPU: 0.1}, {CPU: 0.2}, {CPU: 3.4}}, record.Policy{CPU: 0.3}, fitsNow},
		{"more cores than there are", nil, record.Policy{CPU: 64}, fitsNow},
		{"more cores than there are, and not all free", []record.Policy{{CPU: 0.5}}, record.Policy{CPU: 64}, noRoom},
		{"memory", []record.Policy{{Memory: 60}}, record.Policy{Memory: 40}, fitsNow},
		{"too little memory is left", []record.Policy{{Memory: 61}}, record.Policy{Memory: 40}, noRoom},
		{"more memory than there is", nil, record.Policy{Memory: 101}, noResource},
		{"a resource", []record.Policy{gpu(1)}, gpu(1), fitsNow},
		{"the resource is held", []record.Policy{gpu(2)}, gpu(0.5), noResource},
		{"the resource is held, and all cores are", []record.Policy{gpu(2), {CPU: 3}}, gpu(0.5), noResource},
		{"more of a resource than there is", nil, gpu(3), noResource},
		{"a resource that was not stated", nil, disk(100), fitsNow},
		{"one at a time of what was not stated", []record.Policy{disk(10)}, disk(10), noResource},
		{"a greater demand of what was not stated", []record.Policy{disk(10)}, disk(90), noResource},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCapacity(&Options{Concurrency: 4, Memory: 100, Capacities: map[string]float64{"gpu": 2}})
			for i := range tt.held {
				c.take(&tt.held[i])
			}
			if got := c.check(&tt.ask); got != tt.want {
				t.Errorf("it is %v, want %v", got, tt.want)
			}
			for i := range tt.held {
				c.give(&tt.held[i])
			}
			if c.usedCores > slack || c.usedMemory != 0 || len(c.usedNamed) != 0 || len(c.most) != 0 {
				t.Errorf("when all is given back there is left %+v", c)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	for _, s := range []string{"", "a", "a/b", "a#1", "/b#1", "a/#1", "a/b#x", "a/b#"} {
		if name, id, n, ok := parseIdentity(s); ok {
			t.Errorf("%q is read as %q %q %d", s, name, id, n)
		}
	}
	if name, id, n, ok := parseIdentity("gpu/run.0a#12"); !ok || name != "gpu" || id != "run.0a" || n != 12 {
		t.Errorf("got %q %q %d %v", name, id, n, ok)
	}
}
