package rootfs

import (
	"time"

	"golang.org/x/sys/unix"
)

// setLinkTime sets the time of a symbolic link itself.
func setLinkTime(path string, at time.Time) error {
	t, err := unix.TimeToTimespec(at)
	if err != nil {
		return invalid("time %v", at)
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}
