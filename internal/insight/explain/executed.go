package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/history"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// sortByID puts attempts by id, the greatest first. Lookups prefer executions in this order, whatever the clocks
// showed.
func sortByID(list []history.Attempt) {
	slices.SortStableFunc(list, func(a, b history.Attempt) int { return strings.Compare(b.ExecutionID, a.ExecutionID) })
}

// passing returns nil for errors of missing or unreadable evidence, since the explanation can do without it.
func (x *evidence) passing(err error) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	if errors.Is(err, executions.ErrNotFound) || errors.Is(err, executions.ErrMalformed) || errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	return err
}

// executed explains why an execution was made. The explanation is about the workspace and task that made it, which
// may differ from the workspace and task in question.
func (x *explaining) executed(a *history.Attempt, depth int) (*Reason, error) {
	if r := x.known([2]string{a.ExecutionID}); r != nil {
		return r, nil
	}
	x.budget--
	s, err := x.sideOf(a)
	if err != nil {
		return nil, err
	}
	if e := a.Execution; e != nil && e.Detail != nil && e.Detail.Task != "" {
		s.ws, s.task = e.Detail.Workspace, e.Detail.Task
	}
	r := &Reason{Workspace: s.ws, Task: s.task, Execution: ref(a)}
	x.seen[[2]string{a.ExecutionID}] = r
	if a.Number > 1 {
		done, err := x.retried(r, s, depth)
		if done || err != nil {
			return r, err
		}
	}
	if a.Key == (executions.Key{}) {
		r.final = true
		r.Cause = Cause{Kind: Unknown, Workspace: s.ws, Task: s.task, Text: "its record is gone, so its inputs are unknown"}
		return r, nil
	}
	why, err := x.again(a.Key, a)
	if err != nil {
		return nil, err
	}
	return r, x.compared(r, s, why, depth)
}

// compared explains a side by the earlier executions of its key, or else by its differences to the nearest earlier
// success.
func (x *explaining) compared(r *Reason, s *side, why *Cause, depth int) error {
	if why != nil {
		why.Workspace, why.Task = s.ws, s.task
		r.Cause, r.final = *why, true
		if why.Kind != FailedBefore && why.Kind != RunsNow && why.Kind != Retry {
			return nil // the key had a result once, so nothing has changed
		}
	}
	if why == nil {
		told, err := x.told(s)
		if err != nil {
			return err
		}
		if why = told; why != nil {
			r.Cause, r.final = *why, true
		}
	}
	base, note, err := x.nearest(s, maxCompared)
	if err != nil {
		return err
	}
	if base == nil {
		if why == nil {
			r.final = true
			r.Cause, err = x.never(s)
		}
		return err
	}
	if note != "" {
		r.Notes = append(r.Notes, note)
	}
	r.Compared = ref(base.at)
	if base.definition.task == s.definition.task && base.key == s.key {
		if why == nil { // only events show the earlier result
			r.final = true
			r.Cause = Cause{Kind: RecordGone, Workspace: s.ws, Task: s.task, Execution: base.id, At: base.at.At(),
				Text: "execution " + truncate(base.id, maxText) + ", which had its result, is no longer on record, for an unknown reason"}
		}
		return nil
	}
	keep := r.Cause
	if err := x.differ(r, base, s, depth); err != nil {
		return err
	}
	if r.final {
		r.Cause = keep
	}
	return nil
}

// retried explains a later attempt of a run by the attempt before it. It returns false if the earlier attempt is not on
// record.
func (x *explaining) retried(r *Reason, s *side, depth int) (bool, error) {
	var b *history.Attempt
	err := x.search(x.ctx, s.ws, s.task, func(p past) (bool, error) {
		for i := range p.list {
			if a := &p.list[i]; a.ExecutionID != s.id && a.MadeBy != "" && a.MadeBy == s.at.MadeBy && a.Number == s.at.Number-1 && a.Key == s.at.Key {
				b = a
				break
			}
		}
		return b != nil, nil
	})
	if b == nil || err != nil {
		return false, err
	}
	f := x.failureOf(b)
	r.final = true
	r.Cause = Cause{Kind: Retry, Workspace: s.ws, Task: s.task, Execution: b.ExecutionID, At: b.At(), Reason: f.Text,
		Text: fmt.Sprintf("attempt %d of its run %s", b.Number, f.Text)}
	if x.budget > 0 && depth < maxDepth {
		if r.Before, err = x.executed(b, depth+1); err != nil {
			return true, err
		}
	}
	return true, nil
}

// again says why a key was executed again although it had an earlier execution. Only executions made earlier than
// before count; nil means now. It returns nil if the key had never been executed.
func (x *explaining) again(key executions.Key, before *history.Attempt) (*Cause, error) {
	limit, began := "", x.now()
	if before != nil {
		limit, began = before.ExecutionID, before.At()
	}
	var best *Cause // from a success, or from an unreadable record that may have been a success
	var failed *executions.Execution
	for e, err := range x.Executions.List(x.ctx, key) { // the latest first
		var bad *executions.RecordError
		if err != nil && !errors.As(err, &bad) {
			if x.ctx.Err() != nil {
				return nil, context.Cause(x.ctx)
			}
			return nil, err
		}
		if bad != nil {
			if limit == "" || bad.ExecutionID < limit {
				best = &Cause{Kind: Unreadable, Execution: bad.ExecutionID, Text: "the record of execution " + bad.ExecutionID + " cannot be read"}
				break
			}
			continue
		}
		if limit != "" && e.ExecutionID >= limit {
			continue
		}
		if e.State != record.Success {
			if failed == nil {
				failed = e
			}
			continue
		}
		if before != nil && e.CompletedAt.After(began) {
			continue // it had not ended by then
		}
		c, err := x.discounted(e, before)
		if err != nil {
			return nil, err
		}
		best = c
		break
	}
	tomb, err := x.tombstone(key, before)
	if err != nil {
		return nil, err
	}
	if tomb != nil && tomb.OutputHash != "" && (best == nil || best.Execution < tomb.ExecutionID) {
		return x.pruned(tomb), nil
	}
	switch {
	case best != nil && best.Kind == NoCause:
		return nil, nil
	case best != nil:
		return best, nil
	case failed != nil:
		return x.failedBefore(failed)
	case tomb != nil:
		return x.pruned(tomb), nil
	}
	return nil, nil
}

// discounted says why a success was not used for its key.
func (x *explaining) discounted(e *executions.Execution, before *history.Attempt) (*Cause, error) {
	c := &Cause{Execution: e.ExecutionID, At: e.CompletedAt}
	name := "execution " + e.ExecutionID
	if m := e.Rejection; e.Rejected() && (before == nil || !m.At.After(before.At())) {
		c.Kind, c.By, c.At, c.Reason = Rejected, m.By, m.At, m.Reason
		c.Text = name + ", which had its result, was rejected " + human.Ago(x.now(), m.At) + " by " + truncate(m.By, maxText)
		if m.Reason != "" {
			c.Text += ": " + truncate(m.Reason, maxText)
		}
		return c, nil
	}
	untrusted, err := x.Executions.Untrusted(x.ctx, e)
	if err != nil {
		return nil, err
	}
	if untrusted != "" {
		c.Kind, c.Text = Untrusted, name+" is no answer: "+truncate(untrusted, 2*maxText)
		if e.Detail != nil {
			c.By = e.Detail.Worker
		}
		return c, nil
	}
	if before == nil {
		h, err := objectstore.ParseHash(e.OutputHash)
		if err == nil {
			_, err = x.Stores.Objects.Stat(x.ctx, h)
		}
		var found executions.Answer
		if err == nil {
			found, err = x.Executions.Lookup(x.ctx, e.Key) // Lookup checks all objects that the output consists of
		}
		switch {
		case err == nil && (found.Hit != nil || len(found.Passed) == 0):
			return c, nil // it is a valid result
		case x.ctx.Err() != nil:
			return nil, context.Cause(x.ctx)
		}
		c.Kind, c.Text = OutputGone, "the output of "+name+" is gone from the store"
		return c, nil
	}
	f, err := x.run(originOf(before), before.MadeBy)
	if err != nil {
		return nil, err
	}
	trusted, err := x.Executions.TrustedSince(x.ctx, e)
	if err != nil {
		return nil, err
	}
	switch {
	case f.forced(before.Task):
		c.Kind, c.By = Forced, f.by
		c.Text = "it was forced (--force), although " + name + " had its result"
		if f.by != "" {
			c.Text = "it was forced by " + truncate(f.by, maxText) + " (--force), although " + name + " had its result"
		}
	case before.MadeBy == "":
		c.Kind, c.By = Rerun, before.Worker
		c.Text = "it was run again beside " + name + ", to verify it"
	case !trusted.IsZero() && !trusted.Before(before.At().Truncate(time.Second)): // the precision of settings
		c.Kind, c.At = Untrusted, trusted
		c.Text = name + " was no answer then: the key that signed it has been trusted only since " + human.Stamp(trusted)
	case f.known && f.tells:
		c.Kind, c.Text = OutputGone, "the output of "+name+" was missing then"
	default:
		c.Kind, c.Text = Forced, "it was run again although "+name+" had its result: by --force, or because its output was missing then"
	}
	return c, nil
}

// originOf is the workspace whose run made an attempt.
func originOf(a *history.Attempt) string {
	if e := a.Execution; e != nil && e.Detail != nil && e.Detail.Workspace != "" {
		return e.Detail.Workspace
	}
	return a.Workspace
}

// tombstone returns a pruned execution of a key that was made before an attempt: the latest success, else the latest
// failure.
func (x *evidence) tombstone(key executions.Key, before *history.Attempt) (*record.Tombstone, error) {
	list, err := x.Executions.TaskTombstones(x.ctx, key.Task)
	if err != nil {
		return nil, err
	}
	var found *record.Tombstone
	inputs := key.Inputs.String()
	for i := range list {
		t := &list[i]
		if t.InputsHash != inputs || before != nil && (t.ExecutionID >= before.ExecutionID || t.PrunedAt.After(before.At())) {
			continue
		}
		success := t.OutputHash != ""
		if found == nil || success && found.OutputHash == "" || success == (found.OutputHash != "") && t.ExecutionID > found.ExecutionID {
			found = t
		}
	}
	return found, nil
}

func (x *evidence) pruned(t *record.Tombstone) *Cause {
	c := &Cause{Kind: Pruned, Execution: t.ExecutionID, At: t.PrunedAt, By: t.By, Reason: t.Reason,
		Text: "pruned " + human.Ago(x.now(), t.PrunedAt) + " by " + truncate(t.By, maxText)}
	if t.Reason != "" {
		c.Text += " (" + truncate(t.Reason, maxText) + ")"
	}
	return c
}

// failedBefore says how the latest attempt ended at a key that never succeeded.
func (x *explaining) failedBefore(e *executions.Execution) (*Cause, error) {
	if e.State == record.Running {
		alive, err := x.alive(e)
		if err != nil {
			return nil, err
		}
		if alive {
			return &Cause{Kind: RunsNow, Execution: e.ExecutionID, At: e.StartedAt, Text: "execution " + e.ExecutionID + " of it is running now"}, nil
		}
	}
	a := history.Of("", "", e)
	if a.Status == runview.TaskRunning {
		a.Status = runview.TaskInterrupted
	}
	return x.failedAt("", "", a), nil
}

// told says how the latest attempt at a side's key ended, if only events show that attempt; nil if there is none.
func (x *explaining) told(s *side) (*Cause, error) {
	key := executions.Key{Task: s.definition.task, Inputs: s.key}
	a, err := x.latestAt(s.ws, s.task, key, func(a *history.Attempt) bool {
		return (s.id == "" || a.ExecutionID < s.id) && a.Status != runview.TaskRunning
	})
	if a == nil || err != nil || a.Execution != nil || a.Status == runview.TaskSuccess || a.Status == runview.TaskUnknown {
		return nil, err
	}
	return x.failedAt(s.ws, s.task, a), nil
}

// latestAt is the latest eligible attempt of a task at a key; nil: none. An attempt from before the recent runs
// counts only if the key has a record or a tombstone of that time.
func (x *explaining) latestAt(ws, task string, key executions.Key, eligible func(*history.Attempt) bool) (found *history.Attempt, err error) {
	err = x.search(x.ctx, ws, task, func(p past) (bool, error) {
		for i := range p.list {
			if a := &p.list[i]; a.Key == key && a.ExecutionID != "" && eligible(a) {
				found = a
				return true, nil
			}
		}
		if p.from == "" {
			return true, nil
		}
		known, err := x.onRecord(key, p.from)
		return !known, err
	})
	return found, err
}

// onRecord reports whether a key has an execution, or a tombstone of one, with a lesser id.
func (x *explaining) onRecord(key executions.Key, before string) (bool, error) {
	for e, err := range x.Executions.Statuses(x.ctx, key) { // the earliest first
		if bad := (*executions.RecordError)(nil); errors.As(err, &bad) {
			return bad.ExecutionID < before, nil
		}
		if err != nil || e.ExecutionID < before {
			return err == nil, x.passing(err)
		}
		break
	}
	list, err := x.Executions.TaskTombstones(x.ctx, key.Task)
	inputs := key.Inputs.String()
	return slices.ContainsFunc(list, func(t record.Tombstone) bool {
		return t.InputsHash == inputs && t.ExecutionID < before
	}), x.passing(err)
}

// failedAt says how an attempt at a key that never succeeded ended.
func (x *explaining) failedAt(ws, task string, a *history.Attempt) *Cause {
	f := x.failureOf(a)
	return &Cause{Kind: FailedBefore, Workspace: ws, Task: task, Subject: string(f.Kind), Execution: a.ExecutionID, At: a.At(), Reason: f.Text,
		Text: fmt.Sprintf("the last attempt on the same inputs (%s) %s", human.Ago(x.now(), a.At()), f.Text)}
}

// alive reports whether an execution that is recorded as running has a live run.
func (x *explaining) alive(e *executions.Execution) (bool, error) {
	d := e.Detail
	if d == nil || d.Workspace == "" || e.Provenance != nil {
		return false, nil
	}
	r, err := x.Runs.Summary(x.ctx, d.Workspace)
	if err != nil {
		return false, x.passing(ignoreNoRun(err))
	}
	return r.Live && (r.RunID == d.RunID || d.RunID == ""), nil
}

// nearest finds the earlier success with the fewest differing parts. It looks under the same name first, then under
// other names and in other workspaces, in which case the note says where. It returns nil if there is none.
func (x *explaining) nearest(s *side, most int) (*side, string, error) {
	best, err := x.ownNearest(s, most)
	if best != nil || err != nil {
		return best, "", err
	}
	return x.elsewhere(s, most)
}

// ownNearest is nearest among the successes of the same name.
func (x *explaining) ownNearest(s *side, most int) (best *side, err error) {
	err = x.search(x.ctx, s.ws, s.task, func(p past) (bool, error) {
		best, err = x.choose(s, p.list, most)
		return best != nil, err
	})
	return best, err
}

// choose finds the nearest among attempts, the latest first. Among equally near attempts it prefers the one whose
// result was used last: a user who reverts a change compares with the state before the change, not with trials in
// between.
func (x *evidence) choose(s *side, list []history.Attempt, most int) (*side, error) {
	var best, gone *side
	fewest := 0
	limit := s.made()
	for i := range list {
		a := &list[i]
		if a.Status != runview.TaskSuccess || a.Key == (executions.Key{}) || s.id != "" && a.ExecutionID >= s.id {
			continue
		}
		if most--; most < 0 {
			break
		}
		c, err := x.sideOf(a)
		if err != nil {
			return nil, err
		}
		if a.Execution == nil {
			if gone == nil {
				gone = c
			}
			continue
		}
		n := weigh(compare(&c.definition, &s.definition))
		if best == nil || n < fewest || n == fewest && answeredLast(a, limit) > answeredLast(best.at, limit) {
			best, fewest = c, n
		}
		if n == 0 {
			break
		}
	}
	if best == nil {
		best = gone
	}
	return best, nil
}

// answeredLast is the latest run that used an attempt, among the runs before the run before; if that is "", among all
// runs.
func answeredLast(a *history.Attempt, before string) string {
	last := a.MadeBy
	for _, run := range a.Runs {
		if run > last && (before == "" || run < before) {
			last = run
		}
	}
	return last
}

// weigh measures the distance of two definitions by the number of differing parts. A mere change of order weighs least;
// a part that cannot be compared weighs more than any number of comparable parts.
func weigh(list []Difference) int {
	n := 0
	for i := range list {
		switch d := &list[i]; {
		case d.Part == Definition && d.Name == "order":
			n++
		case d.Part == Definition, d.Part == Unknown:
			n += 1000
		default:
			n += 2
		}
	}
	return n
}

// failureOf says how an unsuccessful attempt ended.
func (x *evidence) failureOf(a *history.Attempt) *Failure {
	f := &Failure{Task: a.Task, ExitCode: a.ExitCode, Reason: a.Reason, Message: a.Message}
	switch {
	case a.Status == runview.TaskRunning:
		f.Kind, f.Text = RunsNow, "has not ended"
	case a.Status == runview.TaskFailed && a.Reason == string(executions.ReasonSuspended):
		f.Kind, f.Text = Suspended, fmt.Sprintf("suspended itself with exit code %d, to wait for approval", a.ExitCode)
		if a.Refused != nil {
			f.Kind = Rejected
			f.Text += ", and was " + truncate(a.Refused.Text, maxText)
		}
	case a.Status == runview.TaskFailed:
		code := fmt.Sprintf("exit code %d", a.ExitCode)
		f.Kind, f.Text, f.Meaning = ExitCode, "failed with "+code, ExitNote(code)
	case a.Status == runview.TaskInterrupted, a.Status == runview.TaskUnfinished, a.Reason == events.ReasonCrashed, executions.Stale(a.Message):
		f.Kind, f.Text = Crashed, "was interrupted: the e3 that ran it died"
	case a.Reason == string(executions.ReasonTimeout):
		f.Kind, f.Text = TimedOut, truncate(a.Message, maxText)
	case a.Reason == string(executions.ReasonCancelled):
		f.Kind, f.Text = Cancelled, "was "+truncate(cmp.Or(a.Message, "cancelled"), maxText) // with the user and the reason, if known
	case a.Reason == string(executions.ReasonSignal):
		f.Kind, f.Text = Signal, "was "+truncate(a.Message, maxText)
	case a.Reason == string(executions.ReasonOutput):
		f.Kind, f.Text = BadOutput, "ended without its output: "+truncate(a.Message, maxText)
	case a.Reason == string(executions.ReasonStart):
		f.Kind, f.Text = NoStart, "was not started: "+truncate(a.Message, maxText)
	case a.Reason == "input":
		f.Kind, f.Text = Lacking, "was not started: "+truncate(a.Message, maxText)
	default:
		f.Kind, f.Text = Fault, "ended in an error: "+truncate(a.Message, maxText)
	}
	return f
}
