package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/backoff"
	"e3/refstore"
)

// A workspace has a journal beside the logs of its runs. It records events that happen without a run, and the order in
// which runs were recorded. Any process may append to it, so each append succeeds only at the end that the writer has
// read.
//
// The journal is a partition of streams, each named by the number of its first event. A writer begins a new one when
// the latest is large, sealed or damaged, so that retention removes whole streams.
//
// A process that is killed while it appends to a folder may leave a torn line. Other processes must not cut it: the
// line may belong to an append in progress. They mark it as torn.
const (
	journalKind = "JOURNAL"

	// journalSize is the size in bytes at which a new stream begins.
	journalSize = 256 << 10

	// numberDigits is the length of the name of a stream.
	numberDigits = 16

	tornMark = " torn\n"
)

// JournalPartition is the partition of the streams of a workspace's journal.
func JournalPartition(workspace string) string { return journalKind + "/" + workspace }

func journalKey(workspace string, first int64) refstore.Key {
	return refstore.Key{Partition: JournalPartition(workspace), Sort: fmt.Sprintf("%0*d", numberDigits, first)}
}

// firstOf is the number in the name of a stream; 0: not the name of a stream.
func firstOf(sort string) int64 {
	n, err := strconv.ParseInt(sort, 10, 64)
	if err != nil || n < 1 || len(sort) != numberDigits {
		return 0
	}
	return n
}

// AppendJournal appends events to the journal of a workspace. It returns them as readers see them: with their numbers,
// which have no gap, and with the present time if they have none. Events of the journal belong to no run; the run that
// they are about is in Data.Run. They are appended together, but a killed process may have appended only the first of
// them. After an error other than ErrConflict the events may or may not be there.
func AppendJournal(ctx context.Context, streams refstore.Streams, workspace string, now func() time.Time, list ...Event) ([]Event, error) {
	list, _, err := appendJournal(ctx, streams, workspace, now, Latest{}, list)
	return list, err
}

// appendJournal is AppendJournal at an end that was read. It also returns the number of the stream that has the events.
func appendJournal(
	ctx context.Context, streams refstore.Streams, workspace string, now func() time.Time, at Latest, list []Event,
) ([]Event, int64, error) {
	list = slices.Clone(list)
	if !recording || len(list) == 0 {
		return list, 0, nil
	}
	for try := 1; ; try++ {
		var end end
		var err error
		if at.end != nil {
			end, at.end = *at.end, nil
		} else {
			end, err = journalEnd(ctx, streams, workspace)
		}
		var first int64
		if err == nil {
			first, err = end.append(ctx, streams, workspace, now, list)
		}
		if err == nil {
			return list, first, nil
		}
		if !errors.Is(err, refstore.ErrConflict) || ctx.Err() != nil {
			return nil, 0, fmt.Errorf("journal of workspace %s: %w", workspace, err)
		}
		// Another process was first. In each round one process succeeds.
		if err := backoff.Wait(ctx, backoff.Pause(time.Millisecond, 200*time.Millisecond, try)); err != nil {
			return nil, 0, fmt.Errorf("journal of workspace %s: %w", workspace, err)
		}
	}
}

// append appends events at this end of a journal, and returns the number of the stream that has them. It fails with
// ErrConflict if the end has moved.
func (end end) append(ctx context.Context, streams refstore.Streams, workspace string, now func() time.Time, list []Event) (first int64, err error) {
	var lines []byte
	if end.torn {
		lines = append(lines, tornMark...)
	}
	for i := range list {
		e := stamped(list[i], now)
		e.Seq, e.Run, e.Workspace = end.seq+int64(i)+1, "", workspace
		list[i] = e
		if lines, err = AppendLine(lines, &e); err != nil {
			return 0, err
		}
	}
	if !end.full {
		if err = streams.Append(ctx, end.key, end.size, lines); !closed(err) {
			return firstOf(end.key.Sort), err
		}
	} else if end.size > 0 && !end.marked {
		// An append in progress, of which a part was read, must not finish after the next stream begins.
		if err := streams.Append(ctx, end.key, end.size, []byte(tornMark)); err != nil && !closed(err) {
			return 0, err
		}
	}
	return end.seq + 1, streams.Append(ctx, journalKey(workspace, end.seq+1), 0, bytes.TrimPrefix(lines, []byte(tornMark)))
}

// closed reports whether an append failed because the stream takes no more appends.
func closed(err error) bool {
	return errors.Is(err, refstore.ErrSealed) || errors.Is(err, refstore.ErrDamaged) || errors.Is(err, refstore.ErrFull)
}

// end is the place of a journal's next event.
type end struct {
	key    refstore.Key // of the latest stream
	size   int64        // of that stream
	seq    int64        // of the last event
	torn   bool         // the last line is torn
	marked bool         // the last line is a mark
	full   bool         // the next event begins a new stream
}

// journalEnd reads the end of a journal.
func journalEnd(ctx context.Context, streams refstore.Streams, workspace string) (end, error) {
	last := refstore.Key{}
	for key, err := range streams.ListStreams(ctx, refstore.Query{Partition: JournalPartition(workspace), Descending: true}) {
		if err != nil {
			return end{}, err
		}
		if firstOf(key.Sort) > 0 {
			last = key
			break
		}
	}
	if last.Sort == "" {
		return end{key: journalKey(workspace, 1), full: true}, nil
	}
	return endOf(ctx, streams, last)
}

// knownEnd is journalEnd where the latest stream may be known. The next stream begins only after a stream that is
// sealed, large or damaged, or that ends with a mark. So a known stream without these properties is still the latest.
func knownEnd(ctx context.Context, streams refstore.Streams, workspace string, known int64) (end, error) {
	if known > 0 {
		end, err := endOf(ctx, streams, journalKey(workspace, known))
		if err == nil && !end.full && !end.marked {
			return end, nil
		}
		if err != nil && !errors.Is(err, refstore.ErrConflict) {
			return end, err
		}
	}
	return journalEnd(ctx, streams, workspace)
}

// endOf reads the end of a journal whose latest stream has this key. It fails with ErrConflict if that stream is
// gone.
func endOf(ctx context.Context, streams refstore.Streams, key refstore.Key) (end, error) {
	for tail := int64(8 << 10); ; tail *= 8 {
		data, info, err := refstore.Tail(ctx, streams, key, tail)
		switch {
		case errors.Is(err, refstore.ErrNotFound):
			return end{}, fmt.Errorf("%w: its latest stream was removed", refstore.ErrConflict)
		case errors.Is(err, refstore.ErrDamaged): // nothing can be appended
			info.Sealed = true
		case err != nil:
			return end{}, err
		}
		from := max(0, info.Size-tail)
		if int64(len(data)) < info.Size-from { // damaged, or cut: it takes no appends
			info.Sealed = true
		}
		seq, torn, ok := lastNumber(data, from == 0, firstOf(key.Sort))
		if !ok {
			continue
		}
		return end{
			key: key, size: info.Size, seq: seq, torn: torn, marked: isTorn(data), full: info.Sealed || info.Size >= journalSize,
		}, nil
	}
}

// lastNumber returns the number of the last event in the tail of a stream, and whether a torn line follows it. A
// damaged line after the last readable one counts as an event. whole says that data is the whole stream, which begins
// with number first. ok is false if more of the stream is needed.
func lastNumber(data []byte, whole bool, first int64) (seq int64, torn, ok bool) {
	if !whole {
		_, data, _ = bytes.Cut(data, []byte("\n")) // a part of a line
	}
	seq, ok = first-1, whole
	for line := range bytes.Lines(data) {
		e, err := parseJournal(line)
		torn = !bytes.HasSuffix(line, []byte("\n"))
		switch {
		case err == nil:
			seq, ok = e.Seq, true // also if only the line feed is missing, which the mark replaces
		case !torn && !isTorn(line):
			seq++
		}
	}
	return seq, torn, ok
}

func isTorn(line []byte) bool { return bytes.HasSuffix(line, []byte(tornMark)) }

// parseJournal reads a line of a journal.
func parseJournal(line []byte) (*Event, error) {
	if whole, ok := bytes.CutSuffix(line, []byte(tornMark)); ok { // perhaps only the line feed was missing
		line = whole
	}
	e, err := parseLine(line)
	if err == nil && (e.Seq < 1 || e.Type == "") {
		err = errors.New("event: seq or type is missing")
	}
	return e, err
}

// A JournalError is a damaged part of a journal.
type JournalError struct {
	Workspace string
	First     int64 // number of the first event of the stream
	Err       error
}

func (e *JournalError) Error() string {
	return fmt.Sprintf("journal of workspace %s, from event %d on: %v", e.Workspace, e.First, e.Err)
}

// Unwrap returns the error of the line.
func (e *JournalError) Unwrap() error { return e.Err }

// ReadJournal yields the events of a workspace's journal with numbers above after, in order; retention may have removed
// the first ones. Damage is yielded as a [*JournalError], once per stream, followed by the readable events after it.
// Any other error ends the iteration.
func ReadJournal(ctx context.Context, streams refstore.Streams, workspace string, after int64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r := &journalReader{streams: streams, workspace: workspace, seq: after}
		r.read(ctx, yield)
	}
}

// A journalReader reads a journal again and again: each read yields the new events.
type journalReader struct {
	streams   refstore.Streams
	workspace string
	seq       int64 // of the last event that was yielded or skipped
	first     int64 // of the stream that holds it, if known
	off       int64 // offset after that event in the stream
	reported  int64 // the stream whose damage was yielded
}

// read yields the new events, and reports whether the caller wants more.
func (r *journalReader) read(ctx context.Context, yield func(Event, error) bool) bool {
	fault := func(err error) bool {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return yield(Event{}, fmt.Errorf("journal of workspace %s: %w", r.workspace, err))
	}
	firsts, err := journalStreams(ctx, r.streams, r.workspace)
	if err != nil {
		yield(Event{}, err)
		return false
	}
	for i, first := range firsts {
		if i+1 < len(firsts) && firsts[i+1] <= r.seq+1 {
			continue
		}
		more, err := r.stream(ctx, first, yield)
		if err != nil {
			fault(err)
			return false
		}
		if !more {
			return false
		}
	}
	return true
}

// stream yields the new events of one stream.
func (r *journalReader) stream(ctx context.Context, first int64, yield func(Event, error) bool) (more bool, err error) {
	if r.first != first {
		if r.first > 0 && first > r.seq+1 && !r.damage(r.first, fmt.Errorf("event %d follows event %d", first, r.seq), yield) {
			return false, nil
		}
		r.first, r.off = first, 0
	}
	seq := r.seq // of the previous line
	if r.off == 0 {
		seq = first - 1
	}
	c, err := openLines(ctx, r.streams, journalKey(r.workspace, first), r.off, nil, parseJournal)
	if errors.Is(err, refstore.ErrNotFound) { // removed by retention
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer c.Close()
	for {
		e, line, err := c.next(ctx, &plan{})
		var bad *lineError
		switch {
		case err == io.EOF:
			return true, nil
		case errors.As(err, &bad):
			if !isTorn(line) && !r.damage(first, bad.err, yield) {
				return false, nil
			}
			continue
		case err != nil:
			return false, err
		case e.Seq != seq+1 && !r.damage(first, fmt.Errorf("event %d follows event %d", e.Seq, seq), yield):
			return false, nil
		case e.Seq <= seq:
			continue
		}
		seq, r.off = e.Seq, c.off
		if e.Seq <= r.seq {
			continue
		}
		r.seq = e.Seq
		if !yield(*e, nil) {
			return false, nil
		}
	}
}

// damage yields the first damage of a stream, and skips later damage.
func (r *journalReader) damage(first int64, err error, yield func(Event, error) bool) bool {
	if r.reported == first {
		return true
	}
	r.reported = first
	return yield(Event{}, &JournalError{Workspace: r.workspace, First: first, Err: err})
}

// Journals returns the names of the workspaces that have a journal, in order, including removed ones.
func Journals(ctx context.Context, streams refstore.Streams) ([]string, error) {
	var names []string
	for p, err := range streams.ListPartitions(ctx, journalKind) {
		if err != nil {
			return nil, fmt.Errorf("list journals: %w", err)
		}
		names = append(names, strings.TrimPrefix(p, journalKind+"/"))
	}
	return names, nil
}
