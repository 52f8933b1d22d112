// Package headroom says whether the limits of a process leave the Go runtime what it will ask of the system. Where the runtime gets
// no memory or no thread it ends the process with the stacks of all goroutines and exit code 2, and nothing can catch that.
//
// A program that imports it looks at the limits before packages that cost memory and threads begin, and ends with one sentence and
// exit code 1.
package headroom

import (
	"fmt"
	"os"
)

const (
	// memory is what a run of 10,000 tasks maps beside its threads.
	memory = 128 << 20
	// few threads are those of a process that runs no command, beside the first ones.
	few = 16
)

func init() {
	err := forMemory()
	if err == nil {
		err = Threads(few)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e3:", err)
		os.Exit(1)
	}
}
