package dataflow

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/refstore"
)

// A turn is one piece of a task's work beside the scheduler: its lookup or its launch. While the work goes on, the
// turn belongs to its goroutine; Executor.Do's calls (announce.go) write into it what was announced.
type turn struct {
	attempt // of a launch; a lookup has none
	task    int32
	view    *reader // the results when the turn began
	group   *group  // the launch's claim on the budget; nil: a lookup, which has none
	key     string  // "" until it is known

	claimed   bool           // a worker's claim was announced
	begun     bool           // the start of its command was announced
	execution string         // of the last claim or start
	worker    string         // that makes the execution; "": this process
	shared    bool           // the task waits for a job of another run
	batch     record.Batched // known once the command has begun
	lost      int64          // number of lost attempts
	last      *events.Event  // how the last lost attempt ended
}

// An ending is how a turn has ended: answered, missed, unclear, starved or faulted.
type ending interface {
	// take settles the task, or has it go on. It is called by the scheduler's goroutine.
	take(s *scheduler, t *turn)
}

// turnEnd is a turn that has come back.
type turnEnd struct {
	*turn
	ending
}

type (
	// answered is the end of a turn with a result, of a new or an earlier execution.
	answered struct{ result executions.Result }

	// missed is the end of a lookup without an answer.
	missed struct {
		looked *looked
		asked  *asked         // the answer to the question whether it may run; nil: no question was needed
		early  []decidedBlock // decisions that came before it
	}

	// unclear is the end of a launch that found inputs on which a person may have to be asked first. Nothing ran.
	unclear struct{}

	// starved is the end of a turn that could not read an input.
	starved struct {
		losses *losses
		result executions.Result // of an execution that could not read it
		err    error             // if there was no execution
	}

	// faulted is the end of a turn without a result.
	faulted struct{ err error }
)

// endOf turns the result and error of an executor, or of reading the task's inputs, into the end of the turn. It runs
// beside the scheduler.
func (s *scheduler) endOf(t *turn, r executions.Result, err error) ending {
	name := t.view.g.Name(t.task)
	if err != nil {
		err = fmt.Errorf("task %s: %w", name, err)
	}
	if s.ctx.Err() == nil && missesInput(&r, err) {
		l, failed := t.view.losses(s.ctx, t.task)
		if failed == nil {
			return &starved{losses: l, result: r, err: err}
		}
		err = fmt.Errorf("task %s: look for what it reads: %w", name, failed)
	}
	if err != nil {
		return &faulted{err}
	}
	return &answered{r}
}

// comeBack takes a turn back.
func (s *scheduler) comeBack(e turnEnd) {
	if e.group == nil {
		s.lookedUp(e)
		return
	}
	s.returned(e.turn)
	s.conclude(e)
	s.pushAlone(e.group)
}

// conclude settles the task of a turn, or has it go on.
func (s *scheduler) conclude(e turnEnd) {
	s.states[e.task].busy = false
	e.take(s, e.turn)
}

// count adds the attempts of a task that were lost while it was out.
func (s *scheduler) count(t *turn) {
	if t.lost == 0 {
		return
	}
	st := &s.states[t.task]
	st.attempts, st.tried = t.number, t.last
	st.history.uncounted, st.history.lost = st.history.uncounted+t.lost, st.history.lost+t.lost
}

// uncount takes back the attempt of a launch whose command has not begun.
func (s *scheduler) uncount(t *turn) {
	if t.group != nil && !t.begun && !t.claimed {
		s.states[t.task].attempts--
	}
}

func (e *answered) take(s *scheduler, t *turn) {
	r := &e.result
	s.catchUp(t, r)
	s.count(t)
	switch {
	case r.Reason == executions.ReasonSuspended:
		s.suspended(t, r)
	case r.State == record.Success:
		s.succeeded(t, r)
	default:
		s.unsuccessful(t, r)
	}
}

// about makes the event of a result.
func (t *turn) about(r *executions.Result) events.Event {
	e := events.Event{Task: t.view.g.Name(t.task), Execution: r.ExecutionID, Worker: t.worker, Data: &events.Data{
		Key: t.key, Batch: r.Batch.ID, Items: r.Batch.Items, Duration: r.Duration.Milliseconds(), Shared: t.shared || r.Cached && r.State != record.Success}}
	if !r.Cached {
		e.Time = r.EndedAt
	}
	return e
}

// succeeded settles a task that has its answer.
func (s *scheduler) succeeded(t *turn, r *executions.Result) {
	e, state := t.about(r), Succeeded
	e.Type, e.Data.Output = events.TaskCompleted, r.Output.String()
	if r.Cached {
		e.Type, state = events.TaskCached, Cached
		s.uncount(t)
	} else {
		e.Data.Attempt, e.Data.Bytes = s.states[t.task].attempts, r.Size
	}
	s.emit(e)
	s.settle(t.task, TaskResult{State: state, ExecutionID: r.ExecutionID, Output: r.Output, Size: r.Size, Duration: r.Duration})
	if d := s.outdated(t); d >= 0 {
		s.reopen(t.task, d, changedInput)
	}
}

// unsuccessful settles a task whose execution has failed, or schedules another attempt.
func (s *scheduler) unsuccessful(t *turn, r *executions.Result) {
	i, st := t.task, &s.states[t.task]
	e := t.about(r)
	e.Type = events.TaskFailed
	e.Data.Attempt, e.Data.ExitCode, e.Data.Reason, e.Data.Message = st.attempts, r.ExitCode, string(r.Reason), r.Message
	s.emit(e)
	s.results[i] = TaskResult{ExecutionID: r.ExecutionID, Output: r.Output, Size: r.Size, Duration: r.Duration}
	switch r.Reason {
	case executions.ReasonLost:
		st.history.uncounted, st.history.lost = st.history.uncounted+1, st.history.lost+1
	case executions.ReasonBatch:
		s.tryAlone(i, t.group)
		return
	}
	if delay, yes := s.again(i, r); yes {
		s.retryLater(i, e, delay, s.escalate(i, r))
		return
	}
	text := r.Message
	if text == "" {
		text = strconv.FormatInt(r.ExitCode, 10)
	}
	n := len(s.failures)
	s.failed(i, text)
	if r.Reason == executions.ReasonTimeout && len(s.failures) > n && s.failures[n].task == i {
		s.failures[n].timedOut = true
	}
}

// take looks the task up again, and asks whether it may run.
func (unclear) take(s *scheduler, t *turn) {
	s.count(t)
	s.states[t.task].attempts--
	s.lookAgain(t.task)
}

func (e *faulted) take(s *scheduler, t *turn) {
	s.count(t)
	if s.undecided(t, e.err) {
		return
	}
	if lacking := (*LackingError)(nil); errors.As(e.err, &lacking) {
		s.fault(t, "input", lacking.Error())
		return
	}
	s.fault(t, "e3", e.err.Error())
	s.fail(e.err)
}

// undecided tells whether an error says nothing about the task: the run is ending, or a worker may go on.
func (s *scheduler) undecided(t *turn, err error) bool {
	lost := errors.Is(err, refstore.ErrLost)
	switch {
	case err == nil:
		return false
	case t.claimed && !lost: // its worker may go on, so there is no end to tell
		s.states[t.task].tried = nil
		if !s.cancels(err) {
			s.fail(err)
		}
	case !errors.Is(err, errNotStarted) && !s.cancels(err):
		return false
	case (t.begun || t.claimed) && lost: // the log takes no more events; this one is for live readers
		s.fault(t, string(executions.ReasonCancelled), "stopped, as the lease was lost")
	case t.begun: // cancelled between the announcement of the command and its start
		s.fault(t, string(executions.ReasonCancelled), "cancelled before the command ran")
	} // else nothing ran or was recorded: abandoned, or failed by an earlier attempt
	return true
}

// fault settles a task whose attempt has no final record.
func (s *scheduler) fault(t *turn, reason, message string) {
	s.emit(events.Event{Type: events.TaskFailed, Task: s.g.Name(t.task), Execution: t.execution, Worker: t.worker, Data: &events.Data{
		Key: t.key, Attempt: s.states[t.task].attempts, Reason: reason, Message: message, NoRecord: t.execution != ""}})
	s.failed(t.task, message)
}

// work answers one task. It runs beside the scheduler and reads only what was settled before the launch: the graph and the
// results of the view.
func (s *scheduler) work(t *turn, l *looked) ending {
	defer t.place.Leave()
	v, i := t.view, t.task
	if l == nil {
		var err error
		if l, err = v.know(i, t.after, t.force); err != nil {
			return s.endOf(t, executions.Result{}, err)
		}
		if l == nil {
			return s.endOf(t, v.proof.answer(i), nil)
		}
	}
	t.key = executions.NewKey(v.g.Hashes[i], l.inputs).String()
	if t.waits && t.key != t.clear {
		return unclear{}
	}
	r, err := s.exec.Do(s.ctx, s.request(t, l))
	return s.endOf(t, r, err)
}

// request is the request for a task's execution, whose callbacks announce its progress.
func (s *scheduler) request(t *turn, l *looked) *executions.Request {
	v, i := t.view, t.task
	req := &executions.Request{
		Task: v.g.Hashes[i], Inputs: l.inputs, InputBytes: l.size, Policy: t.policy, Looked: l.answer,
		Load: func(ctx context.Context) (*record.Task, error) {
			if err := v.contents(i); err != nil {
				return nil, err
			}
			if err := v.gather(i); err != nil {
				return nil, err
			}
			return v.load(ctx, v.g.Hashes[i])
		},
		Attempt: t.number, Step: t.step, RunID: s.opts.RunID, Workspace: s.opts.Workspace, Name: v.g.Name(i), Force: t.force,
		Mild: t.policy.MayFail && !s.opts.Strict || t.mild, Without: t.after, Kept: true, // kept by the package, since the run holds the workspace
		Place:   t.place,
		InBatch: func(b record.Batched) { t.batch = b },
		Started: func(id string, at time.Time) { s.started(t, id, at) },
		Claimed: func(id, worker string, at time.Time) { s.claimed(t, id, worker, at) },
		Lost: func(id string, reason executions.Reason, message string, at, again time.Time) {
			s.attemptLost(t, id, reason, message, at, again)
		},
		Released: func(id string, at time.Time) { s.released(t, id, at) },
		Orphaned: func(id string, at time.Time) { s.orphaned(t, id, at) },
		Adopted:  func(id, worker string, at time.Time) { s.adopted(t, id, worker, at) },
		Shared:   func(yes bool) { s.sharing(t, yes) },
	}
	if s.opts.Outstanding == 0 {
		req.Admit = func(context.Context) (func(bool), error) { return s.gate.admit(t.policy, t.ends) }
	}
	return req
}
