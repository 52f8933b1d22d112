//go:build !linux || !(amd64 || arm64)

package room

import "e3/internal/host/beneath"

func (e *Error) advice() string { return "they exist on Linux, for amd64 and arm64" }

// Hidden covers nothing: there are no rooms.
func Hidden(...string) ([]string, error) { return nil, nil }

// Shows reports false: there are no rooms.
func Shows(string, []string) bool { return false }

// RootFiles are none: there are no rooms.
func RootFiles() map[string]string { return nil }

// Accounts are none: there are no rooms.
func Accounts() map[string]string { return nil }

// Possible reports whether this system can have closed rooms.
func Possible() bool { return false }

// HidesAbstractSockets reports whether a room with Network keeps the abstract sockets of this machine out of reach.
func HidesAbstractSockets() bool { return false }

// Unmark finds no marks: there are no rooms.
func Unmark(*beneath.Dir, string) error { return nil }

// Hides reports false: there are no rooms.
func Hides(*beneath.Dir, string) bool { return false }

// Gone reports false: there are no rooms.
func Gone(*beneath.Dir, string) bool { return false }
