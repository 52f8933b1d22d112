package workspace

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"e3/internal/backoff"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/refstore"
)

// timeFormat is for times in messages.
const timeFormat = "2006-01-02 15:04:05"

// BusyError names the holder of a workspace.
type BusyError struct {
	Workspace string
	Operation record.Operation
	Holder    string // the process, in words
	Since     time.Time
	Heard     refstore.Heard // set by Busy, or by a wait for the end of a run
}

// Busy is a process that holds a workspace.
type Busy struct {
	Operation string      `json:"operation"` // being run, being deployed, being removed or held
	Holder    string      `json:"holder"`    // the process
	Since     moment.Time `json:"since"`
	Heard     moment.Time `json:"heard,omitzero"` // last sign of life on another host, by its clock
}

// Answer describes the holder; nil if e is nil.
func (e *BusyError) Answer() *Busy {
	if e == nil {
		return nil
	}
	return &Busy{Operation: e.Doing(), Holder: e.Holder, Since: moment.At(e.Since), Heard: moment.At(e.Heard.At)}
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("workspace %s is held by another process", e.Workspace)
	}
	return fmt.Sprintf("workspace %s is %s by %s since %s", e.Workspace, e.Doing(), e.Holder, e.Since.Local().Format(timeFormat))
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

// busyNow names the holder of the lock. A new holder may not have written its state yet, so it is given some
// milliseconds.
func (w *States) busyNow(ctx context.Context, ws string, holder []byte) *BusyError {
	for range 20 {
		if len(holder) > 0 {
			break
		}
		if backoff.Wait(ctx, 5*time.Millisecond) != nil {
			break
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

// HolderWords turns the East text of a process, .process (pid=1, …, command="e3 start", host="lab"), into "process 1 on
// lab (e3 start)". Any other text stays as it is.
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
	command, rest := quotedField(fields, "command=")
	host, _ := quotedField(rest, ", host=")
	words := "process " + pid
	if host != "" {
		words += " on " + host
	}
	if command != "" {
		words += " (" + command + ")"
	}
	return words
}

// quotedField returns the quoted text after a name, and the rest of the text; "" if there is none.
func quotedField(text, name string) (value, rest string) {
	_, quoted, _ := strings.Cut(text, name)
	prefix, err := strconv.QuotedPrefix(quoted)
	if err != nil {
		return "", ""
	}
	value, _ = strconv.Unquote(prefix)
	return value, quoted[len(prefix):]
}

// Busy returns the present holder of the workspace, nil if there is none. It writes nothing.
func (w *States) Busy(ctx context.Context, ws string) (*BusyError, error) {
	holder, heard, held, err := refstore.HeldBy(ctx, w.Locks, lockName(ws))
	if err != nil || !held {
		return nil, err
	}
	b := busy(ws, holder)
	b.Heard = heard
	return b, nil
}

// awaited is how long a wait relies on what is known of a holder: on some file systems a dead one counts as alive until
// a process tries its lock (doc/stores.md, "Locks").
const awaited = time.Minute

// AwaitFree returns when nothing holds the workspace, or it is time to try. It calls tell for each holder, once. A wait
// adds at most a tenth to what is waited for, or a second or two.
func (w *States) AwaitFree(ctx context.Context, ws string, tell func(*BusyError)) error {
	first, most := refstore.Pace(w.Locks)
	most = max(most, time.Second)
	told := ""
	for began := time.Now(); ; {
		holder, heard, held, err := refstore.HeldBy(ctx, w.Locks, lockName(ws))
		if err != nil || !held || time.Since(began) > awaited {
			return err
		}
		busy := w.busyNow(ctx, ws, holder)
		nameless := busy.Holder == "" && (told != "" || time.Since(began) < time.Second) // it comes or goes
		if text := busy.Error(); text != told && !nameless {
			told, busy.Heard = text, heard
			tell(busy)
		}
		if err := backoff.Wait(ctx, min(max(first, time.Since(began)/10), most)); err != nil {
			return err
		}
	}
}
