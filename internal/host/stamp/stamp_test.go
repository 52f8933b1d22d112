package stamp_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/host/stamp"
)

// TestSettledOnCoarseFileSystems simulates writes at random times, on file systems with random resolutions. Two
// contents never have the same settled stamp.
func TestSettledOnCoarseFileSystems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		step := rapid.SampledFrom([]time.Duration{
			1, 100, time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second,
		}).Draw(t, "step")
		kernel := rapid.SampledFrom([]time.Duration{1, time.Millisecond, 4 * time.Millisecond, 10 * time.Millisecond}).Draw(t, "tick")
		knowsChanges := rapid.Bool().Draw(t, "ctime")
		now := time.Unix(1_800_000_000, rapid.Int64Range(0, 4e9).Draw(t, "start"))
		type look struct {
			at, modified, changed int64
			content               int
		}
		content, modified, changed := 0, now, now
		written := func() time.Time { return now.Truncate(kernel).Truncate(step) }
		var looks []look
		for range rapid.IntRange(2, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.OneOf(rapid.Int64Range(0, 30e6), rapid.Int64Range(0, 3e9)).Draw(t, "pause")))
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				content++
				modified, changed = written(), written()
			case 2: // an editor that keeps the modification time
				if knowsChanges {
					content++
					changed = written()
				}
			default:
				l := look{at: now.UnixNano(), modified: modified.UnixNano(), content: content}
				if knowsChanges {
					l.changed = changed.UnixNano()
				}
				for _, before := range looks {
					same := before.modified == l.modified && before.changed == l.changed
					if same && before.content != l.content && stamp.Settled(before.at, before.modified, before.changed) {
						t.Fatalf("steps of %v: seen at %d with %d: proves another content at %d", step, before.at, before.modified, l.at)
					}
				}
				looks = append(looks, l)
			}
		}
	})
}

func TestSettled(t *testing.T) {
	const at = int64(1_800_000_000_123_456_789)
	second, ms := int64(time.Second), int64(time.Millisecond)
	whole := at - at%second
	for _, test := range []struct {
		name                    string
		seen, modified, changed int64
		want                    bool
	}{
		{"fine times, a tick later", at + 20*ms + 1, at, at, true},
		{"fine times, within a tick", at + 20*ms, at, at, false},
		{"a modification time set by a program", at + 21*ms, whole - second, at, true},
		{"whole seconds, one second later", whole + second + 30*ms, whole, whole, false},
		{"whole seconds, more than two later", whole + 2*second + 20*ms + 1, whole, whole, true},
		{"whole seconds without a time of the status", whole + second + 30*ms, whole, 0, false},
		{"tenths of seconds", whole + 250*ms, whole + 100*ms, whole + 100*ms, false},
		{"in the future", at - second, at, at, false},
		{"no times, as of a missing folder", at, 0, 0, true},
	} {
		if got := stamp.Settled(test.seen, test.modified, test.changed); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
