//go:build !linux

package lease

import "time"

// elapsed is the monotonic clock. If that stops while the machine sleeps, a session learns of its loss from its record.
func elapsed() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}
