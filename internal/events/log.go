package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/internal/human"
	"e3/refstore"
)

// flushAfter is how long a line may wait for others; followers see it at the latest then.
const flushAfter = 50 * time.Millisecond

// flushSize is how much may wait, in bytes.
const flushSize = 64 << 10

// A Paced store of streams charges for each request: appends are gathered for so long, and followers poll as often.
type Paced interface {
	StreamPace() time.Duration
}

// pace is how long lines are gathered, and how many bytes are worth an append before that.
func pace(s refstore.Streams) (after time.Duration, size int) {
	if p, ok := s.(Paced); ok {
		return p.StreamPace(), 16 * flushSize
	}
	return flushAfter, flushSize
}

// maxWaiting is how many bytes wait for a slow store before Emit does.
const maxWaiting = 16 << 20

// maxMessage bounds a message, in bytes: even with all its escapes, its line must stay shorter than what readers take
// for damage.
const maxMessage = 64 << 10

func streamKey(workspace, run string) refstore.Key {
	return refstore.Key{Partition: "EVENTS/" + workspace, Sort: run}
}

// A Log appends the events of one run. It has one writer, the holder of the workspace's
// dataflow lock; its methods are safe for that process's goroutines.
type Log struct {
	streams   refstore.Streams
	key       refstore.Key
	workspace string
	run       string
	now       func() time.Time
	after     time.Duration
	size      int
	// appends is the context of appends. It ends when the log is stopped. It outlives the run's context, since a
	// cancelled run's events are written.
	appends context.Context
	stop    context.CancelCauseFunc

	tell func(Event)

	mu   sync.Mutex
	done sync.Cond // an append has ended
	seq  int64
	off  int64
	waiting
	writing bool // an append is under way, for which mu is not held
	due     bool // an append was asked for
	timer   *time.Timer
	err     error
	closed  bool
}

// waiting are events that are not appended yet.
type waiting struct {
	buf    []byte  // their lines
	spare  []byte  // to wait in while buf is being appended
	untold []Event // those in buf, if there is a tell
}

// Tell has tell called with each event once its line is appended, so that no listener knows what the log does not have.
// tell is called in the order of the events, by one goroutine at a time, and must not call methods of the log. Tell itself
// is called before the first Emit.
func (l *Log) Tell(tell func(Event)) { l.tell = tell }

// Create starts the log of a new run; nothing is written before the first flush.
func Create(streams refstore.Streams, workspace, run string, now func() time.Time) *Log {
	l := &Log{streams: streams, key: streamKey(workspace, run), workspace: workspace, run: run, now: now}
	l.after, l.size = pace(streams)
	l.done.L = &l.mu
	l.appends, l.stop = context.WithCancelCause(context.Background())
	return l
}

// Resume continues the log of a run whose writer died: it cuts a torn last line, or everything from a damaged line
// on, and goes on with the next number. It calls each, which may be nil, with the events so far. If the former writer
// still lives, it may append: then the first append of this log fails with ErrConflict, or that one does.
func Resume(ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, each func(*Event)) (*Log, error) {
	l := Create(streams, workspace, run, now)
	// The size comes first, so that only bytes from before the read are cut.
	info, err := streams.Size(ctx, l.key)
	if errors.Is(err, refstore.ErrNotFound) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("resume events of run %s: %w", run, err)
	}
	ended := false
	whole, damage, err := readable(ctx, streams, workspace, run, func(e *Event) {
		ended = ended || e.Type.Ends()
		if each != nil {
			each(e)
		}
	})
	if err != nil {
		return nil, err
	}
	l.seq, l.off = whole.seq, whole.off
	if info.Sealed && !ended { // not sealed by an import: its log would have an end
		if err := Unseal(ctx, streams, workspace, run); err != nil {
			return nil, err
		}
	}
	if info.Size > l.off || damage != nil {
		if err := streams.Cut(ctx, l.key, l.off); err != nil {
			return nil, fmt.Errorf("resume events of run %s: %w", run, err)
		}
	}
	return l, nil
}

// Emit numbers the event and appends it with the next flush. It returns the event as readers see it: its time is now, unless it
// says that it happened before. Close reports a store that cannot be written. Emit does not wait for the store unless
// that is far behind.
func (l *Log) Emit(e Event) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.buf) >= maxWaiting && l.writing && l.err == nil {
		l.done.Wait()
	}
	l.seq++
	e.Seq, e.Run, e.Workspace = l.seq, l.run, l.workspace
	now := l.now().UTC().Truncate(time.Millisecond)
	if e.Time = e.Time.UTC().Truncate(time.Millisecond); e.Time.IsZero() || e.Time.After(now) { // the clock of a worker may be ahead
		e.Time = now
	}
	if !recording && l.tell != nil {
		l.tell(e)
	}
	if !recording || l.err != nil {
		return e
	}
	if e.Data != nil && len(e.Data.Message) > maxMessage {
		d := *e.Data
		d.Message = human.Truncate(d.Message, maxMessage)
		e.Data = &d
	}
	buf, err := appendSummed(l.buf, &e)
	if err != nil {
		l.fail(err)
		return e
	}
	l.buf = buf
	if l.tell != nil {
		l.untold = append(l.untold, e)
	}
	switch {
	case len(l.buf) >= l.size && !l.due:
		l.due = true
		go l.Flush() // Close reports its error
	case l.timer == nil:
		l.timer = time.AfterFunc(l.after, func() { l.Flush() })
	}
	return e
}

// Empty reports whether the run has no event yet.
func (l *Log) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq == 0
}

// Flush appends the waiting lines.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return l.err
}

// Close flushes and returns the first fault of the log's life.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	l.closed = true
	l.stop(nil)
	return l.err
}

// Stop makes the log append nothing any more, as another process owns it. It cancels an append under way. Flush and
// Close return the cause, unless there was a fault before.
func (l *Log) Stop(cause error) {
	l.stop(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(cause)
}

// flush releases mu while it appends. One append is under way at a time.
func (l *Log) flush() {
	for l.writing {
		l.done.Wait()
	}
	l.due = false
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if len(l.buf) == 0 || l.err != nil || l.closed {
		return
	}
	lines, untold := l.buf, l.untold
	l.buf, l.untold, l.spare, l.writing = l.spare[:0], nil, nil, true
	l.mu.Unlock()
	err := l.streams.Append(l.appends, l.key, l.off, lines)
	if err == nil {
		for _, e := range untold {
			l.tell(e)
		}
	}
	l.mu.Lock()
	l.writing = false
	switch {
	case err != nil && l.appends.Err() != nil:
		l.fail(context.Cause(l.appends))
	case err != nil:
		l.fail(err)
	default:
		l.off += int64(len(lines))
	}
	if cap(lines) <= 16*flushSize {
		l.spare = lines[:0]
	}
	l.done.Broadcast()
}

func (l *Log) fail(err error) {
	if l.err == nil && err != nil && !l.closed {
		l.err = fmt.Errorf("events of run %s: %w", l.run, err)
	}
}
