package workspace

import (
	"fmt"
	"time"

	"e3/dataflow"
)

// Recalls reports whether what was found at a time, and took so long, still counts now. same: nothing of the workspace has
// changed.
func Recalls(found time.Time, took time.Duration, now time.Time, same, live bool) bool {
	m := &freshnessMemory{of: map[string]*knownFreshness{}}
	m.keep("w", &knownFreshness{run: "first", found: found, took: took})
	want := &knownFreshness{run: "first"}
	if !same {
		want.run = "second"
	}
	return m.recall("w", now, want, live) != nil
}

// Remembered is the number of workspaces of which answers are kept, after one about each of n, with so many outputs each.
func Remembered(n, outputsEach int) int {
	m := &freshnessMemory{of: map[string]*knownFreshness{}}
	of := map[string]dataflow.Freshness{}
	for i := range outputsEach {
		of[fmt.Sprint(i)] = dataflow.Current
	}
	for i := range n {
		m.keep(fmt.Sprint("w", i), &knownFreshness{found: time.Unix(int64(i), 0), outputs: outputs{of: of}})
	}
	return len(m.of)
}
