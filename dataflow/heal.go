package dataflow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"e3/executions"
	"e3/internal/events"
	"e3/objectstore"
)

// heals is what the scheduler knows of tasks that are made again because something of their output was lost, and of those that wait
// for them (doc/design.md §8, "Losses"). It is owned by the scheduler's goroutine.
type heals struct {
	begun  bool                                // some task has been reopened
	lost   map[int32]map[objectstore.Hash]bool // by task, what has been lost of its output in this run
	before map[int32]TaskResult                // of reopened tasks, what they had left
	held   map[int32]bool                      // they had their turn, and wait for what is made again
	again  map[int32]bool                      // could not read something, of which nothing was found lost
}

func newHeals() heals {
	return heals{
		lost: map[int32]map[objectstore.Hash]bool{}, before: map[int32]TaskResult{}, held: map[int32]bool{}, again: map[int32]bool{},
	}
}

// heal takes back a task that could not read what it needs: those that have left that go back to run, and it goes on after them. No
// attempt counts against its retries.
func (s *scheduler) heal(c completion) {
	i := c.task
	err := c.err
	switch {
	case len(c.losses.inputs) > 0:
		s.fault(c, string(executions.ReasonInput), errors.Join(c.losses.inputs...).Error())
		return
	case c.losses.found:
		err = s.lostAgain(c)
	case !s.heals.again[i]: // it is all there: somebody was faster
		s.heals.again[i] = true
		err = nil
	case err == nil:
		err = fmt.Errorf("task %s: %s", s.g.Name(i), c.result.Message)
	}
	if err != nil {
		s.fault(c, "e3", err.Error())
		s.fail(err)
		return
	}
	s.notBegun(c)
	if s.stopping {
		return
	}
	for _, d := range slices.Sorted(maps.Keys(c.losses.tasks)) {
		lost := c.losses.tasks[d]
		if !s.stands(d, c.view) {
			continue // it has gone back already
		}
		if s.heals.lost[d] == nil {
			s.heals.lost[d] = map[objectstore.Hash]bool{}
		}
		for _, h := range lost {
			s.heals.lost[d][h] = true
		}
		id := s.results[d].ExecutionID
		s.states[d].history.after, s.states[d].history.free = id, s.states[d].attempts
		s.reopen(d, i, lostWords(lost))
	}
	s.push(i)
}

// stands tells whether a task still has the answer that it had in a view.
func (s *scheduler) stands(d int32, view *reader) bool {
	now := &s.results[d]
	return now.State != Pending && now.ExecutionID == view.results[d].ExecutionID
}

// notBegun takes back an attempt whose command has not started.
func (s *scheduler) notBegun(c completion) {
	i := c.task
	if !c.begun && !c.claimed && c.result.ExecutionID == "" {
		if c.policy != nil {
			s.states[i].attempts--
		}
		return
	}
	e := events.Event{Type: events.TaskFailed, Task: s.g.Name(i), Execution: cmp.Or(c.execution, c.result.ExecutionID), Worker: c.worker, Data: &events.Data{
		Key: c.key, Attempt: s.states[i].attempts, Reason: string(executions.ReasonInput), Message: c.result.Message, NoRecord: c.result.ExecutionID == ""}}
	s.emit(e)
	s.states[i].tried = &e
	s.states[i].history.free++
	s.emit(events.Event{Type: events.TaskRetryScheduled, Task: s.g.Name(i), Data: &events.Data{Attempt: s.states[i].attempts + 1}})
}

// reopen has a settled task settled anew, for the sake of another one. Those that read from it and have not come to an end wait for
// it; those that have stay as they are until it is known whether it leaves something else.
func (s *scheduler) reopen(i, because int32, why string) {
	h := &s.heals
	h.begun = true
	if _, ok := h.before[i]; !ok {
		h.before[i] = s.results[i]
	}
	id := s.results[i].ExecutionID
	s.results = slices.Clone(s.results)
	s.results[i] = TaskResult{}
	s.reopened(i, because, id, why)
	for _, d := range s.g.Dependents(i) {
		s.states[d].upstream++
		s.looks.forget(d) // what was looked up is another key now
	}
	s.states[i].tried = nil
	s.states[i].upstream = 0
	for _, d := range s.g.Dependencies(i) {
		if s.results[d].State == Pending {
			s.states[i].upstream++
		}
	}
	if s.states[i].upstream == 0 {
		s.markReady(i)
	}
}

// push has a task launched in its turn, unless something that it reads has gone back to run.
func (s *scheduler) push(i int32) {
	s.states[i].busy = false
	if s.states[i].upstream == 0 {
		s.ready.push(i)
		return
	}
	s.hold(i)
}

// hold has a task wait that had its turn.
func (s *scheduler) hold(i int32) {
	s.states[i].busy = false
	s.heals.held[i] = true
	s.looks.forget(i)
	for _, d := range s.g.Dependencies(i) {
		if st := s.results[d].State; st == Failed || st == Skipped {
			s.skip(i, s.culprit(d))
			return
		}
	}
	if s.states[i].tried != nil {
		return
	}
	for _, d := range s.g.Dependencies(i) {
		if s.results[d].State == Pending {
			s.reopened(i, d, "", remadeInput)
			return
		}
	}
}

// wake lets a task go on that was held, or that never had its turn.
func (s *scheduler) wake(i int32) {
	held := s.heals.held[i]
	delete(s.heals.held, i)
	switch {
	case !s.states[i].announced:
		s.markReady(i)
	case held:
		s.ready.push(i)
	}
}

// Why a task is reopened that nothing was lost of.
const (
	changedInput = "what it reads has changed"
	remadeInput  = "what it reads is made again"
)

// changed reopens what was settled on what a task had left before, where it has left something else now: a lookup of their keys is
// another one.
func (s *scheduler) changed(i int32) {
	before, again := s.heals.before[i]
	if !again {
		return
	}
	delete(s.heals.before, i)
	if before.Output == s.results[i].Output {
		return
	}
	for _, d := range s.g.Dependents(i) {
		if st := s.results[d].State; s.wants(d) && (st == Cached || st == Succeeded) {
			s.reopen(d, i, changedInput)
		}
	}
}

// outdated returns a task upstream of one that has come back which has left something else since that was launched; -1 without one.
func (s *scheduler) outdated(c *completion) int32 {
	if !s.heals.begun || c.view == nil {
		return -1
	}
	for _, d := range s.g.Dependencies(c.task) {
		if now := &s.results[d]; (now.State == Cached || now.State == Succeeded) && now.Output != c.view.results[d].Output {
			return d
		}
	}
	return -1
}

// culprit returns the task that has failed because of which another one has, or was skipped.
func (r *reader) culprit(i int32) int32 {
	for r.results[i].State == Skipped {
		i = r.g.Dependencies(i)[slices.IndexFunc(r.g.Dependencies(i), func(d int32) bool { return r.results[d].State == Failed || r.results[d].State == Skipped })]
	}
	return i
}

// skip settles a task that cannot run because one upstream has failed. One that was to have another attempt has failed, as its last did.
func (s *scheduler) skip(i, because int32) {
	last := s.states[i].tried
	if last == nil {
		if s.states[i].announced {
			s.reopened(i, because, "", remadeInput)
		}
		s.results[i].State = Skipped
		s.emit(events.Event{Type: events.TaskSkipped, Task: s.g.Name(i), Data: &events.Data{Because: s.g.Name(because)}})
		s.skipBelow(i, because)
		return
	}
	if t := s.retrying[i]; t != nil && t.Stop() {
		delete(s.retrying, i)
	}
	s.emit(*last)
	s.failed(i, last.Data.Message)
}

// skipBelow skips what reads from a task that has failed or was skipped, but for what is at work on what that had left before.
func (s *scheduler) skipBelow(i, because int32) {
	for _, d := range s.g.Dependents(i) {
		if s.wants(d) && s.results[d].State == Pending && !s.states[d].busy {
			s.skip(d, because)
		}
	}
}

// reopened says that a task is settled anew, which the execution has answered until now.
func (s *scheduler) reopened(i, because int32, execution, why string) {
	s.states[i].announced = false
	s.emit(events.Event{Type: events.TaskReopened, Task: s.g.Name(i), Execution: execution, Data: &events.Data{Because: s.g.Name(because), Message: why}})
}
