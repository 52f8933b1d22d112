package events_test

import (
	"context"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

const (
	ws    = "prod"
	runID = "0194fdc2-fa2f-7cc0-81d3-ff12045b73c8"
)

// key is the key of the run's log.
var key = refstore.Key{Partition: "EVENTS/" + ws, Sort: runID}

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func fixed() time.Time { return epoch }

// readAll returns the readable events of the run.
func readAll(t *testing.T, s refstore.Streams) ([]events.Event, error) {
	t.Helper()
	var list []events.Event
	for e, err := range events.Read(t.Context(), s, ws, runID) {
		if err != nil {
			return list, err
		}
		list = append(list, e.Event)
	}
	return list, nil
}

// wantEvents checks that the log holds events with these types, numbered from 1.
func wantEvents(t *testing.T, s refstore.Streams, want ...events.Type) {
	t.Helper()
	list, err := readAll(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != len(want) {
		t.Fatalf("got %d events, want %d: %v", len(list), len(want), list)
	}
	for i, e := range list {
		if e.Seq != int64(i+1) || e.Type != want[i] {
			t.Errorf("event %d is %d %s, want %s", i+1, e.Seq, e.Type, want[i])
		}
	}
}

// raw returns the bytes of the log.
func raw(t *testing.T, s refstore.Streams) []byte {
	t.Helper()
	info, err := s.Size(t.Context(), key)
	if err != nil {
		return nil
	}
	r, err := s.Open(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, info.Size)
	for n := 0; n < len(b); {
		k, err := r.Read(b[n:])
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return b
}

// write appends bytes to the log, as a dead writer may leave them.
func write(t *testing.T, s refstore.Streams, data string) {
	t.Helper()
	if err := s.Append(t.Context(), key, int64(len(raw(t, s))), []byte(data)); err != nil {
		t.Fatal(err)
	}
}

// finished is a store with a log of complete events, the last of which ends the run.
func finished(t *testing.T, types ...events.Type) *mem.Store {
	t.Helper()
	s := mem.New()
	log := events.Create(s, ws, runID, fixed)
	for _, typ := range types {
		log.Emit(events.Event{Type: typ})
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

func resume(t *testing.T, s refstore.Streams) *events.Log {
	t.Helper()
	log, err := events.Resume(context.Background(), s, ws, runID, fixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	return log
}
