package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/refstore"
)

// RunRecorded is appended to the journal before a run, made here or imported, has events: Data.Run. So the journal has
// the order in which runs were recorded.
const RunRecorded Type = "run.recorded"

// A Place is where an event of a journal is.
type Place struct {
	Seq    int64 // its number
	Stream int64 // the number of the first event of its stream
}

// A Latest is where a journal ended when it was looked at. It saves the next append a look where each is a request. The
// zero value is that of a caller that has not looked.
type Latest struct{ end *end }

// LookAhead returns the end of a journal. known is the stream in which an earlier run was recorded, as that run's end says
// (Data.Journal), or 0: it saves looking for the latest stream. Where a look is cheap there is none; an overlay may also
// have an old copy of that stream.
func LookAhead(ctx context.Context, streams refstore.Streams, workspace string, known int64) (Latest, error) {
	if _, ok := streams.(refstore.Tailer); !ok || !recording {
		return Latest{}, nil
	}
	end, err := knownEnd(ctx, streams, workspace, known)
	if errors.Is(err, refstore.ErrConflict) { // the append looks again
		return Latest{}, nil
	}
	if err != nil {
		return Latest{}, fmt.Errorf("journal of workspace %s: %w", workspace, err)
	}
	return Latest{&end}, nil
}

// RecordRun is LookAhead and RecordRunAt.
func RecordRun(ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, known int64) (Place, error) {
	at, err := LookAhead(ctx, streams, workspace, known)
	if err != nil {
		return Place{}, err
	}
	return RecordRunAt(ctx, streams, workspace, run, now, at)
}

// RecordRunAt appends a RunRecorded to the journal, and returns that event's place.
func RecordRunAt(
	ctx context.Context, streams refstore.Streams, workspace, run string, now func() time.Time, at Latest,
) (Place, error) {
	list, stream, err := appendJournal(ctx, streams, workspace, now, at, []Event{{Type: RunRecorded, Data: &Data{Run: run}}})
	if err != nil || len(list) == 0 {
		return Place{}, err
	}
	return Place{Seq: list[0].Seq, Stream: stream}, nil
}

// A Cursor is a place in the events of a workspace. Before it lie the first events of its journal up to a number, the
// first events of the last run recorded by then up to a number, and all earlier runs. Any process may append to the
// journal while a run has events, so readers see these two in different orders; a cursor is valid for each order. Runs
// of which the journal has lost the line count as recorded before it began, in the order of their ids.
type Cursor struct {
	Journal int64
	Run     string
	Seq     int64
}

// cursorVersion is the prefix of a cursor's text.
const cursorVersion = "c1"

// String is the text of a cursor, which is opaque to readers.
func (c Cursor) String() string {
	if c.Run == "" {
		return fmt.Sprintf("%s.%d", cursorVersion, c.Journal)
	}
	return fmt.Sprintf("%s.%d.%d.%s", cursorVersion, c.Journal, c.Seq, c.Run)
}

// ErrCursor says that a text is no cursor.
var ErrCursor = errors.New("not the cursor of an event")

// ParseCursor reads what String returns.
func ParseCursor(text string) (Cursor, error) {
	fail := func() (Cursor, error) { return Cursor{}, fmt.Errorf("%.80q is %w", text, ErrCursor) }
	parts := strings.SplitN(text, ".", 4)
	if len(parts) < 2 || len(parts) == 3 || parts[0] != cursorVersion {
		return fail()
	}
	var c Cursor
	var err error
	if c.Journal, err = strconv.ParseInt(parts[1], 10, 64); err != nil || c.Journal < 0 {
		return fail()
	}
	if len(parts) == 4 {
		if c.Seq, err = strconv.ParseInt(parts[2], 10, 64); err != nil || c.Seq < 0 {
			return fail()
		}
		if c.Run = parts[3]; c.Run == "" || len(c.Run) > 64 || strings.ContainsFunc(c.Run, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fail()
		}
	}
	if c.String() != text {
		return fail()
	}
	return c, nil
}

// Recorded returns the number of the event that records each run in a workspace's journal. Unrecorded runs are not in
// the map.
func Recorded(ctx context.Context, streams refstore.Streams, workspace string) (map[string]int64, error) {
	at := map[string]int64{}
	for e, err := range ReadJournal(ctx, streams, workspace, 0) {
		switch {
		case errors.As(err, new(*JournalError)):
		case err != nil:
			return nil, err
		case e.Type == RunRecorded && e.Data != nil:
			at[e.Data.Run] = e.Seq
		}
	}
	return at, nil
}

// RecordedOptions say where a reader of a workspace's events begins and ends.
type RecordedOptions struct {
	After  Cursor // only events after it; zero: all
	Latest bool   // begin with the latest run; After does not count
	Follow bool   // wait for further events, until the context ends
}

// ReadRecorded yields the selected events of the filter's workspace, from all its runs and its journal, in the order of
// recording, each with its cursor. It ignores Filter.Run, FromSeq and Last. Damage is yielded as a [*DamagedError] or
// [*JournalError], and reading continues; other errors end it.
func ReadRecorded(ctx context.Context, streams refstore.Streams, f Filter, o RecordedOptions) iter.Seq2[Event, error] {
	return readRecorded(ctx, streams, f, o, func(Cursor) {})
}

// readRecorded is ReadRecorded, and tells where it has ended.
func readRecorded(ctx context.Context, streams refstore.Streams, f Filter, o RecordedOptions, ended func(Cursor)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f.Run, f.FromSeq, f.Last = "", 0, 0
		r := &recordedReader{at: o.After, latest: o.Latest}
		r.follower = &follower{
			streams: streams, f: &f, names: naming{streams: streams, f: &f}, buf: make([]byte, chunk),
			watched: map[string]bool{}, wake: make(chan struct{}, 1), recheck: recheck,
			yield: func(e Event, err error) bool {
				e.Cursor = r.cursor().String()
				return yield(e, err)
			},
		}
		if p, ok := streams.(Paced); ok {
			r.recheck = max(recheck, p.StreamPace())
		}
		if err := r.read(ctx, o.Follow); err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
		ended(r.cursor())
	}
}

// A recordedReader reads a workspace's events in the order of recording.
type recordedReader struct {
	*follower
	at      Cursor
	latest  bool
	open    *tail           // the run at.Run; nil: none yet
	ended   bool            // its end was read
	earlier map[string]bool // runs that ended before Filter.Since
}

// cursor is the reader's place.
func (r *recordedReader) cursor() Cursor {
	if r.open != nil {
		return Cursor{Journal: r.at.Journal, Run: r.open.Run, Seq: max(r.open.p.seq, r.at.Seq)}
	}
	return r.at
}

func (r *recordedReader) read(ctx context.Context, follow bool) error {
	if follow {
		if err := r.watchBoth(ctx); err != nil {
			return err
		}
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	journal := &journalReader{streams: r.streams, workspace: r.f.Workspace, seq: r.at.Journal}
	for !r.done {
		var fault error
		journal.read(ctx, func(e Event, err error) bool {
			switch {
			case errors.As(err, new(*JournalError)):
				r.done = !r.yield(Event{}, err)
			case err != nil:
				fault = err
			default:
				r.journaled(ctx, &e)
			}
			return fault == nil && !r.done
		})
		if fault != nil || r.done {
			return fault
		}
		r.drain(ctx)
		if !follow || r.done || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again := time.NewTimer(r.recheck)
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-again.C:
		}
		again.Stop()
	}
	return nil
}

// watchBoth wakes the reader when the journal or a log of the workspace changes.
func (r *recordedReader) watchBoth(ctx context.Context) error {
	if err := r.watch(ctx, r.f.Workspace); err != nil {
		return err
	}
	c, err := r.streams.WatchStreams(ctx, JournalPartition(r.f.Workspace))
	if err != nil {
		return fmt.Errorf("follow the journal of workspace %s: %w", r.f.Workspace, err)
	}
	go func() {
		for range c { // closed when ctx ends
			select {
			case r.wake <- struct{}{}:
			default: // a wake-up is already pending
			}
		}
	}()
	return nil
}

// begin moves to the start: through the runs before the journal, or to the run of the cursor.
func (r *recordedReader) begin(ctx context.Context) error {
	if r.at.Journal > 0 && !r.latest {
		if r.at.Run != "" {
			r.enter(r.at.Run, r.at.Seq)
		}
		return nil
	}
	recorded, err := Recorded(ctx, r.streams, r.f.Workspace)
	if err != nil {
		return err
	}
	if r.earlier, err = earlierRuns(ctx, r.streams, r.f); err != nil {
		return err
	}
	runs, err := Runs(ctx, r.streams, r.f.Workspace)
	if err != nil {
		return err
	}
	before := slices.DeleteFunc(slices.Clone(runs), func(run RunRef) bool { return recorded[run.Run] > 0 })
	if r.latest {
		r.at = Cursor{}
		for run, at := range recorded {
			if at > r.at.Journal {
				r.at = Cursor{Journal: at, Run: run}
			}
		}
		if r.at.Run != "" {
			r.enter(r.at.Run, 0)
			return nil
		}
		before = before[max(0, len(before)-1):]
	}
	for _, run := range before {
		switch {
		case run.Run < r.at.Run:
			continue
		case run.Run == r.at.Run:
			r.enter(run.Run, r.at.Seq)
		default:
			if seq, skip := r.skips(ctx, run.Run); skip {
				r.at.Run, r.at.Seq = run.Run, seq
				continue
			}
			r.enter(run.Run, 0)
		}
		if r.drain(ctx); r.done || ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// enter opens a run after its first seq events.
func (r *recordedReader) enter(run string, seq int64) {
	r.at.Run, r.at.Seq = run, seq
	r.open = &tail{source: source{r.streams, RunRef{r.f.Workspace, run}}, matcher: matcher{f: r.f}, fromSeq: seq + 1}
	r.ended = false
}

// drain yields the present events of the open run.
func (r *recordedReader) drain(ctx context.Context) {
	if r.open == nil || r.ended {
		return
	}
	streams := r.open.streams
	r.take(ctx, r.open)
	if r.open.streams == nil { // it has ended, or was removed
		r.ended = true
		r.open.streams = streams
	}
}

// journaled handles the next event of the journal.
func (r *recordedReader) journaled(ctx context.Context, e *Event) {
	if e.Type == RunRecorded && e.Data != nil && e.Data.Run != "" {
		if r.drain(ctx); !r.done && r.f.ofJournal(e) {
			defer r.hand(*e)
		}
		if seq, skip := r.skips(ctx, e.Data.Run); skip && (r.open == nil || r.open.Run != e.Data.Run) {
			if e.Data.Reason != ReasonImported || r.open == nil || r.ended {
				r.open, r.at.Run, r.at.Seq = nil, e.Data.Run, seq
			}
			r.at.Journal = e.Seq
			return
		}
		if e.Data.Reason == ReasonImported && r.open != nil && !r.ended {
			// The run was imported while another run is at work. The cursor stays before the import until all of it is
			// read.
			t := &tail{source: source{r.streams, RunRef{r.f.Workspace, e.Data.Run}}, matcher: matcher{f: r.f}}
			if r.take(ctx, t); !r.done {
				r.at.Journal = e.Seq
			}
			return
		}
		if r.open == nil || r.open.Run != e.Data.Run {
			r.enter(e.Data.Run, 0)
		}
		r.at.Journal = e.Seq
		return
	}
	r.at.Journal = e.Seq
	if r.f.ofJournal(e) {
		r.hand(*e)
	}
}

// ofJournal reports whether the filter selects an event of a journal.
func (f *Filter) ofJournal(e *Event) bool {
	if e.Type == RunRecorded && !slices.Contains(f.Types, RunRecorded) {
		return false
	}
	run := ""
	if e.Data != nil {
		run = e.Data.Run
	}
	if !strings.HasPrefix(run, f.Run) || f.Task != "" && (e.Task == "" || !Match(f.Task, e.Task)) {
		return false
	}
	m := matcher{f: f}
	return m.wanted(e)
}
