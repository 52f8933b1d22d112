//go:build !unix

package executions

import "os"

// lockFile does nothing: on this system no other process can finish an execution.
func lockFile(*os.File) (elsewhere bool) { return false }
