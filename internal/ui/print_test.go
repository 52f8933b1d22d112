package ui_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"e3/internal/ui"
)

// On paper the pages of a run and of a comparison, and the report, are light whatever the screen prefers, have no navigation and no forms, and cut
// no table, log or drawing. E3_SHOTS keeps them as PDF.
func TestPagesPrint(t *testing.T) {
	b := newBench(t)
	b.rich(false)
	b.serve(ui.Options{})
	r, err := b.stores.Runs.Report(t.Context(), "prod", "")
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := ui.WriteRun(t.Context(), &page, b.stores, r, ui.Options{Repository: "/srv/e3", Version: "9.9", Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	report := saved(t, page.String())
	tab := b.tab()
	for name, url := range map[string]string{
		"run": b.front.URL + "/run?w=prod", "timeline": b.front.URL + "/run?w=prod&view=timeline", "graph": b.front.URL + "/run?w=prod&view=graph", "compare": b.front.URL + "/compare?w=prod",
		"experiments": b.front.URL + "/experiments?sides=prod@+prod@-1&all=1", "report": "file://" + report,
	} {
		tab.Go(url)
		tab.Print(700)
		var cut []string
		tab.Eval(`[...document.querySelectorAll("main *")].filter(e => e.getClientRects().length && !e.closest(".away, svg *") && (e.getBoundingClientRect().right > innerWidth + 1 || getComputedStyle(e).overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1 && e.matches(".scroll, .log, pre"))).map(e => e.tagName + "." + e.className)`, &cut)
		if len(cut) > 0 {
			t.Errorf("%s: %d parts are cut on paper: %.200q", name, len(cut), cut)
		}
		var shown int
		tab.Eval(`[...document.querySelectorAll("nav.places, nav.tabs, form, main button:not(thead *), .skip, .pause")].filter(e => e.getClientRects().length).length`, &shown)
		var ground, ink string
		tab.Eval("getComputedStyle(document.body).backgroundColor", &ground)
		tab.Eval("getComputedStyle(document.body).color", &ink)
		if shown > 0 || ground != "rgb(255, 255, 255)" || ink != "rgb(31, 35, 40)" {
			t.Errorf("%s: %d parts of no use on paper, text of %s on %s", name, shown, ink, ground)
		}
		if dir := os.Getenv("E3_SHOTS"); dir != "" {
			if err := os.WriteFile(filepath.Join(dir, "print-"+name+".pdf"), tab.PDF(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
