//go:build !linux

package cgroup

import "fmt"

// Check returns ErrUnavailable: only Linux has control groups.
func Check() error { return fmt.Errorf("%w: only Linux has control groups", ErrUnavailable) }

// Sweep does nothing.
func Sweep() {}
