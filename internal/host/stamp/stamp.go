// Package stamp decides whether unchanged times prove that a file is unchanged. File systems keep times in steps, from
// nanoseconds to two seconds. A change within the same step as a read does not change the times.
package stamp

import "time"

// tick is longer than the step of the clock from which kernels take the times of files.
const tick = int64(20 * time.Millisecond)

// Settled reports whether every later change of a file would change its times. seen is the time at which the times were
// read; modified and changed are the times of the content and of the file's status, 0 if unknown. All are nanoseconds
// since 1970.
func Settled(seen, modified, changed int64) bool { return Settles(modified, changed) < seen }

// Settles returns the time from which on the file's times, when read, are Settled.
func Settles(modified, changed int64) int64 {
	kernels := changed // programs can set the modification time
	if kernels == 0 {
		kernels = modified
	}
	return max(modified, changed) + Step(kernels) + tick
}

// Step estimates the resolution of a file system from one of its times: twice the greatest unit of which the time is a
// multiple, because vfat counts in steps of two seconds. 0 means a resolution finer than a tick of the clock. If a
// precise time looks coarse by chance, the only cost is another read of the file.
func Step(t int64) int64 {
	for unit := int64(time.Second); unit >= int64(10*time.Millisecond); unit /= 10 {
		if t%unit == 0 {
			return 2 * unit
		}
	}
	return 0
}
