package events_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/mem"
)

// aLog writes a log with the given number of events between its first and its last.
func aLog(tb interface{ Fatal(...any) }, s refstore.Streams, tasks int) {
	log := events.Create(s, ws, runID, fixed)
	log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Package: "p@1.0.0"}})
	for range tasks {
		log.Emit(events.Event{Type: events.TaskCached, Task: "t", Execution: "x", Data: &events.Data{Duration: 1234, Message: "said \"so\""}})
	}
	log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{Duration: 77}})
	if err := log.Close(); err != nil {
		tb.Fatal(err)
	}
}

// TestDamagedByteIsTold: no change of one byte in a log is read as another event.
func TestDamagedByteIsTold(t *testing.T) {
	suite.WithoutRace(t)
	s := mem.New()
	aLog(t, s, 3)
	whole, right := raw(t, s), []string{}
	for line := range bytes.Lines(whole) {
		right = append(right, string(line))
	}
	want, err := readAll(t, s)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for at := range whole {
		for _, flip := range []byte{1, 2, 0x20, 0x80, '\n' ^ whole[at], '"' ^ whole[at], '9' ^ whole[at]} {
			if flip == 0 {
				continue
			}
			bad := bytes.Clone(whole)
			bad[at] ^= flip
			if err := errors.Join(s.Remove(t.Context(), key), s.Append(t.Context(), key, 0, bad)); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(t, s)
			if err != nil {
				told++
			} else if at < len(whole)-1 { // a last line without its newline is torn, not damaged
				t.Fatalf("byte %d, %q for %q: no damage was reported; read %d events", at, bad[at], whole[at], len(got))
			}
			if len(got) > len(want) || len(got) > 0 && !cmp.Equal(got, want[:len(got)]) {
				t.Fatalf("byte %d, %q for %q: read %+v, written was %+v", at, bad[at], whole[at], got, want)
			}
		}
	}
	if told == 0 {
		t.Fatal("no damage was reported")
	}
}

// TestMend damages logs anywhere: undamaged events remain afterwards, and lost ones are replaced; the first one is told again if it is known.
func TestMend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mem.New()
		aLog(t, s, rapid.IntRange(0, 8).Draw(t, "tasks"))
		ctx := t.Context()
		want := map[int64]events.Event{}
		for e, err := range events.Read(ctx, s, ws, runID) {
			if err != nil {
				t.Fatal(err)
			}
			want[e.Seq] = e.Event
		}
		info, err := s.Size(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		data := readStream(t, s, info.Size)
		for range rapid.IntRange(1, 3).Draw(t, "damages") {
			data[rapid.IntRange(0, len(data)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "flip")
		}
		data = data[:rapid.IntRange(len(data)/2, len(data)).Draw(t, "cut")]
		sealed := rapid.Bool().Draw(t, "sealed")
		err = errors.Join(s.Remove(ctx, key), s.Append(ctx, key, 0, data))
		if sealed {
			err = errors.Join(err, s.Seal(ctx, key))
		}
		if err != nil {
			t.Fatal(err)
		}
		var first *events.Event // as the run's record may know it
		if one := want[1]; rapid.Bool().Draw(t, "known") {
			first = &one
		}
		lost, err := events.Mend(ctx, s, ws, runID, first)
		if err != nil {
			t.Fatal(err)
		}
		seq := int64(0)
		for e, err := range events.Read(ctx, s, ws, runID) {
			if err != nil {
				t.Fatalf("after mending: %v", err)
			}
			if seq++; e.Seq != seq {
				t.Fatalf("event %d follows event %d", e.Seq, seq-1)
			}
			if e.Type == events.EventLost {
				if lost--; seq == 1 && first != nil {
					t.Fatal("the first event is marked as lost, but it is known")
				}
			} else if diff := cmp.Diff(want[seq], e.Event); diff != "" {
				t.Fatalf("event %d is another (-want +got):\n%s", seq, diff)
			}
		}
		if lost != 0 {
			t.Fatalf("%d more are said to be lost than have a place", lost)
		}
		if info, err := s.Size(ctx, key); err != nil || info.Sealed != sealed {
			t.Fatalf("sealed is %v, want %v: %v", info.Sealed, sealed, err)
		}
	})
}

func readStream(t *rapid.T, s refstore.Streams, size int64) []byte {
	r, err := s.Open(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data := make([]byte, size)
	for n := 0; n < len(data); {
		k, err := r.Read(data[n:])
		if n += k; err != nil && n < len(data) {
			t.Fatal(err)
		}
	}
	return data
}

// TestResumeOfASealedLog: a log without an end can be resumed, even if its write permission was removed.
func TestResumeOfASealedLog(t *testing.T) {
	s := mem.New()
	log := events.Create(s, ws, runID, fixed)
	log.Emit(events.Event{Type: events.RunStarted})
	if err := errors.Join(log.Close(), s.Seal(t.Context(), key)); err != nil {
		t.Fatal(err)
	}
	log, err := events.Resume(t.Context(), s, ws, runID, fixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	log.Emit(events.Event{Type: events.RunFailed})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, events.RunStarted, events.RunFailed)
}
