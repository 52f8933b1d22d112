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

// heals is the state of the tasks that run again because their output was lost, and of the tasks that wait for them
// (doc/design.md §8, "Losses"). The scheduler's goroutine owns it.
type heals struct {
	begun   bool                                // a task has been reopened
	lost    map[int32]map[objectstore.Hash]bool // by task, the objects of its output that were lost in this run
	earlier map[int32]TaskResult                // earlier results of reopened tasks
	held    map[int32]bool                      // tasks that had their turn, and wait for a reopened task
	again   map[int32]bool                      // tasks that could not read an input although nothing was lost
}

func newHeals() heals {
	return heals{
		lost: map[int32]map[objectstore.Hash]bool{}, earlier: map[int32]TaskResult{}, held: map[int32]bool{}, again: map[int32]bool{},
	}
}

// take runs the producers of lost inputs again, and then the task. The attempt does not count as a retry.
func (e *starved) take(s *scheduler, t *turn) {
	if e.err == nil {
		s.catchUp(t, &e.result)
	}
	s.count(t)
	if s.undecided(t, e.err) {
		return
	}
	i, err := t.task, e.err
	switch {
	case len(e.losses.inputs) > 0:
		s.fault(t, string(executions.ReasonInput), errors.Join(e.losses.inputs...).Error())
		return
	case e.losses.found:
		err = s.lostAgain(t, e.losses)
	case !s.heals.again[i]: // nothing is missing: another process has restored it
		s.heals.again[i] = true
		err = nil
	case err == nil:
		err = fmt.Errorf("task %s: %s", s.g.Name(i), e.result.Message)
	}
	if err != nil {
		s.fault(t, "e3", err.Error())
		s.fail(err)
		return
	}
	s.notBegun(t, &e.result)
	if s.stopping {
		return
	}
	for _, d := range slices.Sorted(maps.Keys(e.losses.tasks)) {
		lost := e.losses.tasks[d]
		if !s.unchangedSince(d, t.view) {
			continue // already reopened
		}
		s.lose(d, i, lost)
	}
	if s.results[i].State == Pending { // a producer that cannot run again skips it at once
		s.push(i)
	}
}

// lose runs a settled task again, because another task has found objects of its output lost.
func (s *scheduler) lose(d, because int32, lost []objectstore.Hash) {
	if s.heals.lost[d] == nil {
		s.heals.lost[d] = map[objectstore.Hash]bool{}
	}
	for _, h := range lost {
		s.heals.lost[d][h] = true
	}
	id := s.results[d].ExecutionID
	s.states[d].history.after, s.states[d].history.uncounted = id, s.states[d].attempts
	s.reopen(d, because, lostText(lost))
}

// unchangedSince tells whether a task still has the answer that it had in a view.
func (s *scheduler) unchangedSince(d int32, view *reader) bool {
	now := &s.results[d]
	return now.State != Pending && now.ExecutionID == view.results[d].ExecutionID
}

// notBegun takes back an attempt whose command has not started.
func (s *scheduler) notBegun(t *turn, r *executions.Result) {
	i := t.task
	if !t.begun && !t.claimed && r.ExecutionID == "" {
		s.uncount(t)
		return
	}
	e := events.Event{Type: events.TaskFailed, Task: s.g.Name(i), Execution: cmp.Or(t.execution, r.ExecutionID), Worker: t.worker, Data: &events.Data{
		Key: t.key, Attempt: s.states[i].attempts, Reason: string(executions.ReasonInput), Message: r.Message, NoRecord: r.ExecutionID == ""}}
	s.emit(e)
	s.states[i].tried = &e
	s.states[i].history.uncounted++
	s.emit(events.Event{Type: events.TaskRetryScheduled, Task: s.g.Name(i), Data: &events.Data{Attempt: s.states[i].attempts + 1}})
}

// reopen sends a settled task back to run, for the sake of another one. Unfinished tasks that read from it wait for
// it. Finished ones stay as they are until its new output is known to differ. It is skipped if what it reads itself was
// lost before, and could not be made again.
func (s *scheduler) reopen(i, because int32, why string) {
	h := &s.heals
	h.begun = true
	if _, ok := h.earlier[i]; !ok {
		h.earlier[i] = s.results[i]
	}
	id := s.results[i].ExecutionID
	s.results = slices.Clone(s.results)
	s.results[i] = TaskResult{}
	s.reopened(i, because, id, why)
	for _, d := range s.g.Dependents(i) {
		s.states[d].upstream++
		s.looks.forget(d) // the key has changed
	}
	s.states[i].tried = nil
	s.states[i].upstream = 0
	for _, d := range s.g.Dependencies(i) {
		if s.results[d].State == Pending {
			s.states[i].upstream++
		}
	}
	if d := broken(s.reader, i); d >= 0 {
		s.skip(i, s.culprit(d))
	} else if s.states[i].upstream == 0 {
		s.markReady(i)
	}
}

// push makes a task ready, unless an input of it runs again.
func (s *scheduler) push(i int32) {
	s.states[i].busy = false
	if s.states[i].upstream == 0 {
		s.ready.push(i)
		return
	}
	s.hold(i)
}

// hold keeps a task that had its turn waiting for its inputs.
func (s *scheduler) hold(i int32) {
	s.states[i].busy = false
	s.heals.held[i] = true
	s.looks.forget(i)
	if d := broken(s.reader, i); d >= 0 {
		s.skip(i, s.culprit(d))
		return
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
	case s.g.IsGate(i):
		s.states[i].announced = true
		s.growth.open(i)
	case s.g.IsPending(i):
		s.growth.unmade(i)
	case !s.states[i].announced:
		s.markReady(i)
	case held:
		if d := tooFew(s.reader, i); d >= 0 {
			s.skip(i, s.culprit(d))
			return
		}
		s.ready.push(i)
	}
}

// Reasons for reopening a task although nothing of it was lost.
const (
	changedInput = "what it reads has changed"
	remadeInput  = "what it reads is made again"
)

// changed reopens the settled readers of a task whose new output differs from its earlier one: their keys have
// changed.
func (s *scheduler) changed(i int32) {
	before, again := s.heals.earlier[i]
	if !again {
		return
	}
	delete(s.heals.earlier, i)
	if before.Output == s.results[i].Output {
		return
	}
	for _, d := range s.g.Dependents(i) {
		switch st := s.results[d].State; {
		case !s.wants(d) || st != Cached && st != Succeeded:
		case s.g.IsGate(d):
			if !s.growth.again[d] {
				s.growth.again[d] = true
				s.growth.open(d)
			}
		default:
			s.reopen(d, i, changedInput)
		}
	}
}

// outdated returns an upstream task whose output has changed since the launch of a task that has come back; -1 if
// there is none.
func (s *scheduler) outdated(t *turn) int32 {
	if !s.heals.begun {
		return -1
	}
	for _, d := range s.g.Dependencies(t.task) {
		if now := &s.results[d]; (now.State == Cached || now.State == Succeeded) && now.Output != t.view.results[d].Output {
			return d
		}
	}
	return -1
}

// culprit returns the failed task that made another one fail or be skipped.
func (r *reader) culprit(i int32) int32 {
	for r.results[i].State == Skipped {
		d := broken(r, i)
		if d < 0 {
			d = tooFew(r, i)
		}
		i = d
	}
	return i
}

// skip settles a task that cannot run because one upstream has failed. A task that waits for another attempt counts
// as failed, with the event of its last attempt.
func (s *scheduler) skip(i, because int32) {
	switch {
	case s.states[i].uncertain:
		return // not until renew finds out whether it is a task of the run
	case s.g.IsGate(i):
		s.results[i].State = Skipped
		s.growth.certain(i)
		s.skipBelow(i, because)
		return
	}
	s.growth.count(i)
	last := s.states[i].tried
	if last == nil {
		if s.states[i].announced {
			s.reopened(i, because, "", remadeInput)
		}
		s.results[i].State = Skipped
		s.emit(events.Event{Type: events.TaskSkipped, Task: s.g.Name(i), Data: &events.Data{Because: s.g.Name(because), Gathered: gatherFacts(s.reader, i, true)}})
		s.skipBelow(i, because)
		if s.opts.FailFast && tooFew(s.reader, i) >= 0 {
			s.stop()
		}
		return
	}
	if t := s.retrying[i]; t != nil && t.Stop() {
		delete(s.retrying, i)
	}
	s.failed(i, last.Data.Message)
}

// skipBelow skips the readers of a failed or skipped task, except those that run on its earlier output.
func (s *scheduler) skipBelow(i, because int32) {
	for _, d := range s.g.Dependents(i) {
		switch {
		case !s.wants(d) || s.results[d].State != Pending:
		case s.g.Tolerates(d, i):
			s.tolerate(d)
		case !s.states[d].busy:
			s.skip(d, because)
		}
	}
}

// reopened announces that a task, which had this execution's result, is decided again.
func (s *scheduler) reopened(i, because int32, execution, why string) {
	s.states[i].announced = false
	s.emit(events.Event{Type: events.TaskReopened, Task: s.g.Name(i), Execution: execution, Data: &events.Data{Because: s.g.Name(because), Message: why}})
}
