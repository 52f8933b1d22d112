package events_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

// Listeners receive an event after it is in the log, in order and without gaps, whichever goroutine emits and flushes.
func TestToldOnceWritten(t *testing.T) {
	s := mem.New()
	log := events.Create(s, ws, runID, time.Now)
	told := int64(0)
	log.Tell(func(e events.Event) {
		if e.Seq != told+1 {
			t.Errorf("the listener got event %d after event %d", e.Seq, told)
		}
		told = e.Seq
		if e.Seq%50 != 0 {
			return
		}
		list, err := readAll(t, s)
		if err != nil {
			t.Error(err)
		}
		if !slices.ContainsFunc(list, func(l events.Event) bool { return l.Seq == e.Seq }) {
			t.Errorf("the listener got event %d, and the log ends with event %d", e.Seq, len(list))
		}
	})
	const writers, each = 4, 200
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				log.Emit(events.Event{Type: events.TaskStarted, Task: "t"})
				if i%20 == 0 {
					if err := log.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if told != writers*each {
		t.Errorf("the listener got %d events of %d", told, writers*each)
	}
}

// fullStore accepts only a number of appends.
type fullStore struct {
	*mem.Store
	space int
}

var errFull = errors.New("the disk is full")

func (s *fullStore) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if s.space--; s.space < 0 {
		return errFull
	}
	return s.Store.Append(ctx, key, offset, data)
}

// Listeners do not receive events that the store refuses.
func TestUnwrittenIsNotTold(t *testing.T) {
	log := events.Create(&fullStore{mem.New(), 1}, ws, runID, time.Now)
	told := int64(0)
	log.Tell(func(e events.Event) { told = e.Seq })
	log.Emit(events.Event{Type: events.RunStarted})
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	log.Emit(events.Event{Type: events.TaskStarted, Task: "t"})
	if err := log.Close(); !errors.Is(err, errFull) {
		t.Fatalf("Close returns %v, want %v", err, errFull)
	}
	if told != 1 {
		t.Errorf("the listener got events up to number %d; only the first is in the log", told)
	}
}

// An event with a time of its own keeps that time, also one in the future of this clock: it is by another machine's.
func TestHappenedBefore(t *testing.T) {
	log := events.Create(mem.New(), ws, runID, func() time.Time { return epoch })
	for _, test := range []struct{ at, want time.Time }{
		{epoch.Add(-time.Hour), epoch.Add(-time.Hour)}, {epoch.Add(time.Hour), epoch.Add(time.Hour)}, {time.Time{}, epoch},
	} {
		if got := log.Emit(events.Event{Type: events.TaskStarted, Time: test.at}).Time; !got.Equal(test.want) {
			t.Errorf("what happened at %v gets the time %v, want %v", test.at, got, test.want)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}
