package notation_test

import (
	"testing"

	"e3/internal/format/notation"
)

func TestLikely(t *testing.T) {
	for _, test := range []struct {
		text, duration, size string
	}{
		{"5 minutes", "5m", ""},
		{"1h30", "1h30m", ""},
		{"2 Weeks", "2w", ""},
		{"1 day 2 hours", "1d2h", ""},
		{"90sec", "90s", ""},
		{"5m", "", "5MB"}, // right as a duration
		{"30m1h", "", ""},
		{"5", "", ""},
		{"8 GB", "", "8GB"},
		{"8gb", "", "8GB"},
		{"8G", "", "8GB"},
		{"8gi", "", "8GiB"},
		{"1.5 tib", "", "1.5TiB"},
		{"8GB", "", ""},
		{"-8G", "", ""},
		{"8GBB", "", ""},
		{"", "", ""},
		{"lots", "", ""},
	} {
		if got := notation.LikelyDuration(test.text); got != test.duration {
			t.Errorf("LikelyDuration(%q) is %q, want %q", test.text, got, test.duration)
		}
		if got := notation.LikelySize(test.text); got != test.size {
			t.Errorf("LikelySize(%q) is %q, want %q", test.text, got, test.size)
		}
	}
}
