package events_test

import (
	"errors"
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/refstore/mem"
)

// A caller that stops after a few events gets them however the log goes on.
func TestHead(t *testing.T) {
	for _, test := range []struct {
		name, tail string
		want       int
	}{
		{"whole", "", 3},
		{"torn", `{"seq":4,"ty`, 3},
		{"damaged", "oops\n" + `{"seq":5,"run":"` + runID + `","type":"t"}` + "\n", 3},
		{"a gap", `{"seq":5,"run":"` + runID + `","type":"t"}` + "\n", 3},
		{"long", `{"seq":4,"run":"` + runID + `","type":"t","worker":"` + strings.Repeat("x", 5000) + `"}` + "\n", 4},
		{"too long", `{"seq":4,"run":"` + runID + `","type":"t","worker":"` + strings.Repeat("x", 2<<20) + `"}` + "\n", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := finished(t, events.RunStarted, events.TaskCreated, events.TaskStarted)
			write(t, s, eventstest.Summed(test.tail))
			n := 0
			for e, err := range events.Read(t.Context(), s, ws, runID) {
				if errors.As(err, new(*events.DamagedError)) {
					break
				}
				if n++; err != nil || e.Seq != int64(n) {
					t.Fatalf("event %d is %+v, %v", n, e, err)
				}
			}
			if n != test.want {
				t.Errorf("%d events, want %d", n, test.want)
			}
			if e, err := events.First(t.Context(), s, ws, runID); err != nil || e.Seq != 1 {
				t.Errorf("the first event is %+v, %v", e, err)
			}
		})
	}
	if e, err := events.First(t.Context(), mem.New(), ws, runID); e != nil || err != nil {
		t.Errorf("a run without events has %+v, %v", e, err)
	}
}
