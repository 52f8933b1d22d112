package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// elapsed is the time since boot, including sleep.
func elapsed() func() time.Duration {
	start := time.Now()
	return func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil { // a kernel before 2.6.39
			return time.Since(start)
		}
		return time.Duration(t.Nano())
	}
}
