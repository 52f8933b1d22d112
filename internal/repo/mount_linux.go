package repo

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// mountID identifies one mount of the file system that holds path among all since the machine started; "" if the
// kernel's ids recur.
func mountID(path string) string {
	const unique = 0x4000 // STATX_MNT_ID_UNIQUE, since Linux 6.8
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unique, &st); err != nil || st.Mask&unique == 0 {
		return ""
	}
	return strconv.FormatUint(st.Mnt_id, 16)
}

// sameMount reports whether a file can be renamed from one folder into the other, as far as mounts decide that.
func sameMount(a, b string) bool {
	var at, to unix.Statx_t
	return unix.Statx(unix.AT_FDCWD, a, 0, unix.STATX_MNT_ID, &at) == nil && unix.Statx(unix.AT_FDCWD, b, 0, unix.STATX_MNT_ID, &to) == nil &&
		at.Mnt_id == to.Mnt_id && at.Dev_major == to.Dev_major && at.Dev_minor == to.Dev_minor
}
