//go:build !linux

package repo

import "syscall"

// sameDevice reports whether two folders are on one file system.
func sameDevice(a, b string) bool {
	var at, to syscall.Stat_t
	return syscall.Stat(a, &at) == nil && syscall.Stat(b, &to) == nil && at.Dev == to.Dev
}
