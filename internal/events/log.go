package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// flushAfter is how long a line may wait for company; followers see it at the latest then.
const flushAfter = 50 * time.Millisecond

// flushSize is how much may wait.
const flushSize = 64 << 10

// maxMessage is how much of a message is kept, in bytes: a line must not get as long as what readers take for damage, with all
// its escapes.
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

	mu     sync.Mutex
	seq    int64
	off    int64
	buf    []byte
	timer  *time.Timer
	err    error
	closed bool
}

// Create starts the log of a new run; nothing is written before the first flush.
func Create(streams refstore.Streams, workspace, run string, now func() time.Time) *Log {
	return &Log{streams: streams, key: streamKey(workspace, run), workspace: workspace, run: run, now: now}
}

// Resume continues the log of a run whose writer died: it cuts a torn last line, or all from a
// damaged one on, and goes on with the next number. The events so far are given to each, which may be nil.
func Resume(ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, each func(*Event)) (*Log, error) {
	l := Create(streams, workspace, run, now)
	whole, _, err := readable(ctx, streams, workspace, run, each)
	if err != nil {
		return nil, err
	}
	l.seq, l.off = whole.seq, whole.off
	info, err := streams.Size(ctx, l.key)
	if errors.Is(err, refstore.ErrNotFound) {
		return l, nil
	}
	if err == nil && info.Size > l.off {
		err = streams.Cut(ctx, l.key, l.off)
	}
	if err != nil {
		return nil, fmt.Errorf("resume events of run %s: %w", run, err)
	}
	return l, nil
}

// Emit numbers the event, gives it the time, and appends it with the next flush. It
// returns the event as it will be read. A store that cannot be written shows at Close.
func (l *Log) Emit(e Event) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Seq, e.Time, e.Run, e.Workspace = l.seq, l.now().UTC().Truncate(time.Millisecond), l.run, l.workspace
	if !recording {
		return e
	}
	if e.Data != nil && len(e.Data.Message) > maxMessage {
		d := *e.Data
		d.Message = strings.ToValidUTF8(d.Message[:maxMessage], "") + "…"
		e.Data = &d
	}
	buf, err := Append(l.buf, &e)
	if err != nil {
		l.fail(err)
		return e
	}
	l.buf = buf
	switch {
	case len(l.buf) >= flushSize:
		l.flush()
	case l.timer == nil:
		l.timer = time.AfterFunc(flushAfter, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.flush()
		})
	}
	return e
}

// Empty tells whether the run has no event yet.
func (l *Log) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq == 0
}

// Flush appends what waits.
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
	return l.err
}

func (l *Log) flush() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if len(l.buf) == 0 || l.err != nil || l.closed {
		return
	}
	// The writer outlives the run's context: a cancelled run's events are written.
	if err := l.streams.Append(context.Background(), l.key, l.off, l.buf); err != nil {
		l.fail(err)
		return
	}
	l.off += int64(len(l.buf))
	l.buf = l.buf[:0]
}

func (l *Log) fail(err error) {
	if l.err == nil {
		l.err = fmt.Errorf("events of run %s: %w", l.run, err)
	}
}
