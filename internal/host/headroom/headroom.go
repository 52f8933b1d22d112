// Package headroom tells whether the limits of a process leave enough memory and threads for the Go runtime. If the
// runtime gets no memory or no thread, it ends the process with the stacks of all goroutines and exit code 2, and
// nothing can catch that.
//
// A program that imports it checks the limits before the initialisation of packages that need memory and threads. If
// they are too low, the program ends with one sentence and exit code 1.
package headroom

import (
	"fmt"
	"os"
)

const (
	// memory is the memory that a run of 10,000 tasks maps beside its threads.
	memory = 128 << 20
	// few is the number of threads of a process that runs no command, beside the first ones.
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
