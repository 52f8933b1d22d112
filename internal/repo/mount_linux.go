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
