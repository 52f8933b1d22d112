package events_test

import (
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/refstore/mem"
)

func TestHead(t *testing.T) {
	for _, test := range []struct {
		name, tail string
		want       int
	}{
		{"whole", "", 3},
		{"torn", `{"seq":4,"ty`, 3},
		{"damaged", "oops\n" + `{"seq":5,"run":"r","type":"t"}` + "\n", 3},
		{"a gap", `{"seq":5,"run":"r","type":"t"}` + "\n", 3},
		{"long", `{"seq":4,"run":"r","type":"t","worker":"` + strings.Repeat("x", 5000) + `"}` + "\n", 4},
		{"too long", `{"seq":4,"run":"r","type":"t","worker":"` + strings.Repeat("x", 2<<20) + `"}` + "\n", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := finished(t, events.RunStarted, events.TaskCreated, events.TaskStarted)
			write(t, s, eventstest.Summed(test.tail))
			n := 0
			for e, err := range events.Head(t.Context(), s, ws, runID) {
				if n++; err != nil || e.Seq != int64(n) {
					t.Fatalf("event %d is %+v, %v", n, e, err)
				}
			}
			if n != test.want {
				t.Errorf("%d events, want %d", n, test.want)
			}
			for range events.Head(t.Context(), s, ws, runID) {
				break
			}
		})
	}
	for range events.Head(t.Context(), mem.New(), ws, runID) {
		t.Error("a run without events has one")
	}
}
