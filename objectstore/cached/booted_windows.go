package cached

import (
	"time"

	"golang.org/x/sys/windows"
)

// booted returns when this machine started, as its clock has it now.
func booted(now time.Time) time.Time { return now.Add(-windows.DurationSinceBoot()) }
