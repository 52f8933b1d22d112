package workspace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"e3/executions"
	"e3/internal/backoff"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/refstore"
)

// A cancellation is a recorded request: the run's process finds it and ends the run as a signal would. A request names
// one hold of the workspace's lock. So it does not affect any other run, and needs no synchronised clocks
// (doc/design.md §14, "Cancelling").

const cancels = "CANCEL" // the partition of the requests

func cancelKey(ws string) refstore.Key { return refstore.Key{Partition: cancels, Sort: ws} }

// cancelPoll is how often a run looks for a request if the store sends no notices, or a read failed.
const cancelPoll = time.Second

// CancelledError is the cause of the context of a run that was cancelled. It is a context.Canceled.
type CancelledError struct {
	By     string // user@host
	Reason string // "" where none was given
	At     time.Time
}

func (e *CancelledError) Error() string {
	text := "cancelled by " + e.By
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Unwrap makes errors.Is(err, context.Canceled) true.
func (e *CancelledError) Unwrap() error { return context.Canceled }

// asCancelled returns the cause if err only says that the context has ended.
func asCancelled(ctx context.Context, err error) error {
	var cause *CancelledError
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}

// causeOf returns the user that cancelled a run, if known, and the reason.
func causeOf(cause error) (by, reason string) {
	var request *CancelledError
	switch {
	case errors.As(cause, &request):
		return request.By, request.Reason
	case cause == nil || cause == context.Canceled:
		return "", ""
	}
	return "", cause.Error() // a signal to this process
}

// means reports whether a request is for the run of the lock's holder. run is the id of that run, "" as long as it
// has none.
func means(c *record.Cancellation, state *record.LockState, run string) bool {
	return meansHold(c, state) && (c.Run == "" || c.Run == run)
}

// meansHold compares a request with a hold. Recorded times are whole milliseconds.
func meansHold(c *record.Cancellation, state *record.LockState) bool {
	return c.Holder == state.Holder && c.Since.UnixMilli() == state.AcquiredAt.UnixMilli()
}

// cancelWatch lets a run learn that it was cancelled.
type cancelWatch struct {
	id      atomic.Pointer[string] // of the run, once it has one
	watch   func()                 // starts looking repeatedly; further calls do nothing
	unwatch func()                 // stops looking, and removes the request that was answered
	cause   error                  // the context's cause at the end of the last task
}

// watchCancellation returns the context of the run, which a request cancels, and look, which looks for a request once.
func (r *run) watchCancellation(ctx context.Context, lock *hold) (_ context.Context, look func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var answered atomic.Pointer[refstore.Record]
	look = func() error {
		rec, err := r.w.states.Records.Get(ctx, cancelKey(r.ws))
		if errors.Is(err, refstore.ErrNotFound) {
			return nil
		}
		if err != nil && !errors.Is(err, refstore.ErrDamaged) { // a damaged request has no effect
			return fmt.Errorf("look for a request to cancel the run: %w", err)
		}
		id := ""
		if p := r.id.Load(); p != nil {
			id = *p
		}
		if c, bad := record.DecodeCancellation(rec.Value); err == nil && bad == nil && means(c, &lock.state, id) {
			answered.Store(&rec)
			cancel(&CancelledError{By: c.By, Reason: c.Reason, At: c.At})
			return nil
		}
		// If this process still holds the lock, the hold that the request names has ended. Otherwise, it may name a
		// later hold.
		if err := r.w.states.confirm(ctx, r.ws); err != nil {
			return err
		}
		return r.w.withdraw(ctx, rec)
	}
	var watcher sync.WaitGroup
	r.watch = sync.OnceFunc(func() { watcher.Go(func() { r.w.lookout(ctx, look) }) })
	r.unwatch = func() {
		cancel(nil)
		watcher.Wait()
		if rec := answered.Load(); rec != nil {
			_ = r.w.withdraw(context.WithoutCancel(ctx), *rec) // if it stays, it has no effect
		}
	}
	return ctx, look
}

// lookout calls look whenever a request may have arrived, until ctx ends.
func (w *Runner) lookout(ctx context.Context, look func() error) {
	var changed <-chan struct{}
	if s, ok := w.states.Records.(refstore.Watcher); ok {
		changed, _ = s.Watch(ctx, cancels) // without notices, the ticker decides
	}
	for {
		var again <-chan time.Time
		// After a failed read, look again; the run meets the store's faults by itself. A store that sends notices
		// misses no request, so polling it as well would only cost requests.
		if err := look(); err != nil || changed == nil {
			again = time.After(cancelPoll)
		}
		select {
		case <-ctx.Done():
			return
		case _, open := <-changed:
			if !open {
				changed = nil
			}
		case <-again:
		}
	}
}

// withdraw removes a request in the version that was read. A request that another process has removed is no error.
func (w *Runner) withdraw(ctx context.Context, rec refstore.Record) error {
	err := w.states.Records.Delete(ctx, rec.Key, rec.Version)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
		return nil
	}
	return err
}

// CancelOptions say by whom a run is cancelled, and how long to wait for its end.
type CancelOptions struct {
	By      string // user@host
	Reason  string
	NoWait  bool          // return when the request is on record
	Timeout time.Duration // give up waiting after so long; 0: never
	// OnWait is called once, after Patience, with the holder of the workspace. It may be nil.
	OnWait   func(*BusyError)
	Patience time.Duration
	// OnLeft is called for each task of the cancelled run whose command may run on: the worker is gone, and the
	// supervisor belongs to another machine, user or folder. It may be nil.
	OnLeft  func(task, worker string)
	Curator *executions.Curator // closes a run whose process died; nil: the next start does
}

// CancelStatus is the result of a request.
type CancelStatus string

// The outcomes of a cancellation.
const (
	CancelIdle        CancelStatus = "idle"        // the workspace is not being run
	CancelRequested   CancelStatus = "requested"   // the request is recorded; the end was not awaited
	CancelDone        CancelStatus = "cancelled"   // the run is cancelled
	CancelBefore      CancelStatus = "not begun"   // the start ended before its run began
	CancelCompleted   CancelStatus = "completed"   // the run completed before it saw the request
	CancelFailed      CancelStatus = "failed"      // the run failed before it saw the request
	CancelInterrupted CancelStatus = "interrupted" // the run's process died
)

// Cancelled is the result of a request, and the run that it was for.
type Cancelled struct {
	Workspace string       `json:"workspace"`
	Status    CancelStatus `json:"status"`
	RunID     string       `json:"run,omitempty"`
	By        string       `json:"by,omitempty"` // who cancelled; absent for a signal
	Reason    string       `json:"reason,omitempty"`
	Closed    bool         `json:"closed,omitempty"`    // the run had been interrupted
	Withdrawn int          `json:"withdrawn,omitempty"` // queued tasks that no worker had begun
	MayRunOn  []string     `json:"mayRunOn,omitempty"`  // tasks whose commands could not be stopped
}

// UnresponsiveError says that a run has not stopped although it was asked to.
type UnresponsiveError struct {
	Busy  *BusyError
	After time.Duration
}

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("%v, and has not stopped within %v; the request stands: the run ends as soon as its process hears of it", e.Busy, e.After)
}

// Cancel asks the run of a workspace to stop, and waits for its end. An idle workspace is a result, not an error; a
// workspace held for another operation is a BusyError. The first of several requests counts. A request stays recorded
// if ctx or the timeout ends the wait. Queued jobs of dead runs that no worker has begun are withdrawn.
func (w *Runner) Cancel(ctx context.Context, ws string, o CancelOptions) (*Cancelled, error) {
	if _, err := w.states.State(ctx, ws); err != nil {
		return nil, err
	}
	var holder *record.LockState
	for {
		var err error
		if holder, err = w.holder(ctx, ws); err != nil {
			return nil, err
		}
		if holder != nil {
			break
		}
		n, err := w.withdrawIdle(ctx, ws)
		if err == nil {
			return &Cancelled{Workspace: ws, Status: CancelIdle, Withdrawn: n}, nil
		}
		if !errors.Is(err, errBegun) {
			return nil, err
		}
	}
	if holder.Operation != record.Dataflow {
		return nil, busyAs(ws, holder)
	}
	c := &canceller{w: w, ws: ws, o: &o, holder: holder}
	if err := c.request(ctx); err != nil {
		return nil, err
	}
	if o.NoWait {
		return &Cancelled{Workspace: ws, Status: CancelRequested, RunID: c.run, By: c.asked.By, Reason: c.asked.Reason}, nil
	}
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	res, err := c.outcome(ctx)
	if err != nil || res.RunID == "" {
		return res, err
	}
	attempts, err := w.states.attempts(ctx, ws, res.RunID)
	for i := range attempts {
		if a := &attempts[i]; a.Left != "" {
			res.MayRunOn = append(res.MayRunOn, a.Task)
			if o.OnLeft != nil {
				o.OnLeft(a.Task, a.Left)
			}
		}
	}
	return res, err
}

// errBegun says that an idle workspace has become held.
var errBegun = errors.New("the workspace is held now")

// withdrawIdle withdraws the queued jobs of an idle workspace. Jobs that were listed before the workspace was found
// idle belong to dead runs. It fails with errBegun if the workspace has become held.
func (w *Runner) withdrawIdle(ctx context.Context, ws string) (int, error) {
	return w.states.withdrawLeft(ctx, ws, "", func(ctx context.Context) error {
		_, held, err := w.states.Locks.Holder(ctx, lockName(ws))
		if err == nil && held {
			err = errBegun
		}
		return err
	})
}

// holder returns the lock state of the workspace's holder; nil if the workspace is free.
func (w *Runner) holder(ctx context.Context, ws string) (*record.LockState, error) {
	var last []byte
	for range 50 {
		text, held, err := w.states.Locks.Holder(ctx, lockName(ws))
		if err != nil || !held {
			return nil, err
		}
		// A new holder may not have written its text yet, so the text may be a dead holder's. It counts if two reads
		// agree.
		if len(text) > 0 && string(text) == string(last) {
			state, err := record.DecodeLockState(text)
			if err != nil {
				return nil, fmt.Errorf("workspace %s is held by a process whose name cannot be read: %w", ws, err)
			}
			return state, nil
		}
		last = text
		if err := backoff.Wait(ctx, 2*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, &BusyError{Workspace: ws}
}

// canceller is a request on its way.
type canceller struct {
	w      *Runner
	ws     string
	o      *CancelOptions
	holder *record.LockState // of the hold to cancel
	asked  *record.Cancellation
	run    string    // "" if it is not known
	until  time.Time // upper bound of the end of the hold
}

// request records the request, unless the run already has one.
func (c *canceller) request(ctx context.Context) error {
	for {
		rec, err := c.w.states.Records.Get(ctx, cancelKey(c.ws))
		if err != nil && !errors.Is(err, refstore.ErrNotFound) && !errors.Is(err, refstore.ErrDamaged) {
			return fmt.Errorf("cancel workspace %s: %w", c.ws, err)
		}
		if err == nil {
			if earlier, bad := record.DecodeCancellation(rec.Value); bad == nil && meansHold(earlier, c.holder) {
				c.asked = earlier
				return c.learn(ctx)
			}
		}
		if err := c.learn(ctx); err != nil {
			return err
		}
		c.asked = &record.Cancellation{
			Run: c.run, Holder: c.holder.Holder, Since: c.holder.AcquiredAt, By: c.o.By, At: c.w.states.Now(), Reason: c.o.Reason,
		}
		_, err = c.w.states.Records.Put(ctx, refstore.Record{Key: cancelKey(c.ws), Value: c.asked.Encode(), Version: rec.Version})
		if err == nil || !errors.Is(err, refstore.ErrConflict) {
			return err
		}
	}
}

// learn finds the run that the holder performs, as soon as it is recorded.
func (c *canceller) learn(ctx context.Context) error {
	if c.run != "" {
		return nil
	}
	run, err := c.w.states.Runs.Read(ctx, c.ws, "")
	switch {
	case errors.Is(err, runview.ErrNoRun) || errors.Is(err, refstore.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	if run.Provenance == nil && run.State == record.RunRunning && run.StartedAt.UnixMilli() >= c.holder.AcquiredAt.UnixMilli() {
		c.run = run.RunID
	}
	return nil
}

// wait returns when the hold to cancel has ended.
func (c *canceller) wait(ctx context.Context) error {
	began, told := time.Now(), c.o.OnWait == nil
	// A dead holder counts as alive until its death is known. With leases that takes at most one lease, and the run is
	// then found interrupted. A process that takes over from the dead holder ends the wait as well.
	first, most := refstore.Pace(c.w.states.Locks)
	for nap := max(first, 2*time.Millisecond); ; nap = min(2*nap, max(most, 100*time.Millisecond)) {
		text, heard, held, err := refstore.HeldBy(ctx, c.w.states.Locks, lockName(c.ws))
		if err != nil {
			return err
		}
		if !held {
			c.until = c.w.states.Now()
			return nil
		}
		now, err := record.DecodeLockState(text) // during its release the lock has no text
		if err == nil && (now.Holder != c.holder.Holder || now.AcquiredAt.UnixMilli() != c.holder.AcquiredAt.UnixMilli()) {
			c.until = now.AcquiredAt
			return nil
		}
		if err := c.learn(ctx); err != nil {
			return err
		}
		waited := time.Since(began)
		if c.o.Timeout > 0 && waited >= c.o.Timeout {
			return &UnresponsiveError{Busy: busyAs(c.ws, c.holder), After: c.o.Timeout}
		}
		if !told && waited >= c.o.Patience {
			told = true
			busy := busyAs(c.ws, c.holder)
			busy.Heard = heard
			c.o.OnWait(busy)
		}
		if err := backoff.Wait(ctx, nap); err != nil {
			return err
		}
	}
}

// outcome says how the cancelled run ended. It removes the request unless the run has done so.
func (c *canceller) outcome(ctx context.Context) (*Cancelled, error) {
	if rec, err := c.w.states.Records.Get(ctx, cancelKey(c.ws)); err == nil {
		if left, bad := record.DecodeCancellation(rec.Value); bad == nil && meansHold(left, c.holder) {
			_ = c.w.withdraw(ctx, rec) // if it stays, the next run removes it
		}
	}
	if err := c.find(ctx); err != nil {
		return nil, err
	}
	res := &Cancelled{Workspace: c.ws, Status: CancelBefore, RunID: c.run, By: c.asked.By, Reason: c.asked.Reason}
	if c.run == "" {
		return res, nil
	}
	end, err := events.End(ctx, c.w.states.Records, c.ws, c.run)
	if err != nil {
		return nil, err
	}
	switch {
	case end == nil:
		res.Status = CancelInterrupted
		if c.o.Curator != nil {
			res.Closed, err = c.closeInterrupted(ctx)
		}
		return res, err
	case end.Data != nil && end.Data.Reason == events.ReasonCrashed: // another process has closed it
		res.Status, res.Closed = CancelInterrupted, true
	case end.Type == events.RunCompleted:
		res.Status = CancelCompleted
	case end.Type == events.RunFailed:
		res.Status = CancelFailed
	default:
		res.Status, res.By, res.Reason = CancelDone, "", ""
		if end.Data != nil {
			res.By, res.Reason = end.Data.By, end.Data.Message
		}
	}
	return res, nil
}

// closeInterrupted closes the run of a dead process, as the next start would. It returns false if another process has
// taken the workspace and so closes the run.
func (c *canceller) closeInterrupted(ctx context.Context) (closed bool, err error) {
	ctx, lock, err := c.w.states.lockExisting(ctx, c.ws, record.Dataflow)
	var busy *BusyError
	if errors.As(err, &busy) || errors.Is(err, ErrNotFound) { // or has removed it
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	s, err := lock.read(ctx)
	if err == nil {
		_, err = c.w.closeDead(ctx, lock, s.CurrentRunID, c.o.Curator)
	}
	return err == nil, lock.explain(ctx, err)
}

// find looks in the logs for the run of a hold that has ended: the first run that began in the hold.
func (c *canceller) find(ctx context.Context) error {
	if c.run != "" {
		return nil
	}
	q := refstore.Query{Partition: "EVENTS/" + c.ws, After: idPrefix(c.holder.AcquiredAt), Limit: 1}
	for key, err := range c.w.states.Records.ListStreams(ctx, q) {
		if err != nil {
			return err
		}
		if last := idPrefix(c.until); len(key.Sort) >= len(last) && key.Sort[:len(last)] <= last {
			c.run = key.Sort
		}
	}
	return nil
}

// idPrefix is the common prefix of the ids that are made in the millisecond of t.
func idPrefix(t time.Time) string {
	ms := uint64(max(t.UnixMilli(), 0)) & (1<<48 - 1)
	return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff)
}

// RemoveForce is Remove, but first cancels a run of the workspace and waits for its end. It does the same with a run
// that begins meanwhile. As with Remove, a workspace that is held for another operation is not removed.
func (w *Runner) RemoveForce(ctx context.Context, name string, o CancelOptions) error {
	o.NoWait = false
	for {
		err := w.cleaner.Remove(ctx, name)
		var busy *BusyError
		if !errors.As(err, &busy) || busy.Operation != record.Dataflow {
			return err
		}
		if _, err := w.Cancel(ctx, name, o); err != nil {
			return err
		}
	}
}
