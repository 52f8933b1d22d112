// Package moment has the types for times and durations in answers, with their form in JSON (doc/json.md). A command's
// answer is one struct with tags, for programs and for people.
package moment

import (
	"encoding/json"
	"strconv"
	"time"
)

// Layout is the form of a time in JSON: UTC, with milliseconds, as in events.
const Layout = "2006-01-02T15:04:05.000Z"

// A Time is a time in an answer. The zero time is null, or absent from a field with omitzero.
type Time struct{ time.Time }

// At is a time of an answer.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON writes the time in Layout.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.UTC().AppendFormat(nil, `"`+Layout+`"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes, and any time of RFC 3339.
func (t *Time) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &t.Time) }

// Millis is a duration that JSON shows in whole milliseconds.
type Millis time.Duration

// Duration returns m as a time.Duration.
func (m Millis) Duration() time.Duration { return time.Duration(m) }

// MarshalJSON writes the milliseconds, rounded down.
func (m Millis) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(m).Milliseconds(), 10), nil
}
