package events

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"e3/refstore"
)

// Recorded returns the number of the event that records each run in a workspace's journal. Unrecorded runs are not in
// the map.
func Recorded(ctx context.Context, streams refstore.Streams, workspace string) (map[string]int64, error) {
	list, err := recordedRuns(ctx, streams, workspace)
	at := make(map[string]int64, len(list))
	for _, e := range list {
		at[e.Data.Run] = e.Seq
	}
	return at, err
}

// recordedRuns returns the events that record runs in a workspace's journal.
func recordedRuns(ctx context.Context, streams refstore.Streams, workspace string) ([]Event, error) {
	var list []Event
	for e, err := range ReadJournal(ctx, streams, workspace, 0) {
		switch {
		case errors.As(err, new(*JournalError)):
		case err != nil:
			return nil, err
		case e.Type == RunRecorded && e.Data != nil:
			list = append(list, e)
		}
	}
	return list, nil
}

// RecordedOptions say where a reader of a workspace's events begins and ends.
type RecordedOptions struct {
	After  Cursor // only events after it; zero: all
	Latest bool   // begin with the latest run of each workspace; After does not count
	Follow bool   // wait for further events, until the context ends
}

// ReadRecorded yields the selected events of the filter's workspace, from all its runs and its journal, in the order of
// recording, each with its cursor. It ignores Filter.Run. Filter.Last applies to the existing events; Filter.FromSeq
// to the numbers of each run, or with Latest only of the run that exists. Damage is yielded as a [*DamagedError] or
// [*JournalError], and reading continues; other errors end it.
//
// Without a workspace in the filter these are the events of all, and After does not count. Existing events of several
// workspaces are merged by their times; later events come as they are recorded, also from new workspaces. Each event
// carries the cursor of its own workspace.
func ReadRecorded(ctx context.Context, streams refstore.Streams, f Filter, o RecordedOptions) iter.Seq2[Event, error] {
	if f.Workspace == "" {
		return readEach(ctx, streams, f, o)
	}
	return readRecorded(ctx, streams, f, o, func(Cursor) {})
}

// readRecorded is ReadRecorded, and tells where it has ended.
func readRecorded(ctx context.Context, streams refstore.Streams, f Filter, o RecordedOptions, ended func(Cursor)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := &recordedReader{at: o.After, latest: o.Latest, from: f.FromSeq}
		f := f
		f.Run, f.FromSeq = "", 0
		r.follower = newFollower(streams, &f, yield)
		r.follower.cursor = func(*Event) Cursor { return r.cursor() }
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
	from    int64           // Filter.FromSeq
	open    *tail           // the run at.Run; nil: none yet
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
		if err := errors.Join(r.watchRuns(ctx, r.f.Workspace), r.watchJournal(ctx, r.f.Workspace)); err != nil {
			return err
		}
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.latest { // later runs begin anew
		r.from = 0
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
		r.flush()
		if !follow || r.done || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.wait(ctx, r.recheck, nil)
	}
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
	list, err := recordedRuns(ctx, r.streams, r.f.Workspace)
	if err != nil {
		return err
	}
	recorded := map[string]int64{}
	for _, e := range list {
		recorded[e.Data.Run] = e.Seq
	}
	r.earlier = r.f.earlierRuns(list)
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
	r.open = r.tail(RunRef{r.f.Workspace, run}, max(seq+1, r.from))
}

// drain yields the present events of the open run.
func (r *recordedReader) drain(ctx context.Context) {
	if r.going() {
		r.take(ctx, r.open)
	}
}

// going reports whether a run is open that may have more events.
func (r *recordedReader) going() bool { return r.open != nil && !r.open.over }

// journaled handles the next event of the journal.
func (r *recordedReader) journaled(ctx context.Context, e *Event) {
	if e.Type == RunRecorded && e.Data != nil && e.Data.Run != "" {
		if r.drain(ctx); !r.done && r.f.ofJournal(e) {
			defer r.hand(*e)
		}
		if seq, skip := r.skips(ctx, e.Data.Run); skip && (r.open == nil || r.open.Run != e.Data.Run) {
			if e.Data.Reason != ReasonImported || !r.going() {
				r.open, r.at.Run, r.at.Seq = nil, e.Data.Run, seq
			}
			r.at.Journal = e.Seq
			return
		}
		if e.Data.Reason == ReasonImported && r.going() {
			// The run was imported while another run is at work. The cursor stays before the import until all of it is
			// read.
			if r.take(ctx, r.tail(RunRef{r.f.Workspace, e.Data.Run}, r.from)); !r.done {
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

// earlierRuns returns the recorded runs of a workspace that ended before the filter's time, as far as the order of
// recording tells, without opening a log: a workspace has one run at a time, so a run had ended when the next one of
// the workspace began. Imported runs have no such place; their last events decide.
func (f *Filter) earlierRuns(recorded []Event) map[string]bool {
	early := map[string]bool{}
	previous := ""
	for _, e := range recorded {
		if f.Since.IsZero() || e.Data.Reason == ReasonImported {
			continue
		}
		if began, ok := Began(e.Data.Run); ok && previous != "" && began.Before(f.Since.Add(-clockSlack)) {
			early[previous] = true
		}
		previous = e.Data.Run
	}
	return early
}

// skips reports whether no event of a run is selected because the run ended too early. seq is the number of the run's
// last event, if that was read.
func (r *recordedReader) skips(ctx context.Context, run string) (seq int64, skip bool) {
	if r.earlier[run] {
		return 0, true
	}
	if end := r.early(ctx, RunRef{r.f.Workspace, run}); end != nil {
		return end.Seq, true
	}
	return 0, false
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
