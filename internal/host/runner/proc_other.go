//go:build !linux

package runner

// KillMarked kills the processes of this user with one of the markers in the environment with which they were
// started, where the system shows environments: only Linux does.
func KillMarked([]string) {}

// Occupied returns the entries of a folder in which a process other than this one works or has a file open: unknown
// here.
func Occupied(string) (entries map[string]bool, known bool) { return nil, false }

// Occupants looks for processes that have something open; here it cannot.
type Occupants struct{}

// In returns false.
func (*Occupants) In(string) (entries map[string]bool, known bool) { return nil, false }
