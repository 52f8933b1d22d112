package record

import (
	"unsafe"

	"e3/internal/format/beast2"
)

// WireKind is the kind of source that feeds an input. The values are the case tags on disk.
type WireKind int

// The kinds of wires.
const (
	WireFanIn    WireKind = iota // a directory made of many tasks' outputs
	WireInput                    // an input of the package
	WireManifest                 // the manifest of the fan-in that is the wire before
	WireOutput                   // a task's output, or one entry of it
)

// Wire feeds one input of a task.
type Wire struct {
	Kind  WireKind
	Name  string    // WireInput: the input. WireOutput: the task
	Entry string    // one entry of the directory, or a path below it; "" for all of it
	Items []FanItem // WireFanIn, in declared order
	// Gather is set for a WireFanIn with a manifest, which is the next wire.
	Gather *Gather
}

// FanItem is one entry of a fan-in directory: the output of a task, or a part of an input.
type FanItem struct {
	Label string
	Task  string
	Entry string // as of a wire
	Input string // in place of Task
}

func wireType() beast2.Type {
	str := beast2.String
	item := beast2.Struct(beast2.F("label", str), beast2.F("task", str), beast2.F("entry", str), beast2.F("input", str))
	return beast2.Variant(
		beast2.F("fanIn", beast2.Struct(beast2.F("items", beast2.Array(item)), beast2.F("gather", beast2.Option(gatherType())))),
		beast2.F("input", beast2.Struct(beast2.F("input", str), beast2.F("entry", str))),
		beast2.F("manifest", beast2.Null),
		beast2.F("output", beast2.Struct(beast2.F("task", str), beast2.F("entry", str))))
}

func appendWire(b []byte, w *Wire) []byte {
	b = beast2.AppendVarint(b, uint64(w.Kind))
	switch w.Kind {
	case WireInput, WireOutput:
		return beast2.AppendString(beast2.AppendString(b, w.Name), w.Entry)
	case WireManifest:
		return b
	}
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(w.Items)))
	for _, it := range w.Items {
		b = beast2.AppendString(beast2.AppendString(b, it.Label), it.Task)
		b = beast2.AppendString(beast2.AppendString(b, it.Entry), it.Input)
	}
	return appendGather(b, w.Gather)
}

// readWiring reads the wires of a task.
func readWiring(r *beast2.Reader, a *allowance, t *PackageTask) {
	at := r.Offset()
	r.Inline()
	if n := a.count(r, 1, unsafe.Sizeof(Wire{})); n > 0 {
		t.Wiring = make([]Wire, n)
	}
	for j := range t.Wiring {
		if t.Wiring[j] = readWire(r, a); r.Err() != nil {
			return
		}
	}
	checkManifests(r, at, t.Wiring)
}

func readWire(r *beast2.Reader, a *allowance) Wire {
	w := Wire{Kind: WireKind(r.Tag(int(WireOutput) + 1))}
	switch w.Kind {
	case WireInput, WireOutput:
		w.Name, w.Entry = r.String(), r.String()
		return w
	case WireManifest:
		return w
	}
	r.Inline()
	if n := a.count(r, 4, unsafe.Sizeof(FanItem{})); n > 0 {
		w.Items = make([]FanItem, n)
	}
	for i := range w.Items {
		at := r.Offset()
		it := FanItem{Label: r.String(), Task: r.String(), Entry: r.String(), Input: r.String()}
		if it.Input != "" && it.Task != "" {
			r.Failf(at, "an entry of a fan-in is a task's or an input's, not both")
		}
		if w.Items[i] = it; r.Err() != nil {
			return w
		}
	}
	w.Gather = readGather(r, a, len(w.Items))
	return w
}
