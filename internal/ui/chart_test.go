package ui_test

import (
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// TestPlotsAreCharts: a table that a task marks as a plot is drawn, and texts of its file are texts.
func TestPlotsAreCharts(t *testing.T) {
	b := newBench(t)
	b.run(false,
		made{name: "curve", state: runview.TaskSuccess, file: "c.csv", output: "round,<b>error</b>\n1,2\n2,1\n", kind: "plot"},
		made{
			name: "eval", state: runview.TaskSuccess, file: "out/",
			folder: map[string]string{"m.json": `{"loss": NaN}`, "roc.csv": "t,fpr,tpr\n1,0,0\n2,1,1\n", "bad.csv": "a\n1\n", "other": "x"},
			views: []record.View{
				{Path: "m.json"}, {Path: "roc.csv", Kind: record.ViewPlot, Plot: record.Plot{X: "fpr", Y: []string{"tpr"}}},
				{Path: "bad.csv", Kind: record.ViewPlot, Plot: record.Plot{Y: []string{"b"}}},
			},
		},
		made{name: "words", state: runview.TaskSuccess, file: "w.txt", output: "words", kind: "plot"},
	)
	b.serve(ui.Options{})
	page := b.page("/task?w=prod&t=curve&view=data")
	wantIn(t, page, `<svg class="chart"`, "&lt;b&gt;error&lt;/b&gt;")
	page = b.page("/task?w=prod&t=eval&view=data")
	wantIn(t, page, "directory at out/ · metrics · plot", `<svg class="chart"`, "fpr</text>", ">tpr<", "<h4>out/m.json</h4>", ">NaN<", "not drawn: it has no column b")
	wantIn(t, b.page("/task?w=prod&t=eval&view=data&io=out&n=out&path=roc.csv"), `<svg class="chart"`)
	if page = b.page("/task?w=prod&t=words&view=data"); strings.Contains(page, `<svg class="chart"`) {
		t.Error("words are a chart")
	}
}
