package events_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

func TestResumeContinues(t *testing.T) {
	s := finished(t, events.RunStarted, events.TaskStarted)
	var seen []events.Type
	log, err := events.Resume(t.Context(), s, ws, runID, fixed, func(e *events.Event) { seen = append(seen, e.Type) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []events.Type{events.RunStarted, events.TaskStarted}; !slices.Equal(seen, want) {
		t.Errorf("events so far: %v, want %v", seen, want)
	}
	if e := log.Emit(events.Event{Type: events.RunFailed}); e.Seq != 3 {
		t.Errorf("the next event has number %d, want 3", e.Seq)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, events.RunStarted, events.TaskStarted, events.RunFailed)
}

func TestResumeNothing(t *testing.T) {
	s := mem.New()
	log := resume(t, s)
	log.Emit(events.Event{Type: events.RunFailed})
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s, events.RunFailed)
}

// Wherever a writer died, its complete lines stay and the rest is cut.
func TestResumeAfterAnyCrash(t *testing.T) {
	whole := raw(t, finished(t, events.RunStarted, events.TaskStarted, events.TaskCompleted, events.RunCompleted))
	rapid.Check(t, func(rt *rapid.T) {
		left := whole[:rapid.IntRange(1, len(whole)).Draw(rt, "left")]
		s := mem.New()
		write(t, s, string(left))
		lines := strings.Count(string(left), "\n")
		if list, err := readAll(t, s); err != nil || len(list) != lines {
			rt.Fatalf("before: %d events, %v, want %d", len(list), err, lines)
		}
		log := resume(t, s)
		if e := log.Emit(events.Event{Type: events.RunFailed}); e.Seq != int64(lines+1) {
			rt.Fatalf("the next event has number %d, want %d", e.Seq, lines+1)
		}
		if err := log.Close(); err != nil {
			rt.Fatal(err)
		}
		if list, err := readAll(t, s); err != nil || len(list) != lines+1 {
			rt.Fatalf("after: %d events, %v, want %d", len(list), err, lines+1)
		}
	})
}

func TestReadStopsAtTornTail(t *testing.T) {
	s := finished(t, events.RunStarted)
	write(t, s, `{"seq":2,"time":"2026-11-`)
	wantEvents(t, s, events.RunStarted)
}

func TestReadable(t *testing.T) {
	whole := finished(t, events.RunStarted, events.TaskStarted)
	size := int64(len(raw(t, whole)))
	for _, test := range []struct {
		name, more string
		damaged    bool
	}{
		{"whole", "", false},
		{"torn", `{"seq":3`, false},
		{"damaged", "oops\n", true},
		{"damaged, and more", "oops\n" + `{"seq":4,"time":"2026-11-20T00:00:00.000Z","run":"r","workspace":"w","type":"run.failed"}` + "\n", true},
	} {
		s := mem.New()
		write(t, s, string(raw(t, whole))+test.more)
		got, damage, err := events.Readable(t.Context(), s, ws, runID, nil)
		if got != size || (damage != nil) != test.damaged || err != nil {
			t.Errorf("%s: %d bytes, damage %v, %v; want %d bytes", test.name, got, damage, err, size)
		}
	}
	if got, damage, err := events.Readable(t.Context(), mem.New(), ws, runID, nil); got != 0 || damage != nil || err != nil {
		t.Errorf("nothing: %d bytes, damage %v, %v", got, damage, err)
	}
}

func TestReadDamaged(t *testing.T) {
	first := raw(t, finished(t, events.RunStarted))
	for _, test := range []struct{ name, line string }{
		{"not an event", "oops\n"},
		{"empty line", "\n"},
		{"gap", `{"seq":3,"run":"r","type":"run.completed"}` + "\n"},
		{"repeat", string(first)},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mem.New()
			write(t, s, string(first))
			write(t, s, test.line)
			write(t, s, `{"seq":3,"run":"r","type":"run.completed"}`+"\n")
			list, err := readAll(t, s)
			if len(list) != 1 {
				t.Errorf("%d events before the damage, want 1", len(list))
			}
			end := "byte " + strconv.Itoa(len(first)+len(test.line))
			if err == nil || !strings.Contains(err.Error(), end) || !strings.Contains(err.Error(), runID) {
				t.Errorf("error is %v, want one that names the run and %s", err, end)
			}
			// The next writer continues after the last readable line.
			log := resume(t, s)
			log.Emit(events.Event{Type: events.RunFailed})
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			wantEvents(t, s, events.RunStarted, events.RunFailed)
		})
	}
}

func TestEnded(t *testing.T) {
	long := strings.Repeat("\u00e9", 10_000)
	for _, test := range []struct {
		name   string
		events []events.Event
		tail   string
		want   bool
	}{
		{"no log", nil, "", false},
		{"begun", []events.Event{{Type: events.RunStarted}}, "", false},
		{"completed", []events.Event{{Type: events.RunStarted}, {Type: events.RunCompleted}}, "", true},
		{"failed", []events.Event{{Type: events.RunFailed}}, "", true},
		{"cancelled", []events.Event{{Type: events.RunCancelled}}, "", true},
		{"task failed last", []events.Event{{Type: events.RunStarted}, {Type: events.TaskFailed}}, "", false},
		{"torn end", []events.Event{{Type: events.RunStarted}}, `{"seq":2,"run":"r","type":"run.completed"}`, false},
		{"torn after the end", []events.Event{{Type: events.RunCompleted}}, `{"seq"`, false},
		{"damaged", []events.Event{{Type: events.RunStarted}}, "oops\n", false},
		{"long before the end", []events.Event{{Type: events.TaskFailed, Data: &events.Data{Message: long}}, {Type: events.RunFailed}}, "", true},
		{"long end", []events.Event{{Type: events.RunStarted}, {Type: events.RunFailed, Data: &events.Data{Message: long}}}, "", true},
		{"only a long end", []events.Event{{Type: events.RunFailed, Data: &events.Data{Message: long}}}, "", true},
		{"long last, not the end", []events.Event{{Type: events.TaskFailed, Data: &events.Data{Message: long}}}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := mem.New()
			log := events.Create(s, ws, runID, fixed)
			for _, e := range test.events {
				log.Emit(e)
			}
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			if test.tail != "" {
				write(t, s, test.tail)
			}
			got, err := events.Ended(t.Context(), s, ws, runID)
			if err != nil || got != test.want {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

// A store that cannot be read is an error, not an empty log.
func TestStoreFails(t *testing.T) {
	broken := errors.New("input/output error")
	s := &unreadable{Store: mem.New(), err: broken}
	if _, err := readAll(t, s); !errors.Is(err, broken) {
		t.Errorf("Read: %v", err)
	}
	if _, err := events.Ended(t.Context(), s, ws, runID); !errors.Is(err, broken) {
		t.Errorf("Ended: %v", err)
	}
	if _, err := events.Resume(t.Context(), s, ws, runID, fixed, nil); !errors.Is(err, broken) {
		t.Errorf("Resume: %v", err)
	}
	for _, err := range events.Follow(t.Context(), s, ws, runID) {
		if !errors.Is(err, broken) {
			t.Errorf("Follow: %v", err)
		}
	}
}

var _ refstore.Streams = (*unreadable)(nil)
