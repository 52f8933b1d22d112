package workspace

import (
	"context"
	"strconv"

	"e3/internal/format/record"
)

// Replaced is a value of a workspace that a package file replaces when the workspace begins to follow it. Where the workspace
// was imported, the value may have been set before the export: its package has set values as defaults.
type Replaced struct {
	Name        string
	Before, Now string // in the notation of e3 set; "" for a long one
}

// replaced finds the values that a package file is about to replace in a workspace that follows another file, or none. It is for
// a message, so what cannot be read is left out.
func (w *Deployer) replaced(ctx context.Context, ws string, s *State, pkg *record.Package) []Replaced {
	old, err := w.states.holdings(ctx, ws, s, pkg)
	if err != nil {
		return nil
	}
	var list []Replaced
	for i := range pkg.Inputs {
		in := &pkg.Inputs[i]
		have, ok := old.inputs.Get(in.Name)
		if !ok || old.set[in.Name] || in.Source.OfMachine() || have.Kind != record.LeafValue || in.Default.Kind != record.LeafValue || have == in.Default {
			continue
		}
		list = append(list, Replaced{in.Name, w.shortText(ctx, have), w.shortText(ctx, in.Default)})
	}
	return list
}

// longestShown is the length of the longest value that a message shows.
const longestShown = 60

// shortText is a scalar value as a person would write it; "" for any other, and for a long one.
func (w *Deployer) shortText(ctx context.Context, leaf record.Leaf) string {
	v, err := w.datasets.valueOf(ctx, leaf)
	if err != nil || v == nil {
		return ""
	}
	text, ok := v.Scalar()
	switch {
	case !ok || len(text) > longestShown:
		return ""
	case text == "":
		return strconv.Quote(text)
	}
	return text
}
