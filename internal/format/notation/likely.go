package notation

import (
	"strings"

	"e3/internal/format/pattern"
)

var (
	amounts = pattern.Of(`([0-9]+(?:\.[0-9]+)?)([a-z]*)`)
	only    = pattern.Of(`^(?:[0-9]+(?:\.[0-9]+)?[a-z]*)+$`)
)

// unitWords are the units of durations by the words that people write for them.
var unitWords = map[string]string{
	"ms": "ms", "msec": "ms", "milliseconds": "ms",
	"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
	"m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
	"h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
	"d": "d", "day": "d", "days": "d",
	"w": "w", "wk": "w", "week": "w", "weeks": "w",
}

// below is the unit that is meant by a number without one after another unit, as in 1h30.
var below = map[string]string{"d": "h", "h": "m", "m": "s"}

// LikelyDuration is how [DurationOf] reads what is probably meant by a text that it refuses, such as "5 minutes" or
// "1h30"; "" if that is not clear.
func LikelyDuration(text string) string {
	word := plain(text)
	if !only().MatchString(word) {
		return ""
	}
	var b strings.Builder
	unit := ""
	for _, part := range amounts().FindAllStringSubmatch(word, -1) {
		next, known := unitWords[part[2]]
		if part[2] == "" {
			next, known = below[unit], below[unit] != ""
		}
		if !known {
			return ""
		}
		b.WriteString(part[1] + next)
		unit = next
	}
	likely := b.String()
	if _, ok := parseTime(likely, withWeeks); !ok || likely == text {
		return ""
	}
	return likely
}

// LikelySize is how [ParseSize] reads what is probably meant by a text that it refuses, such as "8 gb" or "8Gi"; "" if
// that is not clear.
func LikelySize(text string) string {
	word := plain(text)
	part := amounts().FindStringSubmatch(word)
	if part == nil || part[0] != word {
		return ""
	}
	for _, u := range sizeUnits {
		name := strings.ToLower(u.suffix)
		if part[2] != "" && (part[2] == name || part[2]+"b" == name) {
			if likely := part[1] + u.suffix; likely != text {
				return likely
			}
		}
	}
	return ""
}

// plain is a text in small letters without spaces.
func plain(text string) string {
	const longest = 40
	if len(text) > longest {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(text), " ", "")
}

// meant ends a message with the likely spelling, if there is one.
func meant(likely string) string {
	if likely == "" {
		return ""
	}
	return "; did you mean " + likely + "?"
}
