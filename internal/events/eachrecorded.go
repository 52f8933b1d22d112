package events

import (
	"context"
	"iter"
	"sync"
	"time"

	"e3/refstore"
)

// readEach is [ReadRecorded] of every workspace that has events.
func readEach(ctx context.Context, streams refstore.Streams, f Filter, o RecordedOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		e := &eachRecorded{streams: streams, f: f, o: o, found: make(chan recordedEvent), told: map[string]bool{}}
		defer e.readers.Wait()
		defer cancel()
		if err := e.read(ctx, yield); err != nil && ctx.Err() == nil {
			yield(Event{}, err)
		}
	}
}

// eachRecorded reads all workspaces, each by a reader of its own.
type eachRecorded struct {
	streams refstore.Streams
	f       Filter
	o       RecordedOptions
	found   chan recordedEvent
	readers sync.WaitGroup
	told    map[string]bool // damage of existing events
}

type recordedEvent struct {
	Event
	err error
}

func (e *eachRecorded) read(ctx context.Context, yield func(Event, error) bool) error {
	names, err := Workspaces(ctx, e.streams)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	kept, hand := &recent{most: e.f.Last}, yield
	if e.f.Last > 0 {
		hand = func(ev Event, err error) bool {
			if err != nil {
				return yield(Event{}, err)
			}
			kept.add(ev)
			return true
		}
	}
	e.f.Last = 0
	at, more := e.existing(ctx, names, hand)
	for _, ev := range kept.last() {
		more = more && yield(ev, nil)
	}
	if !more || !e.o.Follow {
		return nil
	}
	if e.o.Latest { // later runs begin anew
		e.f.FromSeq = 0
	}
	for _, name := range names {
		known[name] = true
		e.begin(ctx, name, at[name])
	}
	pause := looks(e.streams)
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-e.found:
			if next.err != nil && e.told[next.err.Error()] { // existing events, whose damage was already told
				continue
			}
			if !yield(next.Event, next.err) {
				return nil
			}
			continue
		case <-again.C:
		}
		began := time.Now()
		names, err := Workspaces(ctx, e.streams)
		if err != nil {
			return err
		}
		for _, name := range names {
			if !known[name] {
				known[name] = true
				e.begin(ctx, name, RecordedOptions{})
			}
		}
		again.Reset(max(pause, 20*time.Since(began))) // a twentieth of the time
	}
}

// existing yields the events that are already recorded, merged by time. It returns where each workspace's reader goes
// on; false if the caller has stopped.
func (e *eachRecorded) existing(ctx context.Context, names []string, yield func(Event, error) bool) (at map[string]RecordedOptions, more bool) {
	at = map[string]RecordedOptions{}
	type head struct {
		recordedEvent
		next func() (Event, error, bool)
	}
	var heads []*head
	for _, name := range names {
		f := e.f
		f.Workspace = name
		next, stop := iter.Pull2(readRecorded(ctx, e.streams, f, RecordedOptions{Latest: e.o.Latest}, func(c Cursor) {
			at[name] = RecordedOptions{After: c, Latest: e.o.Latest && c == Cursor{}}
		}))
		defer stop()
		h := &head{next: next}
		if ev, err, ok := next(); ok {
			h.recordedEvent = recordedEvent{ev, err}
			heads = append(heads, h)
		}
	}
	for len(heads) > 0 {
		first := 0
		for i, h := range heads {
			if h.err != nil || heads[first].err == nil && h.Time.Before(heads[first].Time) {
				first = i
			}
		}
		h := heads[first]
		if h.err != nil {
			e.told[h.err.Error()] = true
		}
		if !yield(h.Event, h.err) {
			return nil, false
		}
		ev, err, ok := h.next()
		if h.recordedEvent = (recordedEvent{ev, err}); !ok {
			heads = append(heads[:first], heads[first+1:]...)
		}
	}
	return at, ctx.Err() == nil
}

// begin follows one workspace in the background. Its events are yielded by follow.
func (e *eachRecorded) begin(ctx context.Context, name string, o RecordedOptions) {
	f := e.f
	f.Workspace = name
	o.Follow = true
	e.readers.Go(func() {
		for ev, err := range ReadRecorded(ctx, e.streams, f, o) {
			select {
			case e.found <- recordedEvent{ev, err}:
			case <-ctx.Done():
				return
			}
		}
	})
}
