package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"e3/refstore"
)

// Follow yields the events of a run as they are appended, until the run or the context ends. It also waits for a run
// that has not begun.
func Follow(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Event, error] {
	return FollowAll(ctx, streams, Filter{Workspace: workspace, Run: run}, FollowOptions{})
}

// FollowOptions say where a follower of many runs begins.
type FollowOptions struct {
	// Latest: of the existing runs, follow only the latest of each workspace. Filter.FromSeq then applies only to it,
	// not to later runs.
	Latest bool
	// Until, once it is closed, makes the follower yield the existing events and end. It may be nil.
	Until <-chan struct{}
}

// FollowAll yields the events that Query would, and continues as events are appended and runs begin, until the context
// ends. With a workspace and a whole run id in the filter, it ends with that run. Filter.Last applies to the existing
// events. Each event is yielded once, in the order of its run. Events of concurrent runs are in the order of their
// appends. A line that stays damaged is yielded as a [*DamagedError]. Later events of its run wait until the line has
// been cut.
func FollowAll(ctx context.Context, streams refstore.Streams, f Filter, o FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f := f // each run handles numbers by itself
		from := f.FromSeq
		f.FromSeq = 0
		w := newFollower(streams, &f, yield)
		w.o, w.from = o, from
		w.follow(ctx)
	}
}

// A follower reads runs again and again: each time, the events that were appended.
type follower struct {
	*waker
	f     *Filter
	o     FollowOptions
	from  int64 // Filter.FromSeq
	names naming
	buf   []byte
	yield func(Event, error) bool

	known  map[RunRef]bool // all runs seen
	tails  []*tail         // runs that have not ended, in the order of their ids
	looked time.Time
	pause  time.Duration // between two scans for runs
	first  *recent       // the existing events, until all were read; then nil
	done   bool          // the caller has stopped, or no event can follow
}

func newFollower(streams refstore.Streams, f *Filter, yield func(Event, error) bool) *follower {
	return &follower{
		waker: newWaker(streams), f: f, names: naming{streams: streams, f: f}, buf: make([]byte, chunk), yield: yield,
		known: map[RunRef]bool{},
	}
}

// tail returns a tail of a run from an event on.
func (w *follower) tail(run RunRef, from int64) *tail {
	return &tail{source: source{w.streams, run}, matcher: matcher{f: w.f}, fromSeq: from}
}

// A tail is a run that is followed.
type tail struct {
	source
	matcher
	p       position
	damaged bool // the next line is damaged, and was reported
	over    bool // the run has ended, or cannot be read
	fromSeq int64
}

// recent keeps the last events.
type recent struct {
	most int
	list []Event
}

func (r *recent) add(e Event) {
	if len(r.list) == 2*r.most {
		r.list = slices.Delete(r.list, 0, r.most)
	}
	r.list = append(r.list, e)
}

// one reports whether the follower follows one run, by its id.
func (w *follower) one() bool { return w.f.Workspace != "" && w.f.Run != "" }

func (w *follower) follow(ctx context.Context) {
	if w.f.Last > 0 {
		w.first = &recent{most: w.f.Last}
	}
	for ctx.Err() == nil && !w.done {
		ending := w.ending()
		if err := w.look(ctx); err != nil {
			if ctx.Err() == nil {
				w.yield(Event{}, err)
			}
			return
		}
		for _, t := range w.tails {
			if w.take(ctx, t); w.done || ctx.Err() != nil {
				break
			}
		}
		w.flush()
		w.tails = slices.DeleteFunc(w.tails, func(t *tail) bool { return t.over })
		if w.done || ending || w.one() && len(w.tails) == 0 {
			return
		}
		w.wait(ctx, w.pause, w.o.Until)
	}
}

func (w *follower) ending() bool {
	select {
	case <-w.o.Until:
		return true
	default:
		return false
	}
}

// flush yields the kept existing events.
func (w *follower) flush() {
	if w.first == nil {
		return
	}
	list := w.first.list[max(0, len(w.first.list)-w.first.most):]
	w.first = nil
	for _, e := range list {
		w.hand(e)
	}
}

// look finds new runs. It watches a workspace before it lists its runs, so that it misses none. It uses at most a
// twentieth of the time.
func (w *follower) look(ctx context.Context) error {
	if w.one() {
		w.pause = w.recheck
		if len(w.known) > 0 {
			return nil
		}
		w.add(RunRef{w.f.Workspace, w.f.Run})
		return w.watchRuns(ctx, w.f.Workspace)
	}
	began := time.Now()
	if began.Sub(w.looked) < w.pause {
		return nil
	}
	names := []string{w.f.Workspace}
	if w.f.Workspace == "" {
		var err error
		if names, err = Workspaces(ctx, w.streams); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := w.watchRuns(ctx, name); err != nil {
			return err
		}
	}
	runs, err := Runs(ctx, w.streams, w.f.Workspace)
	if err != nil {
		return err
	}
	if w.looked.IsZero() {
		w.begin(ctx, runs)
	}
	for _, run := range runs {
		if !w.known[run] {
			w.add(run)
		}
	}
	w.looked = time.Now()
	w.pause = max(w.recheck, 20*w.looked.Sub(began))
	return ctx.Err()
}

// begin adds the existing runs.
func (w *follower) begin(ctx context.Context, runs []RunRef) {
	latest := map[string]string{}
	for _, run := range runs {
		latest[run.Workspace] = run.Run // runs are in order
	}
	for _, run := range runs {
		if w.o.Latest && latest[run.Workspace] != run.Run || w.early(ctx, run) != nil {
			w.known[run] = true
		} else if w.add(run) && w.o.Latest {
			w.tails[len(w.tails)-1].fromSeq = w.from
		}
	}
}

// early returns the last event of a run if it ended before the filter's time, nil otherwise.
func (w *follower) early(ctx context.Context, run RunRef) *Event {
	if !w.f.mayBeTooEarly(run.Run) {
		return nil
	}
	end, err := End(ctx, w.streams, run.Workspace, run.Run)
	if err != nil || end == nil || !w.f.tooEarly(end) {
		return nil
	}
	return end
}

// add follows a run, if the filter selects it.
func (w *follower) add(run RunRef) bool {
	w.known[run] = true
	if !strings.HasPrefix(run.Run, w.f.Run) {
		return false
	}
	from := w.from
	if w.o.Latest {
		from = 0
	}
	w.tails = append(w.tails, w.tail(run, from))
	return true
}

// take yields the events appended to a run. A tail that is over gets no more.
func (w *follower) take(ctx context.Context, t *tail) {
	info, err := t.streams.Size(ctx, t.key())
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		if t.begun {
			t.over = true // it was removed
		}
		return
	case err == nil && info.Size < t.p.off:
		err = fmt.Errorf("%w: it is shorter than before", refstore.ErrConflict)
	case err == nil && info.Size == t.p.off:
		return
	}
	if err == nil {
		w.skip(ctx, t, info.Size)
		err = w.read(ctx, t)
	}
	var damage *DamagedError
	if errors.As(err, &damage) {
		if !t.damaged {
			t.damaged = true
			w.done = !w.yield(Event{}, err) || w.one()
		}
		return
	}
	if errors.Is(err, refstore.ErrForeign) && !w.one() { // other runs can be read
		err = &DamagedError{Workspace: t.Workspace, Run: t.Run, Err: err}
		t.over = true
		w.done = !w.yield(Event{}, err)
		return
	}
	if err != nil && ctx.Err() == nil {
		t.over = true
		w.done = !w.yield(Event{}, fmt.Errorf("follow: %w", err))
	}
}

// skip moves to the first selected number in an unread run.
func (w *follower) skip(ctx context.Context, t *tail, size int64) {
	if t.begun || size <= seekStep || w.f.inBulk() {
		return
	}
	from := t.fromSeq
	if w.first != nil && w.f.allOfRun() {
		if last, err := Last(ctx, t.streams, t.Workspace, t.Run); err == nil && last != nil {
			from = max(from, last.Seq-int64(w.f.Last)+1)
		}
	}
	if from <= 1 {
		return
	}
	if e, err := First(ctx, t.streams, t.Workspace, t.Run); err == nil && e != nil {
		t.begin(e)
		t.p = t.seek(ctx, size, from)
	}
}

func (w *follower) read(ctx context.Context, t *tail) error {
	return t.read(ctx, &t.p, w.buf, func(e *Event, line []byte) bool {
		t.damaged = false
		if !t.begun {
			t.begin(e)
		}
		if e.Type.Ends() {
			if m, ok := t.end(); ok && !w.bulk(ctx, m) {
				return false
			}
		}
		if m, ok := t.add(e, line); ok && e.Seq >= t.fromSeq && !w.hand(m.Event) {
			return false
		}
		if e.Type.Ends() { // the last event
			t.over = true
			return false
		}
		return ctx.Err() == nil
	})
}

// bulk yields a bulk event if it stands for the selected task.
func (w *follower) bulk(ctx context.Context, m match) bool {
	has, err := w.names.standsFor(ctx, m)
	if err != nil {
		w.done = !w.yield(Event{}, err)
		return !w.done
	}
	return !has || w.hand(m.Event)
}

func (w *follower) hand(e Event) bool {
	if w.first != nil {
		w.first.add(e)
		return true
	}
	if !w.done {
		w.done = !w.yield(e, nil)
	}
	return !w.done
}
