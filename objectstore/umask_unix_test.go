//go:build unix

package objectstore_test

import "syscall"

func setUmask(mask int) { syscall.Umask(mask) }
