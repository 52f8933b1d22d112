package dataflow

import (
	"container/heap"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
)

// A group is the tasks that were launched together as a batch, with one claim on the budget.
type group struct {
	policy *record.Policy
	out    int     // tasks that have not come back
	alone  []int32 // tasks to try alone once all have come back
}

// batches tells whether any task runs in batches.
func batches(g *Graph) bool {
	return slices.ContainsFunc(g.Package.Tasks, func(t record.PackageTask) bool { return t.Policy.Batch > 1 })
}

// base is a task's name in the package file: the same for all items of a matrix.
func base(g *Graph, i int32) string {
	name, _, _ := strings.Cut(g.Name(i), "[")
	return name
}

// batched tells whether a task may be launched together with other items. On a queue each item is a job of its own.
func (s *scheduler) batched(i int32) bool {
	h := &s.states[i].history
	return s.opts.Outstanding == 0 && s.g.Package.Tasks[i].Policy.Batch > 1 && !h.alone && h.policy == nil && h.step == "" && !s.waits(i)
}

// fits tells whether a task may be launched now. A batch that is not full waits for the lookups of further items, which
// do not take long. It waits for nothing else: the tasks that make its items are on longer paths, and so go first.
func (s *scheduler) fits(i int32) fit {
	if s.batched(i) && s.ready.waiting(i)+1 < int(s.policy(i).Batch) && s.looks != nil && s.looks.items[base(s.g, i)] > 0 {
		return noResource
	}
	return s.budget.fits(s.policy(i))
}

// joinBatch returns the tasks that are launched with task i: further items of the same task, as many as are ready, up to the
// size of a batch.
func (s *scheduler) joinBatch(i int32) []int32 {
	members := []int32{i}
	if !s.batched(i) {
		return members
	}
	for len(members) < int(s.policy(i).Batch) {
		j, ok := s.ready.another(i)
		if !ok {
			break
		}
		switch {
		case s.results[j].State != Pending || s.states[j].busy:
		case s.states[j].upstream > 0:
			s.hold(j)
		default:
			members = append(members, j)
		}
	}
	slices.Sort(members) // in declared order, as in the file that the command reads
	return members
}

// launchAll launches tasks with one claim on the budget.
func (s *scheduler) launchAll(members []int32) {
	g := &group{policy: s.policy(members[0]), out: len(members)}
	s.budget.claim(g.policy, 1)
	var batch *executions.Batch
	if len(members) > 1 {
		batch = executions.NewBatch(len(members))
	}
	for k, i := range members {
		s.states[i].busy = true
		a := s.next(i)
		if batch != nil {
			a.place = &executions.Place{Batch: batch, Index: k}
		}
		s.running++
		t := &turn{attempt: a, task: i, view: s.view(), group: g}
		go func(l *looked) { s.done <- turnEnd{t, s.work(t, l)} }(s.looks.take(i))
	}
}

// tryAlone schedules an attempt without other items for an item whose batch has failed: the failure says nothing
// about the item. If the run is ending, the item counts as never launched.
func (s *scheduler) tryAlone(i int32, g *group) {
	h := &s.states[i].history
	h.uncounted, h.alone = h.uncounted+1, true
	s.emit(events.Event{Type: events.TaskRetryScheduled, Task: s.g.Name(i), Data: &events.Data{Attempt: s.states[i].attempts + 1}})
	g.alone = append(g.alone, i)
}

// pushAlone readies the items that are tried alone, once all of their batch have come back.
func (s *scheduler) pushAlone(g *group) {
	if g.out > 0 || s.stopping {
		return
	}
	for _, i := range g.alone {
		s.push(i)
	}
}

// returned counts a launched task that has come back.
func (s *scheduler) returned(t *turn) {
	s.running--
	if t.group.out--; t.group.out == 0 {
		s.budget.claim(t.group.policy, -1)
	}
}

// Items of a batch are queued by task. The queue of all tasks has at most one item of each task: the first, which
// stands for the others.

// represented puts the first item of each task into the queue of all tasks, unless an item of the task is there.
func (r *ready) represented() {
	for name, items := range r.items {
		if r.first[name] {
			continue
		}
		heap.Push(r, heap.Pop(items).(int32))
		r.first[name] = true
		r.drop(name)
	}
}

// pushItem queues an item by its task.
func (r *ready) pushItem(i int32) {
	if r.items == nil {
		r.items, r.first = map[string]*ready{}, map[string]bool{}
	}
	name := base(r.g, i)
	if r.items[name] == nil {
		r.items[name] = &ready{g: r.g, rank: r.rank}
	}
	heap.Push(r.items[name], i)
}

// drop forgets a task's queue if it is empty.
func (r *ready) drop(name string) {
	if r.items[name].Len() == 0 {
		delete(r.items, name)
	}
}

// waiting is the number of items that task i stands for.
func (r *ready) waiting(i int32) int {
	if items := r.items[base(r.g, i)]; items != nil {
		return items.Len()
	}
	return 0
}

// another removes the best item of the task of i from its queue.
func (r *ready) another(i int32) (int32, bool) {
	name := base(r.g, i)
	if r.items[name] == nil {
		return 0, false
	}
	j := heap.Pop(r.items[name]).(int32)
	r.drop(name)
	return j, true
}
