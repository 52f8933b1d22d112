package human

import (
	"math"
	"testing"
	"time"
)

// TestHeard: whatever the clocks show, the status of a process on another host is well-formed and never has a time in
// the future.
func TestHeard(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		ago            time.Duration
		heard, unheard string
	}{
		{-time.Hour, "heard of 0s ago", ""},
		{3 * time.Second, "heard of 3s ago", ""},
		{10 * time.Second, "heard of 10s ago", ""},
		{11 * time.Second, "heard of 11s ago", "heard of 11s ago"},
		{15 * time.Second, "heard of 15s ago", "heard of 15s ago"},
		{61 * time.Second, "last heard of 1m01s ago, longer than its lease of 15s", "last heard of 1m01s ago, longer than its lease of 15s"},
		{math.MaxInt64, "last heard of 2562047h47m ago, longer than its lease of 15s", "last heard of 2562047h47m ago, longer than its lease of 15s"},
	} {
		at, lease := now.Add(-tt.ago), 15*time.Second
		if heard, late := Heard(at, lease, now), Unheard(at, lease, now); heard != tt.heard || late != tt.unheard {
			t.Errorf("%v ago: got %q and %q, want %q and %q", tt.ago, heard, late, tt.heard, tt.unheard)
		}
	}
	if heard, late := Heard(time.Time{}, 0, now), Unheard(time.Time{}, 0, now); heard != "" || late != "" {
		t.Errorf("nothing is known: got %q and %q, want nothing", heard, late)
	}
}
