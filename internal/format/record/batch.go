package record

import (
	"fmt"
	"slices"

	"e3/internal/format/beast2"
)

// Batch belongs to a task whose command serves several items of a matrix at a time. The number of items is policy.
type Batch struct {
	// Own are the names, in key order, of the constants and inputs that belong to the item. All others are the same for
	// every item of the task.
	Own []string `beast2:"*,sorted,max=131072"`
}

// Owns reports whether a constant or an input of this name belongs to the item.
func (b *Batch) Owns(name string) bool {
	_, own := slices.BinarySearchFunc(b.Own, name, beast2.CompareStrings)
	return own
}

// checkBatch refuses an item's names that belong neither to a constant nor to an input.
func (t *Task) checkBatch() error {
	if t.Batch == nil {
		return nil
	}
	known := map[string]bool{}
	for i := range t.Env {
		known[t.Env[i].Name] = true
	}
	for i := range t.Inputs {
		if in := &t.Inputs[i]; !in.Kind.OfMachine() {
			known[in.Name] = true
		}
	}
	for _, name := range t.Batch.Own {
		if !known[name] {
			return fmt.Errorf("an item owns %q, which is neither a constant nor an input", name)
		}
	}
	return nil
}
