package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

func TestEmitStamps(t *testing.T) {
	s := mem.New()
	now := epoch.Add(1_234_567 * time.Nanosecond)
	log := events.Create(s, ws, runID, func() time.Time { return now })
	got := log.Emit(events.Event{Seq: 99, Run: "x", Workspace: "x", Type: events.TaskStarted, Task: "a"})
	want := events.Event{Seq: 1, Time: epoch.Add(time.Millisecond), Run: runID, Workspace: ws, Type: events.TaskStarted, Task: "a"}
	if got != want {
		t.Errorf("Emit returns %+v, want %+v", got, want)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := readAll(t, s)
	if err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("read back %+v, %v, want %+v", list, err, want)
	}
}

func TestEmitConcurrently(t *testing.T) {
	s := mem.New()
	log := events.Create(s, ws, runID, time.Now)
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var last int64
			for i := range each {
				e := log.Emit(events.Event{Type: events.TaskStarted, Task: fmt.Sprintf("%d-%d", w, i)})
				if e.Seq <= last {
					t.Errorf("event %d follows event %d", e.Seq, last)
				}
				last = e.Seq
				if i%100 == 0 {
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
	list, err := readAll(t, s) // fails on a gap
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != writers*each {
		t.Fatalf("%d events, want %d", len(list), writers*each)
	}
	next := make([]int, writers)
	for _, e := range list {
		var w, i int
		if _, err := fmt.Sscanf(e.Task, "%d-%d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[w] {
			t.Fatalf("writer %d: event %d came when %d was due", w, i, next[w])
		}
		next[w]++
	}
}

// Lines wait 50 ms for others, not longer.
func TestFlushAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		log := events.Create(s, ws, runID, time.Now)
		for round := range 3 {
			before := len(raw(t, s))
			log.Emit(events.Event{Type: events.TaskStarted})
			time.Sleep(49 * time.Millisecond)
			log.Emit(events.Event{Type: events.TaskCompleted})
			if got := len(raw(t, s)); got != before {
				t.Fatalf("round %d: %d bytes were appended before their time", round, got-before)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if n := bytes.Count(raw(t, s)[before:], []byte("\n")); n != 2 {
				t.Fatalf("round %d: %d lines were appended, want 2", round, n)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFlushAtSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		log := events.Create(s, ws, runID, time.Now)
		message := strings.Repeat("x", 10_000)
		for i := range 6 {
			log.Emit(events.Event{Type: events.TaskFailed, Data: &events.Data{Message: message}})
			if n := len(raw(t, s)); n != 0 {
				t.Fatalf("%d bytes after %d events", n, i+1)
			}
		}
		log.Emit(events.Event{Type: events.TaskFailed, Data: &events.Data{Message: message}})
		synctest.Wait()
		if n := bytes.Count(raw(t, s), []byte("\n")); n != 7 {
			t.Errorf("%d lines after 64 KiB, want 7", n)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseFlushes(t *testing.T) {
	s := finished(t, events.RunStarted, events.TaskCompleted, events.RunCompleted)
	wantEvents(t, s, events.RunStarted, events.TaskCompleted, events.RunCompleted)
}

func TestNothingEmitted(t *testing.T) {
	s := finished(t)
	if _, err := s.Size(t.Context(), key); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("a log without events has a stream: %v", err)
	}
	wantEvents(t, s)
}

// failing is a store whose appends fail.
type failing struct {
	*mem.Store
	err   error
	calls int
}

func (f *failing) Append(context.Context, refstore.Key, int64, []byte) error {
	f.calls++
	return f.err
}

// Flush and Close return the first error. After it no append is tried, since lines after a gap would be unreadable.
func TestAppendFails(t *testing.T) {
	f := &failing{Store: mem.New(), err: errors.New("disk full")}
	log := events.Create(f, ws, runID, fixed)
	log.Emit(events.Event{Type: events.RunStarted})
	if err := log.Flush(); !errors.Is(err, f.err) || !strings.Contains(err.Error(), runID) {
		t.Errorf("Flush: %v, want the store's error with the run", err)
	}
	log.Emit(events.Event{Type: events.RunCompleted})
	if err := log.Close(); !errors.Is(err, f.err) {
		t.Errorf("Close: %v, want the first fault", err)
	}
	if f.calls != 1 {
		t.Errorf("%d appends, want 1", f.calls)
	}
}

func TestTwoWriters(t *testing.T) {
	s := mem.New()
	one, two := events.Create(s, ws, runID, fixed), events.Create(s, ws, runID, fixed)
	one.Emit(events.Event{Type: events.RunStarted})
	two.Emit(events.Event{Type: events.RunStarted})
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if err := two.Close(); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("a second writer: %v, want ErrConflict", err)
	}
	wantEvents(t, s, events.RunStarted)
}

// A message is truncated so that its line stays below the readers' limit.
func TestLongMessage(t *testing.T) {
	s := mem.New()
	log := events.Create(s, ws, runID, fixed)
	d := &events.Data{Message: strings.Repeat("\x00é", 1<<20)}
	told := log.Emit(events.Event{Type: events.TaskFailed, Data: d})
	log.Emit(events.Event{Type: events.RunFailed})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := readAll(t, s)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d events, %v, want 2", len(list), err)
	}
	if n := len(list[0].Data.Message); n < 1<<10 || n > 1<<17 || list[0].Data.Message != told.Data.Message {
		t.Errorf("the message that was read has %d bytes, the emitted one %d", n, len(told.Data.Message))
	}
	if len(d.Message) != 3<<20 {
		t.Error("the caller's message was changed")
	}
}
