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
	"e3/internal/format/record"
	"e3/internal/jobs/approval"
	"e3/refstore"
)

// Blocks records which tasks wait for a person, and reports decisions; *approval.Blocks implements it.
type Blocks interface {
	// Ask returns the block that stops the task or lets it go on; a zero block if there is none.
	Ask(ctx context.Context, q approval.Question) (approval.Block, error)
	// Watch yields the blocks of a run once they are decided, until ctx ends. With an error, the block cannot be
	// read, and only its task is known.
	Watch(ctx context.Context, ws, run string) iter.Seq2[approval.Block, error]
	// Settle closes blocks that wait for earlier runs, if their tasks are settled in this run.
	Settle(ctx context.Context, ws, run string, settled func(task string) bool) error
}

// suspensions is an Executor that knows whether an execution's command has suspended itself for a workspace in this
// repository; *executions.Executor implements it.
type suspensions interface {
	SuspendedFor(ctx context.Context, key executions.Key, id, ws string) (bool, error)
}

// deferral is the state of the tasks that wait for a person. The scheduler's goroutine owns it.
type deferral struct {
	making  int              // number of tasks that are being asked about
	made    chan madeBlock   // results of making blocks
	pending map[string]int32 // deferred tasks by id of the block
	decided chan decidedBlock
	early   []decidedBlock // decisions about blocks that are still being made
	left    int            // deferred tasks at the end of a run that does not wait (Options.NoWait)
	unwatch context.CancelFunc
	watcher sync.WaitGroup
}

// asked is the answer to a question.
type asked struct {
	block approval.Block
	err   error
}

// madeBlock is the answer about a task.
type madeBlock struct {
	*turn
	result executions.Result // if the task has suspended itself
	asked
}

// decidedBlock is a block that was decided, or that never can be because its record cannot be read.
type decidedBlock struct {
	block approval.Block
	err   error
}

func newDeferral() deferral {
	return deferral{made: make(chan madeBlock), pending: map[string]int32{}, decided: make(chan decidedBlock)}
}

// isMade notes that the question about a task is answered, and returns the decisions that may have come before the
// answer.
func (d *deferral) isMade() []decidedBlock {
	early := d.early
	if d.making--; d.making == 0 {
		d.early = nil
	}
	return early
}

// waits tells whether a task may have to wait for a person.
func (r *reader) waits(i int32) bool { return mayWait(&r.g.Package.Tasks[i].Policy) }

// ask asks whether a task without an answer may run on the inputs of a key: it may need approval, its command may have
// suspended itself in an earlier run, and a person may have decided about either. It runs beside the scheduler.
func (s *scheduler) ask(v *reader, i int32, key executions.Key, a *executions.Answer, fresh bool) *asked {
	p := &v.g.Package.Tasks[i].Policy
	switch {
	case s.opts.Blocks == nil && p.Approve:
		return &asked{err: errNoApprover}
	case s.opts.Blocks == nil, fresh && !p.Approve:
		return &asked{}
	}
	q := v.question(i, key.String())
	q.Review, q.Fresh = p.Approve, fresh
	if l := a.Latest; l != nil {
		q.Latest = l.ExecutionID
		if x, ok := s.exec.(suspensions); ok && !fresh && l.State == record.Failed && p.Suspend != 0 && l.ExitCode == p.Suspend {
			yes, err := x.SuspendedFor(s.ctx, key, l.ExecutionID, s.opts.Workspace)
			if err != nil {
				return &asked{err: err}
			}
			if yes {
				q.Suspended = l.ExecutionID
			}
		}
	}
	block, err := s.opts.Blocks.Ask(s.ctx, q)
	return &asked{block, err}
}

// question is the run's question about a task on the content of a key.
func (r *reader) question(i int32, key string) approval.Question {
	return approval.Question{Workspace: r.opts.Workspace, Run: r.opts.RunID, Task: r.g.Name(i), Key: key}
}

// suspended takes back a task whose command has suspended itself.
func (s *scheduler) suspended(t *turn, r *executions.Result) {
	i := t.task
	if r.Cached { // made for another workspace with its own approval, or for a job of an earlier run
		s.states[i].attempts--
		s.lookAgain(i)
		return
	}
	s.results[i] = TaskResult{ExecutionID: r.ExecutionID, Duration: r.Duration}
	h := s.states[i].history
	q := s.question(i, t.key)
	q.Suspended, q.Latest, q.Review = r.ExecutionID, r.ExecutionID, s.g.Package.Tasks[i].Policy.Approve
	q.Fresh = s.forces(i) && h.step == ""
	s.states[i].busy = true
	s.deferral.making++
	go func() {
		m := madeBlock{turn: t, result: *r}
		if s.opts.Blocks == nil {
			m.err = errNoApprover
		} else {
			m.block, m.err = s.opts.Blocks.Ask(s.ctx, q)
		}
		s.deferral.made <- m
	}()
}

var errNoApprover = errors.New("it waits for approval, which this run cannot ask for")

// blockMade takes the answer about a task: the task waits for a decision, or goes on with one. early are decisions
// that came before the answer.
func (s *scheduler) blockMade(m madeBlock, early []decidedBlock) {
	d, i := &s.deferral, m.task
	if m.err != nil {
		s.notDeferred(m)
		return
	}
	s.states[i].tried = nil // if the run ends now, the task waited for approval, not for a retry
	r := &m.result
	if r.ExecutionID != "" {
		s.states[i].history.uncounted++
	}
	if r.ExecutionID != "" || m.block.Status == approval.Pending {
		at := time.Time{}
		if r.ExecutionID != "" {
			at = r.EndedAt // its command has suspended itself
		}
		s.emit(events.Event{Type: events.TaskDeferred, Time: at, Task: s.g.Name(i), Execution: r.ExecutionID, Worker: m.worker, Data: &events.Data{
			Block: m.block.ID, BlockType: string(m.block.Type), Step: m.block.Step, Key: m.key, Attempt: m.number, ExitCode: r.ExitCode, Duration: r.Duration.Milliseconds(),
			Shared: m.shared || r.Cached}})
	}
	if s.stopping {
		return
	}
	d.pending[m.block.ID] = i
	if m.block.Status == approval.Pending {
		s.watchBlocks()
	}
	for _, e := range slices.Concat(early, []decidedBlock{{block: m.block}}) { // decisions may come before the block does
		if e.block.ID == m.block.ID || e.err != nil && e.block.Task == m.block.Task {
			s.blockDecided(e)
		}
	}
}

// notDeferred settles a task whose block could not be made.
func (s *scheduler) notDeferred(m madeBlock) {
	cancelled := s.cancels(m.err)
	suspended := m.result.ExecutionID != ""
	if cancelled && !suspended {
		return // nothing has run: abandoned
	}
	reason := "e3"
	if cancelled {
		reason = string(executions.ReasonCancelled)
	}
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(m.task), Execution: m.result.ExecutionID, Worker: m.worker, Data: &events.Data{
		Key: m.key, Attempt: m.number, Reason: reason, Message: m.err.Error(), Duration: m.result.Duration.Milliseconds()}})
	s.failed(m.task, m.err.Error())
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

// unwatchIfIdle ends the watch if no task is deferred.
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
	if h.step == b.Resume() && h.cleared == b.Key { // the approval holds for this attempt too, and its events are in the log
		s.push(i)
		return
	}
	h.step, h.cleared = b.Resume(), b.Key
	s.emit(events.Event{Type: events.TaskResumed, Task: s.g.Name(i), Data: &events.Data{
		Block: b.ID, Step: b.Resume(), By: b.By, Message: b.Note, At: b.At.UTC().Format(time.RFC3339Nano), Attempt: s.states[i].attempts + 1}})
	s.push(i)
}

// pendingOf returns the id of the block for which a task waits; "" if there is none.
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
	s.results[i].Rejected = true
	s.failed(i, text)
}

// dropBlocks ends the wait for decisions: the run ends.
func (s *scheduler) dropBlocks() {
	clear(s.deferral.pending)
	s.deferral.unwatchIfIdle()
}

// closeBlocks ends the wait for decisions, and closes the blocks of earlier runs, about other inputs, of tasks that
// are settled now. Blocks of tasks that wait stay. A process that has lost the run's lease must not write.
func (s *scheduler) closeBlocks() error {
	s.dropBlocks()
	s.deferral.watcher.Wait()
	if s.opts.Blocks == nil || !waits(s.g) || errors.Is(context.Cause(s.ctx), refstore.ErrLost) {
		return nil
	}
	return s.opts.Blocks.Settle(context.WithoutCancel(s.ctx), s.opts.Workspace, s.opts.RunID, func(task string) bool {
		i, ok := s.g.Find(task)
		return !ok && !s.growth.incomplete() || ok && (s.results[i].State == Cached || s.results[i].State == Succeeded || s.results[i].State == Failed)
	})
}
