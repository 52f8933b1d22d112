package ui_test

import (
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// The page that compares two runs says first what changed. Items that differ alike are one row, and an item without a result has the
// reason beside it; so has the table of experiments.
func TestComparePageFoldsItems(t *testing.T) {
	b := newBench(t)
	for k, id := range []string{"0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", runID} {
		b.id, b.pkg = id, record.Package{Name: "demo", Version: fmt.Sprintf("1.%d.0", k)}
		var list []made
		for i := range 60 {
			m := made{name: fmt.Sprintf("train[seed=%d]", i), state: runview.TaskSuccess, file: "m.json", kind: "metrics", output: fmt.Sprintf(`{"loss": %g, "n": %d}`, 0.5-0.1*float64(k), i)}
			if k == 1 && i%20 == 5 {
				m.state, m.output = runview.TaskFailed, ""
			}
			list = append(list, m)
		}
		b.run(false, list...)
	}
	b.serve(ui.Options{})
	page := b.page("/compare?w=prod&a=prod@-1&b=@")
	wantIn(t, page, "What changed", "Metric train loss: -20.0% in 57 items", "Task train, 3 items: was success, is failed (exit code 3)", "train, 57 items", `<span class="dim">exit code 3</span>`)
	if n := strings.Count(page, "<tr"); n > 24 {
		t.Errorf("the page has %d rows for 60 items that differ in two ways", n)
	}
	wantIn(t, b.page("/compare?w=prod&a=0194fdc1-fa2f-7cc0&b=0194fdc2-fa2f-7cc0"), "Metric train loss: -20.0% in 57 items", "A: prod@0194fdc1-fa2f-7cc0")
	wantIn(t, b.page("/experiments?sides=prod@"), "Without metrics: prod@ seed=5, prod@ seed=25, prod@ seed=45 (train: failed: exit code 3)")
}

// TestComparedDirectoriesAreFolded: the items of a family whose same files differ are one row, with each file once, in the words of
// the terminal.
func TestComparedDirectoriesAreFolded(t *testing.T) {
	b := newBench(t)
	for k, id := range []string{"0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", runID} {
		b.id, b.pkg = id, record.Package{Name: "demo", Version: fmt.Sprintf("1.%d.0", k)}
		var list []made
		for i := range 12 {
			list = append(list, made{name: fmt.Sprintf("fit[%d]", i), state: runview.TaskSuccess, file: "out/", folder: map[string]string{"same.txt": "x", "model.bin": strings.Repeat("m", 2000+500*k)}})
		}
		b.run(false, list...)
	}
	b.serve(ui.Options{})
	page := b.page("/compare?w=prod&a=prod@-1&b=@")
	outputs := page[strings.Index(page, `id="outputs-h"`):]
	outputs = outputs[:strings.Index(outputs, "</section>")]
	wantIn(t, outputs, "fit, 12 items", "1 changed, +500 B", "model.bin", "2.0 KiB → 2.4 KiB")
	if n := strings.Count(outputs, "<tr"); n != 3 {
		t.Errorf("%d rows, want the head, the family and its file", n)
	}
}

// TestComparedScriptsShowTheirLines: of a script that has changed the page shows the lines that differ.
func TestComparedScriptsShowTheirLines(t *testing.T) {
	b := newBench(t)
	for k, id := range []string{"0194fdc1-fa2f-7cc0-81d3-ff12045b73c8", runID} {
		b.id, b.pkg = id, record.Package{Name: "demo", Version: fmt.Sprintf("1.%d.0", k)}
		b.run(false, made{name: "fit", state: runview.TaskSuccess, file: "f", output: "x", script: fmt.Sprintf("set -e\nfit <a> -n %d\ntrue\n", k)})
	}
	b.serve(ui.Options{})
	wantIn(t, b.page("/compare?w=prod&a=prod@-1&b=@"), "<pre>@@ -1,3 +1,3 @@\n set -e\n-fit &lt;a&gt; -n 0\n+fit &lt;a&gt; -n 1\n true</pre>")
}
