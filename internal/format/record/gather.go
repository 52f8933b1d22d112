package record

import (
	"errors"
	"fmt"

	"e3/internal/format/codec"
	"e3/internal/format/notation"
)

// A fan-in can come with a manifest, a JSON file that lists its members. Then it may also lack some members.

// Gather describes how a fan-in with a manifest gathers its members.
type Gather struct {
	Need   notation.Need
	Names  []string // names of the values of an item
	Values []string // values of all items in their order, for each item as many as there are names
}

// ValuesOf returns the values of an item of the fan-in, in the order of the names.
func (g *Gather) ValuesOf(item int) []string {
	n := len(g.Names)
	return g.Values[item*n : (item+1)*n]
}

// Tolerates reports whether members may be left out of a fan-in.
func (w *Wire) Tolerates() bool { return w.Gather != nil && w.Gather.Need.Kind != notation.NeedAll }

// readBetween reads a number, and refuses one outside of the range.
func readBetween(r *codec.Reader, what string, low, high int64) int64 {
	at := r.Offset()
	n := r.Integer()
	if n < low || n > high {
		r.Failf(at, "%s: %d is out of range", what, n)
		return 0
	}
	return n
}

// checkManifests refuses wires in which a manifest does not directly follow its fan-in.
func (t *PackageTask) checkManifests() error {
	for j := range t.Wiring {
		follows := j > 0 && t.Wiring[j-1].Gather != nil
		if (t.Wiring[j].Kind == WireManifest) != follows {
			return fmt.Errorf("wire %d: a manifest follows its fan-in, and nothing else does", j)
		}
	}
	if n := len(t.Wiring); n > 0 && t.Wiring[n-1].Gather != nil {
		return errors.New("the manifest of the last fan-in is missing")
	}
	return nil
}
