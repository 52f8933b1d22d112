package ui_test

import (
	"testing"

	"e3/internal/ui"
)

func BenchmarkRunPage(b *testing.B) {
	d := newBench(b)
	d.large(10_000)
	d.serve(ui.Options{})
	for b.Loop() {
		d.page("/run?w=prod&sort=-duration")
	}
}
