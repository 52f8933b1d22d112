package main

import (
	"strings"
	"testing"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/gc"
	"e3/internal/format/moment"
)

func TestGCText(t *testing.T) {
	noon := time.Date(2024, 5, 1, 12, 0, 0, 0, time.Local)
	report := gc.Report{
		Collected: gc.Amount{Objects: 1234, Bytes: 5 << 30}, Live: gc.Amount{Objects: 56789, Bytes: 12 << 30},
		Young: gc.Amount{Objects: 12, Bytes: 3 << 20}, Sessions: 1, OldestSession: moment.At(noon.Add(-89 * time.Minute)),
	}
	for _, tt := range []struct {
		name   string
		whole  bool
		change func(r *gc.Report)
		want   string
	}{
		{"one session", true, func(*gc.Report) {},
			"Removed 1,234 objects (5.0 GiB); kept 56,789 (12.0 GiB); 12 (3.0 MiB) are too young: a session is open since 10:31\n"},
		{"several sessions", true, func(r *gc.Report) { r.Sessions, r.OldestSession = 3, moment.At(noon.Add(-24*time.Hour)) },
			"Removed 1,234 objects (5.0 GiB); kept 56,789 (12.0 GiB); 12 (3.0 MiB) are too young: 3 sessions are open, the oldest since 2024-04-30 12:00:00\n"},
		{"no session", true, func(r *gc.Report) { r.Sessions, r.Young.Objects = 0, 1 },
			"Removed 1,234 objects (5.0 GiB); kept 56,789 (12.0 GiB); 1 (3.0 MiB) is too young: stored just now\n"},
		{"no session, far away", true, func(r *gc.Report) { r.Sessions, r.Grace = 0, 5*time.Minute },
			"Removed 1,234 objects (5.0 GiB); kept 56,789 (12.0 GiB); 12 (3.0 MiB) are too young: stored in the last 5 minutes\n"},
		{"leftovers far away", false, func(r *gc.Report) { r.Leftovers, r.Grace = 2, 5*time.Minute },
			"Removed 1,234 objects (5.0 GiB)\nRemoved 2 things that crashes had left\n"},
		{"dry run", true, func(r *gc.Report) { r.DryRun, r.Collected.Objects, r.Young = true, 1, gc.Amount{} },
			"Would remove 1 object (5.0 GiB); keep 56,789 (12.0 GiB)\n"},
		{"cut off", false, func(r *gc.Report) { r.Leftovers = 2 },
			"Removed 1,234 objects (5.0 GiB)\nRemoved 2 folders of executions without a record\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := report
			tt.change(&r)
			var b strings.Builder
			writeCollected(&render.Sheet{Writer: &b}, &r, noon, tt.whole)
			if b.String() != tt.want {
				t.Errorf("got  %q\nwant %q", b.String(), tt.want)
			}
		})
	}
}
