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

// If locks are leases, a process may lose the workspace without noticing: it is suspended or disconnected, another
// process takes over, and then it resumes in the middle of a write. So a process under the lock writes nothing that
// another holder could have replaced meanwhile (doc/design.md §15, "Fencing"):
//
//   - A swap of the state expects a version that was read before the lock was taken, or that this process wrote under
//     it. A successor rewrites the state first, so such a swap fails. After a conflict the state is read again, and the
//     lease is confirmed, before the next swap.
//   - Run records are closed or deleted if they were listed, or read, before the last confirmation of the lease: no
//     record of a later holder is among them. A run's own record is swapped against the version that the run wrote.
//   - Events are appended at the offset that their writer knows. A process that closes a log appends its end to it.
//
// With kernel locks none of this costs anything: confirm does nothing.

// LostError says that this process lost a workspace, because it could not renew its lease.
type LostError struct{ Workspace string }

func (e *LostError) Error() string {
	return fmt.Sprintf("workspace %s: %v: it could not be renewed in time, and another process may have taken over; "+
		"running commands were stopped, and the next start repairs the workspace", e.Workspace, refstore.ErrLost)
}

// Unwrap returns refstore.ErrLost.
func (e *LostError) Unwrap() error { return refstore.ErrLost }

// confirm checks that this process still holds its leases. A lost lease is a *LostError.
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

// checkLease is the part of confirm that needs only the clock, no request. A process without a lock calls it too: its
// session protects from collection the objects that it has stored and is about to name. That protection ends with the
// lease. A collector waits for writes that were sent before.
func (s *Stores) checkLease(ws string) error {
	if l, ok := s.Locks.(refstore.Lessee); ok && errors.Is(l.Held(), refstore.ErrLost) {
		return &LostError{ws}
	}
	return nil
}

// hold is the workspace's lock, with the lock state that its holder published.
type hold struct {
	refstore.Lock
	w     *States
	ws    string
	state record.LockState
	// known is the state, in the version that this holder may swap (see above). nil: there was no state, or it was
	// not read. Only one goroutine at a time uses it.
	known *State
	// lasting is the context of work that a cancellation must not interrupt. It ends with the hold; if the hold is
	// lost, *LostError is the cause.
	lasting context.Context
	end     context.CancelCauseFunc
}

// Unlock releases the lock.
func (h *hold) Unlock() error {
	h.end(nil)
	return h.Lock.Unlock()
}

// lockPatience is how long a held lock is tried again. A kernel's lock is freed at once when its holder dies, unless
// the holder was killed while starting a process: the child keeps the lock until its exec.
const lockPatience = 250 * time.Millisecond

// lock takes the workspace's dataflow lock. before, which may be nil, is the state as it was read earlier. The
// returned context also ends when the lock is lost; its cause is then a *LostError.
func (w *States) lock(ctx context.Context, ws string, op record.Operation, before *State) (context.Context, *hold, error) {
	lock, state, err := w.take(ctx, ws, op)
	if err != nil {
		return ctx, nil, err
	}
	h := &hold{Lock: lock, w: w, ws: ws, state: *state, known: before}
	h.lasting, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if o, ok := w.Locks.(refstore.Outlasting); ok { // after a cancellation, do not wait for a store that does not answer
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
			// Do not release the lock: its next holder must see that it takes over from a dead holder.
			h.end(nil)
			return ctx, nil, h.explain(ctx, err)
		}
	}
	return ctx, h, nil
}

// lockExisting is lock for a workspace that must exist: a mistyped name makes no lock.
func (w *States) lockExisting(ctx context.Context, ws string, op record.Operation) (context.Context, *hold, error) {
	before, err := w.State(ctx, ws)
	if err != nil {
		return ctx, nil, err
	}
	return w.lock(ctx, ws, op, before)
}

// take retries until it has the lock, or its holder is known to be alive.
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
		// A different holder has taken the lock since the first try, so it is alive.
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

// fence rewrites the unchanged state, so that pending swaps of the previous holder fail. It ends with a confirmation:
// if this process has itself been presumed dead since, it has fenced off its successor.
func (h *hold) fence(ctx context.Context) error {
	for {
		rec, err := h.w.readState(ctx, h.ws)
		h.known = nil
		if errors.Is(err, refstore.ErrNotFound) { // no state, so nothing to swap
			return h.w.confirm(ctx, h.ws)
		}
		if err == nil {
			rec.Version, err = h.w.Records.Put(ctx, refstore.Record{Key: rec.Key, Value: rec.Value, Version: rec.Version})
		}
		switch {
		case err == nil:
			if s, err := decodeState(h.ws, rec); err == nil { // an unreadable state can only be reset
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

// read reads the state, which may be swapped from then on.
func (h *hold) read(ctx context.Context) (*State, error) {
	s, err := h.w.State(ctx, h.ws)
	if err != nil {
		return nil, err
	}
	if h.known == nil || h.known.version != s.version { // written since, possibly by another holder
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

// explain adds the lost lease to an error that it has caused.
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

// begin returns the state for the first try of a swap: the holder's known one, else the stored one.
func (w *States) begin(ctx context.Context, h *hold, ws string) (*State, error) {
	switch {
	case h == nil:
		return w.State(ctx, ws)
	case h.known == nil:
		return h.read(ctx)
	}
	return h.known.copied(), nil
}

// reread returns the state for another try of a swap. A caller without a lock also confirms its session: if that has
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
