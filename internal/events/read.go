package events

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"e3/refstore"
)

// Positioned is an event and the end of its line in the stream, from where reading can continue.
type Positioned struct {
	Event
	end int64
}

// A DamagedError is a complete line of a log that is not the expected event.
type DamagedError struct {
	Workspace, Run string
	End            int64 // the end of the line in the stream
	Err            error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("events of run %s: line ending at byte %d: %v", e.Run, e.End, e.Err)
}

// Unwrap returns the error of the line.
func (e *DamagedError) Unwrap() error { return e.Err }

// position is how far a log was read.
type position struct {
	off int64 // end of the last whole line
	seq int64 // of its event
}

// Read yields the events of a run in order, up to the last complete line: a torn tail is not yet an event. A damaged
// line, or a gap in the numbers, is a [*DamagedError].
func Read(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Positioned, error] {
	return ReadAfter(ctx, streams, workspace, run, Positioned{})
}

// ReadAfter is Read from after an event that Read has yielded; the zero event means the beginning.
func ReadAfter(ctx context.Context, streams refstore.Streams, workspace, run string, last Positioned) iter.Seq2[Positioned, error] {
	return func(yield func(Positioned, error) bool) {
		p := position{off: last.end, seq: last.Seq}
		err := source{streams, RunRef{workspace, run}}.read(ctx, &p, nil, func(e *Event, _ []byte) bool {
			return yield(Positioned{Event: *e, end: p.off}, nil)
		})
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			yield(Positioned{}, err)
		}
	}
}

// runEvent begins the type of an event of a run, in e3's form.
var runEvent = []byte(`"type":"run.`)

// ReadTask yields the events of a run that may be about a task or about no task in particular, and the events of the
// run itself. The lines of other tasks are not parsed, so damage in them is not noticed. Any other damaged line is
// yielded as a [*DamagedError], and ends the iteration.
func ReadTask(ctx context.Context, streams refstore.Streams, workspace, run, task string) iter.Seq2[*Event, error] {
	return source{streams, RunRef{workspace, run}}.kept(ctx, new(int64), &sieve{any: [][]byte{runEvent}, tasks: map[string]bool{task: true}})
}

// ReadTypes yields the events of a run that have one of these types, as ReadTask does those of a task. It begins at an
// offset of the log, at first 0, and moves that to the end of what it has read.
func ReadTypes(
	ctx context.Context, streams refstore.Streams, workspace, run string, from *int64, types ...Type,
) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		for e, err := range (source{streams, RunRef{workspace, run}}).kept(ctx, from, newSieve(quotedTypes(types...)...)) {
			if (err != nil || slices.Contains(types, e.Type)) && !yield(e, err) {
				return
			}
		}
	}
}

// kept yields the events in the lines that a sieve keeps, up to the first damaged one. from is the offset where it
// begins and, at the end, the one where it has ended.
func (src source) kept(ctx context.Context, from *int64, s *sieve) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		c, err := src.open(ctx, *from, nil)
		if errors.Is(err, refstore.ErrNotFound) {
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer c.Close()
		p := plan{scan: s}
		for {
			e, _, err := c.next(ctx, &p)
			*from = c.off
			if err == io.EOF || !yield(e, src.named(c.off, err)) || err != nil {
				return
			}
		}
	}
}

// First returns the first event of a run; nil if there is none or it is unreadable. It reads only the head.
func First(ctx context.Context, streams refstore.Streams, workspace, run string) (*Event, error) {
	for e, err := range Read(ctx, streams, workspace, run) {
		if errors.As(err, new(*DamagedError)) {
			return nil, nil
		}
		return &e.Event, err
	}
	return nil, nil
}

// PackageOf returns the hash of the package of a run, given its first event: of the last package, if the graph has
// grown. It is "" if no event names it. The log is read only as far as the first event requires.
func PackageOf(ctx context.Context, streams refstore.Streams, workspace, run string, first *Event) (string, error) {
	if first == nil || first.Type != RunStarted {
		return "", nil
	}
	hash := first.Facts().PackageHash
	if !first.Facts().Grows {
		return hash, nil
	}
	end, err := End(ctx, streams, workspace, run)
	if err != nil {
		return "", err
	}
	if end != nil {
		return cmp.Or(end.Facts().PackageHash, hash), nil
	}
	for e, err := range Read(ctx, streams, workspace, run) {
		if errors.As(err, new(*DamagedError)) {
			break
		}
		if err != nil {
			return "", err
		}
		if e.Type == GraphGrown {
			hash = cmp.Or(e.Facts().PackageHash, hash)
		}
	}
	return hash, nil
}

// A source is the stream of a run.
type source struct {
	streams refstore.Streams
	RunRef
}

func (src source) key() refstore.Key { return streamKey(src.Workspace, src.Run) }

func (src source) fault(err error) error { return fmt.Errorf("events of run %s: %w", src.Run, err) }

func (src source) damage(end int64, err error) *DamagedError {
	return &DamagedError{Workspace: src.Workspace, Run: src.Run, End: end, Err: err}
}

// named names the run in the error of a cursor at this offset: a *DamagedError for a damaged line.
func (src source) named(off int64, err error) error {
	var bad *lineError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return src.damage(off, bad.err)
	}
	return src.fault(err)
}

// open returns a cursor at the end of a line; buf may be nil.
func (src source) open(ctx context.Context, off int64, buf []byte) (*lineCursor, error) {
	c, err := openLines(ctx, src.streams, src.key(), off, buf, Parse)
	return c, src.named(off, err)
}

// openWithin returns a cursor at the first line that begins at an offset or after it.
func (src source) openWithin(ctx context.Context, off int64, buf []byte) (*lineCursor, error) {
	c, err := src.open(ctx, off-1, buf)
	if err == nil {
		if err = c.dropLine(ctx); err != nil && err != io.EOF {
			c.Close()
			err = src.named(off, err)
		}
	}
	return c, err
}

// read yields the events after p, with their lines, and advances p. It returns nil at the end of the stream or of the
// iteration, a *DamagedError, or another error, which wraps refstore.ErrNotFound if there is no stream. buf may be nil.
func (src source) read(ctx context.Context, p *position, buf []byte, yield func(e *Event, line []byte) bool) error {
	c, err := src.open(ctx, p.off, buf)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		e, line, err := c.next(ctx, &plan{})
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return src.named(c.off, err)
		case e.Run != src.Run:
			return src.damage(c.off, fmt.Errorf("it is an event of run %s", e.Run))
		case e.Seq != p.seq+1:
			return src.damage(c.off, fmt.Errorf("event %d follows event %d", e.Seq, p.seq))
		}
		*p = position{off: c.off, seq: e.Seq}
		if !yield(e, line) {
			return nil
		}
	}
}

// seekStep is how close to a number seek gets: reading less is not slower.
const seekStep = 64 << 10

// seek returns the end of a line shortly before the event with a number, so that later events of a large log can be
// read without its start. It returns the start of the log if its numbers do not grow, or a line on the way is damaged.
func (src source) seek(ctx context.Context, size, seq int64) position {
	var before position
	for end := size; seq > 1 && end-before.off > seekStep; {
		mid := before.off + (end-before.off)/2
		e, off, err := src.within(ctx, mid)
		switch {
		case err != nil || e.Seq <= before.seq:
			return position{}
		case e.Seq < seq && off <= end:
			before = position{off: off, seq: e.Seq}
		default:
			end = mid
		}
	}
	return before
}

// within returns the event of the first line that begins at an offset or after it, and where that line ends.
func (src source) within(ctx context.Context, off int64) (*Event, int64, error) {
	c, err := src.openWithin(ctx, off, nil)
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	e, _, err := c.next(ctx, &plan{})
	return e, c.off, err
}

// readable reads the events up to a torn last line or a damaged line, which it returns as damage: a power failure may
// keep later bytes but lose earlier ones. A line after the end of the run is damage too. each, which may be nil, is
// called with the events.
func readable(ctx context.Context, streams refstore.Streams, workspace, run string, each func(*Event)) (whole position, damage, err error) {
	ended := false
	for e, err := range Read(ctx, streams, workspace, run) {
		var damaged *DamagedError
		if errors.As(err, &damaged) {
			return whole, damaged, nil
		}
		if err != nil {
			return whole, nil, err
		}
		if ended {
			return whole, source{streams, RunRef{workspace, run}}.damage(e.end, errors.New("it follows the end of the run")), nil
		}
		ended = e.Type.Ends()
		whole = position{off: e.end, seq: e.Seq}
		if each != nil {
			each(&e.Event)
		}
	}
	return whole, nil, nil
}

// Readable returns how many bytes of a run's events are readable. damage describes the next line; it is nil if there
// is no next line, or if that line is torn. each, which may be nil, is called with the events.
func Readable(ctx context.Context, streams refstore.Streams, workspace, run string, each func(*Event)) (size int64, damage, err error) {
	whole, damage, err := readable(ctx, streams, workspace, run, each)
	return whole.off, damage, err
}

// Ended reports whether the log of a run is complete: its last line is the run's end. It reads only the tail.
func Ended(ctx context.Context, streams refstore.Streams, workspace, run string) (bool, error) {
	e, err := End(ctx, streams, workspace, run)
	return e != nil, err
}

// Last returns the event of the last complete line of a run's log; nil if there is none or it is damaged. It reads only
// the tail.
func Last(ctx context.Context, streams refstore.Streams, workspace, run string) (*Event, error) {
	e, _, _, err := source{streams, RunRef{workspace, run}}.tail(ctx)
	return e, err
}

// End returns the event that ended a run; nil if the run goes on, or its log is torn, damaged or missing. It reads only
// the tail.
func End(ctx context.Context, streams refstore.Streams, workspace, run string) (*Event, error) {
	e, _, err := endLine(ctx, streams, workspace, run)
	return e, err
}

// endLine is End, with the line.
func endLine(ctx context.Context, streams refstore.Streams, workspace, run string) (*Event, []byte, error) {
	if !recording { // otherwise every start would close its predecessor
		return &Event{Workspace: workspace, Run: run, Type: RunCompleted}, nil, nil
	}
	e, line, torn, err := source{streams, RunRef{workspace, run}}.tail(ctx)
	if err != nil || e == nil || torn || !e.Type.Ends() {
		return nil, nil, err
	}
	return e, line, nil
}

// tail returns the event of the last complete line and the line, nil if there is none or it is damaged, and whether a
// torn line follows. It reads only the tail.
func (src source) tail(ctx context.Context) (e *Event, line []byte, torn bool, err error) {
	for tail := int64(4 << 10); ; tail *= 8 {
		data, info, err := refstore.Tail(ctx, src.streams, src.key(), tail)
		if errors.Is(err, refstore.ErrNotFound) {
			return nil, nil, false, nil
		}
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return nil, nil, false, src.fault(err)
		}
		from := max(0, info.Size-tail)
		end := bytes.LastIndexByte(data, '\n')
		torn = end+1 < len(data)
		start := bytes.LastIndexByte(data[:max(end, 0)], '\n') + 1
		if start == 0 && from > 0 && tail < 2*maxLine { // the line is longer
			continue
		}
		if end < 0 {
			return nil, nil, torn, nil
		}
		if e, err = Parse(data[start:end]); err != nil || e.Run != src.Run {
			return nil, nil, torn, nil
		}
		return e, data[start:end], torn, nil
	}
}

func (src source) bytes(ctx context.Context, from, to int64) ([]byte, error) {
	return readBytes(ctx, src.streams, src.key(), from, to)
}

// readBytes reads a stream between two offsets, as far as it goes: it may have been cut meanwhile, or be damaged.
func readBytes(ctx context.Context, streams refstore.Streams, key refstore.Key, from, to int64) ([]byte, error) {
	r, err := streams.Open(ctx, key, from)
	if err != nil {
		return nil, err
	}
	defer r.Close() // only read, so errors do not matter
	data := make([]byte, to-from)
	n, err := io.ReadFull(r, data)
	if err == io.EOF || err == io.ErrUnexpectedEOF || errors.Is(err, refstore.ErrDamaged) {
		err = nil
	}
	return data[:n], err
}
