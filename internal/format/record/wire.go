package record

import (
	"errors"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// WireKind is the kind of source that feeds an input. The values are the case tags on disk.
type WireKind int

// The kinds of wires.
const (
	WireFanIn    WireKind = iota // a directory made of many tasks' outputs
	WireInput                    // an input of the package
	WireManifest                 // the manifest of the previous wire, a fan-in
	WireOutput                   // a task's output, or one entry of it
)

// Wire feeds one input of a task.
type Wire struct {
	Kind  WireKind
	Name  string    // WireInput: the input. WireOutput: the task
	Entry string    // one entry of the directory, or a path below it; "" for the whole directory
	Items []FanItem // WireFanIn, in declared order
	// Gather is set for a WireFanIn with a manifest, which is the next wire.
	Gather *Gather
}

// FanItem is one entry of a fan-in directory: the output of a task, or a part of an input.
type FanItem struct {
	Label string
	Task  string
	Entry string // as in Wire
	Input string // an input, in place of Task
}

// Check refuses an entry with two sources.
func (it *FanItem) Check() error {
	if it.Input != "" && it.Task != "" {
		return errors.New("an entry of a fan-in is a task's or an input's, not both")
	}
	return nil
}

// A fanIn holds the fields of a WireFanIn.
type fanIn struct {
	Items  []FanItem
	Gather *Gather
}

var fanIns = codec.New[fanIn]("fan-in")

// BeastType, AppendBeast and ReadBeast make a Wire part of a record.
func (w *Wire) BeastType() beast2.Type {
	str := beast2.String
	return beast2.Variant(
		beast2.F("fanIn", fanIns.Type()),
		beast2.F("input", beast2.Struct(beast2.F("input", str), beast2.F("entry", str))),
		beast2.F("manifest", beast2.Null),
		beast2.F("output", beast2.Struct(beast2.F("task", str), beast2.F("entry", str))))
}

func (w *Wire) AppendBeast(b []byte) []byte {
	b = beast2.AppendVarint(b, uint64(w.Kind))
	switch w.Kind {
	case WireInput, WireOutput:
		return beast2.AppendString(beast2.AppendString(b, w.Name), w.Entry)
	case WireManifest:
		return b
	}
	return fanIns.Append(b, &fanIn{w.Items, w.Gather})
}

func (w *Wire) ReadBeast(r *codec.Reader) {
	w.Kind = WireKind(r.Tag(int(WireOutput) + 1))
	switch w.Kind {
	case WireInput, WireOutput:
		w.Name, w.Entry = r.String(), r.String()
	case WireFanIn:
		at := r.Offset()
		var f fanIn
		fanIns.Read(r, &f)
		w.Items, w.Gather = f.Items, f.Gather
		if g := w.Gather; g != nil && r.Err() == nil && len(g.Values) != len(w.Items)*len(g.Names) {
			r.Failf(at, "manifest of %d items has %d values of %d names", len(w.Items), len(g.Values), len(g.Names))
		}
	}
}
