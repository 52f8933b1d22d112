// Package stamp says what the times of a file prove. File systems keep times in steps, of nanoseconds or of up to two
// seconds. A change within the step in which a file was read leaves the times as they are.
package stamp

import "time"

// tick is more than the step of the clock from which kernels take the times of files.
const tick = int64(20 * time.Millisecond)

// Settled reports whether a file that had these times at the moment seen gets another time if it is changed after
// that. All are nanoseconds since 1970; modified and changed are the times of the content and of the file's status, 0
// if unknown.
func Settled(seen, modified, changed int64) bool {
	kernels := changed // programs can set the other one
	if kernels == 0 {
		kernels = modified
	}
	return max(modified, changed)+Step(kernels)+tick < seen
}

// Step is how coarse the times of the file system may be that gave a file this one: twice the greatest unit of which
// the time is a multiple, since on vfat times are pairs of whole seconds. 0 stands for steps below a tick of the
// clock. If a fine time looks coarse by chance, the file is only read once more.
func Step(t int64) int64 {
	for unit := int64(time.Second); unit >= int64(10*time.Millisecond); unit /= 10 {
		if t%unit == 0 {
			return 2 * unit
		}
	}
	return 0
}
