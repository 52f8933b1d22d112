package dataflow

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/jobs/approval"
	"e3/refstore"
)

// Blocks records which tasks wait for a person, and reports decisions; *approval.Blocks implements it.
type Blocks interface {
	// Create makes the block of a step, once.
	Create(ctx context.Context, b approval.Block) (approval.Block, error)
	// Watch yields the blocks of a run once they are decided, until ctx ends. With an error, the block cannot be
	// read, and only its task is known.
	Watch(ctx context.Context, ws, run string) iter.Seq2[approval.Block, error]
	// Close closes the undecided blocks of a run that ends.
	Close(ctx context.Context, ws, run string) error
}

// deferral is the state of the tasks that wait for a person. The scheduler's goroutine owns it.
type deferral struct {
	making  int              // number of blocks that are being made
	made    chan madeBlock   // results of making blocks
	pending map[string]int32 // deferred tasks by id of the block
	decided chan decidedBlock
	early   []decidedBlock // decisions about blocks that are still being made
	some    bool           // blocks may have been made
	unwatch context.CancelFunc
	watcher sync.WaitGroup
}

// madeBlock is the result of making a block.
type madeBlock struct {
	c     completion // of a task that has suspended itself; for a review only the task
	block approval.Block
	err   error
}

// decidedBlock is a block that was decided, or whose record cannot be read, so that it can never be.
type decidedBlock struct {
	block approval.Block
	err   error
}

func newDeferral() deferral {
	return deferral{made: make(chan madeBlock), pending: map[string]int32{}, decided: make(chan decidedBlock)}
}

func (d *deferral) idle() bool { return d.making == 0 && len(d.pending) == 0 }

// asks tells whether a task needs approval before it runs. One approval is enough for all its attempts.
func (s *scheduler) asks(i int32) bool {
	return s.g.Package.Tasks[i].Policy.Approve && s.states[i].history.step == ""
}

// suspended takes back a task whose command has suspended itself.
func (s *scheduler) suspended(c completion) {
	i := c.task
	if c.result.Cached { // of another run, which waits for its own approval
		s.states[i].attempts--
		if !s.stopping {
			s.push(i)
		}
		return
	}
	s.results[i] = TaskResult{ExecutionID: c.result.ExecutionID, Duration: c.result.Duration}
	s.stopStep(c, approval.Suspend)
}

// stopStep makes the block of a task's present step.
func (s *scheduler) stopStep(c completion, typ approval.Type) {
	want := approval.Block{
		Workspace: s.opts.Workspace, Run: s.opts.RunID, Task: s.g.Name(c.task), Step: s.states[c.task].history.step, Type: typ, Execution: c.result.ExecutionID,
	}
	s.states[c.task].busy = true
	s.deferral.making++
	s.deferral.some = s.opts.Blocks != nil
	go func() {
		m := madeBlock{c: c}
		if s.opts.Blocks == nil {
			m.err = errNoApprover
		} else {
			m.block, m.err = s.opts.Blocks.Create(s.ctx, want)
		}
		s.deferral.made <- m
	}()
}

var errNoApprover = errors.New("it waits for approval, which this run cannot ask for")

// blockMade takes a block back: from now on the task is deferred.
func (s *scheduler) blockMade(m madeBlock) {
	d, i := &s.deferral, m.c.task
	d.making--
	early := d.early
	if d.making == 0 {
		d.early = nil
	}
	if m.err != nil {
		s.notDeferred(m)
		return
	}
	s.states[i].tried = nil // if the run ends now, the task waited for approval, not for a retry
	r := &m.c.result
	s.emit(events.Event{Type: events.TaskDeferred, Task: s.g.Name(i), Execution: r.ExecutionID, Worker: m.c.worker, Data: &events.Data{
		Block: m.block.ID, BlockType: string(m.block.Type), Step: m.block.Step, Key: m.c.key, Attempt: m.c.attempt, ExitCode: r.ExitCode, Duration: r.Duration.Milliseconds()}})
	if s.stopping {
		return
	}
	d.pending[m.block.ID] = i
	s.watchBlocks()
	for _, e := range slices.Concat(early, []decidedBlock{{block: m.block}}) { // decisions may come before the block does
		if e.block.ID == m.block.ID || e.err != nil && e.block.Task == m.block.Task {
			s.blockDecided(e)
		}
	}
}

// notDeferred settles a task whose block could not be made.
func (s *scheduler) notDeferred(m madeBlock) {
	cancelled := s.cancels(m.err)
	suspended := m.c.result.ExecutionID != ""
	if cancelled && !suspended {
		return // nothing has run: abandoned
	}
	reason := "e3"
	if cancelled {
		reason = string(executions.ReasonCancelled)
	}
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(m.c.task), Execution: m.c.result.ExecutionID, Worker: m.c.worker, Data: &events.Data{
		Key: m.c.key, Attempt: m.c.attempt, Reason: reason, Message: m.err.Error(), Duration: m.c.result.Duration.Milliseconds()}})
	s.failed(m.c.task, m.err.Error())
	if !cancelled && !errors.Is(m.err, errNoApprover) && !errors.Is(m.err, approval.ErrMalformed) {
		s.fail(m.err)
	}
}

// watchBlocks begins to watch for decisions, unless that is under way.
func (s *scheduler) watchBlocks() {
	d := &s.deferral
	if d.unwatch != nil {
		return
	}
	var ctx context.Context
	ctx, d.unwatch = context.WithCancel(s.ctx)
	d.watcher.Go(func() {
		for b, err := range s.opts.Blocks.Watch(ctx, s.opts.Workspace, s.opts.RunID) {
			select {
			case d.decided <- decidedBlock{b, err}:
			case <-ctx.Done():
				return
			}
		}
	})
}

// unwatchIfIdle ends the watch when no task is deferred.
func (d *deferral) unwatchIfIdle() {
	if len(d.pending) == 0 && d.unwatch != nil {
		d.unwatch()
		d.unwatch = nil
	}
}

// blockDecided moves a deferred task on.
func (s *scheduler) blockDecided(m decidedBlock) {
	d, b := &s.deferral, &m.block
	if m.err == nil && b.Status != approval.Approved && b.Status != approval.Rejected { // closed by a process that presumed the run dead
		return
	}
	id := b.ID
	if m.err != nil {
		id = s.pendingOf(b.Task)
	}
	i, ok := d.pending[id]
	if !ok { // an old block, or one that is still being made
		if d.making > 0 {
			d.early = append(d.early, m)
		}
		return
	}
	delete(d.pending, id)
	defer d.unwatchIfIdle()
	switch {
	case m.err != nil:
		s.undecidable(i, id, m.err)
		return
	case b.Status == approval.Rejected:
		s.rejected(i, b)
		return
	}
	h := &s.states[i].history
	if h.step = b.Resume(); b.Type == approval.Suspend {
		h.uncounted++
	}
	s.emit(events.Event{Type: events.TaskResumed, Task: s.g.Name(i), Data: &events.Data{
		Block: b.ID, Step: b.Resume(), By: b.By, Message: b.Note, At: b.At.UTC().Format(time.RFC3339Nano), Attempt: s.states[i].attempts + 1}})
	s.push(i)
}

// pendingOf returns the block for which a task waits; "" if it waits for none.
func (s *scheduler) pendingOf(task string) string {
	for id, i := range s.deferral.pending {
		if s.g.Name(i) == task {
			return id
		}
	}
	return ""
}

// undecidable settles a task whose block cannot be read any more.
func (s *scheduler) undecidable(i int32, id string, err error) {
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(i), Execution: s.results[i].ExecutionID, Data: &events.Data{
		Block: id, Attempt: max(s.states[i].attempts, 1), Reason: "e3", Message: err.Error()}})
	s.failed(i, err.Error())
}

// rejected settles a rejected task: it has failed, and no attempt follows.
func (s *scheduler) rejected(i int32, b *approval.Block) {
	text := "rejected by " + cmp.Or(b.By, "an unknown user")
	if b.Note != "" {
		text += ": " + b.Note
	}
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(i), Execution: s.results[i].ExecutionID, Data: &events.Data{
		Block: b.ID, By: b.By, At: b.At.UTC().Format(time.RFC3339Nano), Attempt: max(s.states[i].attempts, 1), Reason: events.ReasonRejected, Message: text}})
	s.failed(i, text)
}

// dropBlocks ends the wait for decisions: the run ends.
func (s *scheduler) dropBlocks() {
	clear(s.deferral.pending)
	s.deferral.unwatchIfIdle()
}

// closeBlocks closes the undecided blocks. A process that has lost the run's lease must not write: its successor
// closes them.
func (s *scheduler) closeBlocks() error {
	d := &s.deferral
	s.dropBlocks()
	d.watcher.Wait()
	if !d.some || !s.stopping || errors.Is(context.Cause(s.ctx), refstore.ErrLost) {
		return nil
	}
	return s.opts.Blocks.Close(context.WithoutCancel(s.ctx), s.opts.Workspace, s.opts.RunID)
}
