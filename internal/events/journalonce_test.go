package events_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore/mem"
)

// However many processes report the same changes at once, the journal has each change once.
func TestAppendJournalOnce(t *testing.T) {
	s := mem.New()
	const changes, processes = 20, 8
	var work sync.WaitGroup
	for range processes {
		work.Go(func() {
			for i := range changes {
				e := events.Event{Type: events.BlockApproved, Task: fmt.Sprint("t", i)}
				same := func(old *events.Event) bool { return old.Type == e.Type && old.Task == e.Task }
				if err := events.AppendJournalOnce(t.Context(), s, "w", time.Now, 0, e, same); err != nil {
					t.Error(err)
				}
				if _, err := events.AppendJournal(t.Context(), s, "w", time.Now, events.Event{Type: "other"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	found := map[string]int{}
	for e, err := range events.ReadJournal(t.Context(), s, "w", 0) {
		if err != nil {
			t.Fatal(err)
		}
		found[e.Task]++
	}
	for i := range changes {
		if n := found[fmt.Sprint("t", i)]; n != 1 {
			t.Errorf("the journal has %d events of change %d", n, i)
		}
	}
	last, err := events.JournalEnd(t.Context(), s, "w")
	if want := int64(changes + changes*processes); err != nil || last != want || int64(found[""]) != want-changes {
		t.Errorf("the journal ends with %d, %v, want %d", last, err, want)
	}

	// Events up to the given number do not count, and a journal that was removed starts again.
	e := events.Event{Type: events.BlockApproved, Task: "t0"}
	same := func(old *events.Event) bool { return old.Type == e.Type && old.Task == e.Task }
	for _, after := range []int64{last, last + 5} {
		if err := events.AppendJournalOnce(t.Context(), s, "w", time.Now, after, e, same); err != nil {
			t.Error(err)
		}
	}
	if now, err := events.JournalEnd(t.Context(), s, "w"); err != nil || now != last+2 {
		t.Errorf("the journal ends with %d, %v, want %d", now, err, last+2)
	}
}
