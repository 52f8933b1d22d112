package main

import (
	"testing"
	"time"
)

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	a := newApp()
	a.Now = func() time.Time { return now }
	for _, test := range []struct {
		text string
		want time.Time // zero: refused
	}{
		{"2h", now.Add(-2 * time.Hour)},
		{"1w", now.Add(-7 * 24 * time.Hour)},
		{"2026-11-19", time.Date(2026, 11, 19, 0, 0, 0, 0, time.Local)},
		{"2026-11-19T08:30", time.Date(2026, 11, 19, 8, 30, 0, 0, time.Local)},
		{"2026-11-19 08:30:01", time.Date(2026, 11, 19, 8, 30, 1, 0, time.Local)},
		{"2026-11-19T08:30:01.5Z", time.Date(2026, 11, 19, 8, 30, 1, 5e8, time.UTC)},
		{"yesterday", time.Time{}},
		{"2026-13-01", time.Time{}},
		{"-2h", time.Time{}},
	} {
		t.Run(test.text, func(t *testing.T) {
			got, err := parseMoment(a, "since", test.text)
			if (err != nil) != test.want.IsZero() || !got.Equal(test.want) {
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			}
		})
	}
}
