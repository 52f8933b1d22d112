package workspace

import "time"

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
