package main

import (
	"time"

	"e3/internal/format/notation"
)

// parseMoment reads a point in time: a duration before now, or a date with or without a time, in local time unless it
// has a zone. "" gives the zero time.
func parseMoment(a *app, flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := notation.DurationOf(text); err == nil {
		return a.Now().Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--%s: %q is neither a duration like 2h or 7d nor a time like 2026-11-20 or 2026-11-20T15:04", flag, text)
}
