package main

import (
	"runtime"
	"runtime/debug"
)

const (
	// seldom is the garbage collector's percentage at first: the first collection comes at 16 MiB, and most commands end
	// before that.
	seldom = 400

	// often keeps the memory of a large graph small.
	often = 40
)

// collectOften makes the garbage collector keep memory small from the first collection on, for commands whose memory grows
// with the graph. A small graph still sees no collection: often alone would have one at each 2 MiB, which take a tenth of the
// processor time that a start with ten short tasks needs.
func collectOften() {
	var stats debug.GCStats
	if debug.ReadGCStats(&stats); stats.NumGC > 0 {
		debug.SetGCPercent(often)
		return
	}
	sentinel := new([64]byte)
	runtime.AddCleanup(sentinel, func(percent int) { debug.SetGCPercent(percent) }, often)
}
