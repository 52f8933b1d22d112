//go:build !linux && !darwin && !windows

package cached

import "time"

// booted is not known here: what other processes have left is checked once by each.
func booted(now time.Time) time.Time { return now }
