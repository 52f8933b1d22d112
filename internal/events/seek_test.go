package events_test

import (
	"bytes"
	"errors"
	"testing"

	"e3/internal/events"
	"e3/refstore/mem"
)

// From any number on, a query and a follower of a large log yield the rest of it, even if a line is damaged.
func TestFromNumber(t *testing.T) {
	const n = 3000
	s := mem.New()
	large(t, s, ws, runID, n)
	end, err := events.AppendLine(nil, &events.Event{Seq: n + 1, Time: epoch, Run: runID, Workspace: ws, Type: events.RunFailed})
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, string(end))
	damaged := mem.New()
	text := raw(t, s)
	text[bytes.IndexByte(text[len(text)/2:], '\n')+len(text)/2+1] = '?' // the first place that seek reads
	put(t, damaged, ws, runID, text)
	for _, from := range []int64{1, 2, 3, 100, 101, n / 2, n - 200, n - 1, n, n + 1, n + 2} {
		f := events.Filter{Workspace: ws, Run: runID, FromSeq: from}
		next := from
		for e, err := range events.Query(t.Context(), s, f) {
			if err != nil || e.Seq != next {
				t.Fatalf("from %d: got event %d, %v when %d was due", from, e.Seq, err, next)
			}
			next++
		}
		if next != max(n+2, from) {
			t.Errorf("from %d: the question ended before event %d", from, next)
		}
		next = from
		for e, err := range events.FollowRun(t.Context(), s, f, nil) {
			if err != nil || e.Seq != next {
				t.Fatalf("from %d: the follower got event %d, %v when %d was due", from, e.Seq, err, next)
			}
			next++
		}
		if next != max(n+2, from) {
			t.Errorf("from %d: the follower ended before event %d", from, next)
		}
		last := events.Filter{Workspace: ws, Run: runID, Last: int(n + 2 - min(from, n+1))}
		next = min(from, n+1)
		for e, err := range events.FollowRun(t.Context(), s, last, nil) {
			if err != nil || e.Seq != next {
				t.Fatalf("the last %d: the follower got event %d, %v when %d was due", last.Last, e.Seq, err, next)
			}
			next++
		}
		if next != n+2 {
			t.Errorf("the last %d: the follower ended before event %d", last.Last, next)
		}
		got := int64(0)
		for _, err := range events.Query(t.Context(), damaged, f) {
			var damage *events.DamagedError
			if err != nil && !errors.As(err, &damage) {
				t.Fatal(err)
			}
			if err == nil {
				got++
			}
		}
		if want := max(n+2-from, 0); got != want && got != want-1 {
			t.Errorf("from %d of a damaged log: %d events, want %d, or one less", from, got, want)
		}
	}
}
