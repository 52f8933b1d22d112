package compare

import (
	"maps"
	"slices"
	"time"
)

// A difference of durations is notable if it is at least half a second and a fifth of the shorter duration.
const (
	notableTime  = 500 * time.Millisecond
	notableShare = 5
)

// durations compares the durations of both sides.
func (c *comparison) durations() Durations {
	d := Durations{Tasks: []Duration{}, RunWasMs: c.was.durationMs(), RunIsMs: c.is.durationMs()}
	for _, name := range slices.Sorted(maps.Keys(c.was.tasks)) {
		was := c.was.tasks[name]
		is, ok := c.is.tasks[name]
		if !ok || !was.ended || !is.ended || was.execution == is.execution {
			continue
		}
		t := Duration{Task: name, WasMs: was.duration.Milliseconds(), IsMs: is.duration.Milliseconds()}
		if t.WasMs > 0 {
			t.Ratio = float64(t.IsMs) / float64(t.WasMs)
		}
		apart, shorter := (was.duration - is.duration).Abs(), min(was.duration, is.duration)
		t.Notable = apart >= notableTime && apart >= shorter/notableShare
		d.Tasks = append(d.Tasks, t)
		d.WasMs, d.IsMs = d.WasMs+t.WasMs, d.IsMs+t.IsMs
	}
	return d
}

// durationMs is the duration of the side's run in milliseconds, 0 where the side is no run or has not ended.
func (d *side) durationMs() int64 {
	if d.CompletedAt.IsZero() || d.StartedAt.IsZero() {
		return 0
	}
	return d.CompletedAt.Sub(d.StartedAt.Time).Milliseconds()
}
