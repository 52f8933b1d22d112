package record

import (
	"math"
	"unsafe"

	"e3/internal/format/beast2"
	"e3/internal/format/notation"
)

// A fan-in can come with a manifest: a JSON file that says what is in it. Then it can also do with some of its members.

// Gather is how a fan-in gathers that has a manifest.
type Gather struct {
	Need   notation.Need
	Names  []string // of the values of an item
	Values []string // of all items in their order, for each as many as there are names
}

// ValuesOf returns the values of an item of the fan-in, in the order of the names.
func (g *Gather) ValuesOf(item int) []string {
	n := len(g.Names)
	return g.Values[item*n : (item+1)*n]
}

// Tolerates reports whether members may be left out of a fan-in.
func (w *Wire) Tolerates() bool { return w.Gather != nil && w.Gather.Need.Kind != notation.NeedAll }

func gatherType() beast2.Type {
	need := beast2.Variant(beast2.F("all", beast2.Null), beast2.F("count", beast2.Integer), beast2.F("share", beast2.Integer))
	strs := beast2.Array(beast2.String)
	return beast2.Struct(beast2.F("need", need), beast2.F("names", strs), beast2.F("values", strs))
}

func appendGather(b []byte, g *Gather) []byte {
	if g == nil {
		return append(b, 0)
	}
	b = beast2.AppendVarint(append(b, 1), uint64(g.Need.Kind))
	if g.Need.Kind != notation.NeedAll {
		b = beast2.AppendInteger(b, g.Need.N)
	}
	return appendStrings(appendStrings(b, g.Names), g.Values)
}

func readGather(r *beast2.Reader, a *allowance, items int) *Gather {
	if r.Tag(2) == 0 {
		return nil
	}
	at := r.Offset()
	a.spend(r, unsafe.Sizeof(Gather{}))
	g := &Gather{Need: notation.Need{Kind: notation.NeedKind(r.Tag(3))}}
	switch g.Need.Kind {
	case notation.NeedCount:
		g.Need.N = readBetween(r, "need", 0, math.MaxInt32)
	case notation.NeedShare:
		g.Need.N = readBetween(r, "need", 1, notation.WholeShare)
	}
	g.Names, g.Values = a.strings(r), a.strings(r)
	if r.Err() == nil && len(g.Values) != items*len(g.Names) {
		r.Failf(at, "manifest of %d items has %d values of %d names", items, len(g.Values), len(g.Names))
	}
	return g
}

// checkManifests checks that each manifest follows its fan-in, and that each fan-in with a manifest is followed by it.
func checkManifests(r *beast2.Reader, at int, wires []Wire) {
	for j := range wires {
		follows := j > 0 && wires[j-1].Gather != nil
		if (wires[j].Kind == WireManifest) != follows {
			r.Failf(at, "wire %d: a manifest follows its fan-in, and nothing else does", j)
			return
		}
	}
	if n := len(wires); n > 0 && wires[n-1].Gather != nil {
		r.Failf(at, "the manifest of the last fan-in is missing")
	}
}
