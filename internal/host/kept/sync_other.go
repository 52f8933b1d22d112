//go:build !linux

package kept

import "golang.org/x/sys/unix"

// syncAll makes the writes durable.
func syncAll(string) error { return unix.Sync() }
