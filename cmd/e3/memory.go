package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// seldom is the garbage collector's percentage at first: the first collection comes at 16 MiB, and most commands end
	// before that.
	seldom = 400

	// often keeps the memory of a large graph small.
	often = 40

	// roomy is the size of the heap below which no later collection is due. The first one has come later than that, so it
	// costs no memory.
	roomy = 8 << 20
)

// collectOften makes the garbage collector keep memory small from the first collection on, for commands whose memory grows
// with the graph. A small graph sees few collections: often alone would have one at each 2 MiB, which take a tenth of the
// processor time that a start with ten short tasks needs.
func collectOften() {
	var stats debug.GCStats
	if debug.ReadGCStats(&stats); stats.NumGC > 0 {
		collectAt(percentFor(liveHeap()))
		return
	}
	afterCollection(seldom)
}

// afterCollection adapts the percentage, which is now percent, after the next collection.
func afterCollection(percent int) {
	sentinel := new([64]byte)
	runtime.AddCleanup(sentinel, func(old int) {
		if next := percentFor(liveHeap()); next < old*4/5 || next > old*5/4 {
			collectAt(next)
		} else {
			afterCollection(old)
		}
	}, percent)
}

func collectAt(percent int) {
	debug.SetGCPercent(percent)
	afterCollection(percent)
}

// percentFor is the percentage by which the next collection comes at roomy, or after a growth by often. live is the
// number of bytes that the latest collection has left.
func percentFor(live uint64) int {
	if live == 0 {
		return seldom
	}
	return min(max((roomy-int(min(live, roomy)))*100/int(live), often), 100*seldom)
}

// liveHeap is the number of bytes that the latest collection has left.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return roomy
	}
	return sample[0].Value.Uint64()
}
