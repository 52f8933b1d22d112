package events_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/mem"
)

// opened counts the logs of runs that are looked at.
type opened struct {
	*mem.Store
	runs map[string]bool
}

func (o *opened) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	o.runs[key.String()] = true
	return o.Store.Open(ctx, key, offset)
}

// Reading from a time on yields what the workspace's journal has, each event with its cursor, and looks at no log of a
// run that ended before, whatever their number.
func TestReadRecordedSince(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := &opened{Store: mem.New(), runs: map[string]bool{}}
	ctx := t.Context()
	runs := 0
	run := func() string {
		id := fmt.Sprintf("%08x-%04x-7000-8000-%012d", now.UnixMilli()>>16, now.UnixMilli()&0xffff, runs)
		runs++
		if _, err := events.RecordRun(ctx, s, ws, id, clock, 0); err != nil {
			t.Fatal(err)
		}
		log := events.Create(s, ws, id, clock)
		log.Emit(events.Event{Type: events.RunStarted})
		now = now.Add(time.Minute)
		log.Emit(events.Event{Type: events.RunCompleted})
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := events.AppendJournal(ctx, s, ws, clock, events.Event{Type: "block.approved", Task: "t"}); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
		return id
	}
	for range 50 {
		run()
	}
	now = now.Add(24 * time.Hour)
	since := now
	latest := []string{run(), run()}
	for _, follow := range []bool{false, true} {
		s.runs = map[string]bool{}
		ctx, cancel := context.WithCancel(ctx)
		var got []string
		f := events.Filter{Workspace: ws, Since: since}
		for e, err := range events.ReadRecorded(ctx, s, f, events.RecordedOptions{Follow: follow}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := events.ParseCursor(e.Cursor); err != nil {
				t.Errorf("event %v: %v", e, err)
			}
			if got = append(got, fmt.Sprint(e.Run, " ", e.Type)); len(got) == 6 {
				break
			}
		}
		cancel()
		var want []string
		for _, id := range latest {
			want = append(want, " block.approved", id+" run.started", id+" run.completed") // what the journal had meanwhile comes first
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		n := 0
		for key := range s.runs {
			if !strings.HasPrefix(key, "JOURNAL/") {
				n++
			}
		}
		if n > 4 {
			t.Errorf("%d logs are looked at: %v", n, s.runs)
		}
	}
}
