package dataflow

import "time"

// Order returns the tasks in the order in which they are taken when one runs at a time.
func Order(g *Graph, expected func(string) time.Duration) []string {
	own, _ := estimates(g, expected)
	r := ready{g: g, rank: ranks(g, own), overtaken: map[int32]int{}}
	waiting := make([]int, g.Len())
	for i := range waiting {
		if waiting[i] = len(g.Dependencies(int32(i))); waiting[i] == 0 {
			r.push(int32(i))
		}
	}
	var names []string
	for {
		i, ok := r.pop(func(int32) fit { return fitsNow })
		if !ok {
			return names
		}
		names = append(names, g.Name(i))
		for _, d := range g.Dependents(i) {
			if waiting[d]--; waiting[d] == 0 {
				r.push(d)
			}
		}
	}
}
