package ui_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/ui"
)

// Metrics, warnings, plots and reports stand beside what failed, in one window.
func TestResultsBesideFailures(t *testing.T) {
	b := newBench(t)
	b.run(true, append(ill(),
		made{name: "eval", state: runview.TaskSuccess, took: time.Second, file: "e.json", output: `{"f1": 0.987654321, "note": "<b>ok</b>"}`, kind: "metrics"},
		made{name: "curve[1]", state: runview.TaskSuccess, took: time.Second, file: "c.svg", output: "<svg/>", kind: "plot"},
		made{name: "curve[2]", state: runview.TaskSuccess, took: time.Second, file: "c.svg", output: "<svg/>", kind: "plot"},
		made{name: "page", state: runview.TaskSuccess, took: time.Second, file: "p.html", output: "<p>x</p>", kind: "report"})...)
	for _, e := range []events.Event{
		{Type: events.TaskMarkedReady, Task: "late", Data: &events.Data{Gathered: &events.Gathered{Members: 4, Missing: 1, Needed: 3, Names: []string{"fit[0]"}}}},
		{Type: events.TaskStarted, Task: "late", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Attempt: 2}},
		{Type: events.TaskCompleted, Task: "late", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Attempt: 2, Duration: 5}},
	} {
		b.tell(e)
	}
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	wantIn(t, page, "What it made", ">0.987654<", "&lt;b&gt;ok&lt;/b&gt;", "plots of curve ×2", "report of page", "view=data",
		"late: 1 of 4 left out: fit[0]", "e3.yaml:3:1: quote &lt;it&gt;", "took more than one attempt: late")
	tab := b.tab()
	tab.Window(1280, 800, false)
	tab.Go(b.front.URL + "/run?w=prod")
	for _, part := range []string{"#failures .log", "section[aria-labelledby=made-h] table", "section[aria-labelledby=warned-h] .warn"} {
		var bottom float64
		tab.Eval(fmt.Sprintf(`document.querySelector(%q).getBoundingClientRect().bottom`, part), &bottom)
		if bottom > 800 || bottom <= 0 {
			t.Errorf("%s ends at %v, not in the window of 800", part, bottom)
		}
	}
	tab.Window(360, 800, false)
	var wide int
	if tab.Eval("document.documentElement.scrollWidth", &wide); wide > 360 {
		t.Errorf("the page is %d wide in a window of 360", wide)
	}
	if said := tab.Said(); len(said) > 0 {
		t.Errorf("%q", said)
	}
}

// Of a large matrix few metrics are shown, and read; the rest is counted.
func TestResultsOfALargeRun(t *testing.T) {
	b := newBench(t)
	var list []made
	for i := range 300 {
		list = append(list, made{name: fmt.Sprintf("fit%d[%d]", i%30, i/30), state: runview.TaskSuccess, file: "m.json", output: fmt.Sprintf(`{"loss": %d}`, i), kind: "metrics"})
	}
	b.run(false, list...)
	b.record(record.Run{RunID: runID, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: now, State: record.RunCompleted})
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	made := page[strings.Index(page, `id="made-h"`):strings.Index(page, `class="views"`)]
	if n := strings.Count(made, ">loss<"); n != 4 {
		t.Errorf("%d tables are shown, want 4", n)
	}
	wantIn(t, made, "the metrics of 284 more tasks")
}

// TestBestResultsFirst: of a matrix the best items stand first and are marked, by a metric whose better side its name
// tells; plots of a family lead to its curves.
func TestBestResultsFirst(t *testing.T) {
	b := newBench(t)
	var list []made
	for i := range 23 {
		list = append(list,
			made{name: fmt.Sprintf("fit[%02d]", i), state: runview.TaskSuccess, file: "m.json", output: fmt.Sprintf(`{"n": %d, "loss": %d, "f1": %d}`, i, (i+15)%23, i%2), kind: "metrics"},
			made{name: fmt.Sprintf("plain[%02d]", i), state: runview.TaskSuccess, file: "m.json", output: fmt.Sprintf(`{"n": %d}`, i), kind: "metrics"},
			made{name: fmt.Sprintf("curve[%02d]", i), state: runview.TaskSuccess, file: "c.csv", output: "step,loss\n0,1\n", kind: "plot"},
			made{name: fmt.Sprintf("other[%02d]", i), state: runview.TaskSuccess, file: "c.csv", output: "step,auc\n0,1\n", kind: "plot"})
	}
	b.run(false, list...)
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	made := page[strings.Index(page, `id="made-h"`):strings.Index(page, `class="views"`)]
	wantIn(t, made, "17 more rows; the best loss first, * the best of its column", "17 more rows; in the order of the list of tasks", `best">0<span class="star"`)
	last := 0
	for _, name := range []string{"fit[08]", "fit[09]", "fit[10]", "fit[11]", "fit[12]", "fit[13]", "plain[00]"} {
		at := strings.Index(made, name)
		if at <= last {
			t.Errorf("%s is not shown behind the better ones", name)
		}
		last = at
	}
	url, _ := link(t, made, `<a href="(/experiments[^"]*)">(plots of curve ×23)`)
	page = b.page(url)
	if n := strings.Count(page, "data-x="); n != 23 || strings.Contains(page, "auc by step") {
		t.Errorf("%d lines, want the 23 of the family", n)
	}
	wantIn(t, page, `<option value="curve" selected>`)
}

// Warnings have a place of their own, also where nothing was made; failures that are allowed are told in the words of commands.
func TestWarningsAndAllowed(t *testing.T) {
	b := newBench(t)
	b.run(false, made{name: "plain", state: runview.TaskSuccess, took: time.Second, file: "p", output: "1"})
	b.record(record.Run{RunID: b.id, WorkspaceName: "prod", PackageRef: "demo@1.0.0", StartedAt: b.began, CompletedAt: b.began.Add(time.Minute),
		State: record.RunCompleted, Summary: record.Summary{Total: 3, Completed: 2, Failed: 1}})
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	wantIn(t, page, "Warnings</h2>", "e3.yaml:3:1: quote &lt;it&gt;")
	if strings.Contains(page, "What it made") {
		t.Error("a run that made nothing to show has a part for it")
	}
	wantIn(t, b.page("/history?w=prod"), "2 executed, 1 allowed to fail")
}
