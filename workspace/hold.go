package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"e3/internal/backoff"
	"e3/internal/format/record"
	"e3/refstore"
)

// Where locks are leases, a process may lose the workspace unawares: it is stopped or cut off, another process takes over, and
// then it wakes in the middle of a write. So nothing is written under the lock that another holder could have replaced
// meanwhile (doc/design.md §15, "Fencing"):
//
//   - The state is swapped against a version that was read before the lock was taken, or that this process has written under
//     it. A successor rewrites the state first, so that such a swap fails. What is read after a conflict is swapped
//     only once the lease was confirmed after the reading.
//   - Records of runs are closed or deleted if they were listed, or read, before the lease was last confirmed: those of a later
//     holder are not among them. A run's own record is swapped against the version that the run has written.
//   - Events are appended at the offset that their writer knows. A process that closes a log appends its end to it.
//
// Where a kernel keeps the locks all of it costs nothing: to confirm is to do nothing.

// LostError says that this process held a workspace by a lease that it could not renew.
type LostError struct{ Workspace string }

func (e *LostError) Error() string {
	return fmt.Sprintf("workspace %s: %v: it could not be renewed in time, and another process may have taken over; "+
		"what ran was stopped, and the next start makes good what it left", e.Workspace, refstore.ErrLost)
}

// Unwrap returns refstore.ErrLost.
func (e *LostError) Unwrap() error { return refstore.ErrLost }

// confirm asks whether what this process holds is its own. *LostError.
func (s *Stores) confirm(ctx context.Context, ws string) error {
	err := refstore.Confirm(ctx, s.Locks)
	if errors.Is(err, refstore.ErrLost) {
		return &LostError{ws}
	}
	if err != nil {
		return fmt.Errorf("workspace %s: confirm the lease: %w", ws, err)
	}
	return nil
}

// checkLease is the part of confirm that needs no request, only the clock. A process without a lock checks it too: its session
// keeps from collection what it has stored and is about to name. That protection ends with the lease, and a collector waits
// for writes that were sent before.
func (s *Stores) checkLease(ws string) error {
	if l, ok := s.Locks.(refstore.Lessee); ok && errors.Is(l.Held(), refstore.ErrLost) {
		return &LostError{ws}
	}
	return nil
}

// hold is the workspace's lock while it is held, and what its holder says of itself.
type hold struct {
	refstore.Lock
	w     *States
	ws    string
	state record.LockState
	// known is the workspace's state as it can be swapped: see above. nil: there was none, or it was not read. It is used by one
	// goroutine at a time.
	known *State
	// lasting is the context of work that a cancellation must not cut off. It ends with the hold; if the hold is lost, with the
	// cause.
	lasting context.Context
	end     context.CancelCauseFunc
}

// Unlock releases the lock.
func (h *hold) Unlock() error {
	h.end(nil)
	return h.Lock.Unlock()
}

// lockPatience is how long a lock that is held is tried again. It is the kernel's, and a holder that dies gives it up at once;
// but for one that was killed while it started a process, which keeps the lock until it has become another program.
const lockPatience = 250 * time.Millisecond

// lock takes the workspace's dataflow lock. before is the state as it was read before, which may be nil. The context that it
// returns ends also when the lock is lost, with a *LostError as the cause.
func (w *States) lock(ctx context.Context, ws string, op record.Operation, before *State) (context.Context, *hold, error) {
	lock, state, err := w.take(ctx, ws, op)
	if err != nil {
		return ctx, nil, err
	}
	h := &hold{Lock: lock, w: w, ws: ws, state: *state, known: before}
	h.lasting, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if o, ok := w.Locks.(refstore.Outlasting); ok { // what is called off does not wait for a store that does not answer
		stop := context.AfterFunc(ctx, func() { o.Outlast(0) })
		context.AfterFunc(h.lasting, func() { stop() })
	}
	if lessee, ok := w.Locks.(refstore.Lessee); ok {
		inner, cancel := context.WithCancelCause(ctx)
		go func() {
			select {
			case <-lessee.Lost():
				lost := &LostError{ws}
				h.end(lost)
				cancel(lost)
			case <-h.lasting.Done():
				cancel(nil)
			}
		}()
		ctx = inner
	}
	if lock.Previous() != nil {
		if err := h.fence(ctx); err != nil {
			// The lock is not released: its next holder must see that it takes over from a dead one.
			h.end(nil)
			return ctx, nil, h.explain(ctx, err)
		}
	}
	return ctx, h, nil
}

// lockExisting is lock for a workspace that must exist: no lock is made for a typo.
func (w *States) lockExisting(ctx context.Context, ws string, op record.Operation) (context.Context, *hold, error) {
	before, err := w.State(ctx, ws)
	if err != nil {
		return ctx, nil, err
	}
	return w.lock(ctx, ws, op, before)
}

// take tries until it has the lock, or it is known that its holder lives.
func (w *States) take(ctx context.Context, ws string, op record.Operation) (refstore.Lock, *record.LockState, error) {
	var first []byte
	told := w.Waiting == nil
	nap, most := refstore.Pace(w.Locks)
	for began := time.Now(); ; nap = min(2*nap, most) {
		state := &record.LockState{Operation: op, Holder: w.Holder(), AcquiredAt: w.Now()}
		lock, err := w.Locks.TryLock(ctx, lockName(ws), refstore.Exclusive, state.Encode())
		var locked *refstore.LockedError
		switch {
		case err == nil:
			return lock, state, nil
		case !errors.As(err, &locked):
			return nil, nil, fmt.Errorf("workspace %s: %w", ws, err)
		}
		if first == nil {
			first = locked.Holder
		}
		wait := nap
		// A holder other than the first one has taken it since, and so is alive.
		undecided := locked.Pending > 0 && bytes.Equal(first, locked.Holder)
		if undecided {
			wait = min(wait, locked.Pending)
			if !told {
				told = true
				w.Waiting(busy(ws, locked.Holder), locked.Pending)
			}
		} else if time.Since(began) >= lockPatience {
			return nil, nil, w.busyNow(ctx, ws, locked.Holder)
		}
		if err := backoff.Wait(ctx, wait); err != nil {
			return nil, nil, err
		}
	}
}

// fence writes the state anew as it is, so that no swap succeeds which a holder has begun from whom the lock was taken. It ends
// with a confirmation: this process may itself have been taken for dead since, and then what it has fenced was its successor's.
func (h *hold) fence(ctx context.Context) error {
	for {
		rec, err := h.w.readState(ctx, h.ws)
		h.known = nil
		if errors.Is(err, refstore.ErrNotFound) { // there is nothing to swap
			return h.w.confirm(ctx, h.ws)
		}
		if err == nil {
			rec.Version, err = h.w.Records.Put(ctx, refstore.Record{Key: rec.Key, Value: rec.Value, Version: rec.Version})
		}
		switch {
		case err == nil:
			if s, err := decodeState(h.ws, rec); err == nil { // else only a reset helps
				h.known = s
			}
			return h.w.confirm(ctx, h.ws)
		case !errors.Is(err, refstore.ErrConflict):
			return fmt.Errorf("take over workspace %s: %w", h.ws, err)
		}
		if err := h.w.confirm(ctx, h.ws); err != nil {
			return err
		}
	}
}

// read reads the state, as it may be swapped from now on.
func (h *hold) read(ctx context.Context) (*State, error) {
	s, err := h.w.State(ctx, h.ws)
	if err != nil {
		return nil, err
	}
	if h.known == nil || h.known.version != s.version { // it was written since, and that may have been by another holder
		if err := h.w.confirm(ctx, h.ws); err != nil {
			return nil, err
		}
	}
	h.known = s
	return s.copied(), nil
}

// remove deletes the state.
func (h *hold) remove(ctx context.Context) error {
	for {
		err := refstore.ErrConflict
		if h.known != nil {
			if err := h.w.checkLease(h.ws); err != nil {
				return err
			}
			err = h.w.Records.Delete(ctx, stateKey(h.ws), h.known.version)
		}
		if errors.Is(err, refstore.ErrConflict) {
			if _, err = h.read(ctx); err == nil {
				continue
			}
		}
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, ErrNotFound) {
			return nil
		}
		return err
	}
}

// explain says of an error that the lost lease is its reason, where it is.
func (h *hold) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	lost := h.w.checkLease(h.ws)
	if lost == nil && errors.Is(err, refstore.ErrConflict) {
		lost = h.w.confirm(context.WithoutCancel(ctx), h.ws)
	}
	var known *LostError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(lost, &known):
		if ctx.Err() != nil || errors.Is(err, refstore.ErrLost) || errors.Is(err, refstore.ErrConflict) {
			return known
		}
		return fmt.Errorf("%w: %w", known, err)
	}
	return err
}

// begin is the state that a swap is tried with first: what the holder knows, else what is read.
func (w *States) begin(ctx context.Context, h *hold, ws string) (*State, error) {
	switch {
	case h == nil:
		return w.State(ctx, ws)
	case h.known == nil:
		return h.read(ctx)
	}
	return h.known.copied(), nil
}

// reread returns the state for another try of a swap. A caller without a lock confirms its session all the same: if that has
// ended, the objects that it stored may have been collected.
func (w *States) reread(ctx context.Context, h *hold, ws string) (*State, error) {
	if h != nil {
		h.known = nil
		return h.read(ctx)
	}
	s, err := w.State(ctx, ws)
	if err == nil {
		err = w.confirm(ctx, ws)
	}
	return s, err
}
