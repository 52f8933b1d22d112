package ui_test

import (
	"strings"
	"testing"

	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// TestPlotsAreCharts: a table that a task marks as a plot is drawn, and texts of its file are texts.
func TestPlotsAreCharts(t *testing.T) {
	b := newBench(t)
	b.run(false,
		made{name: "curve", state: runview.TaskSuccess, file: "c.csv", output: "round,<b>error</b>\n1,2\n2,1\n", kind: "plot"},
		made{name: "words", state: runview.TaskSuccess, file: "w.txt", output: "words", kind: "plot"},
	)
	b.serve(ui.Options{})
	page := b.page("/task?w=prod&t=curve&view=data")
	wantIn(t, page, `<svg class="chart"`, "&lt;b&gt;error&lt;/b&gt;")
	if page = b.page("/task?w=prod&t=words&view=data"); strings.Contains(page, `<svg class="chart"`) {
		t.Error("words are a chart")
	}
}
