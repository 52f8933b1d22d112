package ui_test

import (
	"fmt"
	"strings"
	"testing"

	"e3/internal/insight/runview"
	"e3/internal/testing/browser"
)

// TestPlotsOfFamilies: tables that the items of a matrix mark as plots are one chart with a line for each, and their metrics are
// one table with a row for each.
func TestPlotsOfFamilies(t *testing.T) {
	a := newArchive(t)
	curve := func(from int) string {
		text := "round,error\n"
		for i := range 6 {
			text += fmt.Sprintf("%d,%.2f\n", i*20, float64(from)/float64(i+1))
		}
		return text
	}
	for i, fold := range []string{"first", "middle", "<last>"} {
		a.add(part{name: "fit[" + fold + "]", state: runview.TaskSuccess, outputs: []output{
			{"curve", "curve.csv", "plot", curve(i + 3)}, {"scores", "scores.csv", "metrics", fmt.Sprintf("rmse,label\n%d.5,x\n", i)},
		}})
	}
	for i := range 50 {
		a.add(part{name: fmt.Sprintf("day[%02d]", i), state: runview.TaskCached, outputs: []output{{"", "warm.csv", "plot", curve(i + 1)}}})
	}
	a.add(part{name: "mean", state: runview.TaskSuccess, outputs: []output{{"", "mean.csv", "plot", "fold,error,rate\na,1,2\nb,2,1\n"}}})
	a.add(part{name: "odd", state: runview.TaskSuccess, outputs: []output{{"", "odd.txt", "plot", "no table"}}})
	a.store()
	page := a.page()
	if n := strings.Count(page, `<svg class="chart"`); n != 3 {
		t.Errorf("%d charts, want one for each family and one for the task", n)
	}
	for _, want := range []string{
		`aria-label="fit · curve.csv: error by round"`, ">first</text>", ">&lt;last&gt;</text>", "of 50 lines; point at a line", `>rate</text>`, "no table",
		"fit · scores.csv", `<td class="num">1.5</td>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(page, "scores.csv</figcaption>"); n != 1 {
		t.Errorf("the metrics of the matrix are %d tables, want 1", n)
	}
	t.Run("browser", func(t *testing.T) {
		if _, said := opened(browser.Open(t), saved(t, page)); len(said) > 0 {
			t.Errorf("the page's policy blocks a part of it: %q", said)
		}
	})
}

// TestGraphOfFamilies: the items of a matrix are one node of the file's graph where they are many, with its failures.
func TestGraphOfFamilies(t *testing.T) {
	a := newArchive(t)
	for i := range 51 {
		state := runview.TaskSuccess
		if i%25 == 3 {
			state = runview.TaskFailed
		}
		a.add(part{name: fmt.Sprintf("fit[%02d]", i), state: state})
	}
	a.store()
	page := a.page()
	wantIn(t, page, "fit ×51", "2 failed, 49 success", "51 nodes are drawn as 1")
	if strings.Contains(page, `font-size="13" font-family="sans-serif" fill="#1f2328">fit[00]`) {
		t.Error("an item is a node of its own")
	}
}
