package main

import (
	"strings"
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
	return time.Time{}, usagef("--%s: %q is neither a duration like 2h or 7d nor a time like 2026-11-20 or 2026-11-20T15:04%s", flag, text, likelyMoment(a, text))
}

// likelyMoment ends a message with what a time in another notation probably means.
func likelyMoment(a *app, text string) string {
	word := strings.ToLower(strings.TrimSpace(text))
	likely := ""
	switch word {
	case "today":
		likely = a.Now().Format(time.DateOnly)
	case "yesterday":
		likely = a.Now().AddDate(0, 0, -1).Format(time.DateOnly)
	default:
		past := strings.TrimSpace(strings.TrimSuffix(word, "ago"))
		if likely = notation.LikelyDuration(past); likely == "" && past != word {
			if _, err := notation.DurationOf(past); err == nil {
				likely = past
			}
		}
	}
	for _, layout := range []string{"2006/1/2", "1/2/2006", "2.1.2006", "2006.1.2"} {
		if t, err := time.Parse(layout, word); err == nil && likely == "" {
			likely = t.Format(time.DateOnly)
		}
	}
	if likely == "" {
		return ""
	}
	return " (did you mean " + likely + "?)"
}
