package human

import (
	"fmt"
	"time"
)

// Heard says when a process on another host last renewed its session, by that host's clock, which may differ. It is ""
// for a process that is known to live, whose time is zero.
func Heard(at time.Time, lease time.Duration, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	ago := max(now.Sub(at), 0)
	text := fmt.Sprintf("heard of %s ago", Seconds(ago))
	if ago > lease {
		return fmt.Sprintf("last %s, longer than its lease of %s", text, Seconds(lease))
	}
	return text
}

// Unheard is Heard for a process that has missed a heartbeat; there are three in the duration of a lease. It is "" for
// any other.
func Unheard(at time.Time, lease time.Duration, now time.Time) string {
	if now.Sub(at) <= lease*2/3 {
		return ""
	}
	return Heard(at, lease, now)
}
