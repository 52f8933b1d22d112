// Package stamp is the one place that says what the times of a file prove. File systems keep times in steps, of nanoseconds or of
// up to two seconds, and a change within the step in which a file was looked at leaves the times as they are.
package stamp

import "time"

// tick is more than the step of the clock from which kernels take the times of files.
const tick = int64(20 * time.Millisecond)

// Settled tells whether a file that had these times when it was looked at, at seen, shows another time if it is changed after that.
// All are nanoseconds since 1970; modified and changed are those of the content and of the file's status, 0 where one is not known.
func Settled(seen, modified, changed int64) bool {
	kernels := changed // programs choose the other one as they like
	if kernels == 0 {
		kernels = modified
	}
	return max(modified, changed)+Step(kernels)+tick < seen
}

// Step is how coarse the times of the file system may be that has given a file this one: twice the greatest unit of which the time is a
// multiple, so that whole seconds may be pairs of them, as on vfat. 0 stands for steps below a tick of the clock. That a fine time looks
// coarse by chance costs another look at the file, nothing else.
func Step(t int64) int64 {
	for unit := int64(time.Second); unit >= int64(10*time.Millisecond); unit /= 10 {
		if t%unit == 0 {
			return 2 * unit
		}
	}
	return 0
}
