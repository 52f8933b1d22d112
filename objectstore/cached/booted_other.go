//go:build !linux && !darwin && !windows

package cached

import "time"

// booted is unknown here, so each process checks the copies of earlier ones once.
func booted(now time.Time) time.Time { return now }
