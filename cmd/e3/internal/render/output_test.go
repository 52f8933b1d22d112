package render

import (
	"strings"
	"testing"
)

// A note erases a live line before it is written, and none after that has ended.
func TestNotesAboveLiveLine(t *testing.T) {
	var out strings.Builder
	o := Output{Stderr: &out}
	end := o.Above(func(print func()) {
		out.WriteString("(erased)")
		print()
		out.WriteString("(drawn)")
	})
	o.Notef("during")
	end()
	o.Notef("after")
	if got, want := out.String(), "(erased)during\n(drawn)after\n"; got != want {
		t.Errorf("wrote %q, want %q", got, want)
	}
}
