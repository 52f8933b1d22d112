package main

import "testing"

// A small heap may grow to 8 MiB before the next collection, and a large one by two fifths.
func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: seldom, 1 << 20: 700, 4 << 20: 100, 6 << 20: often, 8 << 20: often, 1 << 40: often, 1: 100 * seldom} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d bytes the percentage is %d, want %d", live, got, want)
		}
	}
}
