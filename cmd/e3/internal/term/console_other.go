//go:build !windows

package term

import "os"

// sequences reports whether a terminal understands control sequences.
func sequences(*os.File) bool { return true }
