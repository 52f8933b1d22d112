package cached

import (
	"time"

	"golang.org/x/sys/windows"
)

// booted returns when this machine started, by its present clock.
func booted(now time.Time) time.Time { return now.Add(-windows.DurationSinceBoot()) }
