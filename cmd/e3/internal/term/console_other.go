//go:build !windows

package term

import "os"

// sequences tells whether a terminal understands control sequences.
func sequences(*os.File) bool { return true }
