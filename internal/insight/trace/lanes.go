package trace

import (
	"cmp"
	"container/heap"
)

// A laneSet packs spans of time into lanes. Spans come in the order of their beginnings.
type laneSet struct {
	busy busyLanes // by the time at which they become free
	free freeLanes // the lowest first
	n    int
}

type busyLane struct {
	until int64
	lane  int
}

// take reserves the lowest lane that is free at from, until to.
func (s *laneSet) take(from, to int64) int {
	for len(s.busy) > 0 && s.busy[0].until <= from {
		heap.Push(&s.free, heap.Pop(&s.busy).(busyLane).lane)
	}
	lane := s.n
	if len(s.free) > 0 {
		lane = heap.Pop(&s.free).(int)
	} else {
		s.n++
	}
	heap.Push(&s.busy, busyLane{to, lane})
	return lane
}

type busyLanes []busyLane

func (h busyLanes) Len() int { return len(h) }
func (h busyLanes) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].until, h[j].until), cmp.Compare(h[i].lane, h[j].lane)) < 0
}
func (h busyLanes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *busyLanes) Push(x any)   { *h = append(*h, x.(busyLane)) }

func (h *busyLanes) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

type freeLanes []int

func (h freeLanes) Len() int           { return len(h) }
func (h freeLanes) Less(i, j int) bool { return h[i] < h[j] }
func (h freeLanes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *freeLanes) Push(x any)        { *h = append(*h, x.(int)) }

func (h *freeLanes) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
