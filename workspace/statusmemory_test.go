package workspace_test

import (
	"testing"
	"time"

	"e3/workspace"
)

// An answer about a workspace counts for a minute; about one that a run changes, for twenty times as long as it took to find.
func TestFreshnessIsRemembered(t *testing.T) {
	found := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after      time.Duration
		same, live bool
		want       bool
	}{
		{after: 0, same: true, want: true},
		{after: 59 * time.Second, same: true, want: true},
		{after: 61 * time.Second, same: true},
		{after: time.Second},
		{after: 9 * time.Second, live: true, want: true},
		{after: 11 * time.Second, live: true},
		{after: 59 * time.Second, live: true, same: true, want: true},
		{after: -time.Second, same: true}, // the clock was set back
	} {
		if got := workspace.Recalls(found, 500*time.Millisecond, found.Add(c.after), c.same, c.live); got != c.want {
			t.Errorf("after %v, same %v, live %v: it counts: %v, want %v", c.after, c.same, c.live, got, c.want)
		}
	}
}

// The memory of a repository with many large workspaces is bounded.
func TestFreshnessIsForgotten(t *testing.T) {
	for _, c := range []struct{ workspaces, outputs, want int }{{50, 100, 50}, {50, 10_000, 12}, {3, 200_000, 1}} {
		if got := workspace.Remembered(c.workspaces, c.outputs); got != c.want {
			t.Errorf("of %d workspaces with %d outputs each, %d are remembered, want %d", c.workspaces, c.outputs, got, c.want)
		}
	}
}
