package cached

import (
	"time"

	"golang.org/x/sys/unix"
)

// booted returns when this machine started.
func booted(now time.Time) time.Time {
	at, err := unix.SysctlTimeval("kern.boottime")
	if err != nil {
		return now
	}
	return time.Unix(at.Unix())
}
