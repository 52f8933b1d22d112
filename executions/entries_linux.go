package executions

import "golang.org/x/sys/unix"

// hasEntries tells whether a directory has exactly n entries. Package os needs three times as many system calls.
func hasEntries(dir string, n int) bool {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buf [4096]byte
	for n >= 0 {
		got, err := unix.ReadDirent(fd, buf[:])
		if err != nil {
			return false
		}
		if got <= 0 {
			return n == 0
		}
		_, count, _ := unix.ParseDirent(buf[:got], -1, nil)
		n -= count
	}
	return false
}
