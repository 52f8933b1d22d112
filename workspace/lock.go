package workspace

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"e3/internal/record"
	"e3/refstore"
)

// BusyError says who holds a workspace.
type BusyError struct {
	Workspace string
	Operation record.Operation
	Holder    string // of the process, in words
	Since     time.Time
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("workspace %s is held by another process", e.Workspace)
	}
	return fmt.Sprintf("workspace %s is %s by %s since %s", e.Workspace, e.Doing(), e.Holder, e.Since.Local().Format("2006-01-02 15:04:05"))
}

// Doing says what happens to the workspace: "being run", "being deployed".
func (e *BusyError) Doing() string {
	switch e.Operation {
	case record.Dataflow:
		return "being run"
	case record.Deployment:
		return "being deployed"
	case record.Removal:
		return "being removed"
	}
	return "held"
}

func lockName(ws string) string { return "workspace/" + ws }

// hold is the workspace's lock while it is held, and what its holder says of itself.
type hold struct {
	refstore.Lock
	state record.LockState
}

// lockPatience is how long a lock that is held is tried again. It is the kernel's, and a holder that dies gives it up at once;
// but for one that was killed while it started a process, which keeps the lock until it has become another program.
const lockPatience = 250 * time.Millisecond

// lock takes the workspace's dataflow lock.
func (w *Workspaces) lock(ctx context.Context, ws string, op record.Operation) (*hold, error) {
	for began := time.Now(); ; {
		state := record.LockState{Operation: op, Holder: w.Holder(), AcquiredAt: w.Now()}
		lock, err := w.Locks.TryLock(ctx, lockName(ws), refstore.Exclusive, state.Encode())
		var locked *refstore.LockedError
		switch {
		case err == nil:
			return &hold{lock, state}, nil
		case !errors.As(err, &locked):
			return nil, fmt.Errorf("lock workspace %s: %w", ws, err)
		case time.Since(began) >= lockPatience:
			return nil, w.busyNow(ctx, ws, locked.Holder)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// busyNow says who holds the lock. A holder that took it this moment may not have said so
// yet: it is given some milliseconds.
func (w *Workspaces) busyNow(ctx context.Context, ws string, holder []byte) *BusyError {
	for range 20 {
		if len(holder) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return busy(ws, holder)
		case <-time.After(5 * time.Millisecond):
		}
		text, held, err := w.Locks.Holder(ctx, lockName(ws))
		if err != nil || !held {
			break
		}
		holder = text
	}
	return busy(ws, holder)
}

func busy(ws string, holder []byte) *BusyError {
	if s, err := record.DecodeLockState(holder); err == nil {
		return busyAs(ws, s)
	}
	return &BusyError{Workspace: ws}
}

func busyAs(ws string, s *record.LockState) *BusyError {
	return &BusyError{Workspace: ws, Operation: s.Operation, Holder: HolderWords(s.Holder), Since: s.AcquiredAt}
}

// HolderWords turns the East text of a process, .process (pid=1, …, command="e3 start"), into
// "process 1 (e3 start)". Text of another form is shown as it is.
func HolderWords(text string) string {
	fields, ok := strings.CutPrefix(text, ".process (")
	if !ok {
		return text
	}
	_, pid, ok := strings.Cut(fields, "pid=")
	if !ok {
		return text
	}
	if end := strings.IndexAny(pid, ",)"); end >= 0 {
		pid = pid[:end]
	}
	if _, err := strconv.ParseUint(pid, 10, 63); err != nil {
		return text
	}
	words := "process " + pid
	if _, quoted, ok := strings.Cut(fields, "command="); ok {
		if prefix, err := strconv.QuotedPrefix(quoted); err == nil {
			if command, err := strconv.Unquote(prefix); err == nil {
				words += " (" + command + ")"
			}
		}
	}
	return words
}

// Busy tells who holds the workspace now, nil if nobody does. It disturbs nobody.
func (w *Workspaces) Busy(ctx context.Context, ws string) (*BusyError, error) {
	holder, held, err := w.Locks.Holder(ctx, lockName(ws))
	if err != nil || !held {
		return nil, err
	}
	return busy(ws, holder), nil
}
