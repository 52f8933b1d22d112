package events

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"e3/refstore"
)

// flushAfter is the longest time that a line waits for others, so followers see it at the latest then.
const flushAfter = 50 * time.Millisecond

// flushSize is how many bytes may wait.
const flushSize = 64 << 10

// A Paced store of streams charges for each request. StreamPace is how long appends are gathered, and how often
// followers poll.
type Paced interface {
	StreamPace() time.Duration
}

// pace returns how long lines are gathered, and the number of waiting bytes that ends the wait.
func pace(s refstore.Streams) (after time.Duration, size int) {
	if p, ok := s.(Paced); ok {
		return p.StreamPace(), 16 * flushSize
	}
	return flushAfter, flushSize
}

// maxWaiting is how many bytes may wait for a slow store before Emit blocks.
const maxWaiting = 16 << 20

// maxMessage bounds a message, in bytes: even if all of it needs escapes, its line must stay below maxLine.
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
	// appends is the context of appends. It ends when the log is stopped, not with the run's context: a cancelled run's
	// events are still written.
	appends context.Context
	stop    context.CancelCauseFunc

	tell func(Event)

	mu   sync.Mutex
	done sync.Cond // signals the end of an append
	seq  int64
	off  int64
	waiting
	writing bool // an append is in progress, without mu
	due     bool // an append was requested
	timer   *time.Timer
	err     error
	closed  bool
}

// waiting are events that are not yet appended.
type waiting struct {
	buf    []byte  // their lines
	spare  []byte  // the second buffer, for lines that arrive while buf is being appended
	untold []Event // the events in buf, if there is a tell
}

// Tell registers a callback for each event, after its line is appended, so that no listener knows an event that the log
// does not have. Calls come in the order of the events, from one goroutine at a time, and must not call methods of the
// log. Tell must be called before the first Emit.
func (l *Log) Tell(tell func(Event)) { l.tell = tell }

// Create starts the log of a new run; nothing is written before the first flush.
func Create(streams refstore.Streams, workspace, run string, now func() time.Time) *Log {
	l := &Log{streams: streams, key: streamKey(workspace, run), workspace: workspace, run: run, now: now}
	l.after, l.size = pace(streams)
	l.done.L = &l.mu
	l.appends, l.stop = context.WithCancelCause(context.Background())
	return l
}

// Resume continues the log of a run whose writer died: it cuts a torn last line, or everything from a damaged line on,
// and continues with the next number. It calls each, which may be nil, with the existing events. If the former writer
// is alive and appends, one of the two logs fails with ErrConflict.
func Resume(ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, each func(*Event)) (*Log, error) {
	l := Create(streams, workspace, run, now)
	// Read the size first, so that a cut removes only bytes that existed before the read.
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
	if info.Sealed && !ended { // an import seals only logs with an end
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

// Emit numbers the event and appends it with the next flush. It returns the event as readers see it: with the present
// time, unless it already has one, which may come from another machine's clock. A drafted event (Draft) with the next
// number stays as it is. If the store cannot be written, Close returns the error. Emit blocks only if the store is
// far behind.
func (l *Log) Emit(e Event) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.buf) >= maxWaiting && l.writing && l.err == nil {
		l.done.Wait()
	}
	l.seq++
	e = l.completed(e, l.seq)
	if !recording && l.tell != nil {
		l.tell(e)
	}
	if !recording || l.err != nil {
		return e
	}
	buf, err := AppendLine(l.buf, &e)
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

// Seq is the number of the last event.
func (l *Log) Seq() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq
}

// Flush appends the waiting lines.
func (l *Log) Flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return l.err
}

// Close flushes, and returns the log's first error.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	l.closed = true
	l.stop(nil)
	return l.err
}

// Stop prevents further appends, because another process owns the log. It cancels an append in progress. Flush and
// Close then return the cause, unless there was an earlier error.
func (l *Log) Stop(cause error) {
	l.stop(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(cause)
}

// flush releases mu while it appends. Only one append is in progress at a time.
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
