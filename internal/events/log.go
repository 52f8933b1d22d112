package events

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"e3/refstore"
)

// flushAfter is how long a line may wait for company; followers see it at the latest then.
const flushAfter = 50 * time.Millisecond

// flushSize is how much may wait.
const flushSize = 64 << 10

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
	whole, _, err := scan(ctx, streams, workspace, run, each)
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

// scan reads the events up to a torn last line or a damaged one, which is damage: a loss of power may leave later bytes
// without earlier ones. They are given to each, which may be nil.
func scan(ctx context.Context, streams refstore.Streams, workspace, run string, each func(*Event)) (whole position, damage, err error) {
	for e, err := range Read(ctx, streams, workspace, run) {
		var damaged *lineError
		if errors.As(err, &damaged) {
			return whole, damaged, nil
		}
		if err != nil {
			return whole, nil, err
		}
		whole = position{off: e.end, seq: e.Seq}
		if each != nil {
			each(&e.Event)
		}
	}
	return whole, nil, nil
}

// Readable returns how many bytes of a run's events can be read. damage says what is wrong with the line after them; it is nil
// where they are all, or the last line is torn.
func Readable(ctx context.Context, streams refstore.Streams, workspace, run string) (size int64, damage, err error) {
	whole, damage, err := scan(ctx, streams, workspace, run, nil)
	return whole.off, damage, err
}

// Emit numbers the event, gives it the time, and appends it with the next flush. It
// returns the event as it will be read. A store that cannot be written shows at Close.
func (l *Log) Emit(e Event) Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Seq, e.Time, e.Run, e.Workspace = l.seq, l.now().UTC().Truncate(time.Millisecond), l.run, l.workspace
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

// Positioned is an event and where its line ends in the stream, to continue from.
type Positioned struct {
	Event
	end int64
}

// Read yields the events of a run in order, up to the last whole line: a torn tail is
// not yet an event. A line that is damaged, or a gap in the numbers, is an error.
func Read(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Positioned, error] {
	return func(yield func(Positioned, error) bool) {
		r, err := streams.Open(ctx, streamKey(workspace, run), 0)
		if errors.Is(err, refstore.ErrNotFound) {
			return
		}
		if err != nil {
			yield(Positioned{}, fmt.Errorf("events of run %s: %w", run, err))
			return
		}
		defer r.Close()
		var p position
		if err := decode(r, run, &p, func(e Positioned) bool { return yield(e, nil) }); err != nil {
			yield(Positioned{}, err)
		}
	}
}

// Follow yields the events of a run and goes on as they are appended, until the run's end
// or the context's.
func Follow(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Positioned, error] {
	return func(yield func(Positioned, error) bool) {
		var p position
		for doubted := int64(-1); ; doubted = p.off {
			r, err := streams.Follow(ctx, streamKey(workspace, run), p.off)
			if err != nil {
				yield(Positioned{}, fmt.Errorf("events of run %s: %w", run, err))
				return
			}
			err = decode(r, run, &p, func(e Positioned) bool {
				return ctx.Err() == nil && yield(e, nil) && e.Type != RunCompleted && e.Type != RunFailed && e.Type != RunCancelled
			})
			r.Close()
			if err == nil || ctx.Err() != nil {
				return
			}
			// Part of a line that was read may have been a dead writer's, cut meanwhile: it
			// is read once more from its start.
			var damaged *lineError
			if p.off == doubted || !errors.As(err, &damaged) && !errors.Is(err, refstore.ErrConflict) {
				yield(Positioned{}, err)
				return
			}
		}
	}
}

// position is how far a log was read.
type position struct {
	off int64 // end of the last whole line
	seq int64 // of its event
}

// lineError is a whole line that is not the event that is due.
type lineError struct {
	run string
	end int64
	err error
}

func (e *lineError) Error() string {
	return fmt.Sprintf("events of run %s: line ending at byte %d: %v", e.run, e.end, e.err)
}

func (e *lineError) Unwrap() error { return e.err }

// decode yields the events of a stream that was opened at p, and moves p past them. It
// returns nil where the stream ends or yield ends it.
func decode(r io.Reader, run string, p *position, yield func(Positioned) bool) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("events of run %s: %w", run, err)
		}
		end := p.off + int64(len(line))
		e, err := Parse(line)
		if err == nil && e.Seq != p.seq+1 {
			err = fmt.Errorf("event %d follows event %d", e.Seq, p.seq)
		}
		if err != nil {
			return &lineError{run: run, end: end, err: err}
		}
		*p = position{off: end, seq: e.Seq}
		if !yield(Positioned{Event: *e, end: end}) {
			return nil
		}
	}
}

// Ended tells whether the log of a run is whole: its last line is the run's end. It
// reads only the tail.
func Ended(ctx context.Context, streams refstore.Streams, workspace, run string) (bool, error) {
	key := streamKey(workspace, run)
	info, err := streams.Size(ctx, key)
	if errors.Is(err, refstore.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("events of run %s: %w", run, err)
	}
	for tail := int64(4 << 10); ; tail *= 8 {
		from := max(0, info.Size-tail)
		data, err := readFrom(ctx, streams, key, from)
		if err != nil {
			return false, fmt.Errorf("events of run %s: %w", run, err)
		}
		if len(data) == 0 || data[len(data)-1] != '\n' {
			return false, nil
		}
		data = data[:len(data)-1]
		start := bytes.LastIndexByte(data, '\n') + 1
		if start == 0 && from > 0 {
			continue // the line is longer
		}
		e, err := Parse(data[start:])
		if err != nil {
			return false, nil // damaged: not an end that we write
		}
		return e.Type == RunCompleted || e.Type == RunFailed || e.Type == RunCancelled, nil
	}
}

func readFrom(ctx context.Context, streams refstore.Streams, key refstore.Key, offset int64) ([]byte, error) {
	r, err := streams.Open(ctx, key, offset)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
