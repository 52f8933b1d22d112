package cached

import (
	"time"

	"golang.org/x/sys/unix"
)

// booted returns the time at which this machine started, by its present clock.
func booted(now time.Time) time.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return now
	}
	return now.Add(-time.Duration(up.Nano()))
}
