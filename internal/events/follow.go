package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"e3/refstore"
)

// Follow yields the events of a run as they are appended, until the run or the context ends. It also waits for a run
// that has not begun.
func Follow(ctx context.Context, streams refstore.Streams, workspace, run string) iter.Seq2[Event, error] {
	return FollowRun(ctx, streams, Filter{Workspace: workspace, Run: run}, nil)
}

// FollowRun yields the same events of the filter's run, which is given by its whole id, as Query, and continues as
// events are appended, until the run or the context ends. Once until is closed, it yields the existing events and
// ends; until may be nil. Filter.Last applies to the existing events. Each event is yielded once. A line that stays
// damaged is yielded as a [*DamagedError], and ends the iteration.
func FollowRun(ctx context.Context, streams refstore.Streams, f Filter, until <-chan struct{}) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f := f
		w := newFollower(streams, &f, yield)
		t := w.tail(RunRef{f.Workspace, f.Run}, f.FromSeq)
		f.FromSeq = 0
		if f.Cursors {
			w.cursor = w.cursors(ctx)
		}
		if err := w.watchRuns(ctx, f.Workspace); err != nil {
			yield(Event{}, err)
			return
		}
		for ending := false; ctx.Err() == nil; w.wait(ctx, w.recheck, until) {
			select {
			case <-until:
				ending = true
			default:
			}
			w.take(ctx, t)
			w.flush()
			if w.done || t.over || ending {
				return
			}
		}
	}
}

// A follower reads runs again and again, each time the newly appended events.
type follower struct {
	*waker
	f      *Filter
	buf    []byte
	yield  func(Event, error) bool
	cursor func(*Event) Cursor // after an event; nil: events get none
	first  *recent             // keeps the last existing events until all are read; then nil
	done   bool                // the caller has stopped, or no event can follow
}

func newFollower(streams refstore.Streams, f *Filter, yield func(Event, error) bool) *follower {
	w := &follower{waker: newWaker(streams), f: f, buf: make([]byte, chunk), yield: yield}
	if f.Last > 0 {
		w.first = &recent{most: f.Last}
	}
	return w
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

// last returns the last events.
func (r *recent) last() []Event { return r.list[max(0, len(r.list)-r.most):] }

// one reports whether the follower follows one run, by its id.
func (w *follower) one() bool { return w.f.Run != "" }

// cursors returns the cursors of the followed run's events. The journal is read when the first cursor is asked for.
func (w *follower) cursors(ctx context.Context) func(*Event) Cursor {
	recorded := sync.OnceValue(func() int64 {
		at, err := Recorded(ctx, w.streams, w.f.Workspace)
		if err != nil {
			w.done = true
			w.yield(Event{}, err)
		}
		return at[w.f.Run]
	})
	return func(e *Event) Cursor { return Cursor{Journal: recorded(), Run: e.Run, Seq: e.Seq} }
}

// flush yields the kept existing events.
func (w *follower) flush() {
	if w.first == nil {
		return
	}
	list := w.first.last()
	w.first = nil
	for _, e := range list {
		w.give(e)
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
	has, err := w.f.standsFor(ctx, m)
	if err != nil {
		w.done = !w.yield(Event{}, err)
		return !w.done
	}
	return !has || w.hand(m.Event)
}

// hand yields an event with its cursor. While existing events are read and only the last ones are wanted, it keeps
// the event instead.
func (w *follower) hand(e Event) bool {
	if w.cursor != nil {
		e.Cursor = w.cursor(&e).String()
	}
	if w.first != nil {
		w.first.add(e)
		return true
	}
	return w.give(e)
}

func (w *follower) give(e Event) bool {
	if !w.done {
		w.done = !w.yield(e, nil)
	}
	return !w.done
}
